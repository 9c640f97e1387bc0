"""Record batches in Kafka's format (magic 2), made of whole columns.

There is no Python object for each record. The producer's id and epoch, the sequence
number and the checksum are written last (`Batch.sealed`).

Sources: "Message Format" in Kafka's documentation for record batches, "LZ4 Frame Format
Description" for LZ4's frames.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.native.calling import Compiled

Ints = npt.NDArray[np.int64]

passes = Compiled("windrow.ingest.kafka.record_pass")

_HEAD = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM = 21
"""First byte that the checksum covers: that of the attributes.

Before it are the base offset, the length, the leader epoch, the magic and the checksum.
"""

_MAGIC, _LZ4, _TRANSACTIONAL = 2, 3, 16
_POLYNOMIAL = 0x82F63B78
_FRAME = bytes.fromhex("04224d18607073")
"""Header of an LZ4 frame of independent blocks of at most 4 MiB.

It has no checksums, for the batch has one.
"""

_BLOCK = 4 << 20
_UNCOMPRESSED = 0x80000000
_RECORD_ROOM = 61
"""Most bytes of a record without the bytes of its key, value and headers.

These are the attributes and six varints of at most ten bytes: the lengths of the record,
its key and its value, the differences of its time and offset, the number of headers.
"""

_HEADER_ROOM = 10
"""Most bytes of the lengths of a header's name and value."""

UNPACKED_BYTES = 4 << 20
"""Most bytes of a batch before compression: a reader decompresses it as a whole."""


class Producer(NamedTuple):
    """A transactional producer: its id (`number`) and its epoch."""

    number: int
    epoch: int


class Messages(NamedTuple):
    """Messages as columns.

    `headers` are those whose values differ between messages, `same` those that all
    messages have. `times` are in milliseconds since 1970.
    """

    value: pa.BinaryArray
    key: pa.BinaryArray
    headers: Sequence[tuple[str, pa.BinaryArray]]
    same: Sequence[tuple[str, bytes]]
    times: Ints


class Batch(NamedTuple):
    """An encoded batch without its producer, its sequence number and its checksum.

    `base` and `last` are the first and the greatest timestamp.
    """

    octets: bytearray
    records: int
    base: int
    last: int

    def sealed(self, producer: Producer, sequence: int) -> memoryview:
        """Writes the header of the batch as part of a transaction; returns its bytes.

        `sequence` is the number of records that the producer has sent to the
        topic-partition before.
        """
        length, attributes = len(self.octets) - 12, _LZ4 | _TRANSACTIONAL
        _HEAD.pack_into(
            self.octets,
            0,
            0,
            length,
            -1,
            _MAGIC,
            0,
            attributes,
            self.records - 1,
            self.base,
            self.last,
            *producer,
            sequence,
            self.records,
        )
        struct.pack_into(
            ">I", self.octets, _CHECKED_FROM - 4, crc32c(memoryview(self.octets)[_CHECKED_FROM:])
        )
        return memoryview(self.octets)


class Batching:
    """Cuts messages into batches that are as large as the topic accepts.

    Remembers how well the last batch could be compressed. Used by one thread.

    Args:
        max_bytes: most bytes of a batch (the topic's `max.message.bytes`). A larger
            message has a batch of its own.
        max_unpacked: most bytes of a batch before compression. It matters where a broker
            compresses batches in another way and checks the size of the result.
    """

    def __init__(self, max_bytes: int, max_unpacked: int = UNPACKED_BYTES) -> None:
        self._max_bytes, self._max_unpacked = max_bytes, max_unpacked
        self._least_room = self._next_room = max(1, min(max_bytes // 2, max_unpacked))

    def batches(self, messages: Messages, rows: Ints) -> Iterator[Batch]:
        """Encodes the messages of one topic-partition as batches, in this order.

        Args:
            messages: messages, also of other topic-partitions.
            rows: the rows of this topic-partition's messages.
        """
        records = _Records(messages, rows)
        first = 0
        while first < len(rows):
            stop = records.stop(first, self._next_room)
            batch = records.batch(first, stop)
            room, size = records.room(first, stop), len(batch.octets)
            if size > self._max_bytes and batch.records > 1:
                self._next_room = max(1, min(room, self._next_room) // 2)
                continue
            yield batch
            first = stop
            # Three quarters of what would fit if the next batch were compressed as well as
            # this one: a batch that doesn't fit is encoded twice.
            self._next_room = max(
                self._least_room, min(self._max_unpacked, room * self._max_bytes * 3 // (4 * size))
            )


class _Records:
    """The messages of some rows, to be encoded as records."""

    def __init__(self, messages: Messages, rows: Ints) -> None:
        named = [name.encode() for name, _ in messages.headers]
        self._names, others, self._referenced = _header_names(named, messages.same)
        columns = (messages.value, messages.key, *(column for _, column in messages.headers))
        self._columns = np.array([addresses(column) for column in columns], np.int64)
        self._messages, self._rows, self._headers = (
            messages,
            np.ascontiguousarray(rows),
            len(named) + len(messages.same),
        )
        room = np.full(
            len(rows),
            _RECORD_ROOM + len(others) + sum(_HEADER_ROOM + len(name) for name in named),
            np.int64,
        )
        for column in columns:
            room += np.diff(_ends(column))[rows]
        self._ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(room)])

    def room(self, first: int, stop: int) -> int:
        """Most bytes of the records [first, stop) before compression."""
        return int(self._ends[stop] - self._ends[first])

    def stop(self, first: int, room: int) -> int:
        """End of the records from `first` on that fit into the room; at least one record."""
        return max(
            int(np.searchsorted(self._ends, self._ends[first] + room, side="right")) - 1, first + 1
        )

    def batch(self, first: int, stop: int) -> Batch:
        """Encodes the records [first, stop) as a batch."""
        some, scratch = self._rows[first:stop], np.empty(self.room(first, stop), np.uint8)
        times = self._messages.times
        own = times[some]
        base = int(own[0])
        size = passes.put_records(
            self._columns, self._names, some, times, base, self._headers, scratch.ctypes.data
        )
        return Batch(_compressed(scratch[:size]), len(some), base, int(own.max()))


def crc32c(octets: memoryview) -> int:
    """Checksum of a record batch (CRC-32C)."""
    view = np.frombuffer(octets, np.uint8)
    return int(passes.crc32c(_tables(), view.ctypes.data, len(view)))


def by_key(keys: pa.BinaryArray, count: int, without: int) -> Ints:
    """Partition of each message by its key, as Java's clients choose it.

    Args:
        keys: the messages' keys.
        count: number of partitions.
        without: partition of messages without a key.
    """
    chosen = np.full(len(keys), without, np.int64)
    passes.murmur2(np.array([addresses(keys)], np.int64), count, chosen)
    return chosen


def addresses(column: pa.Array) -> list[int]:
    """Addresses of a column of bytes for compiled passes: see `record_pass.DATA`."""
    present, ends, data = column.buffers()
    return [
        0 if data is None else data.address,
        ends.address,
        0 if present is None or not column.null_count else present.address,
        column.offset,
    ]


def _ends(column: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(column.buffers()[1], np.int32)[
        column.offset : column.offset + len(column) + 1
    ]


def _header_names(
    named: Sequence[bytes], same: Sequence[tuple[str, bytes]]
) -> tuple[Ints, bytes, list[Any]]:
    """Encodes headers' names, and the headers that all messages have.

    Returns:
        Addresses and lengths as `record_pass.put_records` takes them, the encoded headers
        that all messages have, and the arrays at the addresses, which have to live as long
        as the addresses are used.
    """
    others = b"".join(_with_length(name.encode()) + _with_length(value) for name, value in same)
    encoded = [_with_length(name) for name in named] + [others]
    texts = [np.frombuffer(text or b"\0", np.uint8) for text in encoded]
    lengths = [len(text) for text in encoded]
    return (
        np.array([(text.ctypes.data, n) for text, n in zip(texts, lengths, strict=True)], np.int64),
        others,
        texts,
    )


def _with_length(octets: bytes) -> bytes:
    word, out = len(octets) << 1, bytearray()
    while word >= 128:
        out.append(word & 127 | 128)
        word >>= 7
    return bytes(out) + bytes([word]) + octets


def _compressed(octets: npt.NDArray[np.uint8]) -> bytearray:
    """Room for a batch's header, and the records in an LZ4 frame."""
    out, codec = bytearray(_HEAD.size), pa.Codec("lz4_raw")
    out += _FRAME
    for start in range(0, len(octets), _BLOCK):
        block = pa.py_buffer(octets[start : start + _BLOCK])
        smaller = codec.compress(block)
        plain = smaller.size >= block.size
        out += struct.pack("<I", block.size | _UNCOMPRESSED if plain else smaller.size)
        out += memoryview(block if plain else smaller)
    out += bytes(4)
    return out


@cache
def _tables() -> Ints:
    """Tables for CRC-32C of eight bytes a step; the n-th is for a byte before n others."""
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for n in range(1, 8):
        tables[n] = tables[0, tables[n - 1] & 255] ^ (tables[n - 1] >> 8)
    return tables
