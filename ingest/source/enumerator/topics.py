"""The topics that a source selects on this cluster now, compared with frozen boundaries."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from windrow.ingest.errors import (
    DataLossError,
    IdentityError,
    SpecError,
    WindrowError,
    format_count,
)
from windrow.ingest.model.boundary import Boundary, TopicPartition, TopicSeen, label_text
from windrow.ingest.model.source import (
    FrozenStop,
    OnLoss,
    OnRemoved,
    Partitions,
    Pattern,
    Selection,
    Topics,
    selection_text,
)
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.ports.reader import ReadPlan

_REBASE = (
    "The topic was recreated, or the cluster replaced. windrow rebase SPEC shows how to go on from"
    " here. After a rebase, windows from before it need source.on_loss: skip, and hold nothing of"
    " that topic."
)
_NAMED_MAX = 10


@dataclass(frozen=True)
class Discovered:
    """The topics that are read now.

    Attributes:
        cluster_id: the id of the cluster.
        topics: the topics by name.
        tps: their topic-partitions in order.
    """

    cluster_id: str
    topics: dict[str, TopicInfo]
    tps: list[TopicPartition]

    @property
    def boundary_topics(self) -> list[TopicSeen]:
        """The topics in the form of a boundary."""
        return [TopicSeen(t.topic, t.topic_id, t.partitions) for t in self.topics.values()]

    def read_plan(self, on_loss: OnLoss) -> ReadPlan:
        """Makes the readers' plan for these topics."""
        ids = {name: info.topic_id for name, info in self.topics.items()}
        return ReadPlan(self.cluster_id, ids, on_loss)

    def limit_to(self, stop: FrozenStop | None) -> Discovered:
        """Leaves out topics and topic-partitions that were added after the end was frozen."""
        if stop is None:
            return self
        stop_topics, ends = stop.boundary.by_topic(), stop.boundary.by_tp()
        topics = {
            name: msgspec.structs.replace(info, partitions=stop_topics[name].partitions)
            for name, info in self.topics.items()
            if name in stop_topics
        }
        return Discovered(self.cluster_id, topics, [tp for tp in self.tps if tp in ends])

    def drop_topics(self, names: Collection[str]) -> Discovered:
        topics = {name: info for name, info in self.topics.items() if name not in names}
        return Discovered(self.cluster_id, topics, [tp for tp in self.tps if tp.topic in topics])


def discover(
    broker: Broker, selection: Selection, lower: Boundary | None, on_removed: OnRemoved
) -> Discovered:
    """Asks the cluster for the topics that the source selects.

    A topic was removed if the source still selects it, the lower boundary reads it, and
    the cluster doesn't have it any more. A topic that isn't selected any more doesn't
    matter here: `tiling.clamp` carries it on.

    Args:
        broker: the cluster.
        selection: the source's selection.
        lower: the nearest frozen boundary below, if any.
        on_removed: "fail", or "drop" to leave out removed topics.

    Raises:
        SpecError: a named topic or topic-partition doesn't exist and never did; or a
            pattern matches no topic and never did.
        DataLossError: a topic was removed.
        IdentityError: the lower boundary is of another cluster.
    """
    cluster = broker.cluster_id()
    _refuse_other_cluster(cluster, lower)
    selected_names = _select_names(broker, selection)
    topics = broker.topics(selected_names) if selected_names else {}
    removed = _removed_topics(selection, topics, selected_names, lower)
    if removed and lower is not None and on_removed == "fail":
        raise _removed_error(removed[0], lower)
    _refuse_missing(broker, selection, topics, selected_names, removed, lower)
    return Discovered(cluster, dict(sorted(topics.items())), _tps(selection, topics))


class LogOffsets(msgspec.Struct, frozen=True):
    """The limits of a topic-partition's log.

    Attributes:
        earliest: the first offset that the log still holds.
        stable: the log's end for this pipeline. With read_committed (the default) all
            messages below it are committed or aborted.
        latest: the high watermark. It is above `stable` while a transaction is open.
    """

    earliest: int
    stable: int
    latest: int


class OffsetSnapshot(msgspec.Struct, frozen=True):
    """The topics of a cluster and their logs, at one moment.

    Attributes:
        cluster_id: the id of the cluster.
        topics: the topics by name.
        logs: the limits of the log of each topic-partition.
    """

    cluster_id: str
    topics: dict[str, TopicInfo]
    logs: dict[TopicPartition, LogOffsets]


def snapshot_offsets(
    broker: Broker,
    selection: Selection,
    lower: Boundary | None = None,
    on_removed: OnRemoved = "fail",
) -> OffsetSnapshot:
    """Asks for the limits of the logs of a source's topics.

    Offsets only grow, so `earliest <= stable <= latest`: the requests are sent in this order.

    Raises:
        SpecError, DataLossError, IdentityError: see `discover`.
        UnreachableError: the cluster doesn't answer.
    """
    discovered = discover(broker, selection, lower, on_removed)
    starts, stable = broker.log_starts(discovered.tps), broker.stable_ends(discovered.tps)
    latest = broker.ends(discovered.tps)
    logs = {tp: LogOffsets(starts[tp], stable[tp].offset, latest[tp]) for tp in discovered.tps}
    return OffsetSnapshot(discovered.cluster_id, discovered.topics, logs)


def refuse_other_topics(discovered: Discovered, *neighbours: Boundary | None) -> None:
    """Compares the discovered topics with frozen boundaries.

    Raises:
        IdentityError: a boundary is of another cluster, or of another topic of the same
            name.
    """
    for neighbour in neighbours:
        _refuse_other_cluster(discovered.cluster_id, neighbour)
        for frozen in () if neighbour is None else neighbour.topics:
            now = discovered.topics.get(frozen.topic)
            if neighbour is not None and now is not None and now.topic_id != frozen.topic_id:
                raise IdentityError(
                    f"The boundary {label_text(neighbour.label)} is of topic id {frozen.topic_id},"
                    f" and the topic now has id {now.topic_id}",
                    "plan",
                    _REBASE,
                    frozen.topic,
                )


def _refuse_other_cluster(cluster: str, neighbour: Boundary | None) -> None:
    if neighbour is not None and neighbour.cluster_id != cluster:
        raise IdentityError(
            f"The boundary {label_text(neighbour.label)} is of cluster {neighbour.cluster_id}, and"
            f" this is cluster {cluster}",
            "plan",
            _REBASE,
        )


def _select_names(broker: Broker, selection: Selection) -> list[str]:
    if isinstance(selection, Pattern):
        return [name for name in broker.names() if selection.matches(name)]
    return sorted(
        set(selection.names)
        if isinstance(selection, Topics)
        else {tp.topic for tp in selection.tps}
    )


def _removed_topics(
    selection: Selection,
    topics: Iterable[str],
    selected_names: Sequence[str],
    lower: Boundary | None,
) -> list[str]:
    """Returns the topics that the lower boundary knows, the source selects and the cluster lacks.

    For a pattern, only topics that were still read at that boundary are returned: a topic
    that was dropped before isn't reported again.
    """
    if lower is None:
        return []
    known_names = {t.topic for t in lower.topics}
    if isinstance(selection, Pattern):
        carried = (
            known_names
            - {m.topic for m in lower.marks if m.origin != "removed"}
            - {t.topic for t in lower.topics if t.partitions == 0}
        )
        return sorted(
            name for name in known_names - carried - set(topics) if selection.matches(name)
        )
    return sorted((known_names & set(selected_names)) - set(topics))


def _removed_error(topic: str, lower: Boundary) -> DataLossError:
    marks = [m for m in lower.marks if m.topic == topic]
    unread = ", ".join(f"{m.partition} from offset {m.offset} on" for m in marks[:_NAMED_MAX]) + (
        ", ..." if len(marks) > _NAMED_MAX else ""
    )
    return DataLossError(
        f"Topic {topic} is not in the cluster any more. What it held after boundary"
        f" {label_text(lower.label)} is unread: of partition {unread or 'all'}",
        "plan",
        "Set source.on_removed: drop to go on without it; if it was recreated since, windrow rebase"
        " SPEC goes on with the new one.",
        topic,
    )


def _refuse_missing(
    broker: Broker,
    selection: Selection,
    topics: dict[str, TopicInfo],
    selected_names: Sequence[str],
    removed: Sequence[str],
    lower: Boundary | None,
) -> None:
    missing = sorted(set(selected_names) - set(topics) - set(removed))
    if isinstance(selection, Pattern):
        if not topics and lower is None:
            raise SpecError(
                f"There are no {selection_text(selection)}",
                "plan",
                "Check source.topic_pattern (it must match the whole name). A topic on which this"
                " client lacks Describe isn't listed.",
            )
    elif missing:
        raise _unknown_topics_error(broker, missing)
    for tp in selection.tps if isinstance(selection, Partitions) else ():
        if tp.topic in topics and tp.partition >= topics[tp.topic].partitions:
            raise SpecError(
                f"The topic has {format_count(topics[tp.topic].partitions, 'partition')}, and"
                f" {tp.partition} is not among them",
                "plan",
                "Partitions are counted from 0: fix source.partitions.",
                tp.topic,
                tp.partition,
            )


def _unknown_topics_error(broker: Broker, missing: Sequence[str]) -> SpecError:
    """Makes the error for topics that don't exist; it suggests existing topics of similar names."""
    try:
        names = broker.names()
    except WindrowError:
        names = []  # the error doesn't depend on it
    near = [close for name in missing for close in difflib.get_close_matches(name, names, n=2)]
    meant = f"Is {' or '.join(dict.fromkeys(near))} meant? " if near else ""
    return SpecError(
        f"There is no topic {', '.join(missing)}, or the client may not see it",
        "plan",
        f"{meant}Fix the topic's name or the cluster's address (in a spec source.topic and"
        " bootstrap_servers, on the command line TOPIC and --bootstrap), or create the topic"
        " (windrow doesn't create topics, whatever the broker's auto.create.topics.enable says).",
        missing[0],
    )


def _tps(selection: Selection, topics: dict[str, TopicInfo]) -> list[TopicPartition]:
    if isinstance(selection, Partitions):
        return sorted({tp for tp in selection.tps if tp.topic in topics})
    return [
        TopicPartition(name, p) for name in sorted(topics) for p in range(topics[name].partitions)
    ]
