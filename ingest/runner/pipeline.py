"""The sentence: Window -> Plan -> [per split: read -> decode -> validate -> stage] ->
commit -> Receipt.

The order is fence, look, write (the other way round, two runs of one window both
write). Every step may be the last one before the process dies; the next run of the same
window begins at the top and finds out from ledger and sink how far it came:

    died before                          the next run finds          and does
    a boundary or plan froze             nothing, or some of them    freezes the rest
    all splits were staged               a frozen plan, and files    reads the same offsets
                                         that nothing names          again
    the dead letters' commit, or after   dead letters of an attempt  the same
                                         that never counts
    the data commit, or after            data and receipt, or        reports, or reads again
                                         neither
    the report                           data and receipt            reports them as recovered
    its dead letters were in their       the same                    the same, and publishes
    topic (see `dead_publishing`)                                    them
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias, TypeVar

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import TimeWindows
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import (
    GridError,
    IdentityError,
    NotClosedError,
    OutcomeUnknownError,
    RefusedError,
    SpecError,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.model.label import instant, label_text
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Counts, Receipt
from windrow.ingest.model.source import selection_text, selects
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.runner.accounting import (
    held_back,
    losses,
    refuse_fewer,
    refuse_too_many_dead,
    refuse_undoing,
    refuse_unequal,
    unexplained,
    unwitnessed,
)
from windrow.ingest.runner.attempts import TOGETHER, Attempt, Read, jobs, results_of
from windrow.ingest.runner.availability import (
    cut_short,
    loss_policy,
    readable_splits,
    refuse_back,
    with_the_gone,
)
from windrow.ingest.runner.broker_snapshot import with_broker_snapshot
from windrow.ingest.runner.context import (
    PassedOver,
    Pipeline,
    Progress,
    Request,
    Result,
    ignore,
    written_by,
)
from windrow.ingest.runner.dead_publishing import publish_dead_letters
from windrow.ingest.runner.freezing import foreseen, freeze_boundaries, refuse_changed_grid
from windrow.ingest.runner.next_start import start_of
from windrow.ingest.runner.ownership import (
    bind_table,
    refuse_empty_table,
    refuse_lost_receipt,
    refuse_other_table,
    refuse_unready,
    refuse_wrong_place,
)
from windrow.ingest.runner.publish import Published, publish
from windrow.ingest.runner.schemas import informed, keep_schemas
from windrow.ingest.source.enumerator import grid as grids
from windrow.ingest.source.enumerator.splits import make_plan

T = TypeVar("T")

Passing: TypeAlias = Callable[[Window, RefusedError], bool]
"""Whether the windows behind a refused one are run all the same."""

__all__ = [
    "Pipeline",
    "Progress",
    "Request",
    "Result",
    "ignore",
    "preview",
    "refuse_open",
    "run",
    "run_windows",
]


def run(
    pipeline: Pipeline,
    window: Window,
    request: Request,
    progress: Callable[[Progress], None] = ignore,
) -> Result:
    """Have the window committed exactly once, whatever happened before and whoever else is running it.

    Raises:
        NotClosedError: the window's end + delay is still to come.
        RefusedError: data loss, identity, overlap, grid, schema, dead-letter limits or
            accounting; nothing became visible.
        UnreachableError: broker, ledger, sink or Spark; run the window again.
    """  # noqa: E501
    (result,) = run_windows(pipeline, [window], request, progress)
    return result


def run_windows(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None] = ignore,
) -> Iterator[Result]:
    """The same for several, in their order; each result as soon as its window is committed.

    Small windows share what costs a window most: the looks at table and cluster, and
    the Spark job. What goes wrong with one stops it and all behind it: the windows
    before it are committed by then, and the error names those that were not tried.

    Raises:
        WindrowError: as `run`, at the window that it is about.
    """
    for outcome in _run_all(pipeline, windows, request, progress, never):
        assert isinstance(outcome, Result), "nothing is passed over"
        yield outcome


def run_past_refused(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None] = ignore,
) -> Iterator[Result | PassedOver]:
    """The same, but a window that is refused for its own data doesn't stop those behind
    it: it is told in its turn.

    Where a window can't be committed behind later ones (`PipelineSpec.in_order`), it stops them.

    Raises:
        WindrowError: as `run_windows`; of RefusedError only what stops every window.
    """
    yield from _run_all(pipeline, windows, request, progress, passing_of(pipeline))


def one_by_one(
    windows: Sequence[Window], do: Callable[[Window], T], passing: Passing
) -> Iterator[T | PassedOver]:
    """What `do` makes of each window, in their order; a refused one is told in its
    turn, or stops it there.

    Raises:
        WindrowError: as `do`; it names the windows that were not tried.
    """
    return _naming_untried(windows, (_tried(window, do, passing) for window in windows))


def never(window: Window, refused: RefusedError) -> bool:
    """A refused window stops those behind it."""
    del window, refused
    return False


def passing_of(pipeline: Pipeline) -> Passing:
    """Past what is refused for a window's own data, unless the window could not be
    committed behind later ones.
    """
    in_order, sink = pipeline.spec.in_order, pipeline.sink
    return lambda window, refused: (
        not refused.of_setting and (not in_order or sink.look(window) is not None)
    )


def refused_last(outcomes: Iterator[T | PassedOver], windows: int) -> Iterator[T]:
    """The outcomes of so many windows.

    Raises:
        RefusedError: behind the last one, if any were passed over.
    """
    passed = list[PassedOver]()
    for outcome in outcomes:
        if isinstance(outcome, PassedOver):
            passed.append(outcome)
        else:
            yield outcome
    if passed:
        raise all_refused(passed, windows)


def all_refused(passed: Sequence[PassedOver], windows: int) -> RefusedError:
    """What a run of so many windows ends with that has passed over some."""
    if windows == 1:
        return passed[0].error
    was, keys = "was" if len(passed) == 1 else "were", ", ".join(one.window.key for one in passed)
    lines = "\n".join(f"{one.window.key}: {one.error}" for one in passed)
    what = f"{len(passed)} of {windows} windows {was} refused: {keys}"
    return RefusedError(
        what,
        "check",
        "The others are committed. What was refused can be run again, once that is"
        f" fixed:\n{lines}",
    )


def _run_all(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None],
    passing: Passing,
) -> Iterator[Result | PassedOver]:
    parts = (windows[at : at + TOGETHER] for at in range(0, len(windows), TOGETHER))
    outcomes = (
        outcome
        for part in parts
        for outcome in _run_together(pipeline, part, request, progress, passing)
    )
    return _naming_untried(windows, outcomes)


def _tried(window: Window, do: Callable[[Window], T], passing: Passing) -> T | PassedOver:
    try:
        return do(window)
    except RefusedError as error:
        if not passing(window, error):
            raise
        return PassedOver(window, error)


def _naming_untried(windows: Sequence[Window], outcomes: Iterator[T]) -> Iterator[T]:
    """The outcomes, window by window; an error between them names the windows that were
    not tried.
    """
    done = 0
    try:
        for outcome in outcomes:
            done += 1
            yield outcome
    except WindrowError as error:
        left = [window.key for window in windows[done + 1 :]]
        if left:
            error.do += f" Not tried: {left[0]}" + (
                f" to {left[-1]}, {len(left)} windows." if len(left) > 1 else "."
            )
        raise


def _run_together(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None],
    passing: Passing,
) -> Iterator[Result | PassedOver]:
    try:
        committed, attempts = _begin(pipeline, windows, request, progress)
    except Exception as error:  # raised again, whatever it is, at the window that it is about
        if len(windows) == 1:
            if not isinstance(error, RefusedError) or not passing(windows[0], error):
                raise
            yield PassedOver(windows[0], error)
            return
        half = (len(windows) + 1) // 2
        # an outage is told by the first, not at each halving
        for some in filter(None, (windows[:1], windows[1:half], windows[half:])):
            yield from _run_together(pipeline, some, request, progress, passing)
        return
    reads = _reads(pipeline, attempts, progress)
    for at, window in enumerate(windows):
        read, outcome = None, None
        try:
            if window not in committed:
                read = next(reads)
                outcome = _finish(pipeline, read, request)
        except RefusedError as error:
            if not passing(window, error):
                raise
            yield PassedOver(window, error)
            if read is None:  # the job ended with it: what is behind has to be read by another
                yield from _run_together(pipeline, windows[at + 1 :], request, progress, passing)
                return
        else:  # what goes wrong from here on is no refusal of the window: it is committed
            yield (
                _report(pipeline, committed[window], recovered=True)
                if outcome is None
                else _reported(pipeline, outcome)
            )


def _begin(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None],
) -> tuple[dict[Window, Committed], list[Attempt]]:
    """The windows that there is nothing to do for, and the attempts at the others, planned.

    Commits nothing.
    """
    for window in windows:
        _refuse_off_grid(pipeline, window)
        _refuse_replacement(pipeline, window, request)
        refuse_open(pipeline, window)
    refuse_wrong_place(pipeline)
    found = dict(zip(windows, pipeline.sink.looks(windows), strict=True))
    if not any(found.values()):
        refuse_empty_table(pipeline)
    generations = {
        window: _generation(pipeline, window, request, found[window]) for window in windows
    }
    committed = {
        w: there
        for w, there in found.items()
        if there is not None and there.receipt.generation >= generations[w]
    }
    wanted = [window for window in windows if window not in committed]
    for before in filter(None, (found[window] for window in wanted if not request.accept_fewer)):
        refuse_undoing(before.receipt)
    if not wanted:
        return committed, []
    for window in (w for w in wanted if found[w] is None and not request.again):
        refuse_lost_receipt(pipeline, window)
    refuse_unready(pipeline)
    pipeline.sink.prepare(pipeline.owner())
    pipeline.dead_letters.prepare(pipeline.owner())
    bind_table(pipeline)
    plans = freeze_plans(pipeline, wanted, found, progress)
    now = with_broker_snapshot(pipeline)
    return committed, [
        _attempt(now, plan, generations[plan.window], request, found[plan.window]) for plan in plans
    ]


def _attempt(
    now: Pipeline, plan: Plan, generation: int, request: Request, found: Committed | None
) -> Attempt:
    on_loss = loss_policy(now, request, found)
    return Attempt(
        plan,
        found,
        generation,
        uuid.uuid4().hex,
        on_loss,
        readable_splits(now, plan, on_loss, found),
    )


def _reads(
    pipeline: Pipeline, attempts: Sequence[Attempt], progress: Callable[[Progress], None]
) -> Iterator[Read]:
    """What the attempts' tasks staged, attempt by attempt, of as many at once as are
    small together.
    """
    for job in jobs(attempts, apart=pipeline.reshape is not None):
        yield from _read_job(pipeline, job, progress)


def _read_job(
    pipeline: Pipeline, job: Sequence[Attempt], progress: Callable[[Progress], None]
) -> Iterator[Read]:
    """One job of the engine over all splits of several attempts.

    What can't be reached for all of them is tried for each alone.
    """
    pipeline = informed(pipeline, job)
    splits = [split for attempt in job for split in attempt.readable]
    progress(Progress("split", 0, len(splits), tuple(attempt.plan.window.key for attempt in job)))
    staged, trouble = _until_refused(results_of(pipeline, job, splits))
    progress(Progress("split", len(splits), len(splits)))
    now, results = with_broker_snapshot(pipeline), iter(staged)
    for done, attempt in enumerate(job):
        read = list(islice(results, len(attempt.readable)))
        if trouble is not None and len(read) < len(attempt.readable):
            if len(job) == 1 or not isinstance(trouble, UnreachableError):
                raise trouble
            for one in job[done:]:
                yield from _read_job(pipeline, [one], progress)
            return
        yield Read(now, attempt, with_the_gone(attempt.plan, read))


def _until_refused(results: Iterator[Staged]) -> tuple[list[Staged], WindrowError | None]:
    """The results before the first error, and that."""
    staged: list[Staged] = []
    try:
        staged.extend(results)
    except WindrowError as error:
        return staged, error
    return staged, None


def _finish(pipeline: Pipeline, read: Read, request: Request) -> Done | AlreadyDone:
    receipt = _receipt(read, request)
    _check(read, receipt, request)
    # once more: while this run was reading, another one may have committed the window
    if not request.again:
        refuse_lost_receipt(pipeline, receipt.window)
    return _committed(pipeline, receipt, read.staged)


def _refuse_replacement(pipeline: Pipeline, window: Window, request: Request) -> None:
    """Not every sink can take back what it has committed."""
    if request.replace and not pipeline.sink.capabilities.replaces:
        what = (
            f"Window {window.key} can't be replaced: {pipeline.spec.sink.kind} keeps what was"
            " committed once"
        )
        raise SpecError(
            what,
            "plan",
            "Nothing was read. To write the messages again, begin a pipeline with another id and"
            " table.",
        )


def _refuse_off_grid(pipeline: Pipeline, window: Window) -> None:
    """The window must be one of the pipeline's own, on the grid that its boundaries are
    frozen on.
    """
    spec = pipeline.spec
    grid = spec.window
    if window.span is not None and isinstance(grid, TimeWindows) and window.span[0] < grid.start:
        what = f"Window {window.key} lies before the start of {spec.id}, {instant(grid.start)}"
        raise GridError(
            what, "plan", "Run a later one: what lies before the start is in no window."
        )
    fits = window.span is None if spec.window.is_batch else _on_grid(spec, window)
    if not fits:
        raise GridError(
            f"{label_text(window.start)} to {label_text(window.end)} is not one {spec.window.grid}"
            f" window of {spec.id}",
            "plan",
            "Run the windows of the grid one by one.",
        )


def _on_grid(spec: PipelineSpec, window: Window) -> bool:
    return (
        window.span is not None
        and grids.window_at(spec.id, spec.window.grid, window.span[0]) == window
    )


def refuse_open(pipeline: Pipeline, window: Window) -> None:
    """Hold the window against the clock.

    Raises:
        NotClosedError: says from when on it can be run.
    """
    grid = pipeline.spec.window
    if (
        window.span is not None
        and isinstance(grid, TimeWindows)
        and not grids.is_closed(window, grid.delay, pipeline.now())
    ):
        closed = instant(window.span[1] + grid.delay)
        raise NotClosedError(
            f"Window {window.key} of {window.pipeline} is not closed yet",
            "plan",
            f"Run it at {closed} or later.",
        )


def _generation(
    pipeline: Pipeline, window: Window, request: Request, found: Committed | None
) -> int:
    """The generation this request aims at; a replacement's is frozen, so that its own
    retries don't replace again.
    """
    if not request.replace:
        return 0
    proposed = 0 if found is None else found.receipt.generation + 1
    return pipeline.ledger.target_generation(window, request.id, proposed)


def freeze_plans(
    pipeline: Pipeline,
    windows: Sequence[Window],
    found: Mapping[Window, Committed | None],
    progress: Callable[[Progress], None],
) -> list[Plan]:
    """Each window's one plan: the committed one, the frozen one, or a new one.

    One window alone waits for open transactions.
    """
    spec, new = pipeline.spec, [window for window in windows if found[window] is None]
    if new:
        refuse_changed_grid(pipeline)
    known = {window: pipeline.ledger.plan(window) for window in new}
    unplanned = [window for window in new if known[window] is None]
    labels = sorted({label for window in unplanned for label in (window.start, window.end)})
    frozen = freeze_boundaries(pipeline, labels, progress, patient=len(windows) == 1)
    made = [
        make_plan(
            w,
            start_of(pipeline.ledger, w, frozen[w.start]),
            frozen[w.end],
            pipeline.sink.identity,
            spec.source.split_records,
        )
        for w in unplanned
    ]
    crash_point("plan.before")
    known |= {
        plan.window: plan
        for plan in pipeline.ledger.freeze_plans([_as_specified(pipeline, plan) for plan in made])
    }
    crash_point("plan.after")
    planned = {w: there.receipt.plan for w, there in found.items() if there is not None}
    planned |= {w: _as_specified(pipeline, plan) for w, plan in known.items() if plan is not None}
    return [planned[window] for window in windows]


def _as_specified(pipeline: Pipeline, plan: Plan) -> Plan:
    """What was frozen for a window that isn't committed yet must still be what the spec reads.

    Which table it goes to was looked at before; a plan that was made before the table
    was moved names the old place.

    Raises:
        IdentityError: it was planned for messages that the spec doesn't select any more.
    """
    selection = pipeline.spec.source.selection()
    other = next((s for s in plan.splits if not selects(selection, s.tp)), None)
    if other is not None:
        raise IdentityError(
            f"Window {plan.window.key} was planned for what the spec doesn't select any more: now"
            f" {selection_text(selection)}",
            "plan",
            "Set the source back until this window is committed, or begin a pipeline with"
            " another id.",
            other.topic,
            other.partition,
            other.start,
        )
    return plan


def preview(pipeline: Pipeline, window: Window) -> Plan:
    """The plan as a run would make it now; freezes nothing, and reads no more of the
    topic than boundaries need.

    Raises:
        SpecError: a micro-batch that was not begun.
        RefusedError, UnreachableError: as a run, of what can be told before messages
            are read; but see `ownership.refuse_unready`.
    """
    _refuse_off_grid(pipeline, window)
    spec = pipeline.spec
    refuse_other_table(pipeline)
    known = pipeline.ledger.plan(window)
    if known is not None:
        return refuse_unreadable(pipeline, known)
    start = pipeline.ledger.start(spec.id, window.start) or foreseen(pipeline, window.start, None)
    stop = pipeline.ledger.boundary(spec.id, window.end) or foreseen(pipeline, window.end, start)
    return refuse_unreadable(
        pipeline, make_plan(window, start, stop, pipeline.sink.identity, spec.source.split_records)
    )


def refuse_unreadable(pipeline: Pipeline, plan: Plan) -> Plan:
    """The plan, if a run of it could read its messages now, or has already.

    Raises:
        IdentityError, DataLossError, UnreachableError: as
            `availability.readable_splits`, or the spec selects something else.
    """
    if pipeline.sink.look(plan.window) is None:
        readable_splits(pipeline, _as_specified(pipeline, plan), pipeline.spec.source.on_loss, None)
    return plan


def _receipt(read: Read, request: Request) -> Receipt:
    pipeline, attempt = read.now, read.attempt
    plan, splits = attempt.plan, tuple(s.counts for s in read.staged)
    names = sorted({s.topic for s in plan.splits})
    compacted = frozenset(
        name for name, info in pipeline.broker.topics(names).items() if info.compacted
    )
    return Receipt(
        plan=plan,
        digest=plan.digest,
        generation=attempt.generation,
        attempt=attempt.id,
        request=request.id,
        ledger=pipeline.ledger.identity(),
        grid=pipeline.spec.window.grid,
        counts=Counts.total(splits),
        splits=splits,
        schema=pipeline.columns().described(),
        code=written_by(),
        staged_at=pipeline.now(),
        seconds=round(read.seconds, 3),
        warnings=unexplained(plan, splits, compacted) + held_back(plan) + unwitnessed(plan),
        partial=losses(plan, splits) + cut_short(pipeline, plan) + _left_behind(pipeline, plan),
    )


def _left_behind(pipeline: Pipeline, plan: Plan) -> tuple[str, ...]:
    """What a topic that is gone held up to a boundary above: a later window counts it
    as skipped, and some of it may be of this one.
    """
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
                    f"{mark.tp}: was gone when this window was cut; of its offsets {low.offset} to"
                    f" {mark.offset}, which are counted as skipped in a later window, some may"
                    " belong here"
                )
    return tuple(found)


def _check(read: Read, receipt: Receipt, request: Request) -> None:
    """All that can still refuse the window.

    The dead letters go in first, so that a refusal can be looked into; without a
    receipt that names their attempt, no reader of the table counts them.
    """
    pipeline, staged, found = read.now, read.staged, read.attempt.found
    refuse_unequal(receipt.plan, staged)
    keep_schemas(pipeline, staged)
    refuse_back(
        pipeline,
        receipt.plan,
        (s.split for s in staged if s.counts.skipped < s.split.stop - s.split.start),
    )
    if found is not None and not request.accept_fewer:
        refuse_fewer(receipt, found.receipt)
    crash_point("dead.before")
    pipeline.dead_letters.commit(receipt.plan, receipt.attempt, staged)
    way = f"windrow dead show SPEC --window {receipt.window.key}"
    if found is not None:  # else `show` takes the newest attempt by itself
        way += f" --attempt {receipt.attempt}"
    refuse_too_many_dead(receipt.window, staged, pipeline.spec.limits, way)


def commit(pipeline: Pipeline, receipt: Receipt, staged: Sequence[Staged]) -> Result:
    """The last step: rows and receipt in one commit, then the copy for the ledger, and
    what a consumer group is told.

    Raises:
        OutcomeUnknownError, RefusedError: it can't be told to have arrived; or as
            `ports.sink.Sink.commit`.
    """
    return _reported(pipeline, _committed(pipeline, receipt, staged))


def _committed(
    pipeline: Pipeline, receipt: Receipt, staged: Sequence[Staged]
) -> Done | AlreadyDone:
    outcome = pipeline.sink.commit(receipt, staged)
    if isinstance(outcome, Unknown):
        raise OutcomeUnknownError(
            f"The commit of window {receipt.window.key} was sent and not answered: {outcome.why}",
            "commit",
            "Run the window again: it looks into the table first and reports the commit if it"
            " arrived.",
        )
    return outcome


def _reported(pipeline: Pipeline, outcome: Done | AlreadyDone) -> Result:
    return _report(pipeline, outcome.committed, recovered=isinstance(outcome, AlreadyDone))


def _report(pipeline: Pipeline, committed: Committed, *, recovered: bool) -> Result:
    """The sink's own word is the result.

    The ledger keeps a copy, lag tools hear of it by a group, and a topic has its dead letters.
    """
    pipeline.ledger.record(committed.receipt, pipeline.sink.receipt_text(committed.receipt))
    crash_point("report.before")
    receipt, topic = committed.receipt, pipeline.dead_topic
    published = _published(pipeline, receipt)
    letters = (
        None
        if topic is None
        else publish_dead_letters(pipeline.dead_letters, topic, receipt, pipeline.now)
    )
    return Result(committed, recovered, published, letters)


def _published(pipeline: Pipeline, receipt: Receipt) -> Published | None:
    """Only of the newest window: a backfill of an older one must not move the group back."""
    group = pipeline.spec.source.publish_group
    if group is None or pipeline.ledger.recorded(pipeline.spec.id, 1)[-1].window != receipt.window:
        return None
    return publish(pipeline.broker, group, receipt.plan.stop)
