"""The arguments of a pipeline's assets: those of the spec's section `dagster`, and `deps`.

A placeholder asset without partitions stands between a looked-up table's asset and the
pipeline's table. A direct edge would have two effects:

- Each run of the looked-up table would make older windows stale, although each window is
  pinned to a version of it.
- Conditions such as `eager` would request the newest window again.

The pipeline's table depends on all partitions of the placeholder. The placeholder has no
partitions, so none can be missing or change, and no condition waits for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, TypedDict

import dagster as dg

from windrow.assets.names import table_key, upstream_keys
from windrow.assets.partitions import OFTEN, crons_of
from windrow.ingest.config.dagster import EAGER, FreshnessSpec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import SpecError
from windrow.ingest.transform.lookup.kind import LookupStepSection

_KINDS = {"delta": "deltalake"}
"""Dagster's names for kinds of tables, if they differ from windrow's. Dagster has icons by them."""


class SharedAttributes(TypedDict):
    """Arguments that the assets of the table and of its dead letters have in common."""

    group_name: str | None
    owners: Sequence[str]
    tags: Mapping[str, str]


class TableAttributes(SharedAttributes):
    """Arguments of the table's asset."""

    key: dg.AssetKey
    kinds: set[str]
    pool: str | None
    backfill_policy: dg.BackfillPolicy
    freshness_policy: dg.FreshnessPolicy | None
    automation_condition: dg.AutomationCondition[Any] | None


def table_attributes(spec: PipelineSpec) -> TableAttributes:
    """Returns the arguments of the table's asset.

    Raises:
        SpecError: the automation condition needs a cron expression for the times at which
            windows close, and there is none.
    """
    max_partitions = spec.dagster.max_partitions_per_run
    return {
        **shared_attributes(spec),
        "key": table_key(spec),
        "kinds": set(
            spec.dagster.kinds or ("kafka", "spark", _KINDS.get(spec.sink.kind, spec.sink.kind))
        ),
        "pool": spec.dagster.pool,
        "backfill_policy": (
            dg.BackfillPolicy.single_run()
            if max_partitions is None
            else dg.BackfillPolicy.multi_run(max_partitions)
        ),
        "freshness_policy": _freshness(spec.dagster.freshness_policy),
        "automation_condition": _condition(spec),
    }


def shared_attributes(spec: PipelineSpec) -> SharedAttributes:
    """Returns the arguments that the table's asset and the dead letters' asset have in common."""
    return {
        "group_name": spec.dagster.group_name,
        "owners": spec.dagster.owners,
        "tags": spec.dagster.tags,
    }


def _freshness(freshness_policy: FreshnessSpec | None) -> dg.FreshnessPolicy | None:
    if freshness_policy is None:
        return None
    if freshness_policy.fail_window is not None:
        return dg.FreshnessPolicy.time_window(
            freshness_policy.fail_window, freshness_policy.warn_window
        )
    cron, lower_bound_delta = freshness_policy.deadline_cron, freshness_policy.lower_bound_delta
    assert cron is not None, "FreshnessSpec refuses a policy that says neither"
    assert lower_bound_delta is not None, "FreshnessSpec refuses a deadline without it"
    return dg.FreshnessPolicy.cron(cron, lower_bound_delta)


def _condition(spec: PipelineSpec) -> dg.AutomationCondition[Any] | None:
    """Returns the condition that requests the newest window at each tick of a cron expression.

    It requests the window only if it is missing. Dagster's own `eager` would request it
    when the window ends, which is `window.delay` too early.
    """
    requested_condition = spec.dagster.automation_condition
    if requested_condition is None:
        return None
    crons = (
        crons_of(in_time(spec.window)) if requested_condition == EAGER else [requested_condition]
    )
    if crons == [OFTEN] and requested_condition == EAGER:
        raise SpecError(
            "No cron expression says when the windows of this grid and delay are closed, so no"
            " automation condition can",
            "spec",
            "Leave dagster.automation_condition out, and switch the schedule on.",
        )
    condition: Any = dg.AutomationCondition  # its methods are typed for assets or checks
    automation_condition: dg.AutomationCondition[Any] = (
        condition.in_latest_time_window()
        & reduce(or_, map(condition.cron_tick_passed, crons)).since_last_handled()
        & condition.missing()
        & ~condition.in_progress()
    )
    return automation_condition


def assets_of_lookups(spec: PipelineSpec) -> dict[str, dg.AssetKey]:
    """Returns the assets in `from.asset`, by the names of the lookups."""
    return {
        step.lookup: dg.AssetKey.from_user_string(step.from_.asset)
        for step in (() if spec.transform is None else spec.transform.steps)
        if isinstance(step, LookupStepSection) and step.from_.asset is not None
    }


def lookup_specs_of(spec: PipelineSpec) -> list[dg.AssetSpec]:
    """Returns the placeholder asset of each lookup that has `from.asset`."""
    return [
        dg.AssetSpec(
            dg.AssetKey(["lookup", f"{lookup}-of-{spec.id}"]),
            deps=[asset],
            group_name=spec.dagster.group_name,
            partitions_def=dg.StaticPartitionsDefinition([]),
            description=(
                f"What the lookup `{lookup}` of `{spec.id}` takes. Each window is pinned to a"
                " version, so nothing waits for this, and nothing turns stale by it. It has 0"
                " partitions, because no run makes it: it only shows the edge."
            ),
        )
        for lookup, asset in assets_of_lookups(spec).items()
    ]


def dependencies(spec: PipelineSpec) -> list[dg.AssetKey | dg.AssetDep]:
    """Returns the assets that a pipeline's table depends on: its topics and its lookups' assets."""
    all_partitions = dg.AllPartitionMapping()
    return [
        *upstream_keys(spec),
        *(
            dg.AssetDep(asset.key, partition_mapping=all_partitions)
            for asset in lookup_specs_of(spec)
        ),
    ]
