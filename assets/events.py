"""The events of a run: one materialization per window, made as soon as the window is committed.

Dagster makes its own when a step ends: one per partition of the run, at once. A process that dies in the tenth window would then leave none
of the nine green; and where each window has made its own before, there would be two of each. So the step's result says that its events were
made already.
"""

from __future__ import annotations

from collections.abc import Mapping

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

from assets.metadata import Value
from assets.names import upstream_keys
from ingest.model.receipt import Receipt
from ingest.spec.pipeline import PipelineSpec


def made_already() -> dg.MaterializeResult[None]:
    """The result of a step whose events were made one by one: what comes after it goes on, and no event is made.

    That is how Dagster itself marks the steps of observable sources, which log their own events.
    """
    return dg.MaterializeResult(metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


def upstream_versions(context: dg.AssetExecutionContext, spec: PipelineSpec) -> dict[str, str]:
    """The tags that say which topics a table was read from, as they were observed last: one question per topic, once a run."""
    found: dict[str, str] = {CODE_VERSION_TAG: context.run.run_id}
    for key in upstream_keys(spec):
        records = context.instance.fetch_observations(key, limit=1).records
        observation = records[0].asset_observation if records else None
        version = None if observation is None else observation.data_version
        found[get_input_data_version_tag(key)] = version or DEFAULT_DATA_VERSION.value
        found[get_input_event_pointer_tag(key)] = str(records[0].storage_id) if records else NULL_EVENT_POINTER
    return found


def show(
    context: dg.AssetExecutionContext, receipt: Receipt, metadata: Mapping[str, Value], upstream: Mapping[str, str], key: str | None = None
) -> None:
    """Log a window's one event; `key`: its partition.

    Its data version is the attempt that counts: a window that is only reported again stays the same for all that stands downstream.
    """
    tags = {**upstream, DATA_VERSION_TAG: receipt.attempt, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}
    context.log_event(dg.AssetMaterialization(context.asset_key, partition=key, metadata=metadata, tags=tags))
