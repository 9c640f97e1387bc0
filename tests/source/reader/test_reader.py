"""The reader's contract on real Kafka, with each client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import pytest

from tests.contracts.logs import Logs, Sent
from tests.contracts.reader_contract import ReaderContract, make_messages, messages_in, plan_of
from tests.contracts.reading import batches_of, gathered
from tests.source.reader.clients import WAYS
from windrow.ingest.client_cache import keeping
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.source.reader.fetching import Fetcher, OnError, Start
from windrow.ingest.source.reader.reader import KafkaReader

pytestmark = pytest.mark.broker

PLAN = ReadPlan("cluster", {"t": "id"}, "fail")


@pytest.mark.some(1)
class OnKafka(ReaderContract):
    """The contract of readers on real Kafka."""

    client_name: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _address(self, kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bootstrap = kafka
        monkeypatch.setattr("windrow.ingest.source.reader.cursor.APART_SECONDS", 0.125)

    def _reader(
        self, plan: ReadPlan, isolation: Isolation = "read_committed", **bounds: Any
    ) -> Reader:
        return KafkaReader(
            consumer_properties(self.bootstrap, {}, isolation=isolation),
            plan,
            fetching=WAYS[self.client_name],
            **bounds,
        )

    def make(self, broker: Broker, plan: ReadPlan, **bounds: int) -> Reader:
        return self._reader(plan, **bounds)

    def impatient(self, broker: Broker, plan: ReadPlan) -> Reader:
        return self._reader(plan, stall_seconds=0.5)

    def patient(self, broker: Broker, plan: ReadPlan) -> Reader:
        return self._reader(plan, stall_seconds=30)

    def dirty(self, broker: Broker, plan: ReadPlan) -> Reader:
        return self._reader(plan, "read_uncommitted")


class TestConfluent(OnKafka):
    """The contract with confluent-kafka's consumer."""

    client_name = "confluent"


class TestLibrdkafka(OnKafka):
    """The contract with the compiled client."""

    client_name = "librdkafka"


class Keeps(OnKafka):
    """The contract with a client that is kept for the next split."""

    @pytest.fixture(autouse=True)
    def _keeping(self) -> Iterator[None]:
        with keeping():
            yield

    def test_any_splits_in_any_order(self, broker: Broker, logs: Logs, dice: Random) -> None:
        """Splits of several topic-partitions in any order, with markers and aborted messages
        between, each give their own messages.
        """
        topic = logs.topic(2)
        tps = [TopicPartition(topic, p) for p in range(2)]
        for tp in tps:
            for _ in range(4):
                logs.send(tp, *make_messages(dice.randrange(1, 9)))
                logs.transaction(
                    tp, *make_messages(dice.randrange(1, 5)), commit=dice.random() < 0.5
                )
        cuts = {tp: sorted(dice.sample(range(logs.end(tp) + 1), 6)) for tp in tps}
        splits = [Split(topic, tp.partition, a, b) for tp in tps for a, b in pairwise(cuts[tp])]
        starts = list[Start]()

        def counted(properties: Mapping[str, Any], start: Start, on_error: OnError) -> Fetcher:
            starts.append(start)
            return WAYS[self.client_name](properties, start, on_error)

        for split in [*splits, *dice.sample(splits, len(splits))]:
            reader = KafkaReader(
                consumer_properties(self.bootstrap, {}), plan_of(broker, split.tp), fetching=counted
            )
            batches, summary = gathered(reader, split)
            assert messages_in(batches) == logs.visible_messages(split.tp, split.start, split.stop)
            assert summary.next_offset >= split.stop
        assert len(starts) <= 2, "one client for messages, one for those that were aborted"


class TestKeptConfluent(Keeps, TestConfluent):
    """The contract with confluent-kafka's consumer, kept between splits."""


class TestKeptLibrdkafka(Keeps, TestLibrdkafka):
    """The contract with the compiled client, kept between splits."""


@pytest.mark.timeout(120)
def test_a_truncated_end_is_known_without_a_stall(
    kafka: str, broker: KafkaBroker, logs: Logs
) -> None:
    """An end of the log below the stop is asked for at once, not after the stall limit."""
    tp = logs.partition()
    logs.send(tp, *make_messages(3))
    reader = KafkaReader(
        consumer_properties(kafka, {}), plan_of(broker, tp, "skip"), stall_seconds=3_600
    )
    batches, summary = gathered(reader, Split(tp.topic, 0, 0, 5))
    assert [b.num_rows for b in batches] == [3]
    assert summary.skipped == 2


def test_aborted_runs_between_messages_are_counted(
    kafka: str, broker: KafkaBroker, logs: Logs
) -> None:
    """Each gap between messages is read by itself, and only its aborted messages count."""
    tp = logs.partition()
    for _ in range(4):
        logs.transaction(tp, *make_messages(2), commit=False)
        logs.send(tp, Sent())
    reader = KafkaReader(consumer_properties(kafka, {}), plan_of(broker, tp))
    assert gathered(reader, Split(tp.topic, 0, 0, logs.end(tp)))[1].aborted == 8


def test_what_retention_takes_behind_the_read_costs_nothing(
    kafka: str, broker: KafkaBroker, logs: Logs
) -> None:
    """A window that was read completely passes, although retention deletes its aborted messages
    before they are counted.
    """
    tp = logs.partition()
    logs.transaction(tp, *make_messages(2), commit=False)
    logs.send(tp, *make_messages(2))

    def fetching(properties: Mapping[str, Any], start: Start, on_error: OnError) -> Fetcher:
        if properties["isolation.level"] == "read_uncommitted":
            logs.cluster.delete_before(tp, logs.end(tp))
        return WAYS["confluent"](properties, start, on_error)

    reader = KafkaReader(
        consumer_properties(kafka, {}), plan_of(broker, tp), stall_seconds=5, fetching=fetching
    )
    batches, summary = gathered(reader, Split(tp.topic, 0, 0, logs.end(tp)))
    assert (messages_in(batches), summary.aborted) == (
        logs.visible_messages(tp, 0, logs.end(tp)),
        0,
    )


def test_a_broker_that_is_not_there(broker: KafkaBroker, logs: Logs) -> None:
    """A broker that doesn't answer raises UnreachableError within the limit."""
    reader = KafkaReader(consumer_properties("127.0.0.1:1", {}), PLAN, stall_seconds=1)
    with pytest.raises(UnreachableError, match="did not answer"):
        batches_of(reader, Split("t", 0, 0, 1))


def test_properties_that_cannot_be_used_here() -> None:
    """A file that is missing where the task runs raises SpecError."""
    properties = consumer_properties(
        "127.0.0.1:1", {"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}
    )
    with pytest.raises(SpecError, match="can't be used here"):
        batches_of(KafkaReader(properties, PLAN), Split("t", 0, 0, 1))
