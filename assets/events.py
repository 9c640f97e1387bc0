"""The events of a run: one materialization per window, made as soon as the window is committed.

Dagster makes its own when a step ends: one per partition of the run, at once. A process
that dies in the tenth window would then leave none of the nine green; and where each
window has made its own before, there would be two of each. So the step's result says
that its events were made already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import dagster as dg

# Not among the public names; dagster is pinned to 1.13.
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from windrow.assets.metadata import Value
from windrow.assets.names import upstream_keys
from windrow.assets.topic import versions
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError, with_spec
from windrow.ingest.model.receipt import Receipt

REFUSED = "refused"
"""The entry of an observation that says that a window was refused, and why.

A person decides about it: the schedule leaves it alone.
"""


def made_already() -> dg.MaterializeResult[None]:
    """The result of a step whose events were made one by one: what comes after it goes
    on, and no event is made.

    That is how Dagster itself marks the steps of observable sources, which log their own events.
    """
    return dg.MaterializeResult(metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


Observed: TypeAlias = dict[dg.AssetKey, tuple[str, str]]
"""Of each topic asset that was ever observed: its data version, and the event that said so."""


def last_observed(context: dg.AssetExecutionContext, spec: PipelineSpec) -> Observed:
    """The topics as they were observed last: one question per topic, once a run."""
    found: Observed = {}
    for key in upstream_keys(spec):
        for record in context.instance.fetch_observations(key, limit=1).records:
            observation = record.asset_observation
            version = None if observation is None else observation.data_version
            found[key] = version or DEFAULT_DATA_VERSION.value, str(record.storage_id)
    return found


def show(
    context: dg.AssetExecutionContext,
    spec: PipelineSpec,
    receipt: Receipt,
    metadata: Mapping[str, Value],
    observed: Observed,
    key: str | None = None,
) -> None:
    """Log a window's one event; `key`: its partition.

    Its data version is the attempt that counts: a window that is only reported again
    stays the same for all that stands downstream. What it was read from is what its
    plan says. A topic that nobody has observed yet is observed by this: else Dagster
    would take it for another one at its first observation, and show all windows before
    as stale.
    """
    tags = {CODE_VERSION_TAG: context.run.run_id, **_version(receipt.attempt)}
    read = versions(spec, receipt.plan.stop)
    for topic in upstream_keys(spec):
        if topic in read and topic not in observed:
            context.log_event(
                dg.AssetObservation(
                    topic,
                    tags=_version(read[topic]),
                    metadata={"cluster_id": receipt.plan.stop.cluster_id},
                )
            )
            observed[topic] = read[topic], NULL_EVENT_POINTER
        seen, event = observed.get(topic, (DEFAULT_DATA_VERSION.value, NULL_EVENT_POINTER))
        tags[get_input_data_version_tag(topic)] = read.get(topic, seen)
        tags[get_input_event_pointer_tag(topic)] = event
    context.log_event(
        dg.AssetMaterialization(context.asset_key, partition=key, metadata=metadata, tags=tags)
    )


def _version(version: str) -> dict[str, str]:
    return {DATA_VERSION_TAG: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}


def show_refused(
    context: dg.AssetExecutionContext, spec: PipelineSpec, key: str, error: RefusedError
) -> None:
    """Log that a window was refused for its data.

    In a run over a range Dagster shows such a partition as missing, not as failed.
    """
    error.do = with_spec(error.do, spec.spec_file)
    context.log.error("Window %s: %s", key, error)
    metadata = {REFUSED: error.what, "do": error.do, "kind": type(error).__name__}
    context.log_event(
        dg.AssetObservation(
            context.asset_key, partition=key, description=f"Refused: {error}", metadata=metadata
        )
    )
