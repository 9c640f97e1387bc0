"""Rebases: a second boundary at the newest label, for recreated topics or another cluster.

This module freezes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windrow.ingest.errors import SpecError, join_first_few
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen, label_text
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.source import Initializer, Partitions, Selection, Source
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.source.enumerator.positions import position_marks, positions
from windrow.ingest.source.enumerator.topics import discover


class Rebase(msgspec.Struct, frozen=True):
    """A rebase that isn't frozen yet.

    Attributes:
        boundary: the boundary at which the next window starts.
        changes: a sentence for each change.
    """

    boundary: Boundary
    changes: tuple[str, ...]


def rebase_at(
    broker: Broker, source: Source, newest: Boundary, start: Initializer | None
) -> Rebase:
    """Makes the rebase at the newest boundary, from the cluster and topics as they are now.

    Unchanged topics go on where they are. Other topics begin anew.

    Args:
        broker: the cluster as it is now.
        source: the source's selection and settings.
        newest: the highest frozen boundary; after a rebase, the boundary of the rebase.
        start: the position at which new topics begin; None: at offset 0. Another cluster
            needs a position, because its topics may be copies of the old cluster's.

    Raises:
        SpecError: nothing has changed; or the cluster has changed and `start` is None; or
            `start` has no answer.
        DataLossError, OpenTransactionError: see `positions`.
    """
    cluster = broker.cluster_id()
    if cluster != newest.cluster_id:
        return _other_cluster(broker, source, newest, start, cluster)
    infos = broker.topics([t.topic for t in newest.topics])
    anew = [
        infos[t.topic]
        for t in newest.topics
        if t.topic in infos and infos[t.topic].topic_id != t.topic_id
    ]
    changes = _changes(newest, infos, start)
    if not changes:
        raise SpecError(
            "There is nothing to rebase: cluster and topics are those of boundary"
            f" {label_text(newest.label)}",
            "plan",
            "Run the windows as they are.",
        )
    same = [t for t in newest.topics if t.topic in infos and infos[t.topic].topic_id == t.topic_id]
    same_topics = {t.topic for t in same}
    topics, marks = _begun(broker, source.selection, anew, start)
    return Rebase(
        Boundary.of(
            newest.label,
            cluster,
            [*same, *topics],
            [*(m for m in newest.marks if m.topic in same_topics), *marks],
        ),
        changes,
    )


def _other_cluster(
    broker: Broker, source: Source, newest: Boundary, start: Initializer | None, cluster: str
) -> Rebase:
    """Makes the rebase on another cluster, where the old cluster's offsets mean nothing."""
    change = (
        f"The cluster is {cluster} now, and boundary {label_text(newest.label)} is of cluster"
        f" {newest.cluster_id}"
    )
    if start is None:
        raise SpecError(
            f"{change}: nothing here says which of its messages are in the table already",
            "plan",
            "Give the position to go on from: windrow rebase SPEC --start earliest, or --start"
            " timestamp: and an instant, as in timestamp:2026-01-02T03:00:00Z.",
        )
    discovered = discover(broker, source.selection, None, source.on_removed)
    begun = [
        f"{name} has id {info.topic_id} in the new cluster: it begins at {_start_text(start)}."
        for name, info in discovered.topics.items()
    ]
    omissions = [
        f"{t.topic} is not read in the new cluster, and is left out."
        for t in newest.topics
        if t.topic not in discovered.topics
    ]
    marks = position_marks(positions(broker, start, broker.stable_ends(discovered.tps)))
    return Rebase(
        Boundary.of(newest.label, cluster, discovered.boundary_topics, marks),
        (f"{change}.", *begun, *omissions),
    )


def _begun(
    broker: Broker, selection: Selection, anew: Sequence[TopicInfo], start: Initializer | None
) -> tuple[list[TopicSeen], list[Mark]]:
    """Returns the topics and marks of recreated topics.

    Without a `start`, a topic is recorded with 0 partitions. So all of its partitions count
    as added later, and each is read from offset 0.
    """
    if start is None:
        return [TopicSeen(t.topic, t.topic_id, 0) for t in anew], []
    tps = [TopicPartition(t.topic, p) for t in anew for p in range(t.partitions)]
    selected_tps = (
        [tp for tp in tps if tp in selection.tps] if isinstance(selection, Partitions) else tps
    )
    return [TopicSeen(t.topic, t.topic_id, t.partitions) for t in anew], position_marks(
        positions(broker, start, broker.stable_ends(selected_tps))
    )


def _changes(
    newest: Boundary, infos: dict[str, TopicInfo], start: Initializer | None
) -> tuple[str, ...]:
    """Returns a sentence for each topic that has changed, in order."""
    changes = []
    for old in newest.topics:
        now = infos.get(old.topic)
        read = [f"{m.tp}@{m.offset}" for m in newest.marks if m.topic == old.topic]
        loss_text = (
            f" Messages of the old topic from {join_first_few(read)} on were read by no window, and"
            " are lost, if it had any."
            if read
            else ""
        )
        if now is None:
            changes.append(
                f"{old.topic} is not in the cluster any more, and is left out.{loss_text}"
            )
        elif now.topic_id != old.topic_id:
            begin = "offset 0" if start is None else _start_text(start)
            changes.append(
                f"{old.topic} had id {old.topic_id} and has id {now.topic_id} now: it begins at"
                f" {begin}.{loss_text}"
            )
    return tuple(changes)


def _start_text(start: Initializer) -> str:
    return f"the position {to_json(start)}"
