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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import msgspec

from ingest.accounting import refuse_too_many_dead, refuse_unequal, unexplained
from ingest.crashpoints import crash_point
from ingest.decode.columns import Columns
from ingest.decode.json import JsonDecoder
from ingest.errors import DataLossError, GridError, IdentityError, NotClosedError, OutcomeUnknownError
from ingest.model import Boundary, Committed, Counts, Plan, Receipt, Window, instant
from ingest.grid import is_closed, step, window_at
from ingest.plan.resolve import resolve
from ingest.plan.splits import make_plan, refuse_expired, refuse_other_identity
from ingest.ports import AlreadyDone, Broker, Engine, Ledger, Reader, Sink, Staged, Unknown
from ingest.spec import PipelineSpec
from ingest.task import SplitTask


class Request(msgspec.Struct, frozen=True):
    """Who asks, and for what: to have the window committed, or (`replace`) to have a committed one replaced from the same offsets.

    `id` stays the same over the retries of one request (Dagster's root run id, or one made by the command). `accept_fewer` lets a
    replacement go on although it sees fewer messages than the generation before.
    """

    id: str
    replace: bool = False
    accept_fewer: bool = False


class Result(msgspec.Struct, frozen=True):
    """The receipt as the sink holds it; `recovered` if this run found it there and wrote nothing."""

    committed: Committed
    recovered: bool


class Progress(msgspec.Struct, frozen=True):
    """Where a run is: `step` is "boundary" (done = messages looked at, total unknown: 0) or "split" (done of total)."""

    step: str
    done: int
    total: int


@dataclass(frozen=True)
class Pipeline:
    """A spec with everything it stands on. `reader` makes the reader for a plan: (cluster id, topic ids by name)."""

    spec: PipelineSpec
    columns: Columns
    decoder: JsonDecoder
    broker: Broker
    reader: Callable[[str, dict[str, str]], Reader]
    ledger: Ledger
    sink: Sink
    engine: Engine
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


def ignore(_: Progress) -> None:
    """Progress that nobody watches."""


def run(pipeline: Pipeline, window: Window, request: Request, progress: Callable[[Progress], None] = ignore) -> Result:
    """Have the window committed exactly once, whatever happened before and whoever else is running it.

    Raises:
        NotClosedError: the window's end + delay is still to come.
        RefusedError: data loss, identity, overlap, grid, schema, dead-letter limits or accounting; nothing became visible.
        UnreachableError: broker, ledger, sink or Spark; run the window again.
    """
    began = time.monotonic()
    _refuse_off_grid(pipeline, window)
    refuse_open(pipeline, window)
    bound = (pipeline.ledger.identity(), pipeline.spec.id, pipeline.spec.window.grid)
    pipeline.sink.refuse_other(*bound)
    found = pipeline.sink.look(window)
    generation = _generation(pipeline, window, request, found)
    if found is not None and found.receipt.generation >= generation:
        return _report(pipeline, found, recovered=True)
    pipeline.sink.prepare(*bound)
    plan = _freeze_plan(pipeline, window, found, progress)
    _refuse_unreadable(pipeline, plan)
    attempt = uuid.uuid4().hex
    progress(Progress("split", 0, len(plan.splits)))
    staged = pipeline.engine.run(_task(pipeline, plan, generation, attempt), plan.splits)
    progress(Progress("split", len(staged), len(plan.splits)))
    receipt = _receipt(pipeline, plan, generation, attempt, request, staged, time.monotonic() - began)
    _check(pipeline, receipt, found, request, staged)
    return _commit(pipeline, receipt, staged)


def _refuse_off_grid(pipeline: Pipeline, window: Window) -> None:
    """The window must be one of the pipeline's own, on the grid that its boundaries are frozen on."""
    spec = pipeline.spec
    if window_at(spec.id, spec.window.grid, window.start) != window:
        raise GridError(
            f"{instant(window.start)} to {instant(window.end)} is not one {spec.window.grid} window of {spec.id}", "plan",
            "Run the windows of the grid one by one.",
        )  # fmt: skip


def refuse_open(pipeline: Pipeline, window: Window) -> None:
    """Hold the window against the clock.

    Raises:
        NotClosedError: says from when on it can be run.
    """
    delay = pipeline.spec.window.delay
    if not is_closed(window, delay, pipeline.now()):
        raise NotClosedError(
            f"Window {window.key} of {window.pipeline} is not closed yet", "plan", f"Run it at {instant(window.end + delay)} or later."
        )


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
    _refuse_changed_grid(pipeline)
    known = pipeline.ledger.plan(window)
    if known is not None:
        return _as_specified(pipeline, known)
    start = _freeze_boundary(pipeline, window.start, progress)
    stop = _freeze_boundary(pipeline, window.end, progress)
    plan = make_plan(window, start, stop, pipeline.sink.identity)
    crash_point("plan.before")
    plan = pipeline.ledger.freeze_plan(plan)
    crash_point("plan.after")
    return plan


def _refuse_changed_grid(pipeline: Pipeline) -> None:
    grid = pipeline.spec.window.grid
    begun = pipeline.ledger.bind_grid(pipeline.spec.id, grid)
    if begun != grid:
        raise GridError(
            f"Pipeline {pipeline.spec.id} was begun with {begun} windows, not {grid}", "plan",
            f"Set the grid back to {begun}, or begin a pipeline with another id and table.",
        )  # fmt: skip


def _as_specified(pipeline: Pipeline, plan: Plan) -> Plan:
    """A frozen plan that isn't committed yet must still be of the spec's topic and table: the spec may have changed since."""
    planned = {t.topic for t in plan.stop.topics}
    if planned != {pipeline.spec.source.topic} or plan.sink != pipeline.sink.identity:
        raise IdentityError(
            f"Window {plan.window.key} was planned for {', '.join(sorted(planned))} into {plan.sink}; the spec now names "
            f"{pipeline.spec.source.topic} and {pipeline.sink.identity}", "plan",
            "Set source.topic and sink.path back, or begin a pipeline with another id for the new ones.",
        )  # fmt: skip
    return plan


def _freeze_boundary(pipeline: Pipeline, label: datetime, progress: Callable[[Progress], None]) -> Boundary:
    frozen = pipeline.ledger.boundary(pipeline.spec.id, label)
    if frozen is not None:
        return frozen
    candidates = _candidates(pipeline, label, progress)
    crash_point("boundary.before")
    boundaries = pipeline.ledger.freeze(pipeline.spec.id, candidates)
    crash_point("boundary.after")
    return next(b for b in boundaries if b.label == label)


def _candidates(pipeline: Pipeline, label: datetime, progress: Callable[[Progress], None]) -> list[Boundary]:
    """Boundaries to freeze: from the receipt of a window that touches the label (a ledger may get lost), else by asking the cluster."""
    length = step(pipeline.spec.window.grid)
    for window in (Window(pipeline.spec.id, label - length, label), Window(pipeline.spec.id, label, label + length)):
        held = pipeline.sink.look(window)
        if held is not None:
            return [held.receipt.plan.stop if window.end == label else held.receipt.plan.start]
    lower, upper = pipeline.ledger.neighbours(pipeline.spec.id, label)
    return resolve(
        pipeline.broker, pipeline.spec.source.topic, label, pipeline.spec.window.grid, pipeline.spec.window.start, lower, upper,
        lambda looked: progress(Progress("boundary", looked, 0)),
    )  # fmt: skip


def preview(pipeline: Pipeline, window: Window) -> Plan:
    """The plan as a run would make it now; freezes nothing, and reads no more of the topic than boundaries need."""
    _refuse_off_grid(pipeline, window)
    if pipeline.sink.binding() is not None:
        pipeline.sink.refuse_other(pipeline.ledger.identity(), pipeline.spec.id, pipeline.spec.window.grid)
    known = pipeline.ledger.plan(window)
    if known is not None:
        return _as_specified(pipeline, known)
    boundaries = []
    for label in (window.start, window.end):
        frozen = pipeline.ledger.boundary(pipeline.spec.id, label)
        lower, upper = pipeline.ledger.neighbours(pipeline.spec.id, label)
        boundary = frozen or next(b for b in _candidates(pipeline, label, ignore) if b.label == label).clamped(lower, upper)
        boundaries.append(boundary)
    start, stop = boundaries
    return make_plan(window, start, stop.clamped(start, None), pipeline.sink.identity)


def _refuse_unreadable(pipeline: Pipeline, plan: Plan) -> None:
    """The topic must still be the one that was planned, and still hold what was planned."""
    _refuse_other_identity(pipeline, plan)
    refuse_expired(plan, pipeline.broker.log_starts([s.tp for s in plan.splits]))


def _refuse_other_identity(pipeline: Pipeline, plan: Plan) -> None:
    topics = {t.topic: pipeline.broker.topic(t.topic).topic_id for t in plan.stop.topics}
    refuse_other_identity(plan, pipeline.broker.cluster_id(), topics)


def _task(pipeline: Pipeline, plan: Plan, generation: int, attempt: str) -> SplitTask:
    reader = pipeline.reader(plan.stop.cluster_id, {t.topic: t.topic_id for t in plan.stop.topics})
    return SplitTask(reader, pipeline.decoder, pipeline.sink.stager(plan, generation, attempt))


def _receipt(
    pipeline: Pipeline, plan: Plan, generation: int, attempt: str, request: Request, staged: Sequence[Staged], seconds: float
) -> Receipt:
    splits = tuple(s.counts for s in staged)
    compacted = frozenset(t.topic for t in plan.stop.topics if pipeline.broker.topic(t.topic).compacted)
    return Receipt(
        plan=plan, digest=plan.digest, generation=generation, attempt=attempt, request=request.id, ledger=pipeline.ledger.identity(),
        grid=pipeline.spec.window.grid, counts=Counts.total(splits), splits=splits, schema=pipeline.columns.described(),
        code=f"windrow {version('windrow')}", staged_at=pipeline.now(), seconds=round(seconds, 3),
        warnings=unexplained(plan, splits, compacted),
    )  # fmt: skip


def _check(pipeline: Pipeline, receipt: Receipt, found: Committed | None, request: Request, staged: Sequence[Staged]) -> None:
    """All that can still refuse the window.

    The dead letters go in first, so that a refusal can be looked into; without a receipt that names their attempt, no reader of the table
    counts them.
    """
    refuse_unequal(receipt.plan, staged)
    _refuse_other_identity(pipeline, receipt.plan)
    if found is not None and not request.accept_fewer:
        _refuse_fewer(receipt, found.receipt)
    crash_point("dead.before")
    pipeline.sink.commit_dead(receipt.plan, receipt.attempt, staged)
    limits = pipeline.spec.limits
    way = f"windrow show SPEC --dead --window {receipt.window.key} --attempt {receipt.attempt}"
    refuse_too_many_dead(receipt.splits, limits.max_dead_ratio, limits.max_dead_count, way)


def _refuse_fewer(now: Receipt, before: Receipt) -> None:
    if now.counts.read >= before.counts.read:
        return
    raise DataLossError(
        f"Replacing window {now.window.key}: {now.counts.read} messages are left, generation {before.generation} had {before.counts.read}",
        "check", "Retention or compaction took them. Nothing was replaced; replay with --accept-fewer if fewer is what you want.",
    )  # fmt: skip


def _commit(pipeline: Pipeline, receipt: Receipt, staged: Sequence[Staged]) -> Result:
    outcome = pipeline.sink.commit(receipt, staged)
    if isinstance(outcome, Unknown):
        raise OutcomeUnknownError(
            f"The commit of window {receipt.window.key} was sent and not answered: {outcome.why}", "commit",
            "Run the window again: it looks into the table first and reports the commit if it arrived.",
        )  # fmt: skip
    return _report(pipeline, outcome.committed, recovered=isinstance(outcome, AlreadyDone))


def _report(pipeline: Pipeline, committed: Committed, *, recovered: bool) -> Result:
    """The sink's own word is the result; the ledger keeps a copy."""
    pipeline.ledger.record(committed.receipt)
    crash_point("report.before")
    return Result(committed, recovered)
