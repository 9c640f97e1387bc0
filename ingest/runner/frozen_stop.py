"""The end of micro-batches (`window.stop`).

The end is resolved to offsets once, and frozen before the first micro-batch is cut. The ledger
records it under the position that the spec names. So:

- Two runs at once use the same end, the one that is recorded first. So does a retry.
- If the spec names another position, another end is resolved and frozen with the next batch. It
  may be before the old end, but not before offsets that batches have read already: then the
  table would have messages that it shouldn't have.
"""

from __future__ import annotations

import msgspec

from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import IdentityError, NotClosedError, SpecError, join_first_few
from windrow.ingest.model.boundary import Boundary, instant
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.source import AtTime, FrozenStop, Given, Source, selects
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.source.enumerator.micro_batch_ends import last_boundary

DONE = "Done: all up to window.stop is committed."


def bounded_source(spec: PipelineSpec, ledger: Ledger) -> Source:
    """Returns the source as planning sees it, with its end if the end is frozen."""
    stop = None if spec.stop is None else ledger.frozen_stop(spec.id, spec.stop)
    return msgspec.structs.replace(spec.source.for_planning(spec.window.grid), stop=stop)


def source_with_stop(pipeline: Pipeline, lower: Boundary, *, freeze: bool) -> Source:
    """Returns the source with its end, which is resolved if it isn't frozen yet.

    Args:
        pipeline: the pipeline.
        lower: the boundary at which the next micro-batch begins.
        freeze: also freeze the end.

    Raises:
        SpecError: batches have read messages after the end; or see `last_boundary`.
        NotClosedError: the end is an instant in the future.
        IdentityError: the end was frozen before a rebase.
        DataLossError, OpenTransactionError: see `last_boundary`.
    """
    spec, source = pipeline.spec, bounded_source(pipeline.spec, pipeline.ledger)
    if spec.stop is None:
        return source
    if not source.stop and isinstance(spec.stop, AtTime) and spec.stop.moment > pipeline.now():
        raise NotClosedError(
            f"window.stop is {instant(spec.stop.moment)}, and that is still to come: all that is"
            " there now lies before it",
            "plan",
            "Run it then; or write latest, to end at what is there now.",
        )
    stop = source.stop or last_boundary(pipeline.broker, source, spec.stop, lower)
    if _is_of_another(stop, lower):
        raise IdentityError(
            "window.stop was frozen before a rebase, with offsets of the source of then",
            "plan",
            "Set it to another position, which is resolved in the new source, or leave it out.",
        )
    _refuse_passed(stop, lower, pipeline.ledger.boundary(spec.id, 0) or lower)
    if source.stop is None and freeze:
        stop = pipeline.ledger.freeze_stop(spec.id, stop)
    return msgspec.structs.replace(source, stop=stop)


def stop_of(pipeline: Pipeline, plan: Plan) -> FrozenStop | None:
    """Returns the frozen end if it limits a window's plan, for the receipt."""
    stop = bounded_source(pipeline.spec, pipeline.ledger).stop
    return stop if stop is not None and stop.covers(plan.splits) else None


def is_reached(pipeline: Pipeline, source: Source, lower: Boundary) -> bool:
    """Returns whether a boundary has reached the end.

    Topics that the source doesn't select any more don't count. With `on_removed: drop`, topics
    that don't exist any more don't count either.
    """
    if source.stop is None or _is_of_another(source.stop, lower):
        return False
    short = {
        tp.topic for tp in source.stop.remaining_offsets(lower) if selects(source.selection, tp)
    }
    drops_removed = source.on_removed == "drop"
    return not short or (drops_removed and not pipeline.broker.topics(sorted(short)))


def still_to_come(pipeline: Pipeline) -> str:
    """Returns a space and a sentence about the unread offsets up to the end, or "" without any."""
    stop, lower = (
        bounded_source(pipeline.spec, pipeline.ledger).stop,
        next_start(pipeline.ledger, pipeline.spec.id),
    )
    if stop is None or lower is None or not (unread := stop.remaining_offsets(lower)):
        return ""
    names = join_first_few([*unread])
    return f" Offsets left up to window.stop: {sum(unread.values()):,}, of {names}."


def _is_of_another(stop: FrozenStop, lower: Boundary) -> bool:
    """Returns whether an end has offsets of a cluster or topic that a rebase has replaced."""
    end_topics, lower_topics = stop.boundary.by_topic(), lower.by_topic()
    return stop.boundary.cluster_id != lower.cluster_id or any(
        end_topics[topic].topic_id != lower_topics[topic].topic_id
        for topic in end_topics.keys() & lower_topics.keys()
    )


def _refuse_passed(stop: FrozenStop, lower: Boundary, first: Boundary) -> None:
    """Refuses an end that is before the next micro-batch's start.

    An end before the pipeline's start is allowed, if nothing was read and the spec doesn't
    give its offset: then there are no messages up to it.

    Args:
        stop: the end.
        lower: the boundary at which the next micro-batch begins.
        first: the boundary at which the pipeline began.
    """
    ends, began = stop.boundary.by_tp(), first.cuts(mark.tp for mark in stop.boundary.marks)
    given_offsets = dict(stop.position.offsets) if isinstance(stop.position, Given) else {}
    for tp, mark in lower.cuts(ends).items():
        unread = tp in began and began[tp].offset == mark.offset and tp not in given_offsets
        if ends[tp].offset < mark.offset and not unread:
            raise SpecError(
                f"window.stop is offset {ends[tp].offset}, and the next micro-batch begins at"
                f" {mark.offset}",
                "plan",
                "Set it to a later position, or leave it out to go on without an end.",
                tp.topic,
                tp.partition,
                mark.offset,
            )
