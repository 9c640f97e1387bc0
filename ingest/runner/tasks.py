"""What a job's attempts have the engine run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from windrow.ingest.config.window import TimeWindows
from windrow.ingest.errors import BugError
from windrow.ingest.model.label import label_text
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.engine import ReshapingEngine
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.runner.attempts import Attempt, one_task
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.reshape import reshaping
from windrow.ingest.runner.task import LateBins, SplitTask
from windrow.ingest.source.enumerator import grid as grids

LATE_WINDOWS = 200
"""How many windows back late messages are told apart by the hours they belong to; older
ones count to the first of these.
"""


def results_of(
    pipeline: Pipeline, job: Sequence[Attempt], splits: Sequence[Split]
) -> Iterator[Staged]:
    """What comes of a job's splits, in their order, until the first error; see
    `ports.engine.Engine.run`.
    """
    tasks, engine = [_task(pipeline, attempt) for attempt in job], pipeline.engine
    if pipeline.reshape is None:
        # not handed on: what tasks stand on lives as long as they run
        yield from engine.run(one_task(tasks, job), splits)
        return
    if not isinstance(engine, ReshapingEngine) or len(tasks) > 1:
        raise BugError(
            "A pipeline's rows go through Spark window by window, and something else was asked for",
            "setup",
            "Report it.",
        )
    yield from engine.reshape(reshaping(pipeline, pipeline.reshape, tasks[0]), splits)


def _task(pipeline: Pipeline, attempt: Attempt) -> SplitTask:
    plan, named = attempt.plan, (attempt.plan, attempt.generation, attempt.id)
    reading = ReadPlan(
        plan.stop.cluster_id, {t.topic: t.topic_id for t in plan.stop.topics}, attempt.on_loss
    )
    rows, dead = pipeline.sink.stager(*named), pipeline.dead_letters.stager(*named)
    late_bins, keyed = (
        _late_bins(pipeline, plan.window),
        pipeline.sink.capabilities.mode != "append",
    )
    return SplitTask(
        pipeline.reader(reading),
        pipeline.decoder(),
        pipeline.transform(),
        rows,
        dead,
        late_bins,
        keyed,
    )


def _late_bins(pipeline: Pipeline, window: Window) -> LateBins | None:
    grid = pipeline.spec.window
    if window.span is None or not isinstance(grid, TimeWindows):
        return None
    start, end = window.span
    labels = [
        label
        for label in grids.labels_back(grid.grid, start, LATE_WINDOWS)
        if grid.start <= label < start
    ]
    edges = [*labels, start, end]
    return LateBins(tuple(_millis(e) for e in edges), tuple(label_text(e) for e in edges[:-1]))


def _millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
