"""Reads a dead-letter topic with a plain client that sees committed messages only."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """Returns all committed messages of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    messages: list[Message] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "the topic could not be read to its end"
        error = message.error()
        if error is None:
            messages.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition() or 0)
    consumer.close()
    return messages


def header_text(message: Message, name: str) -> str | None:
    """Returns the text of the last header with this name; None without a header or a value."""
    values = [value for header, value in message.headers() or [] if header == name]
    return values[-1].decode() if values and isinstance(values[-1], bytes) else None
