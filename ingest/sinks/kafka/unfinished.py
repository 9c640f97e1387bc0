"""Transactions of a Kafka table that runs left open.

librdkafka has none of Kafka's questions about transactions (ListTransactions,
DescribeTransactions, DescribeProducers). What it can tell is where readers of committed
messages stand, and what lies there: the first message of the transaction that has been
open for longest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import confluent_kafka as ck

from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import END, PASSING
from windrow.ingest.kafka.retry import POLL_SECONDS
from windrow.ingest.model.plan import Plan
from windrow.ingest.ports.transactions import HeldBack
from windrow.ingest.sinks.kafka.commit import end_open
from windrow.ingest.sinks.kafka.control import arrived, headers_of, window_of

if TYPE_CHECKING:
    from windrow.ingest.sinks.kafka.sink import KafkaSink


class KafkaTransactions:
    """Finds and ends what runs left open (`ports.transactions.OpenTransactions`)."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink

    def ids(self, pipeline_id: str, plans: Sequence[Plan]) -> list[str]:
        return list(
            dict.fromkeys(
                [
                    self._sink.ids.table(pipeline_id),
                    *(name for plan in plans for name in self._sink.ids.of_window(plan)),
                ]
            )
        )

    def held_back(self) -> list[HeldBack]:
        found = {
            tp: (stable, end)
            for tp, (stable, end) in self._sink.topics.stable_and_end().items()
            if stable < end
        }
        return sorted(
            HeldBack(*tp, stable, end, self._window_at(*tp, stable))
            for tp, (stable, end) in found.items()
        )

    def end(self, ids: Sequence[str]) -> None:
        end_open(self._sink.target(), ids)

    def _window_at(self, topic: str, partition: int, offset: int) -> str | None:
        """The window of the first message from an offset on, be it committed or not."""
        admin = admin_properties(self._sink.reach.servers, self._sink.reach.client)
        consumer = consumer_properties(
            self._sink.reach.servers, self._sink.reach.client, isolation="read_uncommitted"
        )
        deadline = time.monotonic() + self._sink.patience
        with CLIENTS.of(admin).consumers(consumer).one(topic) as one:
            one.assign([ck.TopicPartition(topic, partition, offset)])
            while time.monotonic() < deadline:
                for message in arrived(one, POLL_SECONDS):
                    error = message.error()
                    if error is None:
                        return self._window_of(topic, message)
                    if error.code() == END:
                        return None
                    if error.code() not in PASSING:
                        raise self._sink.topics.named(topic, error)
        return None

    def _window_of(self, topic: str, message: ck.Message) -> str | None:
        if topic == self._sink.ids.control:
            return window_of(message.key() or b"")
        told = dict(headers_of(message)).get(self._sink.metadata["window"])
        return None if told is None else told.decode(errors="replace")
