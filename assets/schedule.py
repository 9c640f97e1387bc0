"""The schedules of windows in time, of micro-batches, and of observing the topics.

When a window closes, its schedule requests it together with all windows that were missed
before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, TypeAlias

import dagster as dg

from windrow.assets.dagster_internals import range_tags, share_instance
from windrow.assets.dependencies import keys_of, ledger_of, pipeline_of
from windrow.assets.names import identifier, ledger_key, table_key, topics_name
from windrow.assets.partitions import crons_of, key_ranges, partition_key, windows_of
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import MicroBatches, in_time
from windrow.ingest.errors import PausedError, WindrowError, format_count, join_first_few, with_spec
from windrow.ingest.model.boundary import instant, label_text
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.plan import Window
from windrow.ingest.model.source import Initializer
from windrow.ingest.runner.due import OLDER, closed_windows, due, refused_windows
from windrow.ingest.runner.frozen_stop import DONE
from windrow.ingest.runner.micro_batches import number_cut, preview_next
from windrow.ingest.runner.ownership import refuse_paused

OBSERVED = "*/15 * * * *"
"""The cron expression of the schedules that observe topics."""

GOING = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

REFUSED_TAG = "windrow/refused"
"""The tag of a run whose micro-batch was refused, with the batch's partition, if it has one.

A refused micro-batch blocks all later ones. So the schedule starts no more runs until a
person has run it. Refused windows in time are recorded in the ledger instead
(`ingest.runner.due`).
"""

DONE_TAG = "windrow/done"
"""The tag of a run that reached `window.stop`. Its value is a digest of `window.stop`.

The schedule starts no more runs until the spec has another `window.stop`.
"""

START_TAG, END_TAG = "windrow/start", "windrow/end"
"""The tags of a run with the start and the end of its windows."""

LEFT_TAG = "windrow/left"
"""The tag of a run with the sentence about older windows that it leaves out (`remaining_words`)."""

BATCH_REFUSED = (
    "The newest run refused a micro-batch, which blocks all later ones. See why, fix it and start a"
    " run of this job by hand, or of the batch's partition; then the schedule goes on."
)
BATCHES_DONE = f"{DONE} The schedule goes on when the spec has another window.stop, or none."
NOTHING_WAITS = (
    "Nothing is waiting, or fewer messages than window.min_records, and none of them is older than"
    " window.max_delay."
)
STILL_GOING = "The previous run is still going; the next tick requests what it leaves."

Requested: TypeAlias = dg.RunRequest | list[dg.RunRequest] | dg.SkipReason
"""The runs that a tick requests, or why it requests none."""


def schedule_of(spec: PipelineSpec, job: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Returns the pipeline's schedule."""
    if isinstance(spec.window, MicroBatches):
        return _batch_schedule(spec, spec.window, job)
    return _window_schedule(spec, job)


def _window_schedule(
    spec: PipelineSpec, job: dg.UnresolvedAssetJobDefinition
) -> dg.ScheduleDefinition:
    """Returns the schedule that ticks at each window's end + delay.

    A tick requests one run per range of closed windows that are neither committed nor
    refused.
    """
    window = in_time(spec.window)

    def request_windows(context: dg.ScheduleEvaluationContext) -> Requested:
        paused = paused_words(spec, context.resources)
        if paused:
            return dg.SkipReason(paused)
        if _is_running(context.instance, job.name):
            return dg.SkipReason(STILL_GOING)
        moment = context.scheduled_execution_time
        older, keys = (
            {closed: partition_key(spec, closed) for closed in windows}
            for windows in closed_windows(spec, moment)
        )
        shown_keys = context.instance.get_materialized_partitions(table_key(spec))
        remaining_text = remaining_words(
            len({*older.values()} - shown_keys), next(iter(keys.values()), "")
        )
        if remaining_text:
            context.log.warning("%s", remaining_text)
        waiting, refused = _due(spec, context.resources, keys, shown_keys)
        if refused:
            context.log.warning("%s", refused)
        return [
            _request(spec, s, moment, remaining_text) for s in key_ranges(window, waiting)
        ] or dg.SkipReason(
            " ".join(filter(None, (refused or "No closed window is waiting.", remaining_text)))
        )

    name = f"{identifier(spec.id)}_closed"
    return make_schedule(name, crons_of(window), job, request_windows, {ledger_key(spec)})


def _batch_schedule(
    spec: PipelineSpec, batches: MicroBatches, job: dg.UnresolvedAssetJobDefinition
) -> dg.ScheduleDefinition:
    """Returns the schedule that ticks at `window.every`.

    If messages are waiting, a tick requests a run, which commits them all.
    """

    def request_batches(context: dg.ScheduleEvaluationContext) -> Requested:
        paused = paused_words(spec, context.resources)
        if paused:
            return dg.SkipReason(paused)
        if _is_running(context.instance, job.name):
            return dg.SkipReason(STILL_GOING)
        tags = _newest_tags(context.instance, job.name)
        if REFUSED_TAG in tags and not _is_green(context.instance, spec, tags[REFUSED_TAG]):
            return dg.SkipReason(BATCH_REFUSED)
        if spec.stop is not None and done_tag(spec.stop).items() <= tags.items():
            return dg.SkipReason(BATCHES_DONE)
        if not _is_waiting(context, spec):
            return dg.SkipReason(NOTHING_WAITS)
        return dg.RunRequest(run_key=instant(context.scheduled_execution_time))

    name = f"{identifier(spec.id)}_waiting"
    return make_schedule(name, [batches.every], job, request_batches, keys_of(spec))


def topics_schedule_of(
    spec: PipelineSpec, job: dg.UnresolvedAssetJobDefinition
) -> dg.ScheduleDefinition:
    """Returns the schedule that observes the topics, so that the UI shows recent offsets."""

    def request_observation(context: dg.ScheduleEvaluationContext) -> Requested:
        if _is_running(context.instance, job.name):
            return dg.SkipReason("The previous observation is still going.")
        return dg.RunRequest(run_key=instant(context.scheduled_execution_time))

    return make_schedule(topics_name(spec), [OBSERVED], job, request_observation, set())


def make_schedule(
    name: str,
    crons: Sequence[str],
    job: dg.JobDefinition | dg.UnresolvedAssetJobDefinition,
    evaluate: Callable[[dg.ScheduleEvaluationContext], Requested],
    resource_keys: set[str],
) -> dg.ScheduleDefinition:
    """Returns a schedule whose ticks share an instance of Dagster.

    `dg.schedule` would open the resources, and the instance with them, before `evaluate`.

    Args:
        name: the name of the schedule.
        crons: the cron expressions, in UTC.
        job: the job that is requested.
        evaluate: returns what a tick requests.
        resource_keys: the resources that `evaluate` needs.
    """

    def tick(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        share_instance(context)
        requested = evaluate(context)
        yield from requested if isinstance(requested, list) else [requested]

    return dg.ScheduleDefinition(
        name=name,
        cron_schedule=crons[0] if len(crons) == 1 else crons,
        execution_timezone="UTC",
        job=job,
        execution_fn=tick,
        required_resource_keys=resource_keys,
    )


def paused_words(spec: PipelineSpec, resources: Any) -> str:
    """Returns a tick's sentence about a paused pipeline; empty if it isn't paused.

    It is also empty if the ledger can't be read. The run asks the ledger again, and is
    retried.
    """
    try:
        refuse_paused(ledger_of(spec, resources), spec.id)
    except PausedError as error:
        return with_spec(str(error), spec.spec_path)
    except WindrowError:
        return ""
    return ""


def _is_waiting(context: dg.ScheduleEvaluationContext, spec: PipelineSpec) -> bool:
    """Returns whether a run would commit or report a micro-batch; True if that can't be found out.

    A run reports micro-batches that are committed without an event. The run of such a batch
    was killed, or wasn't a run of Dagster.
    """
    try:
        pipeline = pipeline_of(spec, context.resources)
        if preview_next(pipeline) is not None:
            return True
        newest = number_cut(pipeline) - 1
    except WindrowError:
        return True
    shown_keys = context.instance.get_materialized_partitions(table_key(spec))
    return newest >= 0 and label_text(newest) not in shown_keys


def remaining_words(count: int, oldest: str) -> str:
    """Returns a tick's sentence about the older windows that it doesn't request; empty if none."""
    if not count:
        return ""
    which = f"{format_count(count, 'window')} before {oldest}"
    which = f"At least {which}" if count == OLDER else which
    return (
        f"{which} not materialized. The schedule doesn't catch up with windows that are so old:"
        " start a backfill of the missing partitions."
    )


def hours_tags(first: Window, last: Window) -> dict[str, str]:
    """Returns the tags with the hours of a run, for people. Dagster hides its own tags."""
    return {START_TAG: label_text(first.start), END_TAG: label_text(last.end)}


def _request(
    spec: PipelineSpec, keys: dg.PartitionKeyRange, moment: datetime, remaining_text: str
) -> dg.RunRequest:
    """Requests a run for a range of windows.

    The tick is part of the run key, so that the next tick can request a failed range again.
    """
    (_, first), *_, (_, last) = windows_of(spec, [keys.start, keys.end])
    tags = (
        range_tags(keys)
        | hours_tags(first, last)
        | ({LEFT_TAG: remaining_text} if remaining_text else {})
    )
    return dg.RunRequest(run_key=f"{instant(moment)} {keys.start}", tags=tags)


def _is_running(instance: dg.DagsterInstance, job: str) -> bool:
    active_filter = dg.RunsFilter(job_name=job, statuses=GOING)
    return bool(instance.get_run_records(active_filter, limit=1))


def _due(
    spec: PipelineSpec, resources: Any, keys: Mapping[Window, str], shown_keys: Collection[str]
) -> tuple[list[str], str]:
    """Returns the keys of the windows that are due, and a sentence about refused windows.

    A committed window that Dagster doesn't show is due: its run reports it.
    """
    try:
        refused = refused_windows(ledger_of(spec, resources), spec)
    except WindrowError:  # the run asks the ledger again, and is retried
        refused = set()
    committed = {window for window, key in keys.items() if key in shown_keys}
    due_windows, undecided = due(spec, [*keys], committed, refused)
    waiting = [keys[window] for window in due_windows]
    if not undecided:
        return waiting, ""
    words = (
        f"A person decides about what was refused: {join_first_few([keys[w] for w in undecided])}."
    )
    if spec.in_order:
        later = sum(window > undecided[0] for window in {*keys} - committed)
        later_windows = format_count(later, "later window")
        words += f" Behind the first one, {later_windows} can only follow in order."
    return waiting, words


def refused_tag(spec: PipelineSpec, batch: Window | None) -> dict[str, str]:
    """Returns the tag for a run that was refused.

    Args:
        spec: the pipeline.
        batch: the refused micro-batch; None if it wasn't cut.
    """
    return {REFUSED_TAG: f"{spec.id}/batch" if batch is None else batch.key}


def _is_green(instance: dg.DagsterInstance, spec: PipelineSpec, key: str) -> bool:
    records_filter = dg.AssetRecordsFilter(table_key(spec), asset_partitions=[key])
    return bool(instance.fetch_materializations(records_filter, limit=1).records)


def done_tag(stop: Initializer) -> dict[str, str]:
    """Returns the tag for a run after which all micro-batches up to `window.stop` are committed."""
    return {DONE_TAG: sha256(to_json(stop).encode()).hexdigest()}


def _newest_tags(instance: dg.DagsterInstance, job: str) -> Mapping[str, str]:
    """Returns the tags of the job's newest run."""
    newest = instance.get_run_records(dg.RunsFilter(job_name=job), limit=1)
    return newest[0].dagster_run.tags if newest else {}
