"""Dead letters in a real topic: the contents of a message, and refusals of the topic."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from tests.contracts.dead_topic_contract import DeadTopicContract, letters
from tests.kafka.dead_letters import header_text, read_topic
from tests.kafka.produce import create_topic
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.kafka import dead_topic, producers
from windrow.ingest.kafka.dead_topic import KafkaDeadTopic
from windrow.ingest.kafka.producers import MESSAGE_BYTES
from windrow.ingest.testing.contracts.windows import window

pytestmark = pytest.mark.broker


class TestKafkaDeadTopic(DeadTopicContract):
    """Dead letters in real Kafka."""

    @pytest.fixture(autouse=True)
    def bootstrap(self, kafka: str) -> None:
        self.kafka = kafka

    @pytest.fixture
    def topic(self, kafka: str) -> KafkaDeadTopic:
        return KafkaDeadTopic(kafka, {}, create_topic(kafka, partitions=2))

    def absent(self, topic: KafkaDeadTopic) -> KafkaDeadTopic:
        return KafkaDeadTopic(self.kafka, {}, f"{topic.name}-not")

    def offsets(self, topic: KafkaDeadTopic) -> list[int]:
        messages = read_topic(self.kafka, topic.name)
        return sorted(
            int(header_text(message, "__connect.errors.offset") or "") for message in messages
        )


@pytest.fixture
def topic(kafka: str) -> KafkaDeadTopic:
    """An empty dead-letter topic."""
    return KafkaDeadTopic(kafka, {}, create_topic(kafka))


def test_a_message_is_the_whole_letter(kafka: str, topic: KafkaDeadTopic) -> None:
    """A letter has the exact key and value, and all headers in order.

    The message's own headers come first, then Connect's, then windrow's. Its timestamp is the
    time of publication.
    """
    began = datetime.now(UTC)
    own_headers = [
        {"key": "h", "value": b"\xff"},
        {"key": "h", "value": None},
        {"key": "__connect.errors.topic", "value": b"older"},
    ]
    attributes = {
        "key": b"\x00k",
        "value": b"\xfev",
        "headers": own_headers,
        "stage": "key",
        "reason": "key:not_json",
        "detail": "Expected a value",
        "schema_id": "7",
        "_timestamp": datetime(2026, 1, 5, tzinfo=UTC),
        "timestamp_type": "CreateTime",
        "generation": 2,
    }
    topic.publish(window(0), [letters(42, **attributes), letters(43, value=None)])
    first, second = sorted(
        read_topic(kafka, topic.name),
        key=lambda message: header_text(message, "__connect.errors.offset") or "",
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
    assert first.timestamp()[1] >= int(began.timestamp() * 1000) - 1000


def test_a_letter_that_the_topic_does_not_take(kafka: str) -> None:
    """A letter that the topic refuses raises RefusedError with its message's place.

    Earlier letters may be in the topic. They are published again with the others.
    """
    name = create_topic(kafka, config={"max.message.bytes": "20000"})
    topic = KafkaDeadTopic(kafka, {}, name)
    large = Random(1).randbytes(40_000)
    with pytest.raises(
        RefusedError,
        match=(
            r"doesn't accept a dead letter of window .*\(commit, shop.orders\[3\]@2\)."
            r" .*max.message.bytes"
        ),
    ):
        topic.publish(window(0), [letters(1), letters(2, value=large)])
    topic.publish(window(0), [letters(1), letters(2)])
    offsets = {
        header_text(message, "__connect.errors.offset") for message in read_topic(kafka, name)
    }
    assert offsets == {"1", "2"}


def test_a_letter_that_the_client_has_no_room_for(kafka: str) -> None:
    """A letter that the client can't buffer raises RefusedError with its place and a way out."""
    topic = KafkaDeadTopic(kafka, {}, create_topic(kafka))
    large = bytes(MESSAGE_BYTES + 1)
    with pytest.raises(
        RefusedError, match=r"shop.orders\[3\]@2\)\. .*above 64 MiB .*leave out dead_letters\.topic"
    ):
        topic.publish(window(0), [letters(1), letters(2, value=large)])


def test_more_letters_than_the_clients_queue_takes(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More letters than the client's queue holds are all published.

    Delivery reports free the queue.
    """
    few = {**producers.PRODUCER, "queue.buffering.max.messages": 3}
    monkeypatch.setattr(producers, "PRODUCER", few)
    name = create_topic(kafka)
    KafkaDeadTopic(kafka, {}, name).publish(window(0), [letters(*range(20))])
    assert len(list(read_topic(kafka, name))) == 20


def test_a_cluster_that_does_not_confirm(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters that aren't confirmed in time raise UnreachableError with the advice to retry."""
    topic = KafkaDeadTopic(kafka, {}, create_topic(kafka))
    impatient = {**dead_topic.PRODUCER_SETTINGS, "message.timeout.ms": 1, "linger.ms": 0}
    monkeypatch.setattr(dead_topic, "PRODUCER_SETTINGS", impatient)
    with pytest.raises(UnreachableError, match=r"could not be published .* Run it again"):
        topic.publish(window(0), [letters(*range(1000))])


def test_a_message_larger_than_the_clients_default(kafka: str) -> None:
    """The size of a letter is limited only by the topic."""
    name = create_topic(kafka, config={"max.message.bytes": "4000000"})
    KafkaDeadTopic(kafka, {}, name).publish(window(0), [letters(1, value=b"x" * 3_000_000)])
    (message,) = read_topic(kafka, name)
    assert len(message.value() or b"") == 3_000_000
