"""The sentence: Window -> Plan -> [per split: read -> decode -> validate -> stage] -> commit -> Receipt.

The order is fence, look, write (the other way round, two runs of one window both write). Every step may be the last one before the process
dies; the next run of the same window begins at the top and finds out from ledger and sink how far it came:

    died                                 the next run finds                            and does
    before a boundary or plan froze      nothing, or some of them                      freezes the rest
    while staging                        a frozen plan; files that nothing names       reads the same offsets again
    around the dead letters' commit      dead letters of an attempt that never counts  the same
    in the data commit                   data and receipt, or neither                  reports, or reads again
    before the report                    data and receipt                              reports them as recovered
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from ingest.crashpoints import crash_point
from ingest.errors import DataLossError, GridError, IdentityError, NotClosedError, OutcomeUnknownError, RefusedError
from ingest.model.boundary import TopicPartition
from ingest.model.label import instant, label_text
from ingest.model.plan import Plan
from ingest.model.receipt import RECEIPT_VERSION, Committed, Counts, Receipt
from ingest.model.source import OnLoss, selection_text, selects
from ingest.model.staged import Staged
from ingest.model.window import Window
from ingest.plan.splits import make_plan
from ingest.ports.reader import ReadPlan
from ingest.ports.sink import AlreadyDone, Unknown
from ingest.run.accounting import held_back, losses, refuse_too_many_dead, refuse_unequal, unexplained, unwitnessed
from ingest.run.availability import cut_short, loss_policy, readable_splits, refuse_back, with_the_gone
from ingest.run.binding import bind_table, refuse_empty_table, refuse_other_table, refuse_wrong_place
from ingest.run.context import Pipeline, Progress, Request, Result, ignore
from ingest.run.freezing import foreseen, freeze_boundary, refuse_changed_grid
from ingest.run.frontier import start_of
from ingest.run.publish import Published, publish
from ingest.run.task import LateBins, SplitTask
from ingest.spec.pipeline import PipelineSpec
from ingest.spec.window import TimeWindows
from ingest.windows import grid as grids

__all__ = ["Pipeline", "Progress", "Request", "Result", "ignore", "preview", "refuse_open", "run"]

LATE_WINDOWS = 200
"""How many windows back late messages are told apart by the hours they belong to; older ones count to the first of these."""


def run(pipeline: Pipeline, window: Window, request: Request, progress: Callable[[Progress], None] = ignore) -> Result:
    """Have the window committed exactly once, whatever happened before and whoever else is running it.

    Raises:
        NotClosedError: the window's end + delay is still to come.
        RefusedError: data loss, identity, overlap, grid, schema, dead-letter limits or accounting; nothing became visible.
        UnreachableError: broker, ledger, sink or Spark; run the window again.
    """
    began = time.monotonic()
    _refuse_off_grid(pipeline, window)
    _refuse_replacement(pipeline, window, request)
    refuse_open(pipeline, window)
    refuse_wrong_place(pipeline)
    found = pipeline.sink.look(window)
    if found is None:
        refuse_empty_table(pipeline)
    generation = _generation(pipeline, window, request, found)
    if found is not None and found.receipt.generation >= generation:
        return _report(pipeline, found, recovered=True)
    pipeline.sink.prepare(pipeline.binding())
    pipeline.dead_letters.prepare(pipeline.binding())
    bind_table(pipeline)
    plan = _freeze_plan(pipeline, window, found, progress)
    on_loss = loss_policy(pipeline, request, found)
    readable = readable_splits(pipeline, plan, on_loss, found)
    attempt = uuid.uuid4().hex
    progress(Progress("split", 0, len(readable)))
    read = pipeline.engine.run(_task(pipeline, plan, generation, attempt, on_loss), readable)
    progress(Progress("split", len(read), len(readable)))
    staged = with_the_gone(plan, read)
    receipt = _receipt(pipeline, plan, generation, attempt, request, staged, time.monotonic() - began)
    _check(pipeline, receipt, found, request, staged)
    return _commit(pipeline, receipt, staged)


def _refuse_replacement(pipeline: Pipeline, window: Window, request: Request) -> None:
    """Not every sink can take back what it has committed."""
    if request.replace and not pipeline.sink.promises.replaces:
        what = f"Window {window.key} can't be replaced: {pipeline.spec.sink.kind} keeps what was committed once"
        raise RefusedError(what, "plan", "Nothing was read. To write the messages again, begin a pipeline with another id and table.")


def _refuse_off_grid(pipeline: Pipeline, window: Window) -> None:
    """The window must be one of the pipeline's own, on the grid that its boundaries are frozen on."""
    spec = pipeline.spec
    grid = spec.window
    if window.span is not None and isinstance(grid, TimeWindows) and window.span[0] < grid.start:
        what = f"Window {window.key} lies before the start of {spec.id}, {instant(grid.start)}"
        raise GridError(what, "plan", "Run a later one: what lies before the start is in no window.")
    fits = window.span is None if spec.window.is_batch else _on_grid(spec, window)
    if not fits:
        raise GridError(
            f"{label_text(window.start)} to {label_text(window.end)} is not one {spec.window.grid} window of {spec.id}", "plan",
            "Run the windows of the grid one by one.",
        )  # fmt: skip


def _on_grid(spec: PipelineSpec, window: Window) -> bool:
    return window.span is not None and grids.window_at(spec.id, spec.window.grid, window.span[0]) == window


def refuse_open(pipeline: Pipeline, window: Window) -> None:
    """Hold the window against the clock.

    Raises:
        NotClosedError: says from when on it can be run.
    """
    grid = pipeline.spec.window
    if window.span is not None and isinstance(grid, TimeWindows) and not grids.is_closed(window, grid.delay, pipeline.now()):
        closed = instant(window.span[1] + grid.delay)
        raise NotClosedError(f"Window {window.key} of {window.pipeline} is not closed yet", "plan", f"Run it at {closed} or later.")


def _generation(pipeline: Pipeline, window: Window, request: Request, found: Committed | None) -> int:
    """The generation this request aims at; a replacement's is frozen, so that its own retries don't replace again."""
    if not request.replace:
        return 0
    proposed = 0 if found is None else found.receipt.generation + 1
    return pipeline.ledger.target_generation(window, request.id, proposed)


def _freeze_plan(pipeline: Pipeline, window: Window, found: Committed | None, progress: Callable[[Progress], None]) -> Plan:
    """The window's one plan: the committed one, the frozen one, or a new one."""
    if found is not None:
        return found.receipt.plan
    refuse_changed_grid(pipeline)
    known = pipeline.ledger.plan(window)
    if known is not None:
        return _as_specified(pipeline, known)
    frozen = freeze_boundary(pipeline, window.start, progress)
    stop = freeze_boundary(pipeline, window.end, progress)
    start = start_of(pipeline.ledger, window, frozen)
    plan = _as_specified(pipeline, make_plan(window, start, stop, pipeline.sink.identity, pipeline.spec.source.split_records))
    crash_point("plan.before")
    plan = pipeline.ledger.freeze_plan(plan)
    crash_point("plan.after")
    return plan


def _as_specified(pipeline: Pipeline, plan: Plan) -> Plan:
    """What was frozen for a window that isn't committed yet must still be what the spec reads.

    Which table it goes to was looked at before; a plan that was made before the table was moved names the old place.

    Raises:
        IdentityError: it was planned for messages that the spec doesn't select any more.
    """
    selection = pipeline.spec.source.selection()
    other = next((s for s in plan.splits if not selects(selection, s.tp)), None)
    if other is not None:
        raise IdentityError(
            f"Window {plan.window.key} was planned for what the spec doesn't select any more: now {selection_text(selection)}", "plan",
            "Set the source back until this window is committed, or begin a pipeline with another id.",
            other.topic, other.partition, other.start,
        )  # fmt: skip
    return plan


def preview(pipeline: Pipeline, window: Window) -> Plan:
    """The plan as a run would make it now; freezes nothing, and reads no more of the topic than boundaries need.

    Raises:
        SpecError: a micro-batch that was not begun.
    """
    _refuse_off_grid(pipeline, window)
    spec = pipeline.spec
    refuse_other_table(pipeline)
    known = pipeline.ledger.plan(window)
    if known is not None:
        return _as_specified(pipeline, known)
    start = pipeline.ledger.start(spec.id, window.start) or foreseen(pipeline, window.start, None)
    stop = pipeline.ledger.boundary(spec.id, window.end) or foreseen(pipeline, window.end, start)
    return _as_specified(pipeline, make_plan(window, start, stop, pipeline.sink.identity, spec.source.split_records))


def _task(pipeline: Pipeline, plan: Plan, generation: int, attempt: str, on_loss: OnLoss) -> SplitTask:
    reading = ReadPlan(plan.stop.cluster_id, {t.topic: t.topic_id for t in plan.stop.topics}, on_loss)
    rows, dead = pipeline.sink.stager(plan, generation, attempt), pipeline.dead_letters.stager(plan, generation, attempt)
    return SplitTask(pipeline.reader(reading), pipeline.decoder(), pipeline.transform(), rows, dead, _late_bins(pipeline, plan.window))


def _late_bins(pipeline: Pipeline, window: Window) -> LateBins | None:
    grid = pipeline.spec.window
    if window.span is None or not isinstance(grid, TimeWindows):
        return None
    start, end = window.span
    labels = [label for label in grids.labels_back(grid.grid, start, LATE_WINDOWS) if grid.start <= label < start]
    edges = [*labels, start, end]
    return LateBins(tuple(_millis(e) for e in edges), tuple(label_text(e) for e in edges[:-1]))


def _millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _receipt(
    pipeline: Pipeline, plan: Plan, generation: int, attempt: str, request: Request, staged: Sequence[Staged], seconds: float
) -> Receipt:
    splits = tuple(s.counts for s in staged)
    names = sorted({s.topic for s in plan.splits})
    compacted = frozenset(name for name, info in pipeline.broker.topics(names).items() if info.compacted)
    return Receipt(
        plan=plan, digest=plan.digest, generation=generation, attempt=attempt, request=request.id, ledger=pipeline.ledger.identity(),
        grid=pipeline.spec.window.grid, counts=Counts.total(splits), splits=splits, schema=pipeline.columns().described(),
        code=f"windrow {version('windrow')}", staged_at=pipeline.now(), seconds=round(seconds, 3),
        warnings=unexplained(plan, splits, compacted) + held_back(plan) + unwitnessed(plan),
        partial=losses(plan, splits) + cut_short(pipeline, plan) + _left_behind(pipeline, plan), version=RECEIPT_VERSION,
    )  # fmt: skip


def _left_behind(pipeline: Pipeline, plan: Plan) -> tuple[str, ...]:
    """What a topic that is gone held up to a boundary above: a later window counts it as skipped, and some of it may be of this one."""
    left, above = {m.tp: m for m in plan.stop.marks if m.how == "removed"}, plan.stop
    found = []
    while left:
        upper = pipeline.ledger.neighbours(plan.window.pipeline, above.label)[1]
        if upper is None:
            break
        above = upper
        for mark in [m for m in above.marks if m.tp in left and m.how != "removed"]:
            low = left.pop(mark.tp)
            if mark.offset > low.offset:
                found.append(
                    f"{mark.tp}: was gone when this window was cut; of its offsets {low.offset} to {mark.offset}, which are counted as "
                    "skipped in a later window, some may belong here"
                )
    return tuple(found)


def _check(pipeline: Pipeline, receipt: Receipt, found: Committed | None, request: Request, staged: Sequence[Staged]) -> None:
    """All that can still refuse the window.

    The dead letters go in first, so that a refusal can be looked into; without a receipt that names their attempt, no reader of the table
    counts them.
    """
    refuse_unequal(receipt.plan, staged)
    refuse_back(pipeline, receipt.plan, (s.split for s in staged if s.counts.skipped < s.split.stop - s.split.start))
    if found is not None and not request.accept_fewer:
        _refuse_fewer(receipt, found.receipt)
    crash_point("dead.before")
    pipeline.dead_letters.commit(receipt.plan, receipt.attempt, staged)
    limits = pipeline.spec.limits
    way = f"windrow show SPEC --dead --window {receipt.window.key}"
    if found is not None:  # else `show` takes the newest attempt by itself
        way += f" --attempt {receipt.attempt}"
    refuse_too_many_dead(receipt.window, staged, limits.max_dead_ratio, limits.max_dead_count, way)


def _refuse_fewer(now: Receipt, before: Receipt) -> None:
    """By topic-partition: more in one must not hide fewer in another."""
    left, had = _read(now), _read(before)
    fewer = next((tp for tp in sorted(had) if left[tp] < had[tp]), None)
    if fewer is not None:
        raise DataLossError(
            f"Replacing window {now.window.key}: {left[fewer]} messages are left, generation {before.generation} had {had[fewer]}", "check",
            "Retention or compaction took them. Nothing was replaced; replay with --accept-fewer if fewer is what you want.",
            fewer.topic, fewer.partition,
        )  # fmt: skip


def _read(receipt: Receipt) -> Counter[TopicPartition]:
    found = Counter[TopicPartition]()
    for split in receipt.splits:
        found[TopicPartition(split.topic, split.partition)] += split.read
    return found


def _commit(pipeline: Pipeline, receipt: Receipt, staged: Sequence[Staged]) -> Result:
    outcome = pipeline.sink.commit(receipt, staged)
    if isinstance(outcome, Unknown):
        raise OutcomeUnknownError(
            f"The commit of window {receipt.window.key} was sent and not answered: {outcome.why}", "commit",
            "Run the window again: it looks into the table first and reports the commit if it arrived.",
        )  # fmt: skip
    return _report(pipeline, outcome.committed, recovered=isinstance(outcome, AlreadyDone))


def _report(pipeline: Pipeline, committed: Committed, *, recovered: bool) -> Result:
    """The sink's own word is the result; the ledger keeps a copy, and a consumer group hears of it for lag tools."""
    pipeline.ledger.record(committed.receipt, pipeline.sink.receipt_text(committed.receipt))
    crash_point("report.before")
    return Result(committed, recovered, _published(pipeline, committed.receipt))


def _published(pipeline: Pipeline, receipt: Receipt) -> Published | None:
    """Only of the newest window: a backfill of an older one must not move the group back."""
    group = pipeline.spec.source.publish_group
    if group is None or pipeline.ledger.recorded(pipeline.spec.id, 1)[-1].window != receipt.window:
        return None
    return publish(pipeline.broker, group, receipt.plan.stop)
