"""The logs of a contract's tests, on real Kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import confluent_kafka as ck
from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.contracts.logs import T0, OpenTransaction, Sent
from tests.kafka import produce
from windrow.ingest.model.boundary import TopicPartition


def _put(tp: TopicPartition, messages: Sequence[Sent]) -> list[produce.Put]:
    return [
        produce.Put(m.value, T0 + m.timestamp, tp.partition, m.key, m.headers) for m in messages
    ]


def _offsets(consumer: Consumer, tp: TopicPartition) -> list[int]:
    """Returns the offsets of all messages from the beginning of the log to its end."""
    consumer.assign([ck.TopicPartition(tp.topic, tp.partition, ck.OFFSET_BEGINNING)])
    offsets: list[int] = []
    while (message := consumer.poll(30)) is not None and not message.error():
        offsets.append(message.offset())
    assert message is not None, "the log could not be read to its end"
    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
    return offsets


@dataclass(frozen=True)
class KafkaCluster:
    """A real broker.

    Attributes:
        bootstrap: its address.
    """

    bootstrap: str

    def create(self, partitions: int, config: Mapping[str, str]) -> str:
        return produce.create_topic(
            self.bootstrap, partitions, {"max.message.bytes": str(20 << 20)} | dict(config)
        )

    def send(self, tp: TopicPartition, messages: Sequence[Sent]) -> None:
        produce.produce(
            self.bootstrap, tp.topic, _put(tp, messages), {"message.max.bytes": 20 << 20}
        )

    def begin(self, topic: str) -> OpenTransaction:
        return _Transaction(produce.OpenTransaction(self.bootstrap, topic))

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        produce.delete_records(self.bootstrap, tp.topic, tp.partition, offset)

    def compact(self, tp: TopicPartition, remaining: Sequence[int]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "cleaner",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        deadline = time.monotonic() + 60
        while (present := _offsets(consumer, tp)) != list(remaining):
            assert time.monotonic() < deadline, (
                f"the cleaner did not come by: {present} are there still, {list(remaining)} are"
                " to be left"
            )
        consumer.close()

    def add_partitions(self, topic: str, total: int) -> None:
        produce.add_partitions(self.bootstrap, topic, total)

    def recreate(self, topic: str, partitions: int) -> None:
        produce.delete_topic(self.bootstrap, topic)

        def try_to_create() -> bool:
            try:
                produce.create_topic(self.bootstrap, partitions, name=topic)
            except KafkaException as taken:
                if taken.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        produce.ask_until(try_to_create, f"the name {topic}, free a moment after the topic is gone")

    def delete(self, topic: str) -> None:
        produce.delete_topic(self.bootstrap, topic)


@dataclass(frozen=True)
class _Transaction:
    running: produce.OpenTransaction

    def send(self, tp: TopicPartition, messages: Sequence[Sent]) -> None:
        self.running.send(_put(tp, messages))

    def end(self, *, commit: bool) -> None:
        self.running.commit() if commit else self.running.abort()
