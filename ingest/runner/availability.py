"""Planned splits that are still in the log, topics that a run gives up, and new topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from windrow.ingest.errors import IdentityError, UnreachableError, WindrowError, format_count
from windrow.ingest.model.boundary import Boundary, Mark, is_later, label_text
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.receipt import Committed, SplitCounts, Staged
from windrow.ingest.model.source import OnLoss, selects
from windrow.ingest.ports.sink import TopicSink
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.source.data_loss import WAY_OUT, refuse_lost
from windrow.ingest.source.enumerator.cutoff import (
    confirmed_cut_off,
    confirmed_gone,
    cut_off_error,
    describe_cutoff,
)
from windrow.ingest.source.enumerator.splits import refuse_other_identity


def loss_policy(pipeline: Pipeline, request: Request, committed: Committed | None) -> OnLoss:
    """Returns whether this run may continue without messages that are gone.

    The spec decides for a first reading. A request that replaces a window decides itself, by
    `accept_fewer`.
    """
    if committed is not None:
        return "skip" if request.accept_fewer else "fail"
    return pipeline.spec.source.on_loss


def readable_splits(
    pipeline: Pipeline, plan: Plan, on_loss: OnLoss, committed: Committed | None
) -> tuple[Split, ...]:
    """Returns the splits of a plan that can still be read.

    Their topics must be the planned topics, and must have the planned offsets. The reader
    notices a truncated log if it reads messages of this log. For all other logs this
    function asks the cluster.

    Args:
        pipeline: the pipeline.
        plan: the window's plan.
        on_loss: "skip" if the run may continue without messages that are gone.
        committed: the generation that the run replaces; None for a first reading.

    Raises:
        IdentityError: the cluster or a topic isn't the planned one. If the newest boundary
            is of another cluster, too, the spec names a wrong cluster (`of_setting`).
        DataLossError, CutOffError: the log lacks planned offsets.
        UnreachableError: the cluster doesn't answer.
    """
    names = sorted({s.topic for s in plan.splits})
    cluster, ids = _current_topics(pipeline, names)
    given_up_topics = (
        _given_up(pipeline, plan, cluster, ids, on_loss) if committed is None else frozenset[str]()
    )
    if len(ids) + len(given_up_topics) < len(names):
        # a topic that was missing may exist again by now
        cluster, ids = _current_topics(pipeline, names)
    readable = tuple(s for s in plan.splits if s.topic not in given_up_topics)
    readable_plan = msgspec.structs.replace(plan, splits=readable)
    try:
        refuse_other_identity(readable_plan, cluster, ids)
    except IdentityError as error:
        reached = next_start(pipeline.ledger, pipeline.spec.id)
        error.of_setting = reached is not None and reached.cluster_id != cluster
        raise
    if on_loss == "fail":
        way_out = (
            WAY_OUT if committed is None else "Replay with --accept-fewer to go on with fewer."
        )
        refuse_lost(
            readable_plan, pipeline.broker.log_starts(sorted({s.tp for s in readable})), way_out
        )
    if on_loss == "fail" and committed is None:
        for mark, end in _logs_cut_short(pipeline, plan):
            raise cut_off_error(mark, end, plan.stop.label)
    return readable


def refuse_changed_topics(pipeline: Pipeline, plan: Plan, splits: tuple[Split, ...]) -> None:
    """Compares the topics with the plan again, right before the commit.

    Args:
        pipeline: the pipeline.
        plan: the window's plan.
        splits: the splits that were read. The run gave up the topics of all other splits.

    Raises:
        IdentityError: a topic that was read was deleted and made again.
        UnreachableError: a topic that the run gave up exists again.
    """
    cluster, ids = _current_topics(pipeline, sorted({s.topic for s in plan.splits}))
    refuse_other_identity(msgspec.structs.replace(plan, splits=splits), cluster, ids)
    planned = plan.stop.by_topic()
    for topic in sorted({s.topic for s in plan.splits} - {s.topic for s in splits}):
        if cluster == plan.stop.cluster_id and ids.get(topic) == planned[topic].topic_id:
            raise UnreachableError(
                f"The topic didn't exist when window {plan.window.key} was read, and exists again",
                "check",
                "Nothing was committed. Run the window again.",
                topic,
            )


def _current_topics(pipeline: Pipeline, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Returns the cluster's id, and the ids of the topics that exist, by name."""
    return pipeline.broker.cluster_id(), {
        name: info.topic_id for name, info in pipeline.broker.topics(names).items()
    }


def cut_short_in_words(pipeline: Pipeline, plan: Plan) -> tuple[str, ...]:
    """Returns sentences for a window's receipt about logs that end before the window's end.

    There is a sentence for each such log from which the window reads no messages. Empty with
    `on_loss: fail`: then `readable_splits` refuses such a window.
    """
    if pipeline.spec.source.on_loss == "fail":
        return ()
    return tuple(
        f"{mark.tp}: {describe_cutoff(mark, end, plan.stop.label)}; messages that are written there"
        " until it has grown back are in no window"
        for mark, end in _logs_cut_short(pipeline, plan)
    )


def _logs_cut_short(pipeline: Pipeline, plan: Plan) -> list[tuple[Mark, int | None]]:
    """Returns the window's end marks in logs that end before them, each with the log's end.

    Only logs from which the window reads no messages are checked, and no topics that are gone
    or were created anew. The end is None if the log has grown again.
    """
    read, planned = {s.tp for s in plan.splits}, plan.stop.by_topic()
    marks = [
        m for m in plan.stop.marks if m.tp not in read and m.offset > 0 and m.origin != "removed"
    ]
    if not marks:
        return []
    cluster, ids = _current_topics(pipeline, sorted({m.topic for m in marks}))
    same = [
        m
        for m in marks
        if cluster == plan.stop.cluster_id and ids.get(m.topic) == planned[m.topic].topic_id
    ]
    return confirmed_cut_off(pipeline.broker, same, pipeline.sleep)


def _given_up(
    pipeline: Pipeline, plan: Plan, cluster: str, ids: Mapping[str, str], on_loss: OnLoss
) -> frozenset[str]:
    """Returns the topics of the plan that are gone, if the run may continue without them.

    With `on_removed: drop` these are topics that don't exist any more in the planned cluster.
    With `on_loss: skip` these are topics that a rebase has replaced.

    Args:
        pipeline: the pipeline.
        plan: the window's plan.
        cluster: the id of the cluster now.
        ids: the ids of the topics that exist now.
        on_loss: see `loss_policy`.

    Raises:
        IdentityError: a rebase has replaced a topic, and `on_loss` is "fail".
    """
    names = sorted({s.topic for s in plan.splits})
    replaced = (
        _replaced_topics(pipeline, plan, names)
        if any(ids.get(n) != plan.stop.by_topic()[n].topic_id for n in names)
        else set()
    )
    if replaced and on_loss == "fail":
        raise IdentityError(
            f"Window {plan.window.key} was planned before a rebase, and its messages are gone with"
            " the old topic",
            "plan",
            "Set source.on_loss: skip to commit it without them, as partial.",
            min(replaced),
        )
    drops = pipeline.spec.source.on_removed == "drop" and cluster == plan.stop.cluster_id
    missing = [name for name in names if name not in ids] if drops else []
    return frozenset({*replaced, *confirmed_gone(pipeline.broker, missing, pipeline.sleep)})


def _replaced_topics(pipeline: Pipeline, plan: Plan, names: Sequence[str]) -> set[str]:
    """Returns the topics of the plan that a rebase at the window's end or later has replaced."""
    planned, replaced_topics = plan.stop.by_topic(), set[str]()
    for rebased in pipeline.ledger.rebased_boundaries(pipeline.spec.id):
        now = rebased.by_topic()
        if not is_later(plan.window.end, rebased.label):
            moved = rebased.cluster_id != plan.stop.cluster_id
            replaced_topics |= {
                n for n in names if moved or n not in now or now[n].topic_id != planned[n].topic_id
            }
    return replaced_topics


class JoiningTopic(msgspec.Struct, frozen=True):
    """A topic that joins in a window: this window is the first that reads it.

    Attributes:
        topic: the topic's name.
        earlier_offsets: the number of offsets from before the window that are read into it.
            Kafka finds the first offset of the window by its start time. For a micro-batch,
            all offsets of the topic that it reads.
        passed_over: the number of offsets in the log before the first offset that is read.
    """

    topic: str
    earlier_offsets: int = msgspec.field(name="before")
    passed_over: int

    def __str__(self) -> str:
        """Returns a clause for people."""
        return (
            f"{self.topic} joins in this window, which by source.joining reads"
            f" {self.earlier_offsets:,} of"
            f" its offsets from before the window, and passes over {self.passed_over:,}"
        )


def joining_topics(pipeline: Pipeline, plan: Plan) -> tuple[JoiningTopic, ...]:
    """Returns the topics that join in a plan's window, if they still exist."""
    start_marks, ends, ids = (
        plan.stop.joining_marks(plan.start),
        plan.stop.by_tp(),
        plan.stop.by_topic(),
    )
    if not start_marks:
        return ()
    _, now = _current_topics(pipeline, sorted({tp.topic for tp in start_marks}))
    tps = [tp for tp in start_marks if now.get(tp.topic) == ids[tp.topic].topic_id]
    starts, span = pipeline.broker.log_starts(tps), plan.window.span
    hits = pipeline.broker.first_at_or_after(tps, span[0]) if span else {}
    earlier_offsets, passed_over = Counter[str](), Counter[str]()
    for tp in tps:
        begin, hit = start_marks[tp].offset, hits.get(tp) or ends[tp]
        earlier_offsets[tp.topic] += max(0, min(hit.offset, ends[tp].offset) - begin)
        passed_over[tp.topic] += max(0, begin - starts[tp])
    return tuple(
        JoiningTopic(name, earlier_offsets[name], passed_over[name])
        for name in sorted(earlier_offsets)
    )


def expiring_messages(pipeline: Pipeline, key: str, splits: Sequence[Split]) -> tuple[str, ...]:
    """Returns a sentence if the sink's topics would soon delete published messages of a window.

    Published messages keep the time of their source messages. The topic deletes them if they
    are older than its retention.

    Args:
        pipeline: the pipeline.
        key: the window's key.
        splits: the splits of the window that can be read.
    """
    retention = pipeline.sink.retention() if isinstance(pipeline.sink, TopicSink) else None
    if retention is None or not splits:
        return ()
    tps = sorted({split.tp for split in splits})
    hits = pipeline.broker.first_at_or_after(tps, pipeline.now() - retention[1])
    stops = [split.stop if (hit := hits[split.tp]) is None else hit.offset for split in splits]
    pairs = zip(splits, stops, strict=True)
    count = sum(max(0, min(stop, split.stop) - split.start) for split, stop in pairs)
    warning = (
        f"window {key} has {format_count(count, 'offset')} older than retention.ms of"
        f" {retention[0]} ({retention[1]}):"
        " Kafka deletes their messages soon after they are published. Set sink.timestamp to"
        " published, or raise retention.ms"
    )
    return (warning,) if count else ()


def unselected_topics(
    pipeline: Pipeline, reached: Boundary, *, newly: bool = False
) -> tuple[str, ...]:
    """Returns sentences about topics that were read up to a boundary, and aren't selected now.

    Args:
        pipeline: the pipeline.
        reached: the boundary.
        newly: only topics that were still read at the boundary. Otherwise also topics that
            were given up before the boundary, while they have unread messages.
    """
    selection = pipeline.spec.source.selection()
    unselected_marks = [m for m in reached.marks if not selects(selection, m.tp)]
    named = {m.topic for m in unselected_marks if m.origin != "removed"}
    if not (named if newly else unselected_marks):
        return ()
    still = {m.topic for m in reached.marks if selects(selection, m.tp)}
    until, unread = f"until {label_text(reached.label)}", Counter[str]()
    with suppress(WindrowError):  # this user may have no right to read them now
        cluster, ids = _current_topics(pipeline, sorted({m.topic for m in unselected_marks}))
        same = {t.topic for t in reached.topics if ids.get(t.topic) == t.topic_id}
        tps = [m.tp for m in unselected_marks if m.topic in same and cluster == reached.cluster_id]
        starts, ends = pipeline.broker.log_starts(tps), pipeline.broker.stable_ends(tps)
        for tp, mark in reached.cuts(tps).items():
            unread[tp.topic] += max(0, ends[tp].offset - max(mark.offset, starts[tp]))
    return tuple(
        f"{topic} was read {until if topic in named else 'earlier'}, and the spec doesn't select"
        f" {'all of ' if topic in still else ''}it any more: unread of its messages:"
        f" {f'{unread[topic]:,}' if topic in unread else 'an unknown number'}."
        " Another pipeline? Give it another id"
        for topic in sorted(named if newly else named | set(+unread))
    )


def with_skipped_splits(plan: Plan, read: Sequence[Staged]) -> list[Staged]:
    """Returns one result per split of the plan, in the plan's order.

    All offsets of a split that was not read count as skipped, because its topic is gone.
    """
    results = {r.split: r for r in read}
    return [results.get(split) or _skip_split(split) for split in plan.splits]


def _skip_split(split: Split) -> Staged:
    nothing = SplitCounts.of_nothing(split)
    skipped = msgspec.structs.replace(nothing, skipped=split.stop - split.start)
    return Staged(split, skipped, (), ())
