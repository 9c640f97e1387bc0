"""Is librdkafka's message what the compiled passes take it for? Asked of the library
itself, without a cluster, in a few milliseconds.

A producer that knows no broker is given messages whose every field is known, and told
to give them up. Its reports are messages of the public form that a consumer gives, and
go through the passes that read. Nothing is dereferenced before it was compared.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from windrow.ingest.kafka.capi import PRODUCER, TEXT_SIZE, Api, MessageHead, Unusable
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.source.reader import fields
from windrow.ingest.source.reader.librdkafka import calls_of, passes, rows_to_batch

_TOPIC = "selftest"
_REPORTS = 1  # RD_KAFKA_EVENT_DR
_QUEUED = 1  # RD_KAFKA_PURGE_F_QUEUE
_GIVEN_UP = -152  # RD_KAFKA_RESP_ERR__PURGE_QUEUE
_NO_OFFSET = -1001  # RD_KAFKA_OFFSET_INVALID
_WAIT_MS = 5000

_SENT: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (11, b"key", b"a value", [("name", b"1"), ("name", None), ("", b"")]),
    (12, None, b"", []),
    (13, b"", None, [("n", b"\0")]),
]
"""Partition, key, value and headers.

No two fields of the first have the same value: so each is known by its own.
"""

_FIRST_PRIVATE = 101


def check(api: Api) -> None:
    """Try the library out.

    Raises:
        Unusable: says what is not as expected.
    """
    _check_places(api)
    with _producer(api) as (client, topic):
        values = [
            None if value is None else ctypes.create_string_buffer(value)
            for _, _, value, _ in _SENT
        ]
        for number, ((partition, key, value, _), memory) in enumerate(
            zip(_SENT, values, strict=True)
        ):
            key_size, value_size = len(key or b""), len(value or b"")
            _expect(
                "produce",
                api.produce(
                    topic, partition, 0, memory, value_size, key, key_size, _FIRST_PRIVATE + number
                ),
                0,
            )
        _expect("purge", api.purge(client, _QUEUED), 0)
        with _event(api, client) as event:
            messages = np.zeros(len(_SENT) + 1, np.int64)
            _expect(
                "the number of messages",
                api.event_message_array(event, messages.ctypes.data, len(messages)),
                len(_SENT),
            )
            for number, memory in enumerate(values):
                at = 0 if memory is None else ctypes.addressof(memory)
                _check_head(int(messages[number]), number, topic, at)
            for number in range(len(_SENT)):
                _check_passes(api, messages[number : number + 1], number, topic)


def _check_head(address: int, number: int, topic: int, value_at: int) -> None:
    """Field by field, each by its own value, before the passes follow a pointer."""
    partition, key, value, _ = _SENT[number]
    head = MessageHead.from_address(address)
    expected: list[tuple[str, Any, Any]] = [
        ("err", head.err, _GIVEN_UP),
        ("rkt", head.topic or 0, topic),
        ("partition", head.partition, partition),
        ("payload", head.payload or 0, value_at),
        ("len", head.size, len(value or b"")),
        ("key_len", head.key_size, len(key or b"")),
        ("key", bool(head.key), key is not None),
        ("offset", head.offset, _NO_OFFSET),
        ("_private", head.private, _FIRST_PRIVATE + number),
    ]
    for name, found, due in expected:
        _expect(f"rd_kafka_message_t.{name}", found, due)


def _check_passes(api: Api, message: fields.Ints, number: int, topic: int) -> None:
    """What the passes make of it.

    Its headers are put in before; as it was given up, librdkafka knows of it neither
    time nor leader.
    """
    partition, key, value, headers = _SENT[number]
    if headers:
        api.message_set_headers(int(message[0]), _headers(api, headers))
    calls, scratch = calls_of(api), np.zeros(fields.SCRATCH, np.int64)
    calls[fields.CALLS.index("message_destroy")] = 0  # it is the event's
    rows, state = np.empty((fields.FIELDS, 1), np.int64), np.zeros(fields.STATE, np.int64)
    state[[fields.ERR, fields.TOPIC, fields.PARTITION, fields.DUE]] = (
        _GIVEN_UP,
        topic,
        partition,
        _NO_OFFSET,
    )
    _expect(
        "messages that were recognized", passes.look(calls, message, 1, rows, state, scratch), 1
    )
    (row,) = rows_to_batch(
        calls, TopicPartition(_TOPIC, partition), message, rows, 0, 1, scratch
    ).to_pylist()
    for name, found, due in (
        ("key", row["key"], key),
        ("value", row["value"], value),
        ("offset", row["offset"], _NO_OFFSET),
        ("timestamp", row["timestamp"], None),
        ("leader epoch", row["leader_epoch"], None),
        ("headers", [(h["key"], h["value"]) for h in row["headers"]], headers),
    ):
        _expect(f"a message's {name}", found, due)


def _check_places(api: Api) -> None:
    """The list that an assignment is written in, and a position read from."""
    places = api.topic_partition_list_new(1)
    try:
        api.topic_partition_set_leader_epoch(
            api.topic_partition_list_add(places, _TOPIC.encode(), 7), 9
        )
        _expect("rd_kafka_topic_partition_list_t.cnt", places.contents.count, 1)
        place = places.contents.elements[0]
        _expect("rd_kafka_topic_partition_t.partition", place.partition, 7)
        _expect("rd_kafka_topic_partition_t.offset", place.offset, _NO_OFFSET)
        _expect("rd_kafka_topic_partition_t.topic", place.topic, _TOPIC.encode())
        _expect("a leader epoch", api.topic_partition_get_leader_epoch(ctypes.byref(place)), 9)
    finally:
        api.topic_partition_list_destroy(places)


@contextmanager
def _producer(api: Api) -> Iterator[tuple[int, int]]:
    """A producer that knows no broker and logs nothing, and its topic."""
    conf, why = api.conf_new(), ctypes.create_string_buffer(TEXT_SIZE)
    api.conf_set_log_cb(conf, None)
    api.conf_set_events(conf, _REPORTS)
    client = api.new(PRODUCER, conf, why, TEXT_SIZE)
    if client is None:
        api.conf_destroy(conf)
        raise Unusable("librdkafka makes no client")
    topic = api.topic_new(client, _TOPIC.encode(), None)
    try:
        yield client, topic
    finally:
        api.topic_destroy(topic)
        api.destroy(client)


@contextmanager
def _event(api: Api, client: int) -> Iterator[int]:
    queue = api.queue_get_main(client)
    event = api.queue_poll(queue, _WAIT_MS)
    try:
        if event is None:
            raise Unusable("librdkafka reports nothing of messages that it gave up")
        yield event
    finally:
        if event is not None:
            api.event_destroy(event)
        api.queue_destroy(queue)


def _headers(api: Api, headers: list[tuple[str, bytes | None]]) -> int:
    made = api.headers_new(len(headers))
    for name, value in headers:
        _expect(
            "header_add",
            api.header_add(made, name.encode(), -1, value, 0 if value is None else len(value)),
            0,
        )
    return int(made)


def _expect(what: str, found: Any, due: Any) -> None:
    if found != due:
        raise Unusable(f"librdkafka's self-test: {what} is {found!r}, not {due!r}")
