"""The compiled passes over messages in memory with librdkafka's layout, without librdkafka:
their results and refusals.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from tests.source.reader.confluent import to_batch
from windrow.ingest.kafka.capi import MessageHead
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.source.reader import fields, librdkafka
from windrow.ingest.source.reader.batches import UNREADABLE
from windrow.ingest.source.reader.librdkafka import passes

TP = TopicPartition("t", 3)
TOPIC = 4096
"""An address that is never read."""

POINTER = ctypes.c_int64
NOENT = -156


@dataclass(frozen=True)
class Sent:
    """A message.

    Attributes:
        offset: its offset.
        key: its key.
        value: its value.
        headers: its headers, with names as bytes.
        stamp: type and value of its timestamp.
        epoch: its leader epoch; -1 for none.
        err: an error code; other than 0 for an event.
    """

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    stamp: tuple[int, int] = (1, 0)
    epoch: int = -1
    err: int = 0


@dataclass
class FakeLibrary:
    """The functions that the passes call, in Python.

    Its messages are in this process's memory as long as it lives.
    """

    sent_messages: Sequence[Sent]
    destroyed: list[int] = field(default_factory=list)
    heads: list[MessageHead] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)

    PROTOTYPES: ClassVar[dict[str, Any]] = {
        "message_timestamp": ctypes.CFUNCTYPE(ctypes.c_int64, POINTER, POINTER),
        "message_leader_epoch": ctypes.CFUNCTYPE(ctypes.c_int32, POINTER),
        "message_headers": ctypes.CFUNCTYPE(ctypes.c_int32, POINTER, POINTER),
        "header_cnt": ctypes.CFUNCTYPE(ctypes.c_size_t, POINTER),
        "header_get_all": ctypes.CFUNCTYPE(
            ctypes.c_int32, POINTER, ctypes.c_size_t, POINTER, POINTER, POINTER
        ),
        "message_destroy": ctypes.CFUNCTYPE(None, POINTER),
    }

    def __post_init__(self) -> None:
        for message in self.sent_messages:
            self.heads.append(
                MessageHead(
                    message.err,
                    TOPIC,
                    TP.partition,
                    self.bytes_at(message.value),
                    len(message.value or b""),
                    self.bytes_at(message.key),
                    len(message.key or b""),
                    message.offset,
                    None,
                )
            )
        self.functions = [self.PROTOTYPES[name](getattr(self, name)) for name in fields.CALLS]
        self.calls = np.array(
            [ctypes.cast(f, ctypes.c_void_p).value for f in self.functions], np.int64
        )
        self.addresses = [ctypes.addressof(head) for head in self.heads]

    def bytes_at(self, content: bytes | None) -> int | None:
        """Returns the address of the bytes, with a zero after them; None for None."""
        if content is None:
            return None
        self.memory.append(ctypes.create_string_buffer(content))
        return ctypes.addressof(self.memory[-1])

    def message_at(self, address: int) -> Sent:
        return self.sent_messages[self.addresses.index(address)]

    def message_timestamp(self, address: int, kind: int) -> int:
        ctypes.c_int32.from_address(kind).value = self.message_at(address).stamp[0]
        return self.message_at(address).stamp[1]

    def message_leader_epoch(self, address: int) -> int:
        return self.message_at(address).epoch

    def message_headers(self, address: int, answer_address: int) -> int:
        if not self.message_at(address).headers:
            return NOENT
        POINTER.from_address(answer_address).value = address
        return 0

    def header_cnt(self, address: int) -> int:
        return len(self.message_at(address).headers)

    def header_get_all(self, address: int, number: int, name: int, value: int, size: int) -> int:
        text, content = self.message_at(address).headers[number]
        for pointer_address, word in (
            (name, self.bytes_at(text)),
            (value, self.bytes_at(content)),
            (size, len(content or b"")),
        ):
            POINTER.from_address(pointer_address).value = word or 0
        return 0

    def message_destroy(self, address: int) -> None:
        self.destroyed.append(address)


def make_state(start: int = 0, stop: int = 2**62) -> fields.Ints:
    state = np.zeros(fields.STATE, np.int64)
    state[[fields.PARTITION, fields.DUE, fields.STOP]] = TP.partition, start, stop
    return state


def run_look(library: FakeLibrary, words: fields.Ints) -> tuple[int, fields.Ints, fields.Ints]:
    """Returns the number of messages that were taken, the addresses and the rows."""
    addresses = np.array(library.addresses, np.int64)
    rows = np.empty((fields.FIELDS, len(addresses)), np.int64)
    return (
        passes.look(
            library.calls,
            addresses,
            len(addresses),
            rows,
            words,
            np.zeros(fields.SCRATCH, np.int64),
        ),
        addresses,
        rows,
    )


def batch_of(library: FakeLibrary, stop: int = 2**62) -> pa.RecordBatch:
    count, addresses, rows = run_look(library, make_state(0, stop))
    batch = librdkafka.rows_to_batch(
        library.calls, TP, addresses, rows, 0, count, np.zeros(fields.SCRATCH, np.int64)
    )
    assert [a for a in library.addresses if a not in addresses] == library.destroyed
    return batch


BLOB = st.none() | st.binary(max_size=20)
NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3).map(
    str.encode
)
MESSAGE = st.builds(
    Sent,
    offset=st.integers(0, 3),  # the distance from the message before
    key=BLOB,
    value=BLOB,
    headers=st.lists(st.tuples(NAME, BLOB), max_size=3).map(tuple),
    stamp=st.tuples(st.integers(0, 2), st.sampled_from([-1, 0, 5, 2**62, -(2**62)])),
    epoch=st.integers(-1, 9),
)


def consecutive(messages: list[Sent]) -> list[Sent]:
    """Returns the messages with offsets instead of distances."""
    offset, messages_in_order = -1, []
    for m in messages:
        offset += 1 + m.offset
        messages_in_order.append(Sent(offset, m.key, m.value, m.headers, m.stamp, m.epoch))
    return messages_in_order


@given(st.lists(MESSAGE, min_size=1, max_size=20).map(consecutive))
def test_the_same_as_from_the_clients_objects(messages: list[Sent]) -> None:
    """Any messages become the same batch as confluent-kafka's objects of them, and each is
    destroyed once.
    """
    library = FakeLibrary(messages)
    batch = batch_of(library)
    batch.validate(full=True)
    objects = [
        Message(
            topic=TP.topic,
            partition=TP.partition,
            offset=m.offset,
            key=m.key,
            value=m.value,
            timestamp=m.stamp,
            leader_epoch=m.epoch,
            headers=[(name.decode(), value) for name, value in m.headers] or None,
        )
        for m in messages
    ]
    assert batch.schema.equals(MESSAGES)
    assert batch.equals(to_batch(TP, objects))
    assert sorted(library.destroyed) == sorted(library.addresses)


def test_a_header_whose_name_is_not_utf_8() -> None:
    """A message with a header name that isn't UTF-8 gets a mark instead of all its headers."""
    bad, good = (b"ok", b"1"), (b"\xff", b"2")
    batch = batch_of(
        FakeLibrary(
            [
                Sent(0, headers=(bad,)),
                Sent(1, headers=(bad, good)),
                Sent(2),
                Sent(3, headers=(bad, (b"n", None))),
            ]
        )
    )
    assert [[(h["key"], h["value"]) for h in row["headers"]] for row in batch.to_pylist()] == [
        [("ok", b"1")],
        [(UNREADABLE, None)],
        [],
        [("ok", b"1"), ("n", None)],
    ]


def test_events_and_what_lies_behind_the_stop_are_left_out() -> None:
    """Events and messages after the stop aren't returned or destroyed by the passes, but
    counted.
    """
    library = FakeLibrary(
        [
            Sent(4),
            Sent(9, err=-191),
            Sent(5, value=b"v"),
            Sent(7, value=b"later"),
            Sent(8, err=-195),
        ]
    )
    words = make_state(4, 7)
    count, _, rows = run_look(library, words)
    assert (count, rows[fields.OFFSET, :2].tolist(), rows[fields.NUMBER, :2].tolist()) == (
        2,
        [4, 5],
        [0, 2],
    )
    assert words[fields.DUE :].tolist() == [8, 7, 2, 0, TOPIC, 1]
    assert library.destroyed == []


def test_release_destroys_what_is_left() -> None:
    """Release destroys each remaining message once, however often it is called."""
    library = FakeLibrary([Sent(n) for n in range(5)])
    addresses = np.array(library.addresses, np.int64)
    addresses[1] = addresses[4] = 0
    for _ in range(2):
        passes.release(library.calls, addresses, 5)
    assert library.destroyed == [library.addresses[n] for n in (0, 2, 3)]
    assert not addresses.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", TOPIC + 8),
        ("partition", 4),
        ("offset", 10),
        ("offset", -1),
        ("size", 2**31),
        ("size", 2**64 - 1),
        ("key_size", 2**31),
        ("payload", None),
        ("key", None),
    ],
)
def test_what_cannot_be_the_next_message(name: str, value: int | None) -> None:
    """Another topic or partition, a passed offset, an impossible size, or a null with a size is
    refused.
    """
    library = FakeLibrary([Sent(n, b"key", b"value") for n in (9, 10, 11)])
    setattr(library.heads[2], name, value)
    words = make_state(9)
    assert run_look(library, words)[0] == 0
    assert words[fields.WRONG] == 1


def test_what_was_passed_is_refused() -> None:
    """The first message of a poll is also compared with the last one of the poll before."""
    library = FakeLibrary([Sent(9)])
    words = make_state(10)
    run_look(library, words)
    assert words[fields.WRONG] == 1
