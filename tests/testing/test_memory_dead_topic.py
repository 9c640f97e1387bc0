"""The topic for dead letters in memory keeps the contract."""

from __future__ import annotations

import pytest

from tests.contracts.dead_topic_contract import DeadTopicContract
from windrow.ingest.testing.dead_topic import MemoryDeadTopic


class TestMemoryDeadTopic(DeadTopicContract):
    """The contract of topics for dead letters, in memory."""

    @pytest.fixture
    def topic(self) -> MemoryDeadTopic:
        return MemoryDeadTopic("orders.dead")

    def absent(self, topic: MemoryDeadTopic) -> MemoryDeadTopic:
        del topic
        return MemoryDeadTopic("nowhere", is_there=False)

    def offsets(self, topic: MemoryDeadTopic) -> list[int]:
        return sorted(letter["_offset"] for letter in topic.letters)
