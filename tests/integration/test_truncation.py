"""Truncation on a real broker whose log files are cut, and the client's real messages about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.contracts.logs import Logs
from tests.contracts.source_desk import SourceDesk
from tests.contracts.truncation_contract import Cut, ReadTruncationContract, TruncationContract
from tests.kafka.cutting import CuttableKafka
from tests.source.reader.clients import WAYS
from windrow.ingest.errors import DataLossError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.kafka.error_codes import is_truncation
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.source.reader.reader import KafkaReader

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cut]:
    """A broker of its own, cut once."""
    folder, tables = tmp_path_factory.mktemp("cut"), count()
    with EmbeddedBroker(folder, find_jars()) as broker:
        cluster = CuttableKafka(broker.bootstrap, broker, folder)
        logs = Logs(cluster)

        def broker_at(isolation: Isolation) -> KafkaBroker:
            return KafkaBroker(broker.bootstrap, {}, isolation=isolation)

        def reader(isolation: Isolation, plan: ReadPlan) -> KafkaReader:
            return KafkaReader(
                consumer_properties(broker.bootstrap, {}, isolation=isolation),
                plan,
                stall_seconds=30,
                fetching=WAYS["librdkafka"],
            )

        def desk() -> SourceDesk:
            return SourceDesk(
                logs, broker_at, reader, tmp_path_factory.mktemp(f"table{next(tables)}")
            )

        yield Cut(cluster, desk, partial(reader, "read_committed"))


def with_reader(cut: Cut, **settings: Any) -> Cut:
    """Returns the same cut cluster with readers of other settings."""

    def reader(plan: ReadPlan) -> KafkaReader:
        kafka_reader = cut.reader_of(plan)
        assert isinstance(kafka_reader, KafkaReader)
        return replace(kafka_reader, **settings)

    changed_cut = copy(cut)
    changed_cut.reader_of = reader
    return changed_cut


@pytest.mark.long
class TestByConfluent(ReadTruncationContract):
    """confluent-kafka's consumer, which reads if the compiled reader isn't available."""

    @pytest.fixture
    def cut(self, cut: Cut) -> Cut:
        return with_reader(cut, fetching=WAYS["confluent"])


@pytest.mark.some(2, of="tests")
class TestOnKafka(TruncationContract):
    """Truncation on a real Kafka."""

    @pytest.mark.timeout(300)
    def test_a_truncation_is_known_without_a_stall(self, cut: Cut) -> None:
        """A truncation is known when the client restarts, before the stall limit."""
        cut = with_reader(cut, stall_seconds=3_600)
        with pytest.raises(DataLossError, match="broker end offset is 6"):
            cut.read(cut.grown, 8, 14, cut.old, cut.new)

    def test_what_the_client_says(self, cut: Cut) -> None:
        """The client reports a truncation as a refused reset, not by its own error code.

        The simulated brokers of other tests use the details that are parsed from its text.
        """
        properties = consumer_properties(cut.cluster.bootstrap, {}) | {"auto.offset.reset": "error"}  # type: ignore[attr-defined]  # a real one
        heard = []
        for offset, epochs in (
            (8, {"leader_epoch": cut.old}),
            (8, {"leader_epoch": cut.new + 9}),
            (99, {}),
        ):
            with closing(Consumer(properties)) as consumer:
                consumer.assign(
                    [TopicPartition(cut.grown.topic, cut.grown.partition, offset, **epochs)]
                )
                message = consumer.poll(30)
            assert message is not None
            error = message.error()
            assert error is not None
            heard.append((error.code(), is_truncation(error)))
        reset = KafkaError._AUTO_OFFSET_RESET
        assert heard == [(reset, True), (reset, True), (reset, False)]
