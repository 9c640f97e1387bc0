"""Micro-batches: how they are cut and run.

A batch begins at the end of the previous batch. It ends after `max_records` offsets, at the
offsets that are stable now, or at `window.stop`. The next batch is cut only after the previous one
is committed. Before a batch is cut, ledger and table must know the same batches
(`ownership.refuse_restored`), because one of them may be an older copy.

    a run died                        the next run sees                   and does
    before the boundary was frozen    that the batch before the newest    cuts the same batch,
                                      boundary is committed               perhaps longer
    before the batch was assigned     that the batch before the newest    takes that batch
    to the request                    boundary is not committed
    while the batch ran               the batch assigned to the request,  as for any window:
                                      or the newest batch                 see `run_windows`

Two runs at once:

1. A and B see that batch 6 is committed.
2. A freezes boundary 8.
3. B tries to freeze boundary 8, and gets A's boundary, which is frozen already.
4. Both run batch 7. One commits it, and the other reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count

import msgspec

from windrow.ingest.config.window import MicroBatches
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import GridError, refusals_blame_settings
from windrow.ingest.model.boundary import Boundary, TopicPartition, number_of
from windrow.ingest.model.grid import batch_at
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.tiling import clamp
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.freezing import refuse_changed_grid
from windrow.ingest.runner.frozen_stop import bounded_source, is_reached, source_with_stop
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.runner.ownership import (
    refuse_foreign_table,
    refuse_other_table,
    refuse_paused,
    refuse_restored,
)
from windrow.ingest.runner.progress import Progress, ignore
from windrow.ingest.runner.run_windows import preview, refuse_unreadable, run
from windrow.ingest.source.enumerator.cutoff import repeat_while_cut_off
from windrow.ingest.source.enumerator.micro_batch_ends import first_boundary, next_batch
from windrow.ingest.source.enumerator.splits import make_plan
from windrow.ingest.source.enumerator.topics import discover


def run_batch(
    pipeline: Pipeline, request: Request, progress: Callable[[Progress], None] = ignore
) -> Result | None:
    """Runs the micro-batch of a request.

    This is the batch that was assigned to the request, else the newest batch if it isn't
    committed, else a new batch.

    Returns:
        The result; None if nothing is committed, because fewer than `min_records` offsets
        are waiting, none of them for longer than `max_delay`, or `window.stop` is reached
        (`is_done`).

    Raises:
        GridError: the pipeline's windows are not micro-batches.
        RefusedError: see `run_windows.run`. A refused batch blocks all later batches until
            it is committed.
        UnreachableError: see `run_windows.run`.
    """
    spec = pipeline.spec
    _refuse_windows_in_time(pipeline)
    refuse_changed_grid(pipeline)
    refuse_paused(pipeline.ledger, spec.id, anyway=request.anyway)
    refuse_foreign_table(pipeline)
    number = pipeline.ledger.assigned_number(spec.id, request.id)
    if number is None:
        number = _next_number(pipeline)
        if number is None:
            return None
        number = pipeline.ledger.assign(spec.id, request.id, number)
    return run(pipeline, batch_at(spec.id, number), request, progress)


def run_batches(
    pipeline: Pipeline, request: Request, progress: Callable[[Progress], None] = ignore
) -> Iterator[Result]:
    """Runs micro-batches one after the other, and yields their results.

    It ends when it reaches the offsets that were stable after the first batch that this call
    committed itself. So it also ends if messages arrive all the time. The n-th batch has the
    request id `<id>/n`, so that a retry reports the committed batches and continues.

    Example:
        import windrow

        spec = windrow.load_spec("clicks/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        for result in windrow.run_batches(pipeline, windrow.Request("backfill")):
            print(result.committed.receipt.window.key, result.committed.receipt.counts.rows)
    """
    goal: tuple[Boundary, dict[TopicPartition, int]] | None = None
    for n in count():
        result = run_batch(
            pipeline, msgspec.structs.replace(request, id=f"{request.id}/{n}"), progress
        )
        if result is None:
            return
        reached = result.committed.receipt.plan.stop
        if goal is None and not result.recovered:
            goal = reached, _stable_now(pipeline, reached)
        yield result
        if goal is not None and _is_reached(*goal, reached):
            return


def _is_reached(then: Boundary, goal: Mapping[TopicPartition, int], reached: Boundary) -> bool:
    """Returns whether a batch has reached the goal.

    Topics that were removed or created anew since the goal was set don't count. Topics that
    no boundary knew at that time don't count either.

    Args:
        then: the end of the first batch, when the goal was set.
        goal: the offset to reach in each topic-partition.
        reached: the end of the batch.
    """
    then_topics, reached_topics = then.by_topic(), reached.by_topic()
    same = [
        tp
        for tp in goal
        if tp.topic in then_topics
        and reached_topics.get(tp.topic) is not None
        and reached_topics[tp.topic].topic_id == then_topics[tp.topic].topic_id
    ]
    moved = then.cluster_id != reached.cluster_id
    return moved or all(
        mark.origin == "removed" or mark.offset >= goal[tp]
        for tp, mark in reached.cuts(same).items()
    )


def preview_next(pipeline: Pipeline) -> Plan | None:
    """Returns the plan of the micro-batch that a new request would run now; None without one.

    Freezes nothing.

    Raises:
        GridError: the pipeline's windows are not micro-batches.
        RefusedError, SpecError, UnreachableError: see `run_batch`.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    _refuse_windows_in_time(pipeline)
    refuse_other_table(pipeline)
    source = spec.source.for_planning(spec.window.grid)
    lower = next_start(ledger, spec.id) or first_boundary(pipeline.broker, source, 0)
    refuse_restored(pipeline)
    number = number_of(lower.label)
    if _is_uncommitted(pipeline, number - 1):
        return preview(pipeline, batch_at(spec.id, number - 1))
    cut = _next_end(pipeline, lower, number + 1, freeze=False)
    if cut is None:
        return None
    plan = make_plan(
        batch_at(spec.id, number),
        lower,
        clamp(cut, lower, None),
        pipeline.sink.identity,
        spec.source.split_records,
    )
    return refuse_unreadable(pipeline, plan)


def _refuse_windows_in_time(pipeline: Pipeline) -> MicroBatches:
    """Returns the spec's settings of micro-batches, if it has them.

    Raises:
        GridError: the pipeline has windows in time.
    """
    spec = pipeline.spec
    if not isinstance(spec.window, MicroBatches):
        raise GridError(
            f"Pipeline {spec.id} has {spec.window.grid} windows, not micro-batches",
            "plan",
            "Name the window to run.",
        )
    return spec.window


def number_cut(pipeline: Pipeline) -> int:
    """Returns how many micro-batches were cut; the newest may not be committed yet.

    Raises:
        GridError: the pipeline's windows are not micro-batches now, or were not before.
    """
    _refuse_windows_in_time(pipeline)
    refuse_changed_grid(pipeline)
    lower = next_start(pipeline.ledger, pipeline.spec.id)
    return 0 if lower is None else number_of(lower.label)


def is_done(pipeline: Pipeline) -> bool | None:
    """Returns whether everything up to `window.stop` is committed; None without a stop."""
    if pipeline.spec.stop is None:
        return None
    lower = next_start(pipeline.ledger, pipeline.spec.id)
    return (
        lower is not None
        and is_reached(pipeline, bounded_source(pipeline.spec, pipeline.ledger), lower)
        and not _is_uncommitted(pipeline, number_of(lower.label) - 1)
    )


def _next_end(pipeline: Pipeline, lower: Boundary, label: int, *, freeze: bool) -> Boundary | None:
    """Returns the end of the batch that begins at the newest boundary.

    None if too few offsets are waiting, or `window.stop` is reached.

    Args:
        pipeline: the pipeline.
        lower: the newest boundary.
        label: the number of the new boundary.
        freeze: also freeze `window.stop`, if it isn't frozen yet.
    """
    batches = _refuse_windows_in_time(pipeline)
    with refusals_blame_settings():
        source = source_with_stop(pipeline, lower, freeze=freeze)
        if is_reached(pipeline, source, lower):
            return None
        return repeat_while_cut_off(
            lambda: next_batch(
                pipeline.broker,
                source,
                lower,
                label,
                batches.max_records,
                batches.min_records,
                None if batches.max_delay is None else pipeline.now() - batches.max_delay,
            ),
            pipeline.sleep,
        )


def _is_uncommitted(pipeline: Pipeline, number: int) -> bool:
    return number >= 0 and pipeline.sink.look(batch_at(pipeline.spec.id, number)) is None


def _record_receipt(pipeline: Pipeline, number: int) -> None:
    """Records a committed batch's receipt in the ledger, if its own run didn't.

    With this copy the ledger knows the batch, even if the table loses it later.
    """
    if number < 0:
        return
    window = batch_at(pipeline.spec.id, number)
    if pipeline.ledger.recorded_text(window) is None:
        committed = pipeline.sink.look(window)
        # `look` finds the receipt; with routes, `committed` asks all tables for the window
        if committed is not None and pipeline.sink.committed([window]):
            pipeline.ledger.record(committed.receipt, pipeline.sink.receipt_text(committed.receipt))


def _next_number(pipeline: Pipeline) -> int | None:
    """Returns the number of the newest batch if it isn't committed, else of a new batch.

    All batches before the newest are committed. None if too few offsets are waiting, or
    `window.stop` is reached.
    """
    spec, ledger = pipeline.spec, pipeline.ledger
    refuse_restored(pipeline)
    lower = next_start(ledger, spec.id)
    if lower is None:
        first = first_boundary(pipeline.broker, spec.source.for_planning(spec.window.grid), 0)
        (lower,) = ledger.freeze(spec.id, [first])
    number = number_of(lower.label)
    if _is_uncommitted(pipeline, number - 1):
        return number - 1
    _record_receipt(pipeline, number - 1)
    cut = _next_end(pipeline, lower, number + 1, freeze=True)
    if cut is None:
        return None
    crash_point("boundary.before")
    ledger.freeze(spec.id, [cut])
    crash_point("boundary.after")
    return number


def _stable_now(pipeline: Pipeline, lower: Boundary) -> dict[TopicPartition, int]:
    source = pipeline.spec.source
    discovered = discover(pipeline.broker, source.selection(), lower, source.on_removed)
    return {tp: end.offset for tp, end in pipeline.broker.stable_ends(discovered.tps).items()}
