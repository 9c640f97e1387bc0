"""Completeness of windows in Dagster: a check, and a sensor for downstream work.

A table's partition is green as soon as its window is committed. Downstream work that sums
up an hour needs the complete hour. `when_complete` makes a sensor that requests a run of a
partition once its window is `complete`. It requests the run again whenever the window's
generation or state changes, such as after a replacement or a late message.
"""

# No postponed annotations here: Dagster reads the annotations of the decorated function.

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import dagster as dg

from windrow.assets.dependencies import keys_of, pipeline_of
from windrow.assets.metadata import Value, watermark_metadata
from windrow.assets.names import identifier
from windrow.assets.partitions import key_of, partitions_in_time
from windrow.assets.reporting import NEWEST
from windrow.assets.schedule import paused_words
from windrow.ingest.admin.completeness import completeness_of, describe_holding, refuse_batches
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import TimeWindows, in_time
from windrow.ingest.errors import SpecError, WindrowError, format_count, join_first_few
from windrow.ingest.model.grid import label_after
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.source.enumerator.completeness import Completeness

LOOK_BACK = 500
"""The number of newest windows that a tick checks."""

AT_ONCE = 50
"""The maximum number of runs that a tick requests, the oldest windows first.

The next tick requests the others.
"""

Target: TypeAlias = (
    "str | dg.AssetsDefinition | dg.AssetSelection | dg.JobDefinition |"
    " dg.UnresolvedAssetJobDefinition | list[dg.AssetsDefinition]"
)
"""Assets or a job, with the table's partitions (`partitions_of(spec)`).

The partitions of names, selections, and jobs of selections are known to Dagster only later.
"""

Verdict: TypeAlias = tuple[bool, str, Mapping[str, Value]]
"""The result of a check: whether it passed; the reason and the advice; metadata."""

_MANY = 20


def when_complete(
    spec: PipelineSpec, target: Target, name: str | None = None, every_seconds: int = 60
) -> dg.SensorDefinition:
    """Makes a sensor that runs `target` for each partition whose window is complete.

    The cursor has the requests of earlier ticks. After a reset of the cursor, run keys
    prevent second runs: a run key has the window, generation and state.

    Args:
        spec: the upstream pipeline, which must have windows in time.
        target: the assets or the job to run.
        name: the sensor's name; by default it is made of the pipeline's id.
        every_seconds: the minimum time between two ticks.

    Raises:
        SpecError: the pipeline has micro-batches, which have no hours to be complete; or
            `target` has no partitions, or others than the table.

    Example:
        import dagster as dg
        from windrow import load_spec
        from windrow.dagster import kafka_table, partitions_of, table_key, when_complete

        spec = load_spec("payments/defs.yaml")

        @dg.asset(deps=[table_key(spec)], partitions_def=partitions_of(spec))
        def sales() -> None: ...

        sensor = when_complete(spec, [sales])
        defs = dg.Definitions.merge(kafka_table(spec), dg.Definitions([sales], sensors=[sensor]))
    """
    refuse_batches(spec)
    for asset_or_job in target if isinstance(target, list) else [target]:
        if isinstance(asset_or_job, dg.AssetsDefinition | dg.JobDefinition):
            _refuse_other_partitions(spec, asset_or_job)

    @dg.sensor(
        name=name or f"{identifier(spec.id)}_complete",
        target=target,
        minimum_interval_seconds=every_seconds,
        required_resource_keys=keys_of(spec),
    )
    def complete(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        paused = paused_words(spec, context.resources)
        if paused:
            return dg.SkipReason(paused)
        try:
            states, waits = _states_of(pipeline_of(spec, context.resources))
        except WindrowError as error:
            return dg.SkipReason(f"It is unknown which windows are complete: {error}")
        requested_states: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
        new = [key for key, state in states.items() if requested_states.get(key) != state][:AT_ONCE]
        if not new:
            return dg.SkipReason(f"No window has become complete. {waits}".rstrip())
        requests = [dg.RunRequest(run_key=f"{key} {states[key]}", partition_key=key) for key in new]
        kept_states = {key: requested_states[key] for key in states if key in requested_states}
        cursor = json.dumps(kept_states | {key: states[key] for key in new})
        return dg.SensorResult(run_requests=requests, cursor=cursor)

    return complete


def _refuse_other_partitions(
    spec: PipelineSpec, target: dg.AssetsDefinition | dg.JobDefinition
) -> None:
    """Refuses a target that lacks partitions of the table, because no tick could request them."""
    table, target_partitions = partitions_in_time(in_time(spec.window)), target.partitions_def
    if not (
        isinstance(target_partitions, dg.TimeWindowPartitionsDefinition)
        and target_partitions.start <= table.start
        and (target_partitions.cron_schedule, target_partitions.fmt, target_partitions.timezone)
        == (table.cron_schedule, table.fmt, table.timezone)
    ):
        name = (
            target.key.to_user_string() if isinstance(target, dg.AssetsDefinition) else target.name
        )
        raise SpecError(
            f"{name} can't wait for windows of {spec.id}: its partitions are not the table's, but"
            f" {'none' if target_partitions is None else target_partitions}",
            "spec",
            "Give it partitions_def=partitions_of(spec). What sums up several windows comes"
            " behind such an asset.",
        )


def _states_of(pipeline: Pipeline) -> tuple[dict[str, str], str]:
    """Returns `generation state` of the newest windows that are complete or late, by partition key.

    The generation is the one that wrote the rows, so their expiry starts no run. The second
    result is a sentence about what other windows wait for; empty if all are complete.
    """
    report = completeness_of(pipeline, LOOK_BACK)
    states, window = report.windows, in_time(pipeline.spec.window)
    waits = any(state.state == "open" for state in states.values())
    complete = {
        key_of(window, r.window.span[0]): f"{r.rows_generation} {states[r.window.key].state}"
        for r in pipeline.ledger.recorded_receipts(pipeline.spec.id, LOOK_BACK)
        if r.window.span is not None
        and r.window.key in states
        and states[r.window.key].state != "open"
    }
    return complete, _describe_holding(pipeline, report) if waits else ""


def _describe_holding(pipeline: Pipeline, report: Completeness) -> str:
    return describe_holding(report, pipeline.ledger.newest(pipeline.spec.id)[-1])


def completeness(pipeline: Pipeline) -> Verdict:
    """Checks whether any of the newest windows is late, or still open after its maximum wait.

    The metadata names the topic-partitions that hold the watermark back.
    """
    report = completeness_of(pipeline, NEWEST)
    window = in_time(pipeline.spec.window)
    recorded = {
        key_of(window, r.window.span[0]): r
        for r in pipeline.ledger.recorded_receipts(pipeline.spec.id, NEWEST)
        # a window that was committed after the states were read has no state
        if r.window.span is not None and r.window.key in report.windows
    }
    states = {key: report.windows[r.window.key] for key, r in recorded.items()}
    late = {key: state.late_elsewhere for key, state in states.items() if state.state == "late"}
    tolerance = window.completeness.tolerance
    too_late = {
        key: n for key, n in late.items() if n > tolerance * (n + recorded[key].counts.read)
    }
    waited = pipeline.now() - window.delay - window.max_wait
    overdue = [
        key
        for key, r in recorded.items()
        if states[key].state == "open" and _end_of_completing_window(window, r.window) < waited
    ]
    metadata: dict[str, Value] = {
        "states": dg.MetadataValue.json({key: state.state for key, state in states.items()}),
        "overdue": dg.MetadataValue.text(shorten(overdue)),
        "late": dg.MetadataValue.json(late),
        "holding": dg.MetadataValue.text(shorten([str(tp) for tp in report.holding])),
    }
    metadata |= watermark_metadata(report.watermark, report.event_watermark)
    words = []
    if overdue:
        delays = "delay" if report.event_time is None else "delay, event_delay"
        words.append(
            f"Not complete, though {delays} and max_wait are over: {join_first_few(overdue)}."
            f" {_describe_holding(pipeline, report)}"
        )
    if too_late:
        words.append(_late_words(too_late, window))
    waiting = sum(state.state == "open" for state in states.values())
    well = f"Complete: {format_count(len(states) - waiting, 'window')}" + (
        f", {waiting} open and not overdue" if waiting else ""
    )
    if late:
        late_count = format_count(sum(late.values()), "late message")
        well += f"; {late_count} within window.completeness.tolerance"
    return not too_late and not overdue, " ".join(words) or f"{well}.", metadata


def _end_of_completing_window(grid: TimeWindows, window: Window) -> datetime:
    """Returns the end of the first window whose messages can complete a window.

    By event time these are messages of `event_delay` after the window's end.
    """
    assert window.span is not None
    end = window.span[1]
    return end if grid.event_delay is None else label_after(grid.grid, end + grid.event_delay)


def shorten(lines: Sequence[str]) -> str:
    """Returns the first lines, and the number of the others."""
    more = [f"and {len(lines) - _MANY} more"] if len(lines) > _MANY else []
    return "\n".join([*lines[:_MANY], *more]) or "nothing"


def _late_words(late: Mapping[str, int], grid: TimeWindows) -> str:
    """Describes how many messages of complete windows came in later windows.

    Args:
        late: the number of such messages by window.
        grid: the pipeline's windows.
    """
    time, setting = (
        ("the message's timestamp", "window.delay")
        if grid.event_time is None
        else (f"`{grid.event_time}`", "window.event_delay")
    )
    count, whose = sum(late.values()), "its" if len(late) == 1 else "their"
    return (
        f"{join_first_few(list(late))}: {format_count(count, 'message')} of {whose} hours came in"
        f" later windows. Nothing is lost: sum by hour over {time}. That is more than"
        f" `window.completeness.tolerance`, {grid.completeness.tolerance:.3g} of a window's"
        " messages: raise it if that many may be late. A longer"
        f" `{setting}` waits for such messages."
    )
