"""The arguments of a pipeline's assets: those that its spec's section `dagster` sets, and `deps`.

Between a looked-up table's asset and the pipeline's stands one that nobody makes. An edge from
one to the other would turn each window stale that was made before the looked-up table was made
again, although it is pinned to the version that it asked; and conditions such as `eager` would
ask for the newest window. The asset between has an empty set of partitions, of which the table's
partitions need all: so none is missing, changes, or is awaited.
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
"""Dagster's names of kinds of tables, by which it has icons, where they are not ours."""


class SharedAttributes(TypedDict):
    """Arguments of both assets, the table's and its dead letters'."""

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
    """The arguments of the table's asset.

    Raises:
        SpecError: no cron expression says when windows are closed, which a condition needs.
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
    """The arguments of the asset of the dead letters, which the table's has, too."""
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
    """Asks for the newest window at each tick of a cron expression, if it isn't there.

    Dagster's own `eager` would ask when a window ends, which is `window.delay` too early.
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
    condition: Any = dg.AutomationCondition  # whose parts are typed for assets or checks
    automation_condition: dg.AutomationCondition[Any] = (
        condition.in_latest_time_window()
        & reduce(or_, map(condition.cron_tick_passed, crons)).since_last_handled()
        & condition.missing()
        & ~condition.in_progress()
    )
    return automation_condition


def assets_of_lookups(spec: PipelineSpec) -> dict[str, dg.AssetKey]:
    """The assets that `from.asset` names, by the names of the lookups."""
    return {
        step.lookup: dg.AssetKey.from_user_string(step.from_.asset)
        for step in (() if spec.transform is None else spec.transform.steps)
        if isinstance(step, LookupStepSection) and step.from_.asset is not None
    }


def lookup_specs_of(spec: PipelineSpec) -> list[dg.AssetSpec]:
    """The asset between, for each lookup whose `from.asset` names one."""
    return [
        dg.AssetSpec(
            dg.AssetKey(["lookup", f"{lookup}-of-{spec.id}"]),
            deps=[asset],
            group_name=spec.dagster.group_name,
            partitions_def=dg.StaticPartitionsDefinition([]),
            description=(
                f"What the lookup `{lookup}` of `{spec.id}` takes. Each window is pinned to a"
                " version, so nothing waits for this, and nothing turns stale by it. It has 0"
                " partitions, because nobody makes it: it only shows the edge."
            ),
        )
        for lookup, asset in assets_of_lookups(spec).items()
    ]


def dependencies(spec: PipelineSpec) -> list[dg.AssetKey | dg.AssetDep]:
    """What a pipeline's table depends on: its topics, and what its lookups look up in."""
    all_partitions = dg.AllPartitionMapping()
    return [
        *upstream_keys(spec),
        *(
            dg.AssetDep(asset.key, partition_mapping=all_partitions)
            for asset in lookup_specs_of(spec)
        ),
    ]
