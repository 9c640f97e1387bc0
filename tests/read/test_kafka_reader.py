"""The confluent-kafka reader keeps the contract on real Kafka."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ingest.broker.client import consumer_properties
from ingest.broker.kafka import KafkaBroker
from ingest.errors import DataLossError, SpecError, UnreachableError
from ingest.model import Split, TopicPartition
from ingest.ports import Broker, Reader
from ingest.read.kafka import KafkaReader
from tests.contracts.kafka_logs import KafkaCluster
from tests.contracts.logs import Logs, Sent
from tests.contracts.reader_contract import ReaderContract, some

pytestmark = pytest.mark.broker


@pytest.fixture
def broker(kafka: str) -> KafkaBroker:
    return KafkaBroker(kafka, {})


@pytest.fixture
def logs(kafka: str) -> Logs:
    return Logs(KafkaCluster(kafka))


class TestKafkaReader(ReaderContract):
    """The promises of every reader."""

    @pytest.fixture(autouse=True)
    def _address(self, kafka: str) -> None:
        self.properties = consumer_properties(kafka, {})

    def make(self, broker: Broker, cluster_id: str, topics: Mapping[str, str], **bounds: int) -> Reader:
        return KafkaReader(self.properties, cluster_id, topics, **bounds)

    def impatient(self, broker: Broker, cluster_id: str, topics: Mapping[str, str]) -> Reader:
        return KafkaReader(self.properties, cluster_id, topics, stall_seconds=0.5)


def reader_of(kafka: str, broker: Broker, tp: TopicPartition, **limits: float) -> KafkaReader:
    """A reader of one topic as it is now."""
    return KafkaReader(consumer_properties(kafka, {}), broker.cluster_id(), {tp.topic: broker.topic(tp.topic).topic_id}, **limits)


def test_a_stop_beyond_the_end_is_not_waited_for(kafka: str, broker: KafkaBroker, logs: Logs) -> None:
    """Where messages are missing at the end the read stalls, and says where it stands and what the log has."""
    tp = logs.partition()
    logs.send(tp, *some(3))
    with pytest.raises(UnreachableError, match="log ends at 3") as stalled:
        list(reader_of(kafka, broker, tp, stall_seconds=0.5).batches(Split(tp.topic, 0, 0, 5)))
    assert stalled.value.offset == 3


def test_aborted_runs_between_messages_are_counted(kafka: str, broker: KafkaBroker, logs: Logs) -> None:
    """Each gap between messages is looked into by itself: what lies around it is not counted."""
    tp = logs.partition()
    for _ in range(4):
        logs.transaction(tp, *some(2), commit=False)
        logs.send(tp, Sent())
    reader = reader_of(kafka, broker, tp)
    list(reader.batches(Split(tp.topic, 0, 0, logs.end(tp))))
    assert reader.summary().aborted == 8


def test_a_start_that_vanishes_while_reading(kafka: str, broker: KafkaBroker, logs: Logs) -> None:
    """Retention that overtakes a running read is a data loss, not a shorter result."""
    tp = logs.partition()
    logs.send(tp, *[Sent(b"x" * 100_000)] * 600)
    reader = reader_of(kafka, broker, tp, bytes_max=1_000_000)
    batches = reader.batches(Split(tp.topic, 0, 0, 600))
    next(batches)
    logs.cluster.delete_before(tp, 600)
    with pytest.raises(DataLossError, match="600 to 600"):
        list(batches)


def test_a_broker_that_is_not_there(broker: KafkaBroker, logs: Logs) -> None:
    """No connection is named within the limit; nothing is read."""
    reader = KafkaReader(consumer_properties("127.0.0.1:1", {}), "cluster", {"t": "id"}, stall_seconds=1)
    with pytest.raises(UnreachableError, match="did not answer"):
        list(reader.batches(Split("t", 0, 0, 1)))


def test_properties_that_cannot_be_used_here() -> None:
    """A file that is missing where the task runs is an error of the spec."""
    properties = consumer_properties("127.0.0.1:1", {"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"})
    with pytest.raises(SpecError, match="can't be used where the task runs"):
        list(KafkaReader(properties, "cluster", {"t": "id"}).batches(Split("t", 0, 0, 1)))
