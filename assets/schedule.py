"""The schedule: when a window closes, run it, and with it whatever closed since the last success."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import dagster as dg

from assets.names import identifier, table_key
from assets.partitions import Stretch, closed, cron_of, stretches
from ingest.model import instant
from ingest.spec import PipelineSpec

CATCH_UP = 48
"""How many of the newest closed windows a tick looks at; what is older is for a backfill that a person starts."""

GOING = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

REFUSED_TAG = "windrow/refused"
"""The run tag that names a refused window. A person decides about that one, so the schedule leaves it alone and goes on with the others."""


def job_name(spec: PipelineSpec) -> str:
    """The job's name."""
    return f"{identifier(spec.id)}_windows"


def job_of(spec: PipelineSpec, table: dg.AssetsDefinition) -> dg.UnresolvedAssetJobDefinition:
    """The job that the schedule starts: the table and its checks."""
    return dg.define_asset_job(job_name(spec), selection=[table], description=f"Windows of {spec.id}")


def schedule_of(spec: PipelineSpec, job: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Ticks at each window's end + delay and asks for every closed window that is neither there nor refused; one run per stretch."""

    @dg.schedule(name=f"{identifier(spec.id)}_closed", cron_schedule=cron_of(spec.window), execution_timezone="UTC", job=job)
    def closed_windows(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        if _running(context.instance, job.name):
            return dg.SkipReason("The run before is still going; the next tick asks for what it leaves.")
        at = context.scheduled_execution_time
        left = _open(context.instance, spec, closed(spec.window, at, CATCH_UP))
        return [_request(s, at) for s in stretches(spec.window, left)] or dg.SkipReason("No closed window is waiting.")

    return closed_windows


def range_tags(stretch: Stretch) -> dict[str, str]:
    """The tags that make one run cover a stretch of partitions."""
    return {"dagster/asset_partition_range_start": stretch.first, "dagster/asset_partition_range_end": stretch.last}


def _request(stretch: Stretch, at: datetime) -> dg.RunRequest:
    """The tick is part of the key: what failed at one tick is asked for again at the next."""
    return dg.RunRequest(run_key=f"{instant(at)} {stretch.first}", tags=range_tags(stretch))


def _running(instance: dg.DagsterInstance, job: str) -> bool:
    going = dg.RunsFilter(job_name=job, statuses=GOING)
    return bool(instance.get_run_records(going, limit=1))


def _open(instance: dg.DagsterInstance, spec: PipelineSpec, keys: Sequence[str]) -> list[str]:
    """The keys that are neither materialized nor refused."""
    done = instance.get_materialized_partitions(table_key(spec))
    left = [key for key in keys if key not in done]
    refused = _refused(instance, spec, left)
    return [key for key in left if key not in refused]


def refused_tag(spec: PipelineSpec, key: str) -> dict[str, str]:
    """What a run is tagged with when a window is refused."""
    return {REFUSED_TAG: f"{spec.id}/{key}"}


def _refused(instance: dg.DagsterInstance, spec: PipelineSpec, keys: Iterable[str]) -> set[str]:
    by_tag = {refused_tag(spec, key)[REFUSED_TAG]: key for key in keys}
    if not by_tag:
        return set()
    runs = instance.get_run_records(dg.RunsFilter(tags={REFUSED_TAG: list(by_tag)}))
    return {by_tag[r.dagster_run.tags[REFUSED_TAG]] for r in runs}
