"""The contract that every topic for dead letters keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa
import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.dead_topic import DeadTopic
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_FILE
from windrow.ingest.testing.contracts.windows import window


def letters(*offsets: int, attempt: str = "a1", **over: Any) -> pa.RecordBatch:
    """Returns dead letters at some offsets, in the form of their store."""
    row = {
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
        [{**row, "_offset": offset} for offset in offsets], schema=DEAD_FILE
    )


class DeadTopicContract(ABC):
    """The promises of a topic for dead letters."""

    @pytest.fixture
    @abstractmethod
    def topic(self) -> DeadTopic:
        """An existing, empty topic."""

    @abstractmethod
    def absent(self, topic: DeadTopic) -> DeadTopic:
        """Returns a topic of the same cluster that doesn't exist."""

    @abstractmethod
    def offsets(self, topic: DeadTopic) -> list[int]:
        """Returns the original offsets of all letters in the topic, sorted."""

    def test_all_are_there(self, topic: DeadTopic) -> None:
        """After `publish`, a reader sees each letter; a second `publish` adds each letter once
        more.
        """
        topic.publish(window(0), [letters(1, 2), letters(3)])
        assert self.offsets(topic) == [1, 2, 3]
        topic.publish(window(0), [letters(1, 2), letters(3)])
        assert self.offsets(topic) == [1, 1, 2, 2, 3, 3]

    def test_a_topic_that_is_not_there(self, topic: DeadTopic) -> None:
        """A topic that doesn't exist is refused before anything is written, and isn't created."""
        absent = self.absent(topic)
        for _ in range(2):
            with pytest.raises(SpecError, match="There is no topic"):
                absent.refuse_unwritable()
            with pytest.raises(SpecError, match="There is no topic"):
                absent.publish(window(0), [letters(1)])
        topic.refuse_unwritable()
