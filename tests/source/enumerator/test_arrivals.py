"""Messages that arrive while positions are resolved: every position is before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.source import (
    AtTime,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Joining,
    Latest,
    Source,
    Topics,
)
from windrow.ingest.source.enumerator.micro_batch_ends import (
    first_boundary,
    last_boundary,
    next_batch,
)
from windrow.ingest.source.enumerator.rebased import rebase_at
from windrow.ingest.source.enumerator.resolve import resolve
from windrow.ingest.source.enumerator.timestamp_search import without_timestamps
from windrow.ingest.testing.broker import MemoryBroker

T0, NEW = TopicPartition("t", 0), TopicPartition("new", 0)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
WRITTEN = 10
"""Number of messages in each log before the first question, all from before noon."""

_QUESTIONS = {
    "cluster_id",
    "topics",
    "log_starts",
    "stable_ends",
    "ends",
    "committed_offsets",
    "first_at_or_after",
    "stamps",
}


class Busy(MemoryBroker):
    """A broker with a message of noon that arrives in each log right before one question.

    Attributes:
        arrival: number of that question, counted from 0.
        requests: the questions so far.
        ends_asked: whether the ends had been asked for when the messages arrived; None before
            they arrive.
    """

    def __init__(self, arrival: int) -> None:
        super().__init__()
        self.arrival, self.requests, self.ends_asked = arrival, list[str](), None
        for name in ("t", "new"):
            self.create_topic(name)
            for i in range(WRITTEN):
                self.produce(
                    TopicPartition(name, 0), b"", timestamp=NOON - timedelta(minutes=60 - i)
                )

    def __getattribute__(self, name: str) -> Any:
        """Counts a question when its method is looked up."""
        if name in _QUESTIONS:
            self._count(name)
        return super().__getattribute__(name)

    def _count(self, question: str) -> None:
        if len(self.requests) == self.arrival:
            self.ends_asked = bool({"ends", "stable_ends"} & set(self.requests))
            for tp in (T0, NEW):
                self.produce(tp, b"", timestamp=NOON)
        self.requests.append(question)


Resolved = Callable[[Busy, Initializer], Sequence[Mark]]


def lower(broker: Busy, *others: str) -> Boundary:
    """Returns a boundary of topic t at 11:00, and of other topics with earlier ids."""
    topics = [TopicSeen("t", MemoryBroker.topic(broker, "t").topic_id, 1)]
    topics += [TopicSeen(name, "an earlier one", 1) for name in others]
    marks = [Mark(topic.topic, 0, 0, "position") for topic in topics]
    return Boundary.of(NOON - timedelta(hours=1), "memory", topics, marks)


def source(start: Initializer, joining: Joining = "start") -> Source:
    """Returns a source of both topics."""
    return Source(Topics(("t", "new")), start, joining=joining)


def started(broker: Busy, start: Initializer) -> Sequence[Mark]:
    """Returns the start of the first window."""
    return first_boundary(broker, source(start), 0).marks


def stopped(broker: Busy, stop: Initializer) -> Sequence[Mark]:
    """Returns the end of a pipeline in micro-batches."""
    return last_boundary(broker, source(Earliest()), stop, lower(broker)).boundary.marks


def joined_batch(broker: Busy, start: Initializer) -> Sequence[Mark]:
    """Returns the start of a new topic in a micro-batch."""
    batch = next_batch(broker, source(start), lower(broker), 1, None, 1)
    assert batch is not None
    return batch.start_marks


def joined_hour(broker: Busy, start: Initializer) -> Sequence[Mark]:
    """Returns the start of a new topic in an hour."""
    boundaries = resolve(
        broker,
        source(start),
        NOON,
        "hourly",
        NOON - timedelta(hours=9),
        lower(broker),
        None,
        lambda _: None,
        wait_for_open=False,
    )
    return boundaries[-1].start_marks


def begun_anew(broker: Busy, start: Initializer) -> Sequence[Mark]:
    """Returns the start of a topic that was made again, after a rebase."""
    rebased = rebase_at(broker, source(Earliest()), lower(broker, "new"), start)
    return [mark for mark in rebased.boundary.marks if mark.tp == NEW]


def moved(broker: Busy, start: Initializer) -> Sequence[Mark]:
    """Returns the start of all topics on another cluster, after a rebase."""
    elsewhere = Boundary.of(0, "another", lower(broker).topics, [])
    return rebase_at(broker, source(Earliest()), elsewhere, start).boundary.marks


@pytest.mark.parametrize(
    "position",
    [
        Latest(),
        AtTime(NOON),
        GroupOffsets("none", "latest"),
        GroupOffsets("far", "latest"),
        Given((), "latest"),
        Given(((T0, 4),), "latest"),
        Given(((T0, 4),), GroupOffsets("none", "latest")),
    ],
)
@pytest.mark.parametrize(
    "resolved", [started, stopped, joined_batch, joined_hour, begun_anew, moved]
)
def test_what_arrives_after_the_ends_were_asked_lies_behind_every_position(
    resolved: Resolved, position: Initializer
) -> None:
    """A message that arrives after the ends were asked for is after every position, whenever it
    arrives.

    For a position of a time, this holds also for a message of that time that arrived before.
    """
    for arrival in range(99):
        broker = Busy(arrival)
        broker.commit_group("far", dict.fromkeys((T0, NEW), 1_000))
        marks = resolved(broker, position)
        max_offset = WRITTEN + (not broker.ends_asked and not isinstance(position, AtTime))
        assert marks, "nothing was resolved"
        assert all(mark.offset <= max_offset for mark in marks), (broker.requests, arrival, marks)
        if broker.ends_asked is None:
            return
    pytest.fail("more questions than expected")


def test_a_group_that_goes_on_meanwhile_is_followed() -> None:
    """A group's offset beyond the end that was asked for before is accepted: the log has grown
    meanwhile.
    """

    class Following(Busy):
        def _count(self, question: str) -> None:
            if question == "committed_offsets":
                self.arrival = len(self.requests)
            super()._count(question)
            if question == "committed_offsets":
                self.commit_group("g", {T0: WRITTEN + 1, NEW: 3})

    marks = started(Following(-1), GroupOffsets("g"))
    assert {mark.tp: mark.offset for mark in marks} == {T0: WRITTEN + 1, NEW: 3}


def test_a_log_whose_first_stamped_message_arrives_meanwhile_is_not_without_timestamps() -> None:
    """A log whose first stamped message arrives meanwhile isn't refused for missing timestamps."""
    for arrival in range(4):
        broker = Busy(arrival)
        broker.recreate_topic("t")
        assert without_timestamps(broker, broker.stable_ends([T0])) == []
