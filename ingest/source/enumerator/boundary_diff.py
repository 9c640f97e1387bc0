"""How two boundaries differ, and where they may: at a label at which the source was replaced.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.label import label_text


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
