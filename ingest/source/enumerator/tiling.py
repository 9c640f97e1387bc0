"""How frozen boundaries fit together: each is moved between its neighbours, so that
windows tile in whatever order they run; and how two boundaries differ.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windrow.ingest.errors import IdentityError, UnreachableError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.label import Label, label_text


def clamped(boundary: Boundary, lower: Boundary | None, upper: Boundary | None) -> Boundary:
    """A boundary moved between its frozen neighbours, so that windows tile. Pure.

    What only the lower neighbour knows is taken over from it. What the upper neighbour
    doesn't know is left out: it is not read before some later boundary. A partition
    that the upper neighbour has at 0 is at 0 here: it belongs, whole, to a later
    window.

    Raises:
        IdentityError: a neighbour is of another cluster, or of another topic of the
            same name.
        UnreachableError: a neighbour was frozen meanwhile that doesn't know a
            topic-partition of this boundary, so where that begins was not asked; run it
            again.
    """
    for neighbour in (lower, upper):
        if neighbour is not None:
            refuse_other_source(boundary, neighbour)
    topics = boundary.by_topic() if lower is None else _seen(lower, boundary)
    marks = (
        boundary.by_tp()
        if lower is None
        else _carried(lower, boundary) | _added(lower, boundary, upper)
    )
    if upper is not None:
        above = upper.cuts(marks)
        marks = {tp: _below(mark, above[tp]) for tp, mark in marks.items() if tp in above}
        topics = {name: seen for name, seen in topics.items() if name in upper.by_topic()}
    begins = {b.tp: _below(b, marks[b.tp]) for b in boundary.begins if b.tp in marks}
    if lower is not None:
        below = lower.cuts(marks)
        _refuse_unasked(boundary.label, marks.keys() - below.keys() - begins.keys())
        marks = {tp: _above(mark, below[tp]) if tp in below else mark for tp, mark in marks.items()}
        begins = {tp: begin for tp, begin in begins.items() if tp not in below}
    return Boundary.of(
        boundary.label, boundary.cluster_id, topics.values(), marks.values(), begins.values()
    )


def _refuse_unasked(label: Label, tps: Iterable[TopicPartition]) -> None:
    """Race:  1 A asks the cluster; nothing is frozen below.  2 B, with an older spec,
    freezes one that lacks a topic.  3 A freezes.
    """
    for tp in sorted(tps):
        what = (
            f"While {label_text(label)} was resolved, an earlier boundary was frozen that doesn't"
            " know this topic-partition"
        )
        raise UnreachableError(what, "freeze", "Run the window again.", tp.topic, tp.partition)


def refuse_other_source(boundary: Boundary, neighbour: Boundary) -> None:
    """Refuse a boundary that lies on another source than a neighbour of the same pipeline. Pure.

    Raises:
        IdentityError: they are of different clusters, or of different topics of the same name.
    """
    do = (
        "The topic was made anew or the cluster replaced. windrow rebase SPEC shows what going on"
        " from here would mean."
    )
    texts = f"The boundaries {label_text(neighbour.label)} and {label_text(boundary.label)}"
    if boundary.cluster_id != neighbour.cluster_id:
        raise IdentityError(
            f"{texts} are of two clusters, {neighbour.cluster_id} and {boundary.cluster_id}",
            "plan",
            do,
        )
    known = neighbour.by_topic()
    for seen in boundary.topics:
        if seen.topic in known and known[seen.topic].topic_id != seen.topic_id:
            raise IdentityError(
                f"{texts} are of two topics with ids {known[seen.topic].topic_id} and"
                f" {seen.topic_id}",
                "plan",
                do,
                seen.topic,
            )


def between(start: Boundary, stop: Boundary) -> dict[TopicPartition, tuple[Mark, Mark]]:
    """Per topic-partition of `stop` where the window between two boundaries begins and
    ends, in order.

    Pure.

    What `start` doesn't know begins where `stop` says; if that doesn't say it, it was
    left out of `start` on purpose and isn't read before.

    Raises:
        ValueError: `stop` cuts below `start`: they were not frozen by one ledger.
    """
    known, begins = start.cuts(m.tp for m in stop.marks), {b.tp: b for b in stop.begins}
    ranges = {m.tp: (known.get(m.tp) or begins.get(m.tp) or m, m) for m in stop.marks}
    for tp, (low, high) in ranges.items():
        if high.offset < low.offset:
            msg = f"the boundaries of {tp} are inverted: {low.offset}..{high.offset}"
            raise ValueError(msg)
    return ranges


def _seen(lower: Boundary, boundary: Boundary) -> dict[str, TopicSeen]:
    """The topics of both, each with the most partitions that were seen."""
    topics = lower.by_topic()
    for seen in boundary.topics:
        most = max(seen.partitions, topics[seen.topic].partitions if seen.topic in topics else 0)
        topics[seen.topic] = msgspec.structs.replace(seen, partitions=most)
    return topics


def _carried(lower: Boundary, boundary: Boundary) -> dict[TopicPartition, Mark]:
    """What is here, after what only the lower neighbour knows: removed, unless the
    partition was added after this was resolved.
    """
    own, seen = boundary.by_tp(), boundary.by_topic()
    carried = {}
    for tp, mark in lower.by_tp().items():
        if tp not in own:
            unseen = tp.topic in seen and tp.partition >= seen[tp.topic].partitions
            carried[tp] = msgspec.structs.replace(mark, how="clamped" if unseen else "removed")
    return carried | own


def _added(
    lower: Boundary, boundary: Boundary, upper: Boundary | None
) -> dict[TopicPartition, Mark]:
    """Partitions that were added since the lower neighbour and not chosen here, but are
    read up to the upper one: they are carried on too.

    1 The topic has one partition at label 1.  2 It gets another.  3 A chooses both and
    freezes label 3, as windows from label 1 on read all of it.  4 B, which chose the
    first alone, freezes label 2: would that not know the second, no window would read
    what it held.
    """
    read = {} if upper is None else lower.cuts(upper.by_tp())
    known = boundary.cuts(read)
    return {
        tp: msgspec.structs.replace(mark, how="removed")
        for tp, mark in read.items()
        if tp not in known and tp not in lower.by_tp()
    }


def _above(mark: Mark, below: Mark) -> Mark:
    """One mark moved to at least `below`.

    A log start found exactly at a neighbour's proven cut lost nothing, so it stops
    being a `log_start`.
    """
    proven = below.offset == mark.offset and below.how != "log_start" and mark.how == "log_start"
    if mark.offset < below.offset or proven:
        return msgspec.structs.replace(below, how="clamped")
    return _witnessed(mark, below)


def _below(mark: Mark, above: Mark) -> Mark:
    """One mark moved to at most `above`.

    One that is moved down from a log start still is one: what lay before it is gone.
    """
    if mark.offset <= above.offset:
        return _witnessed(mark, above)
    return msgspec.structs.replace(above, how="log_start" if mark.how == "log_start" else "clamped")


def _witnessed(mark: Mark, neighbour: Mark) -> Mark:
    """A mark at its neighbour's offset takes over that one's witness if it is the older
    one: it tells of more.

    1 A boundary cuts at 600, under epoch 5.  2 The log is cut off at 400 and grows to
    600 or beyond, under epoch 6.  3 The next one cuts at 600 too, its window is empty.
    4 The window after that begins there: only epoch 5 shows that the log was cut.
    """
    known = [m.leader_epoch for m in (mark, neighbour) if m.leader_epoch is not None]
    return (
        msgspec.structs.replace(mark, leader_epoch=min(known))
        if known and mark.offset == neighbour.offset
        else mark
    )


def difference(one: Boundary, other: Boundary) -> str:
    """In which way two boundaries cut differently; empty if they cut alike, however
    each cut was found.
    """
    if one.label != other.label or not (same_source(one, other) and same_source(other, one)):
        return (
            f"label, cluster or topic id differ ({label_text(one.label)},"
            f" {label_text(other.label)})"
        )
    return _unlike(one, other, sorted({m.tp for m in (*one.marks, *other.marks)}))


def same_source(lower: Boundary, upper: Boundary) -> bool:
    """Whether two boundaries lie on one source: a later one has all topics that an
    earlier one has, under the same ids.
    """
    return lower.cluster_id == upper.cluster_id and _ids(lower) <= _ids(upper)


def torn(stop: Boundary, start: Boundary) -> str:
    """In which way the end of a window is not the start of the next one; empty if it
    is, or if a rebase lies between them.

    A rebase opens the label anew: with another cluster, or with topics under other ids
    or without some. Topics that stay go on where they were.
    """
    if same_source(stop, start) or stop.label != start.label:
        return difference(stop, start)
    if stop.cluster_id != start.cluster_id:
        return ""
    stayed = {name for name, _ in _ids(stop) & _ids(start)}
    return _unlike(
        stop, start, sorted({m.tp for m in (*stop.marks, *start.marks) if m.topic in stayed})
    )


def _ids(boundary: Boundary) -> set[tuple[str, str]]:
    return {(t.topic, t.topic_id) for t in boundary.topics}


def _unlike(one: Boundary, other: Boundary, tps: Sequence[TopicPartition]) -> str:
    left, right = ({tp: m.offset for tp, m in b.cuts(tps).items()} for b in (one, other))
    said = [
        (tp, left.get(tp, "nothing"), right.get(tp, "nothing"))
        for tp in tps
        if left.get(tp) != right.get(tp)
    ]
    return "; ".join(f"{tp} at {a} and {b}" for tp, a, b in said)
