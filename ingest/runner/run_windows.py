"""The order of a run: plan -> [per split: read -> decode -> transform -> stage] -> commit.

In its commit the sink reads the state of the table, decides, and writes rows and receipt only
if the table is still in this state. A run may die at any step. The next run of the same window
starts from the beginning, and sees in ledger and sink how far the last run came:

    a run died before                    the next run sees           and does
    a boundary or plan was frozen        nothing, or some of them    freezes the rest
    all splits were staged               a frozen plan, and staged   reads the same offsets
                                         files of no commit          again
    the dead letters' commit, or after   a frozen plan, and dead     reads the same offsets
                                         letters that don't count    again
    the data commit, or after            data and receipt, or        reports, or reads again
                                         neither of them
    the report                           data and receipt            reports them as recovered
    its dead letters were in their       data and receipt            reports them as recovered,
    topic (see `dead_publishing`)                                    and publishes dead letters
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeAlias, TypeVar

import msgspec

from windrow.ingest.config.window import TimeWindows, event_time_of
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import (
    DeadWorkerError,
    IdentityError,
    NotClosedError,
    OutcomeUnknownError,
    RefusedError,
    SpecError,
    UnreachableError,
    WindrowError,
    format_count,
)
from windrow.ingest.model import grid as grids
from windrow.ingest.model.boundary import Boundary, instant
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Committed, Counts, Receipt, Staged
from windrow.ingest.model.source import selection_text, selects
from windrow.ingest.ports.sink import AlreadyDone, Done, ShowsProgress, TableGroup, Unknown
from windrow.ingest.runner.accounting import (
    describe_losses,
    find_unanswered,
    find_unexplained,
    find_unwitnessed,
    held_back,
    refuse_expired,
    refuse_fewer,
    refuse_too_many_dead,
    refuse_undoing,
    refuse_unequal,
)
from windrow.ingest.runner.attempts import (
    TOGETHER,
    Attempt,
    ReadAttempt,
    jobs,
    results_of,
    with_pins,
)
from windrow.ingest.runner.availability import (
    cut_short_in_words,
    expiring_messages,
    joining_topics,
    loss_policy,
    readable_splits,
    refuse_changed_topics,
    unselected_topics,
    with_skipped_splits,
)
from windrow.ingest.runner.broker_snapshot import with_broker_snapshot
from windrow.ingest.runner.context import (
    PassedOver,
    Pipeline,
    Request,
    Result,
    written_by,
)
from windrow.ingest.runner.dead_publishing import publish_dead_letters
from windrow.ingest.runner.due import record_refusal
from windrow.ingest.runner.freezing import (
    foreseen_plan,
    freeze_boundaries,
    refuse_changed_grid,
    refuse_off_grid,
)
from windrow.ingest.runner.frozen_stop import stop_of
from windrow.ingest.runner.group_offsets import AlteredOffsets, alter_offsets
from windrow.ingest.runner.next_start import start_of
from windrow.ingest.runner.observing import observe, tell, timed
from windrow.ingest.runner.ownership import (
    bind_table,
    refuse_empty_table,
    refuse_foreign_table,
    refuse_lost_receipt,
    refuse_other_table,
    refuse_paused,
    refuse_unready,
)
from windrow.ingest.runner.poison_pills import poison_pills_in
from windrow.ingest.runner.poison_search import find_poison_pills
from windrow.ingest.runner.progress import Progress, ReadProgress, ignore
from windrow.ingest.runner.writer_schemas import keep_schemas, with_writer_schemas
from windrow.ingest.source.enumerator.splits import make_plan
from windrow.ingest.waiting import waiting_for

T = TypeVar("T")

PassOver: TypeAlias = Callable[[Window, RefusedError], bool]
"""Function that decides whether the windows after a refused window are run nevertheless."""


def stop_at_refused(window: Window, refused: RefusedError) -> bool:
    """Returns False for each refused window, so that the windows after it aren't run."""
    del window, refused
    return False


def run(
    pipeline: Pipeline,
    window: Window,
    request: Request,
    progress: Callable[[Progress], None] = ignore,
) -> Result:
    """Commits the window exactly once, even after failed runs, or while another run runs it.

    Raises:
        NotClosedError: the window's end + delay is in the future.
        RefusedError: data loss, identity, overlap, grid, schema or dead-letter limits.
        SpecError: the request doesn't fit the pipeline.
        UnreachableError: broker, ledger, sink or Spark didn't answer; run the window again.
        OutcomeUnknownError: the commit was sent, and may have arrived; run the window again.
        BugError: for example, the counts of a window don't add up.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        result = windrow.run_window(pipeline, window, windrow.Request("backfill"))
        print(result.describe())
    """
    (result,) = run_windows(pipeline, [window], request, progress)
    assert isinstance(result, Result), "nothing is passed over"
    return result


def run_windows(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None] = ignore,
    pass_over: PassOver = stop_at_refused,
) -> Iterator[Result | PassedOver]:
    """Commits several windows, in their order; yields each result after its commit.

    Small windows share the most expensive steps: the questions to table and cluster, and the
    Spark job. A refused window that `pass_over` accepts is yielded as `PassedOver`, at its
    place in the order. Any other error ends the run at its window: the windows before it are
    committed, and the error names the windows that were not tried.

    Raises:
        WindrowError: see `run`. The error of a window is raised at the window's place.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        hours = windrow.windows_named(spec, "2026-01-05T09:00:00Z/2026-01-05T11:00:00Z")
        for result in windrow.run_windows(pipeline, hours, windrow.Request("backfill")):
            print(result.committed.receipt.window.key, result.committed.receipt.counts.rows)
    """
    parts = (windows[start : start + TOGETHER] for start in range(0, len(windows), TOGETHER))
    outcomes = (
        outcome
        for part in parts
        for outcome in _run_together(pipeline, part, request, progress, pass_over)
    )
    recorded = _naming_untried(
        windows, outcomes, lambda window, error: record_refusal(pipeline, window, error)
    )
    return observe(pipeline, recorded)


def one_by_one(
    windows: Sequence[Window], action: Callable[[Window], T], pass_over: PassOver
) -> Iterator[T | PassedOver]:
    """Calls `action` with each window, in their order, and yields the results.

    A refused window is yielded as `PassedOver` if `pass_over` accepts it. Otherwise its error
    is raised, and the windows after it aren't tried.

    Raises:
        WindrowError: an error of `action`; it names the windows that were not tried.
    """
    return _naming_untried(windows, (_outcome_of(window, action, pass_over) for window in windows))


def pass_over_refused(pipeline: Pipeline) -> PassOver:
    """Returns a function that accepts windows that are refused for their own data.

    If windows must be committed in order, it accepts only windows that are committed.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        hours = windrow.windows_named(spec, "2026-01-05T09:00:00Z/2026-01-05T12:00:00Z")
        request, pass_over = windrow.Request("backfill"), windrow.pass_over_refused(pipeline)
        results = list(windrow.run_windows(pipeline, hours, request, pass_over=pass_over))
        print(sum(isinstance(result, windrow.PassedOver) for result in results), "were refused")
    """
    in_order, sink = pipeline.spec.in_order, pipeline.sink
    return lambda window, refused: (
        not refused.of_setting and (not in_order or sink.look(window) is not None)
    )


def refused_last(outcomes: Iterator[T | PassedOver], windows: int) -> Iterator[T]:
    """Yields the results of windows that aren't passed over, and raises at the end for the others.

    Args:
        outcomes: the outcomes of a run.
        windows: the number of windows of the run.

    Raises:
        RefusedError: windows were passed over; it is raised after the last result.
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
    """Makes the error at the end of a run that has passed over windows.

    Args:
        passed: the windows that were passed over.
        windows: the number of windows of the run.
    """
    if windows == 1:
        return passed[0].error
    keys = ", ".join(refusal.window.key for refusal in passed)
    lines = "\n".join(f"{refusal.window.key}: {refusal.error}" for refusal in passed)
    return RefusedError(
        f"{len(passed)} of {format_count(windows, 'window')} refused: {keys}",
        "check",
        f"The others are committed. Run the refused ones again, once they are fixed:\n{lines}",
    )


def _outcome_of(
    window: Window, action: Callable[[Window], T], pass_over: PassOver
) -> T | PassedOver:
    try:
        return action(window)
    except RefusedError as error:
        if not pass_over(window, error):
            raise
        return PassedOver(window, error)


def _naming_untried(
    windows: Sequence[Window],
    outcomes: Iterator[T],
    record: Callable[[Window, RefusedError], None] = lambda *_: None,
) -> Iterator[T]:
    """Yields the outcomes; adds the windows that were not tried to the advice of an error.

    Args:
        windows: the windows of the run.
        outcomes: their outcomes.
        record: is called with each refused window.
    """
    done = 0
    try:
        for outcome in outcomes:
            done += 1
            if isinstance(outcome, PassedOver):
                record(outcome.window, outcome.error)
            yield outcome
    except WindrowError as error:
        if isinstance(error, RefusedError):
            record(windows[done], error)
        untried_keys = [window.key for window in windows[done + 1 :]]
        if untried_keys:
            error.advice += f" Not tried: {untried_keys[0]}" + (
                f" to {untried_keys[-1]}, {format_count(len(untried_keys), 'window')}."
                if len(untried_keys) > 1
                else "."
            )
        raise


def _run_together(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None],
    pass_over: PassOver,
) -> Iterator[Result | PassedOver]:
    try:
        with timed(pipeline, "plan"):
            committed, attempts = _begin(pipeline, windows, request, progress)
    except Exception as error:  # parts are planned again, to find the window of the error
        if len(windows) == 1:
            if not isinstance(error, RefusedError) or not pass_over(windows[0], error):
                raise
            yield PassedOver(windows[0], error)
            return
        half = (len(windows) + 1) // 2
        # the first window alone: in an outage, it fails at once, and no half is tried
        for part in filter(None, (windows[:1], windows[1:half], windows[half:])):
            yield from _run_together(pipeline, part, request, progress, pass_over)
        return
    reads = (
        read
        for job in jobs(attempts, apart=pipeline.dataframe_transform is not None)
        for read in _read_job(pipeline, job, request, progress)
    )
    for index, window in enumerate(windows):
        read, outcome = None, None
        try:
            if window not in committed:
                with timed(pipeline, "read"):
                    read = next(reads)
                with timed(pipeline, "commit"):
                    outcome = _check_and_commit(pipeline, read, request)
        except RefusedError as error:
            if not pass_over(window, error):
                raise
            yield PassedOver(window, error)
            if read is None:  # the error ended the job: a new job reads the windows after it
                yield from _run_together(
                    pipeline, windows[index + 1 :], request, progress, pass_over
                )
                return
        else:  # the window is committed: no error after this refuses it
            yield (
                _report(pipeline, committed[window], recovered=True)
                if outcome is None
                else _report_outcome(pipeline, outcome)
            )


def _begin(
    pipeline: Pipeline,
    windows: Sequence[Window],
    request: Request,
    progress: Callable[[Progress], None],
) -> tuple[dict[Window, Committed], list[Attempt]]:
    """Looks the windows up in the table, and plans attempts at the uncommitted windows.

    Commits nothing.

    Returns:
        The committed windows with their receipts, and the attempts at all other windows.
    """
    refuse_paused(pipeline.ledger, pipeline.spec.id, anyway=request.anyway)
    for window in windows:
        refuse_off_grid(pipeline, window)
        _refuse_replacement(pipeline, window, request)
        refuse_open(pipeline, window)
    refuse_foreign_table(pipeline)
    latest_commits = dict(zip(windows, pipeline.sink.looks(windows), strict=True))
    if not any(latest_commits.values()):
        refuse_empty_table(pipeline)
    present_windows = [
        window for window, latest_commit in latest_commits.items() if latest_commit is not None
    ]
    several = isinstance(pipeline.sink, TableGroup)
    complete_windows = pipeline.sink.committed(present_windows) if several else present_windows
    generations = {
        window: _generation(
            pipeline,
            window,
            request,
            latest_commits[window],
            is_complete=window in complete_windows,
        )
        for window in windows
    }
    committed = {
        w: latest_commit
        for w, latest_commit in latest_commits.items()
        if latest_commit is not None and latest_commit.receipt.generation >= generations[w]
    }
    uncommitted_windows = [window for window in windows if window not in committed]
    for replaced_commit in filter(None, (latest_commits[window] for window in uncommitted_windows)):
        if not request.bring_back:
            refuse_expired(replaced_commit.receipt)
        if not request.accept_fewer:
            refuse_undoing(replaced_commit.receipt)
    if not uncommitted_windows:
        return committed, []
    for window in (
        w
        for w in uncommitted_windows
        if latest_commits[w] is None and not request.accept_duplicates
    ):
        refuse_lost_receipt(pipeline, window)
    # The start takes seconds. Meanwhile this thread loads the schema and plans the windows.
    pipeline.engine.start()
    refuse_unready(pipeline)
    pipeline.sink.prepare(
        pipeline.owner(),
        [w.key for w in uncommitted_windows if request.replace and latest_commits[w] is not None],
    )
    pipeline.dead_letters.prepare(pipeline.owner())
    bind_table(pipeline)
    plans = freeze_plans(pipeline, uncommitted_windows, latest_commits, progress)
    now, attempts = with_broker_snapshot(pipeline), list[Attempt]()
    for plan in plans:
        replaced, name = latest_commits[plan.window], uuid.uuid4().hex
        on_loss = loss_policy(now, request, replaced)
        readable = readable_splits(now, plan, on_loss, replaced)
        generation = generations[plan.window]
        attempts.append(Attempt(plan, replaced, generation, name, on_loss, readable))
    forget_at = pipeline.now() if request.try_again else None
    for index, pills in enumerate(poison_pills_in(pipeline.ledger, plans, forget_at)):
        attempts[index] = msgspec.structs.replace(attempts[index], poison_pills=pills)
    return committed, with_pins(pipeline, attempts, fresh=request.fresh_lookups)


def _read_job(
    pipeline: Pipeline,
    job: Sequence[Attempt],
    request: Request,
    progress: Callable[[Progress], None],
) -> Iterator[ReadAttempt]:
    """Runs one job of the engine over all splits of several attempts, and yields the results.

    If the job fails with an UnreachableError, each attempt without results is run alone. If a
    worker dies of a message of this attempt, the message is left out, and the attempt is run
    again.

    Raises:
        PausedError: the pipeline was paused since the previous job.
    """
    refuse_paused(pipeline.ledger, pipeline.spec.id, anyway=request.anyway)
    pipeline = with_writer_schemas(pipeline, job)
    splits = [split for attempt in job for split in attempt.readable]
    first = job[0].plan.window.key
    windows_text = f"window {first}" if len(job) == 1 else f"{len(job)} windows from {first} on"
    splits_text, reading = format_count(len(splits), "split"), f"Reading {windows_text}"
    progress(Progress(reading, notes=(f"{reading}: {splits_text}",)))
    read = ReadProgress(job[0].id)
    with suppress(Exception):  # a job runs without progress, too
        if isinstance(pipeline.sink, ShowsProgress):
            read = ReadProgress(job[0].id, pipeline.sink.progress_folder())
    with read.report_reads(splits, reading, progress):
        staged, trouble = _until_error(results_of(pipeline, job, splits, read))
    progress(Progress(""))
    now, results = with_broker_snapshot(pipeline), iter(staged)
    for done, attempt in enumerate(job):
        attempt_splits = list(islice(results, len(attempt.readable)))
        if trouble is not None and len(attempt_splits) < len(attempt.readable):
            if len(job) == 1 and isinstance(trouble, DeadWorkerError):
                pills = attempt.poison_pills + find_poison_pills(pipeline, attempt, trouble)
                next_attempt = msgspec.structs.replace(attempt, poison_pills=pills)
                yield from _read_job(pipeline, [next_attempt], request, progress)
                return
            if len(job) == 1 or not isinstance(trouble, UnreachableError):
                raise trouble
            for later_attempt in job[done:]:
                yield from _read_job(pipeline, [later_attempt], request, progress)
            return
        yield ReadAttempt(now, attempt, with_skipped_splits(attempt.plan, attempt_splits))


def _until_error(results: Iterator[Staged]) -> tuple[list[Staged], WindrowError | None]:
    """Returns the results before the first error, and that error."""
    staged: list[Staged] = []
    try:
        staged.extend(results)
    except WindrowError as error:
        return staged, error
    return staged, None


def _check_and_commit(
    pipeline: Pipeline, read: ReadAttempt, request: Request
) -> Done | AlreadyDone:
    receipt = _receipt(read, request)
    _refuse_uncommittable(read, receipt, request)
    with waiting_for(f"the commit of window {receipt.window.key}"):
        _commit_dead_letters(read, receipt)
        # again, because another run may have committed the window while this run was reading
        if not request.accept_duplicates:
            refuse_lost_receipt(pipeline, receipt.window)
        return _commit_to_sink(pipeline, receipt, read.staged)


def _refuse_replacement(pipeline: Pipeline, window: Window, request: Request) -> None:
    """Refuses a replacement if the sink can't replace committed windows."""
    if request.replace and not pipeline.sink.capabilities.replaces:
        raise SpecError(
            f"Window {window.key} can't be replaced: {pipeline.spec.sink.kind} keeps what was"
            " committed once",
            "plan",
            "Nothing was read. To write the messages again, begin a pipeline with another id and"
            " table.",
        )


def refuse_open(pipeline: Pipeline, window: Window) -> None:
    """Checks that the window's end + delay is in the past.

    Raises:
        NotClosedError: the window isn't closed; the advice says when it can be run.
    """
    grid = pipeline.spec.window
    if (
        window.span is not None
        and isinstance(grid, TimeWindows)
        and not grids.is_closed(window, grid.delay, pipeline.now())
    ):
        closed = window.span[1] + grid.delay
        error = NotClosedError(
            f"Window {window.key} of {window.pipeline} is not closed yet",
            "plan",
            f"Run it at {instant(closed)} or later.",
        )
        error.until = closed
        raise error


def _generation(
    pipeline: Pipeline,
    window: Window,
    request: Request,
    latest_commit: Committed | None,
    *,
    is_complete: bool,
) -> int:
    """Returns the number of the generation that the request is for.

    The generation of a replacement is frozen, so that its retries don't replace the window
    again. If one of several tables lacks the window's rows, the next generation writes them to
    all tables.

    Args:
        pipeline: the pipeline.
        window: the window.
        request: the request.
        latest_commit: the committed generation; None if there is none.
        is_complete: whether all tables of the sink have the window's rows.
    """
    proposed = 0 if latest_commit is None else latest_commit.receipt.generation + 1
    if not request.replace:
        return 0 if is_complete else proposed
    return pipeline.ledger.target_generation(window, request.id, proposed)


def freeze_plans(
    pipeline: Pipeline,
    windows: Sequence[Window],
    latest_commits: Mapping[Window, Committed | None],
    progress: Callable[[Progress], None],
) -> list[Plan]:
    """Returns each window's plan: from its receipt, else the frozen plan, else a new plan.

    New plans are frozen. A run of a single window waits for open transactions.
    """
    new = [window for window in windows if latest_commits[window] is None]
    if new:
        refuse_changed_grid(pipeline)
    plan_by_window = {window: pipeline.ledger.plan(window) for window in new}
    unplanned = [window for window in new if plan_by_window[window] is None]
    labels = sorted({label for window in unplanned for label in (window.start, window.end)})
    frozen = freeze_boundaries(pipeline, labels, progress, patient=len(windows) == 1)
    new_plans = [_make_plan(pipeline, w, frozen[w.start], frozen[w.end]) for w in unplanned]
    crash_point("plan.before")
    plan_by_window |= {
        plan.window: plan
        for plan in pipeline.ledger.freeze_plans(
            [_as_specified(pipeline, plan) for plan in new_plans]
        )
    }
    crash_point("plan.after")
    planned = {
        w: latest_commit.receipt.plan
        for w, latest_commit in latest_commits.items()
        if latest_commit is not None
    }
    planned |= {
        w: _as_specified(pipeline, plan) for w, plan in plan_by_window.items() if plan is not None
    }
    return [planned[window] for window in windows]


def _make_plan(pipeline: Pipeline, window: Window, start: Boundary, stop: Boundary) -> Plan:
    """Makes a window's plan from its frozen boundaries."""
    start = start_of(pipeline.ledger, window, start)
    split_records, sink = pipeline.spec.source.split_records, pipeline.sink.identity
    plan = make_plan(window, start, stop, sink, split_records)
    if pipeline.enumerate_splits is None:
        return plan
    return make_plan(window, start, stop, sink, splits=pipeline.enumerate_splits(pipeline, plan))


def _as_specified(pipeline: Pipeline, plan: Plan) -> Plan:
    """Returns the plan of an uncommitted window, if the spec still selects all its splits.

    The plan's table isn't compared, because the table may have been moved since.

    Raises:
        IdentityError: the plan has messages that the spec doesn't select any more.
    """
    selection = pipeline.spec.source.selection()
    unselected_split = next((s for s in plan.splits if not selects(selection, s.tp)), None)
    if unselected_split is not None:
        raise IdentityError(
            f"Window {plan.window.key} was planned for messages that the spec doesn't select any"
            f" more: it now selects {selection_text(selection)}",
            "plan",
            "Set the source back until this window is committed, or begin a pipeline with"
            " another id.",
            unselected_split.topic,
            unselected_split.partition,
            unselected_split.start,
        )
    return plan


def preview(pipeline: Pipeline, window: Window) -> Plan:
    """Returns the plan that a run would use now.

    Freezes nothing, and reads only the messages that are needed to find boundaries.

    Raises:
        SpecError: the window is a micro-batch that was not begun.
        RefusedError, UnreachableError: a run would fail before it reads messages. The checks
            of `ownership.refuse_unready` are not included.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        plan = windrow.preview_window(pipeline, window)
        print(sum(split.stop - split.start for split in plan.splits), "offsets")
    """
    refuse_off_grid(pipeline, window)
    refuse_other_table(pipeline)
    plan = pipeline.ledger.plan(window) or foreseen_plan(pipeline, window)
    return refuse_unreadable(pipeline, plan)


def refuse_unreadable(pipeline: Pipeline, plan: Plan) -> Plan:
    """Returns the plan, if its window is committed or its messages can be read now.

    Raises:
        IdentityError: see `availability.readable_splits`; or the spec doesn't select a split
            of the plan any more.
        DataLossError, UnreachableError: see `availability.readable_splits`.
        RefusedError: see `ownership.refuse_lost_receipt`.
    """
    if pipeline.sink.look(plan.window) is None:
        refuse_lost_receipt(pipeline, plan.window)
        readable_splits(pipeline, _as_specified(pipeline, plan), pipeline.spec.source.on_loss, None)
    return plan


def _receipt(read: ReadAttempt, request: Request) -> Receipt:
    pipeline, attempt = read.pipeline, read.attempt
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
        warnings=find_unexplained(plan, splits, compacted)
        + held_back(plan)
        + find_unanswered(splits)
        + find_unwitnessed(plan)
        + tuple(
            f"{pill} is left out, a dead letter that was not decoded: it kills the process that"
            " decodes it. A replay of the window with --try-again tries it again"
            for pill in attempt.poison_pills
        )
        + unselected_topics(pipeline, plan.start, newly=True)
        + expiring_messages(pipeline, plan.window.key, attempt.readable),
        partial=describe_losses(plan, splits)
        + cut_short_in_words(pipeline, plan)
        + _left_behind(pipeline, plan),
        passed_over=sum(topic.passed_over for topic in joining_topics(pipeline, plan)),
        pins=attempt.pins,
        stop=stop_of(pipeline, plan),
        event_time=event_time_of(pipeline.spec.window),
        files=sum(len(s.rows) for s in read.staged),
    )


def _left_behind(pipeline: Pipeline, plan: Plan) -> tuple[str, ...]:
    """Returns sentences about topics that were gone when the window was cut.

    A later window counts their remaining offsets as skipped. Some of these offsets may belong
    to this window.
    """
    removed_marks, above = {m.tp: m for m in plan.stop.marks if m.origin == "removed"}, plan.stop
    sentences = []
    while removed_marks:
        upper = pipeline.ledger.neighbours(plan.window.pipeline, above.label)[1]
        if upper is None:
            break
        above = upper
        for mark in [m for m in above.marks if m.tp in removed_marks and m.origin != "removed"]:
            low = removed_marks.pop(mark.tp)
            if mark.offset > low.offset:
                sentences.append(
                    f"{mark.tp}: was gone when this window was cut; of its offsets {low.offset} to"
                    f" {mark.offset}, which are counted as skipped in a later window, some may"
                    " belong here"
                )
    return tuple(sentences)


def _refuse_uncommittable(read: ReadAttempt, receipt: Receipt, request: Request) -> None:
    """Refuses a window that must not be committed, for any reason except dead letters."""
    pipeline, staged, replaced = read.pipeline, read.staged, read.attempt.replaced
    refuse_unequal(receipt.plan, staged)
    keep_schemas(pipeline, staged)
    refuse_changed_topics(pipeline, receipt.plan, read.attempt.readable)
    # If one of several tables lacks the window, `accept_fewer` doesn't count: the other tables
    # would lose rows.
    if replaced is not None and not (
        request.accept_fewer and pipeline.sink.committed([receipt.window])
    ):
        refuse_fewer(receipt, replaced.receipt)


def _commit_dead_letters(read: ReadAttempt, receipt: Receipt) -> None:
    """Stores the window's dead letters, then refuses the window if they are too many.

    They are stored first, so that a person can see why the window was refused. Readers ignore
    dead letters of an attempt without a receipt.
    """
    pipeline, staged = read.pipeline, read.staged
    crash_point("dead.before")
    pipeline.dead_letters.commit(receipt.plan, receipt.attempt, staged)
    command = f"windrow dead show SPEC --window {receipt.window.key}"
    if read.attempt.replaced is not None:  # otherwise `show` takes the newest attempt itself
        command += f" --attempt {receipt.attempt}"
    refuse_too_many_dead(receipt.window, staged, pipeline.spec.limits, command)


def commit(pipeline: Pipeline, receipt: Receipt, staged: Sequence[Staged]) -> Result:
    """Commits rows and receipt, then reports the commit (`_report`).

    Raises:
        OutcomeUnknownError: the commit was sent and not answered.
        RefusedError: see `ports.sink.Sink.commit`.
    """
    return _report_outcome(pipeline, _commit_to_sink(pipeline, receipt, staged))


def _commit_to_sink(
    pipeline: Pipeline, receipt: Receipt, staged: Sequence[Staged]
) -> Done | AlreadyDone:
    pipeline.before_commit()
    outcome = pipeline.sink.commit(receipt, staged)
    if isinstance(outcome, Unknown):
        raise OutcomeUnknownError.of(f"of window {receipt.window.key}", outcome.reason)
    tell(pipeline.observer, ("windrow_commit_tries_total", outcome.tries), report=False)
    return outcome


def _report_outcome(pipeline: Pipeline, outcome: Done | AlreadyDone) -> Result:
    return _report(pipeline, outcome.committed, recovered=isinstance(outcome, AlreadyDone))


def _report(pipeline: Pipeline, committed: Committed, *, recovered: bool) -> Result:
    """Reports a committed window.

    The ledger gets a copy of the receipt, a consumer group gets the offsets for lag tools, and
    the topic of dead letters gets the dead letters.

    Args:
        pipeline: the pipeline.
        committed: the receipt from the sink.
        recovered: see `Result`.
    """
    pipeline.ledger.record(committed.receipt, pipeline.sink.receipt_text(committed.receipt))
    crash_point("report.before")
    receipt, topic = committed.receipt, pipeline.dead_topic
    group_offsets = _group_offsets(pipeline, receipt)
    with waiting_for(f"the dead letters of window {receipt.window.key} to be in their topic"):
        dead_letters = (
            None if topic is None else publish_dead_letters(pipeline.dead_letters, topic, receipt)
        )
    return Result(committed, recovered, group_offsets, dead_letters)


def _group_offsets(pipeline: Pipeline, receipt: Receipt) -> AlteredOffsets | None:
    """Commits the window's end to the consumer group, if the window is the newest.

    A backfill of an older window must not move the group back.
    """
    group = pipeline.spec.source.offsets_group
    if (
        group is None
        or pipeline.ledger.recorded_receipts(pipeline.spec.id, 1)[-1].window != receipt.window
    ):
        return None
    return alter_offsets(pipeline.broker, group, receipt.plan.stop)
