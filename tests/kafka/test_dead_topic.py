"""Dead letters in a real topic: what a message has, what the topic refuses, and how a
mark is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.contracts.dead_topic_contract import DeadTopicContract, letters
from tests.kafka.dead_letters import read_topic, told
from tests.kafka.produce import ask_until, create_topic
from tests.sinks.things import window
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.kafka.dead_topic import PREFIX, KafkaDeadTopic

pytestmark = pytest.mark.broker


class TestKafkaDeadTopic(DeadTopicContract):
    """Real Kafka."""

    @pytest.fixture(autouse=True)
    def bootstrap(self, kafka: str) -> None:
        self.kafka = kafka

    @pytest.fixture
    def topic(self, kafka: str) -> KafkaDeadTopic:
        return KafkaDeadTopic(kafka, {}, create_topic(kafka, partitions=2))

    def absent(self, topic: KafkaDeadTopic) -> KafkaDeadTopic:
        return KafkaDeadTopic(self.kafka, {}, f"{topic.name}-not")

    def offsets(self, topic: KafkaDeadTopic, *, undecided: bool = False) -> list[int]:
        messages = read_topic(self.kafka, topic.name, undecided=undecided)
        return sorted(int(told(message, "__connect.errors.offset") or "") for message in messages)


@pytest.fixture
def topic(kafka: str) -> KafkaDeadTopic:
    """An empty one."""
    return KafkaDeadTopic(kafka, {}, create_topic(kafka))


def test_a_message_is_the_whole_letter(kafka: str, topic: KafkaDeadTopic) -> None:
    """Key and value to the byte, the message's own headers first and in order, then
    Connect's, then windrow's; stamped when published.
    """
    before = datetime.now(UTC)
    own = [
        {"key": "h", "value": b"\xff"},
        {"key": "h", "value": None},
        {"key": "__connect.errors.topic", "value": b"older"},
    ]
    told_of = {
        "key": b"\x00k",
        "value": b"\xfev",
        "headers": own,
        "stage": "key",
        "reason": "key:not_json",
        "detail": "Expected a value",
        "schema_id": "7",
        "_timestamp": datetime(2026, 1, 5, tzinfo=UTC),
        "timestamp_type": "CreateTime",
        "generation": 2,
    }
    with topic.publishing(window(0), "a1") as publishing:
        publishing.write([letters(42, **told_of), letters(43, value=None)])
        publishing.commit(2)
    first, second = sorted(
        read_topic(kafka, topic.name),
        key=lambda message: told(message, "__connect.errors.offset") or "",
    )
    assert (first.key(), first.value(), second.key(), second.value()) == (
        b"\x00k",
        b"\xfev",
        None,
        None,
    )
    assert first.headers() == [
        ("h", b"\xff"),
        ("h", None),
        ("__connect.errors.topic", b"older"),
        ("__connect.errors.topic", b"shop.orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"42"),
        ("__connect.errors.connector.name", b"orders"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"KEY_CONVERTER"),
        ("__connect.errors.class.name", b"windrow.key"),
        ("__connect.errors.exception.class.name", b"key:not_json"),
        ("__connect.errors.exception.message", b"Expected a value"),
        ("windrow.window", b"2026-01-02T00:00:00Z"),
        ("windrow.attempt", b"a1"),
        ("windrow.generation", b"2"),
        ("windrow.stage", b"key"),
        ("windrow.reason", b"key:not_json"),
        ("windrow.schema.id", b"7"),
        ("windrow.timestamp", b"1767571200000"),
        ("windrow.timestamp.type", b"CreateTime"),
    ]
    assert [name for name, _ in second.headers() or []][-5:] == [
        "windrow.attempt",
        "windrow.generation",
        "windrow.stage",
        "windrow.reason",
        "windrow.timestamp.type",
    ]
    assert ("__connect.errors.exception.message", None) in (second.headers() or [])
    assert first.timestamp()[1] >= int(before.timestamp() * 1000) - 1000


def test_a_letter_that_the_topic_does_not_take(kafka: str) -> None:
    """It is told with its place; nothing is published, and once the topic takes it all are."""
    name = create_topic(kafka, config={"max.message.bytes": "20000"})
    topic = KafkaDeadTopic(kafka, {}, name)
    large = Random(1).randbytes(40_000)
    with (
        pytest.raises(
            RefusedError,
            match=(
                r"doesn't accept a dead letter of window .*\(commit, shop.orders\[3\]@2\)."
                r" .*max.message.bytes"
            ),
        ),
        topic.publishing(window(0), "a1") as publishing,
    ):
        publishing.write([letters(1), letters(2, value=large)])
    assert read_topic(kafka, name) == []
    with topic.publishing(window(0), "a1") as publishing:
        publishing.write([letters(1)])
        publishing.commit(1)
    assert len(read_topic(kafka, name)) == 1


def test_who_is_overtaken_while_writing_says_so(kafka: str, topic: KafkaDeadTopic) -> None:
    """However the client tells it: by the call that writes, or by one that waits, while
    letters are reported as not delivered.
    """
    for n in range(5):

        def overtaken(n: int = n) -> Iterator[pa.RecordBatch]:
            yield letters(*range(100))
            with topic.publishing(window(n), "a1") as other:
                other.write([letters(1)])
                other.commit(1)
            yield letters(*range(100, 200))

        with (
            pytest.raises(UnreachableError, match="another run, which began later"),
            topic.publishing(window(n), "a1") as publishing,
        ):
            publishing.write(overtaken())
    assert len(read_topic(kafka, topic.name)) == 5


def test_who_is_overtaken_says_so_where_the_client_lost_why(topic: KafkaDeadTopic) -> None:
    """A call of the client's may fail without a reason: then it is asked for what ended it.

    Where nothing did, the failure stays.
    """
    lost = SystemError(
        "<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception"
    )

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield letters(1)
        with topic.publishing(window(0), "a1") as other:
            other.write([letters(1)])
            other.commit(1)
        raise lost

    def fine() -> Iterator[pa.RecordBatch]:
        yield letters(1)
        raise lost

    with (
        pytest.raises(UnreachableError, match="another run, which began later"),
        topic.publishing(window(0), "a1") as publishing,
    ):
        publishing.write(overtaken())
    with (
        pytest.raises(SystemError, match="returned NULL"),
        topic.publishing(window(1), "a1") as publishing,
    ):
        publishing.write(fine())


def test_a_message_larger_than_the_clients_default(kafka: str) -> None:
    """How large a letter may be the topic alone says."""
    name = create_topic(kafka, config={"max.message.bytes": "4000000"})
    with KafkaDeadTopic(kafka, {}, name).publishing(window(0), "a1") as publishing:
        publishing.write([letters(1, value=b"x" * 3_000_000)])
        publishing.commit(1)
    (message,) = read_topic(kafka, name)
    assert len(message.value() or b"") == 3_000_000


def test_the_mark_is_a_groups_offset(admin: AdminClient, topic: KafkaDeadTopic) -> None:
    """Its group begins as the rights that are asked for; what the cluster keeps such an
    offset for is what the topic remembers.
    """
    with topic.publishing(window(0), "a1") as publishing:
        publishing.write([letters(1)])
        publishing.commit(1)
    asked = ConsumerGroupTopicPartitions(f"{PREFIX}orders.a1", [TopicPartition(topic.name, 0)])
    found = list[TopicPartition]()

    def stable() -> bool:
        found[:] = (
            admin.list_consumer_group_offsets([asked], require_stable=True)[asked.group_id]
            .result(30)
            .topic_partitions
        )
        return found[0].error is None

    ask_until(stable, "the end of the transaction is still on its way")
    assert (found[0].offset, found[0].metadata) == (1, window(0).key)
    assert topic.remembers() == timedelta(days=7)


def test_who_may_not_write_is_told_so(
    topic: KafkaDeadTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to write the topic is refused beforehand, with the rights that
    are needed.
    """
    monkeypatch.setattr(
        "windrow.ingest.kafka.dead_topic.AclOperation",
        SimpleNamespace(WRITE="none of those that are allowed"),
    )
    with pytest.raises(
        SpecError, match=r"may not write to the topic of dead letters.*Grant it Write and Describe"
    ):
        topic.refuse_unwritable()
