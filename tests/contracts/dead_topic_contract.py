"""What every topic for dead letters promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.things import window
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.sinks.columns import DEAD_FILE


def letters(*offsets: int, attempt: str = "a1", **over: Any) -> pa.RecordBatch:
    """Dead letters at some offsets, as their store gives them."""
    one = {
        "_topic": "shop.orders",
        "_partition": 3,
        "_timestamp": None,
        "timestamp_type": "NoTimestampType",
        "key": None,
        "value": b"v",
        "headers": [],
        "leader_epoch": 1,
        "stage": "value",
        "reason": "not_json",
        "detail": None,
        "schema_id": None,
        "attempt": attempt,
        "generation": 0,
        "pipeline": "orders",
        **over,
    }
    return pa.RecordBatch.from_pylist(
        [{**one, "_offset": offset} for offset in offsets], schema=DEAD_FILE
    )


class DeadTopicContract(ABC):
    """Runs unchanged on every one."""

    @pytest.fixture
    @abstractmethod
    def topic(self) -> DeadTopic:
        """A topic that is there and empty."""

    @abstractmethod
    def absent(self, topic: DeadTopic) -> DeadTopic:
        """One beside it that isn't there."""

    @abstractmethod
    def offsets(self, topic: DeadTopic, *, undecided: bool = False) -> list[int]:
        """The original offsets of all letters that a reader of committed messages sees,
        sorted; `undecided`: while a publish attempt is under way.
        """

    def test_letters_and_their_mark_come_together(self, topic: DeadTopic) -> None:
        """Nobody sees a letter before the commit; then all, and each later attempt says
        that they are published.
        """
        with topic.publishing(window(0), "a1") as publishing:
            assert not publishing.is_published()
            publishing.write([letters(1, 2), letters(3)])
            assert self.offsets(topic, undecided=True) == []
            publishing.commit(3)
        assert self.offsets(topic) == [1, 2, 3]
        with topic.publishing(window(0), "a1") as publishing:
            assert publishing.is_published()

    def test_a_turn_that_is_left_leaves_nothing(self, topic: DeadTopic) -> None:
        """Without a commit no letter is ever seen, and the next attempt writes them all."""
        with topic.publishing(window(0), "a1") as publishing:
            publishing.write([letters(1, 2)])
        with topic.publishing(window(0), "a1") as publishing:
            assert not publishing.is_published()
            publishing.write([letters(1, 2)])
            publishing.commit(2)
        assert self.offsets(topic) == [1, 2]

    def test_a_later_turn_fences(self, topic: DeadTopic) -> None:
        """Who published before can't commit any more, whether the later one has
        committed or not.
        """
        with topic.publishing(window(0), "a1") as sleeper:
            sleeper.write([letters(1)])
            with topic.publishing(window(0), "a1") as publishing:
                assert not publishing.is_published()
                publishing.write([letters(1)])
                with pytest.raises(UnreachableError):
                    sleeper.commit(1)
                publishing.commit(1)
        assert self.offsets(topic) == [1]

    def test_attempts_are_apart(self, topic: DeadTopic) -> None:
        """What one publish attempt did says nothing of another's, and two don't disturb
        each other.
        """
        with topic.publishing(window(0), "a1") as one, topic.publishing(window(0), "a2") as other:
            one.write([letters(1)])
            other.write([letters(1, attempt="a2")])
            one.commit(1)
            assert not other.is_published()
            other.commit(1)
        assert self.offsets(topic) == [1, 1]

    def test_a_topic_that_is_not_there(self, topic: DeadTopic) -> None:
        """It is refused, before a publish attempt too, and not made by being asked for."""
        absent = self.absent(topic)
        for _ in range(2):
            with pytest.raises(SpecError, match="There is no topic"):
                absent.refuse_unwritable()
            with (
                pytest.raises(SpecError, match="There is no topic"),
                absent.publishing(window(0), "a1"),
            ):
                pass
        topic.refuse_unwritable()

    def test_what_it_remembers(self, topic: DeadTopic) -> None:
        """For how long a mark lives can be told."""
        assert topic.remembers() >= timedelta(minutes=1)
