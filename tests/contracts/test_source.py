"""The contract of the source on the in-memory broker and on real Kafka."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.contracts.kafka_logs import KafkaCluster
from tests.contracts.logs import Logs, MemoryCluster
from tests.contracts.source_contract import SourceContract
from tests.contracts.source_desk import SourceDesk
from tests.source.reader.clients import WAYS
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.source.reader.reader import KafkaReader
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.reader import MemoryReader


def memory_desk(folder: Path) -> SourceDesk:
    """Returns a desk on a new in-memory cluster."""
    broker = MemoryBroker()
    return SourceDesk(
        Logs(MemoryCluster(broker)),
        broker.with_isolation,
        lambda isolation, plan: MemoryReader(broker.with_isolation(isolation), plan),
        folder,
    )


def kafka_desk(bootstrap: str, folder: Path, dice: random.Random) -> SourceDesk:
    """Returns a desk on a real broker.

    The seed chooses one of the ways to fetch messages, so each way reads about half of the
    tests.
    """
    fetching = WAYS[dice.choice(sorted(WAYS))]

    def broker(isolation: Isolation) -> Broker:
        return KafkaBroker(bootstrap, {}, isolation=isolation)

    def reader(isolation: Isolation, plan: ReadPlan) -> Reader:
        return KafkaReader(
            consumer_properties(bootstrap, {}, isolation=isolation),
            plan,
            stall_seconds=20.0,
            fetching=fetching,
        )

    return SourceDesk(Logs(KafkaCluster(bootstrap)), broker, reader, folder)


class TestInMemory(SourceContract):
    """The source on the in-memory broker."""

    @pytest.fixture
    def desk(self, tmp_path: Path) -> SourceDesk:
        return memory_desk(tmp_path)


@pytest.mark.broker
class TestOnKafka(SourceContract):
    """The source on real Kafka."""

    @pytest.fixture
    def desk(self, kafka: str, tmp_path: Path, dice: random.Random) -> SourceDesk:
        return kafka_desk(kafka, tmp_path, dice)
