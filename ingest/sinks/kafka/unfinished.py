"""Transactions of a Kafka table that runs left open.

librdkafka has none of Kafka's questions about transactions (ListTransactions,
DescribeTransactions, DescribeProducers). What it can tell is where readers of committed
messages stand, and what lies there: the first message of the transaction that has been
open for longest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka as ck

from windrow.ingest.errors import UnreachableError
from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import END, PASSING
from windrow.ingest.kafka.retry import POLL_SECONDS
from windrow.ingest.model.plan import Plan
from windrow.ingest.ports.transactions import HeldBack
from windrow.ingest.sinks.kafka.control import arrived, headers_of, window_of
from windrow.ingest.sinks.kafka.ids import TransactionalIds
from windrow.ingest.sinks.kafka.options import Reach
from windrow.ingest.sinks.kafka.publish import Overtaken, PublishTarget, turn
from windrow.ingest.sinks.kafka.topics import SinkTopics

_BESIDE = 8


def end_open(target: PublishTarget, names: Iterable[str]) -> None:
    """End what is open under these transactional ids.

    Raises:
        Overtaken: another run takes one at this moment.
        SpecError, UnreachableError: as `publish.turn`.
    """

    def end(name: str) -> None:
        with turn(target, name):
            pass

    with ThreadPoolExecutor(max_workers=_BESIDE) as pool:
        list(pool.map(end, names))


class KafkaTransactions:
    """`ports.transactions.OpenTransactions`.

    Args:
        reach: the cluster.
        topics: asks for the table's topics.
        ids: the table's transactional ids.
        target: makes producers.
        header: which header of a message names its window.
        patience: how long the cluster may be silent, in seconds.
    """

    def __init__(
        self,
        reach: Reach,
        topics: SinkTopics,
        ids: TransactionalIds,
        target: Callable[[], PublishTarget],
        header: str,
        patience: float,
    ) -> None:
        self._reach, self._topics, self._ids, self._target, self._header = (
            reach,
            topics,
            ids,
            target,
            header,
        )
        self._patience = patience

    def ids(self, pipeline_id: str, plans: Sequence[Plan]) -> list[str]:
        return list(
            dict.fromkeys(
                [
                    self._ids.table(pipeline_id),
                    *(name for plan in plans for name in self._ids.of_window(plan)),
                ]
            )
        )

    def held_back(self) -> list[HeldBack]:
        found = {
            tp: (stable, end)
            for tp, (stable, end) in self._topics.stable_and_end().items()
            if stable < end
        }
        return sorted(
            HeldBack(*tp, stable, end, self._window_at(*tp, stable))
            for tp, (stable, end) in found.items()
        )

    def end(self, ids: Sequence[str]) -> None:
        try:
            end_open(self._target(), ids)
        except Overtaken:
            what = "another run took one of the table's transactional ids at this moment"
            raise UnreachableError(
                what, "commit", "Is the window being run? Then it ends what was open by itself."
            ) from None

    def _window_at(self, topic: str, partition: int, offset: int) -> str | None:
        """The window of the first message from an offset on, be it committed or not."""
        admin = admin_properties(self._reach.servers, self._reach.client)
        consumer = consumer_properties(
            self._reach.servers, self._reach.client, isolation="read_uncommitted"
        )
        deadline = time.monotonic() + self._patience
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
                        raise self._topics.named(topic, error)
        return None

    def _window_of(self, topic: str, message: ck.Message) -> str | None:
        if topic == self._ids.control:
            return window_of(message.key() or b"")
        told = dict(headers_of(message)).get(self._header)
        return None if told is None else told.decode(errors="replace")
