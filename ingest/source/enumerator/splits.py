"""Makes a plan from two frozen boundaries, and checks a plan before it is read.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from windrow.ingest.errors import IdentityError, SpecError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, label_text
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.tiling import offset_ranges, refuse_other_source


def make_plan(
    window: Window,
    start: Boundary,
    stop: Boundary,
    sink: str,
    split_records: int | None = None,
    splits: Sequence[Split] | None = None,
) -> Plan:
    """Cuts the offsets between two boundaries into splits of at most `split_records`.

    Args:
        window: the window between the boundaries.
        start: the boundary at the window's start; after a rebase, the boundary of the rebase.
        stop: the boundary at the window's end.
        sink: the identity of the table; part of the plan's digest.
        split_records: at least 1; None: one split per topic-partition.
        splits: splits that are already cut; None: they are cut here.

    Raises:
        IdentityError: the boundaries are of different clusters or topics.
        SpecError: `splits` are not exactly the offsets between the boundaries.
        ValueError: the boundaries are not those of the window, or `stop` cuts below
            `start`: they were not frozen by the same ledger.
    """
    if (start.label, stop.label) != (window.start, window.end):
        msg = (
            f"boundaries {label_text(start.label)} and {label_text(stop.label)} are not those of"
            f" window {window.key}"
        )
        raise ValueError(msg)
    refuse_other_source(stop, start)
    ranges, ends = offset_ranges(start, stop), stop.cuts(mark.tp for mark in start.marks)
    mark = next((m for m in start.marks if m.tp not in ends or ends[m.tp].offset < m.offset), None)
    if mark is not None:
        msg = (
            f"the boundaries of {mark.tp} are inverted: {mark.offset}, and the window's end doesn't"
            " know it"
        )
        raise ValueError(msg)
    if splits is None:
        splits = tuple(cut(ranges, split_records))
    elif _merge_ranges(splits) != _merge_ranges(cut(ranges)):
        raise SpecError(
            f"The splits of window {window.key} are not exactly the offsets between its boundaries",
            "plan",
            "enumerate_splits of the pipeline's KafkaSource gives each of them once, in order.",
        )
    return Plan(window, start, stop, tuple(splits), sink)


def _merge_ranges(splits: Iterable[Split]) -> list[tuple[TopicPartition, int, int]]:
    """Returns the ranges of splits; ranges that touch are merged."""
    ranges = list[tuple[TopicPartition, int, int]]()
    for split in splits:
        touches = bool(ranges) and ranges[-1][::2] == (split.tp, split.start)
        start = ranges.pop()[1] if touches else split.start
        ranges.append((split.tp, start, split.stop))
    return ranges


def cut(
    ranges: Mapping[TopicPartition, tuple[Mark, Mark]], split_records: int | None = None
) -> Iterator[Split]:
    """Cuts the ranges between two boundaries (`tiling.offset_ranges`) into splits.

    Each split has at most `split_records` offsets.
    """
    return (split for low, high in ranges.values() for split in _pieces(low, high, split_records))


def _pieces(low: Mark, high: Mark, max_offsets: int | None) -> Iterator[Split]:
    """Yields the fewest pieces of at most `max_offsets` offsets, of nearly equal length.

    The first piece's start has the lower mark's epoch as its witness, because it also shows
    what happened before the upper mark was made. The lower mark's epoch may end before the
    other pieces begin. So their witness is the upper mark's epoch, which reaches beyond them.
    """
    length = high.offset - low.offset
    count = 0 if length == 0 else 1 if max_offsets is None else -(-length // max_offsets)
    start = low.offset
    for i in range(count):
        end = low.offset + length * (i + 1) // count
        witness = high.leader_epoch if i > 0 or low.leader_epoch is None else low.leader_epoch
        yield Split(low.topic, low.partition, start, end, witness, high.leader_epoch)
        start = end


def refuse_other_identity(plan: Plan, cluster_id: str, topic_ids: Mapping[str, str]) -> None:
    """Compares a plan with the cluster and the topics as they are now.

    Only the topics that the plan reads matter, so a plan without splits suits every cluster.

    Args:
        plan: a frozen plan.
        cluster_id: the cluster's id.
        topic_ids: the ids of existing topics by name.

    Raises:
        IdentityError: the plan's offsets belong to other messages now.
    """
    if plan.splits and plan.stop.cluster_id != cluster_id:
        raise IdentityError(
            f"Window {plan.window.key} was planned on cluster {plan.stop.cluster_id}, and this is"
            f" cluster {cluster_id}",
            "plan",
            "Point bootstrap_servers at the cluster that was planned on; a window of the old"
            " cluster can't be read from a new one.",
        )
    planned = {t.topic: t.topic_id for t in plan.stop.topics}
    for topic in sorted({s.topic for s in plan.splits}):
        topic_id = topic_ids.get(topic)
        if topic_id != planned[topic]:
            now = "doesn't exist" if topic_id is None else f"has id {topic_id}"
            raise IdentityError(
                f"Window {plan.window.key} was planned on topic id {planned[topic]}, and the topic"
                f" now {now}",
                "plan",
                "The topic was deleted or recreated, so its offsets mean other messages now, and"
                " this window can't be read any more. windrow rebase SPEC shows how to go on with"
                " the new topic.",
                topic,
            )
