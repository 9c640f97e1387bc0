"""Open transactions that runs of a Kafka table left behind.

librdkafka doesn't have Kafka's requests about transactions (ListTransactions,
DescribeTransactions, DescribeProducers). What it can tell is how far readers of
committed messages get, and which message comes next: the first one of the transaction
that has been open for longest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import confluent_kafka as ck

from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import END, PASSING
from windrow.ingest.kafka.retry import PATIENCE_SECONDS, POLL_SECONDS
from windrow.ingest.model.plan import Plan
from windrow.ingest.ports.transactions import HeldBack
from windrow.ingest.sinks.kafka.commit import abort_open
from windrow.ingest.sinks.kafka.control import arrived, headers_of, window_of

if TYPE_CHECKING:
    from windrow.ingest.sinks.kafka.sink import KafkaSink


class KafkaTransactions:
    """Finds and aborts open transactions (`ports.transactions.OpenTransactions`)."""

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
        abort_open(self._sink.target(), ids)

    def _window_at(self, topic: str, partition: int, offset: int) -> str | None:
        """Returns the window of the first message from an offset on, committed or not."""
        admin = admin_properties(self._sink.connection.servers, self._sink.connection.client)
        consumer = consumer_properties(
            self._sink.connection.servers,
            self._sink.connection.client,
            isolation="read_uncommitted",
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
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
                        raise self._sink.topics.error_for(topic, error)
        return None

    def _window_of(self, topic: str, message: ck.Message) -> str | None:
        if topic == self._sink.ids.control:
            return window_of(message.key() or b"")
        window = dict(headers_of(message)).get(self._sink.metadata["window"])
        return None if window is None else window.decode(errors="replace")
