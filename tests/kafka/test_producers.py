"""The state of producers after an error."""

from __future__ import annotations

import random
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.kafka.produce import ask_until, create_topic, high_watermark, is_decided
from windrow.ingest.kafka.producers import ProducerError, ProducerMessage, TransactionalProducer


@pytest.mark.broker
def test_a_transaction_whose_commit_fails_is_aborted(kafka: str) -> None:
    """A transaction whose commit fails is aborted.

    Otherwise readers of committed messages would wait until its timeout.

    1. Messages are sent.
    2. The commit finds that the topic refuses one of them.
    """
    topic = create_topic(kafka, config={"max.message.bytes": "20000"})
    settings = {"bootstrap.servers": kafka, "transaction.timeout.ms": 120_000, "log_level": 0}
    producer = TransactionalProducer(settings, f"{topic}.id", 30)
    producer.fence(topic)
    producer.begin()
    producer.write(topic, [ProducerMessage(None, b"small", ())])
    producer.producer.produce(topic, random.Random(1).randbytes(40_000))
    assert (high_watermark(kafka, topic), is_decided(kafka, topic)) == (1, False)
    with pytest.raises(ProducerError) as failed:
        producer.commit()
    assert (failed.value.kind, failed.value.unanswered) == ("refused", False)
    producer.leave()
    ask_until(lambda: is_decided(kafka, topic), "the abort")


def test_a_commit_that_succeeded_is_not_aborted() -> None:
    """A committed transaction isn't aborted when the producer is left."""
    producer = TransactionalProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "id", 0)
    producer.producer = Mock()
    producer.begin()
    producer.commit()
    producer.leave()
    assert not producer.producer.abort_transaction.called


@pytest.mark.parametrize(("code", "must_abort"), [(KafkaError._TIMED_OUT, False), (47, True)])
def test_a_commit_without_an_answer_is_not_aborted(code: int, *, must_abort: bool) -> None:
    """A commit without an answer isn't aborted, because it may have succeeded.

    It is aborted only if Kafka says that it failed.
    """
    producer = TransactionalProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "id", 0)
    error = KafkaError(code, "so", False, not must_abort, must_abort)
    producer.producer = Mock(**{"commit_transaction.side_effect": KafkaException(error)})
    producer.begin()
    with pytest.raises(ProducerError) as failed:
        producer.commit()
    assert failed.value.unanswered != must_abort
    producer.leave()
    assert producer.producer.abort_transaction.called == must_abort
