"""Fits frozen boundaries together, so that windows tile in any order of runs.

To tile means: each window starts at exactly the offsets at which the previous one stops.
Pure. Each boundary is clamped between its neighbours. Other functions here compare two
boundaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windrow.ingest.errors import IdentityError, UnreachableError
from windrow.ingest.model.boundary import (
    Boundary,
    Label,
    Mark,
    TopicPartition,
    TopicSeen,
    label_text,
)


def clamp(boundary: Boundary, lower: Boundary | None, upper: Boundary | None) -> Boundary:
    """Clamps a boundary between its frozen neighbours, so that windows tile. Pure.

    - A topic-partition that only the lower neighbour knows is taken over from it.
    - A topic-partition that the upper neighbour doesn't know is left out. A later boundary
      begins to read it.
    - A partition that the upper neighbour has at 0 is at 0 here too. All its messages
      belong to a later window.

    Raises:
        IdentityError: a neighbour is of another cluster, or has another topic of the same
            name.
        UnreachableError: a neighbour was frozen meanwhile that doesn't know a
            topic-partition of this boundary, and the boundary has no start mark for it. The
            caller may try again.
    """
    for neighbour in (lower, upper):
        if neighbour is not None:
            refuse_other_source(boundary, neighbour)
    topics = boundary.by_topic() if lower is None else _merge_topics(lower, boundary)
    marks = (
        boundary.by_tp()
        if lower is None
        else _carry_marks(lower, boundary) | _added_marks(lower, boundary, upper)
    )
    if upper is not None:
        above = upper.cuts(marks)
        marks = {tp: _lower_to(mark, above[tp]) for tp, mark in marks.items() if tp in above}
        topics = {name: topic for name, topic in topics.items() if name in upper.by_topic()}
    start_marks = {b.tp: _lower_to(b, marks[b.tp]) for b in boundary.start_marks if b.tp in marks}
    if lower is not None:
        below = lower.cuts(marks)
        _refuse_unasked(boundary.label, marks.keys() - below.keys() - start_marks.keys())
        marks = {
            tp: _raise_to(mark, below[tp]) if tp in below else mark for tp, mark in marks.items()
        }
        start_marks = {tp: begin for tp, begin in start_marks.items() if tp not in below}
    return Boundary.of(
        boundary.label, boundary.cluster_id, topics.values(), marks.values(), start_marks.values()
    )


def _refuse_unasked(label: Label, tps: Iterable[TopicPartition]) -> None:
    """Refuses a boundary that lacks the start mark of a joining topic-partition.

    It happens in a race of two runs:

    1. Run A asks the cluster while no lower boundary is frozen.
    2. Run B, with an older spec, freezes a lower boundary without a topic of A.
    3. Run A freezes its boundary, which has no start mark for that topic.
    """
    for tp in sorted(tps):
        raise UnreachableError(
            f"While {label_text(label)} was resolved, an earlier boundary was frozen that doesn't"
            " know this topic-partition",
            "freeze",
            "Run the window again.",
            tp.topic,
            tp.partition,
        )


def refuse_other_source(boundary: Boundary, neighbour: Boundary) -> None:
    """Refuses a boundary whose cluster or topics differ from those of a neighbour. Pure.

    Raises:
        IdentityError: the clusters differ, or a topic has another id.
    """
    advice = (
        "The topic was recreated, or the cluster replaced. windrow rebase SPEC shows how to go on"
        " from here."
    )
    texts = f"The boundaries {label_text(neighbour.label)} and {label_text(boundary.label)}"
    if boundary.cluster_id != neighbour.cluster_id:
        raise IdentityError(
            f"{texts} are of two clusters, {neighbour.cluster_id} and {boundary.cluster_id}",
            "plan",
            advice,
        )
    neighbour_topics = neighbour.by_topic()
    for topic in boundary.topics:
        if (
            topic.topic in neighbour_topics
            and neighbour_topics[topic.topic].topic_id != topic.topic_id
        ):
            raise IdentityError(
                f"{texts} are of two topics with ids {neighbour_topics[topic.topic].topic_id} and"
                f" {topic.topic_id}",
                "plan",
                advice,
                topic.topic,
            )


def offset_ranges(start: Boundary, stop: Boundary) -> dict[TopicPartition, tuple[Mark, Mark]]:
    """Returns the start and the stop mark of a window in each topic-partition of `stop`, in order.

    Pure. In a topic-partition that `start` doesn't know, the window begins at the start
    mark in `stop`. If there is no start mark, the topic-partition was left out of `start`
    on purpose, and its range is empty.

    Raises:
        ValueError: `stop` cuts below `start`, so the two were not frozen by the same
            ledger.
    """
    marks_at_start, start_marks = start.cuts(m.tp for m in stop.marks), stop.joining_marks(start)
    ranges = {m.tp: (marks_at_start.get(m.tp) or start_marks.get(m.tp) or m, m) for m in stop.marks}
    for tp, (low, high) in ranges.items():
        if high.offset < low.offset:
            msg = f"the boundaries of {tp} are inverted: {low.offset}..{high.offset}"
            raise ValueError(msg)
    return ranges


def _merge_topics(lower: Boundary, boundary: Boundary) -> dict[str, TopicSeen]:
    """Returns the topics of both boundaries, each with the larger number of partitions."""
    topics = lower.by_topic()
    for topic in boundary.topics:
        partition_count = max(
            topic.partitions, topics[topic.topic].partitions if topic.topic in topics else 0
        )
        topics[topic.topic] = msgspec.structs.replace(topic, partitions=partition_count)
    return topics


def _carry_marks(lower: Boundary, boundary: Boundary) -> dict[TopicPartition, Mark]:
    """Returns the boundary's own marks, and the marks that only the lower neighbour has.

    The neighbour's marks become `removed`, or `clamped` if the partition was added after
    the boundary was resolved.
    """
    own_marks, topic_by_name = boundary.by_tp(), boundary.by_topic()
    carried = {}
    for tp, mark in lower.by_tp().items():
        if tp not in own_marks:
            unseen = (
                tp.topic in topic_by_name and tp.partition >= topic_by_name[tp.topic].partitions
            )
            carried[tp] = msgspec.structs.replace(mark, origin="clamped" if unseen else "removed")
    return carried | own_marks


def _added_marks(
    lower: Boundary, boundary: Boundary, upper: Boundary | None
) -> dict[TopicPartition, Mark]:
    """Returns marks of partitions that were added after the lower neighbour and not selected here.

    They are needed if the upper neighbour reads them:

    1. The topic has one partition at label 1.
    2. The topic gets a second partition.
    3. Run A selects both partitions and freezes label 3. Windows after label 1 must read
       the whole second partition.
    4. Run B selects only the first partition and freezes label 2. If its boundary didn't
       know the second partition, the messages that this partition has by then would be in
       no window.
    """
    read = {} if upper is None else lower.cuts(upper.by_tp())
    own_marks = boundary.cuts(read)
    return {
        tp: msgspec.structs.replace(mark, origin="removed")
        for tp, mark in read.items()
        if tp not in own_marks and tp not in lower.by_tp()
    }


def _raise_to(mark: Mark, below: Mark) -> Mark:
    """Returns a mark, moved up to `below` if it is under it.

    A `log_start` exactly at the proven cut of the lower neighbour lost no message, so it
    stops being a `log_start`.
    """
    proven = (
        below.offset == mark.offset and below.origin != "log_start" and mark.origin == "log_start"
    )
    if mark.offset < below.offset or proven:
        return msgspec.structs.replace(below, origin="clamped")
    return _with_older_witness(mark, below)


def _lower_to(mark: Mark, above: Mark) -> Mark:
    """Returns a mark, moved down to `above` if it is over it.

    A `log_start` that is moved down stays a `log_start`: the messages before it are gone.
    """
    if mark.offset <= above.offset:
        return _with_older_witness(mark, above)
    return msgspec.structs.replace(
        above, origin="log_start" if mark.origin == "log_start" else "clamped"
    )


def _with_older_witness(mark: Mark, neighbour: Mark) -> Mark:
    """Returns a mark with the smaller leader epoch of it and its neighbour.

    The epoch changes only if both marks have the same offset. The smaller epoch proves
    more:

    1. A boundary cuts at 600, under epoch 5.
    2. The log is truncated at 400 and grows to 600 or beyond, under epoch 6.
    3. The next boundary cuts at 600 too, so its window is empty.
    4. The window after that begins at 600. Only epoch 5 shows that the log was truncated.
    """
    epochs = [m.leader_epoch for m in (mark, neighbour) if m.leader_epoch is not None]
    return (
        msgspec.structs.replace(mark, leader_epoch=min(epochs))
        if epochs and mark.offset == neighbour.offset
        else mark
    )


def difference(first: Boundary, second: Boundary) -> str:
    """Describes how the cuts of two boundaries differ; empty if they don't.

    The way in which a cut was determined isn't compared.
    """
    if first.label != second.label or not (
        same_source(first, second) and same_source(second, first)
    ):
        return (
            f"label, cluster or topic id differ ({label_text(first.label)},"
            f" {label_text(second.label)})"
        )
    return _unlike(first, second, sorted({m.tp for m in (*first.marks, *second.marks)}))


def same_source(lower: Boundary, upper: Boundary) -> bool:
    """Returns whether the upper boundary has all topics of the lower one.

    The boundaries must be of the same cluster, and the topics have the same ids.
    """
    return lower.cluster_id == upper.cluster_id and _ids(lower) <= _ids(upper)


def stop_start_difference(stop: Boundary, start: Boundary) -> str:
    """Describes how a window's end differs from the next window's start; empty if it doesn't.

    There may be a rebase between the two. Then the second boundary is of another cluster,
    or has topics with other ids, or lacks topics.
    """
    if same_source(stop, start) or stop.label != start.label:
        return difference(stop, start)
    return _unlike(stop, start, comparable(stop, start))


def comparable(stop: Boundary, start: Boundary) -> list[TopicPartition]:
    """Returns the topic-partitions in which two boundaries of one label must have the same offset.

    After a rebase these are only the topics that keep their ids.
    """
    if stop.cluster_id != start.cluster_id:
        return []
    tps = sorted(stop.by_tp().keys() | start.by_tp().keys())
    if same_source(stop, start):
        return tps
    stayed = {name for name, _ in _ids(stop) & _ids(start)}
    return [tp for tp in tps if tp.topic in stayed]


def _ids(boundary: Boundary) -> set[tuple[str, str]]:
    return {(t.topic, t.topic_id) for t in boundary.topics}


def _unlike(first: Boundary, second: Boundary, tps: Sequence[TopicPartition]) -> str:
    first_offsets, second_offsets = (
        {tp: m.offset for tp, m in b.cuts(tps).items()} for b in (first, second)
    )
    differences = [
        (tp, first_offsets.get(tp, "nothing"), second_offsets.get(tp, "nothing"))
        for tp in tps
        if first_offsets.get(tp) != second_offsets.get(tp)
    ]
    return "; ".join(f"{tp} at {a} and {b}" for tp, a, b in differences)
