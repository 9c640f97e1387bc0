"""Offsets in a consumer group, for tools that watch lag.

windrow commits them, and never reads them.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.ports.broker import Broker


class AlteredOffsets(msgspec.Struct, frozen=True):
    """The outcome of committing offsets to a consumer group.

    Attributes:
        group: the group.
        succeeded: the number of topic-partitions whose offset was committed.
        failed: the number of topic-partitions whose offset was refused.
        reasons: each reason once, with a topic-partition as an example.
    """

    group: str
    succeeded: int
    failed: int
    reasons: tuple[str, ...] = msgspec.field(name="why")


def alter_offsets(broker: Broker, group: str, committed: Boundary) -> AlteredOffsets:
    """Commits the end of the newest window to a consumer group.

    It never raises, because the window is committed already, and the offsets are for other
    tools only. Topics that are not read any more, or were created anew, are left out.
    """
    offsets = {m.tp: m.offset for m in committed.marks if m.origin != "removed"}
    try:
        offsets = _of_same_topics(broker, committed, offsets)
        answers = broker.alter_offsets(group, offsets)
    except Exception as error:  # noqa: BLE001
        answers = dict.fromkeys(offsets, f"{type(error).__name__}: {error}")
    refused = {tp: reason for tp, reason in answers.items() if reason is not None}
    first = {reason: tp for tp, reason in sorted(refused.items(), reverse=True)}
    count = Counter(refused.values())
    reasons = tuple(
        f"{reason} ({first[reason]}" + (f" and {n - 1} more)" if n > 1 else ")")
        for reason, n in count.most_common()
    )
    return AlteredOffsets(group, len(offsets) - len(refused), len(refused), reasons)


def _of_same_topics(
    broker: Broker, committed: Boundary, offsets: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the offsets of topics that still have the same id."""
    if broker.cluster_id() != committed.cluster_id:
        return {}
    current_topics, committed_topics = (
        broker.topics(sorted({tp.topic for tp in offsets})),
        committed.by_topic(),
    )
    return {
        tp: o
        for tp, o in offsets.items()
        if tp.topic in current_topics
        and current_topics[tp.topic].topic_id == committed_topics[tp.topic].topic_id
    }
