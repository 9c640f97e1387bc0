"""Batches of records as Kafka's log has them (the second version of the form), made of
whole columns: without an object for each record.

What a producer adds, its number, its epoch and the batch's place in the sequence, is
put in last (`Batch.sealed`), with the checksum. Source: the description of the record
batch in Kafka's documentation, "Message Format"; of LZ4's frames, "LZ4 Frame Format
Description".
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
_FROM = 21
"""Where that begins which the checksum is of: the attributes, behind base offset,
length, epoch, form and the checksum itself.
"""

_FORM, _LZ4, _TRANSACTIONAL = 2, 3, 16
_POLYNOMIAL = 0x82F63B78
_FRAME = bytes.fromhex("04224d18607073")
"""An LZ4 frame of blocks that don't lean on each other, of 4 MiB at most, without
checksums: the batch has one.
"""

_BLOCK = 4 << 20
_AS_IT_IS = 0x80000000
_ROOM = 61
"""Bytes that a record takes at most beside its key, value and headers: seven numbers of
ten at most, less what none of them needs.
"""

_HEADER_ROOM = 10

UNPACKED_BYTES = 4 << 20
"""Of a batch, at most: who reads it unpacks all of it at once."""


class Producer(NamedTuple):
    """Who has a transaction. `number`: Kafka's for its transactional id."""

    number: int
    epoch: int


class Messages(NamedTuple):
    """Messages as columns.

    `value`, `key`: bytes; `headers`: those that differ, by their names; `same`: those
    that all have; `times`: in epoch milliseconds.
    """

    value: pa.BinaryArray
    key: pa.BinaryArray
    headers: Sequence[tuple[str, pa.BinaryArray]]
    same: Sequence[tuple[str, bytes]]
    times: Ints


class Batch(NamedTuple):
    """A batch, but for what `sealed` puts in."""

    octets: bytearray
    records: int
    base: int
    last: int

    def sealed(self, producer: Producer, sequence: int) -> memoryview:
        """The batch as part of its transaction.

        `sequence`: records of the producer that stand before it in the topic-partition.
        """
        length, form = len(self.octets) - 12, _LZ4 | _TRANSACTIONAL
        _HEAD.pack_into(
            self.octets,
            0,
            0,
            length,
            -1,
            _FORM,
            0,
            form,
            self.records - 1,
            self.base,
            self.last,
            *producer,
            sequence,
            self.records,
        )
        struct.pack_into(">I", self.octets, _FROM - 4, crc32c(memoryview(self.octets)[_FROM:]))
        return memoryview(self.octets)


class Batching:
    """Cuts messages into batches, as large as a topic takes them.

    Keeps how far the last ones could be compressed. Used by one thread.

    Args:
        most: bytes of a batch that a topic takes (`max.message.bytes`); a message that
            takes more has a batch of its own.
        unpacked: the same before it is compressed; a broker that packs batches anew
            measures what comes of that.
    """

    def __init__(self, most: int, unpacked: int = UNPACKED_BYTES) -> None:
        self._most, self._unpacked = most, unpacked
        self._least = self._before = max(1, min(most // 2, unpacked))

    def batches(self, messages: Messages, rows: Ints) -> Iterator[Batch]:
        """The batches of some messages, which one topic-partition is to have in this order.

        Args:
            messages: those among which they are.
            rows: which they are.
        """
        written = _Records(messages, rows)
        first = 0
        while first < len(rows):
            stop = written.stop(first, self._before)
            batch = written.batch(first, stop)
            room, size = written.room(first, stop), len(batch.octets)
            if size > self._most and batch.records > 1:
                self._before = max(1, min(room, self._before) // 2)
                continue
            yield batch
            first = stop
            # Not all of what the next ones could have, by the last one: what doesn't
            # fit is encoded twice.
            self._before = max(
                self._least, min(self._unpacked, room * self._most * 3 // (4 * size))
            )


class _Records:
    """Some messages on their way into batches."""

    def __init__(self, messages: Messages, rows: Ints) -> None:
        named = [name.encode() for name, _ in messages.headers]
        self._names, others, self._kept = _names(named, messages.same)
        columns = (messages.value, messages.key, *(column for _, column in messages.headers))
        self._columns = np.array([addresses(column) for column in columns], np.int64)
        self._messages, self._rows, self._headers = (
            messages,
            np.ascontiguousarray(rows),
            len(named) + len(messages.same),
        )
        room = np.full(
            len(rows),
            _ROOM + len(others) + sum(_HEADER_ROOM + len(name) for name in named),
            np.int64,
        )
        for column in columns:
            room += np.diff(_ends(column))[rows]
        self._ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(room)])

    def room(self, first: int, stop: int) -> int:
        """Bytes that these take at most, before they are compressed."""
        return int(self._ends[stop] - self._ends[first])

    def stop(self, first: int, room: int) -> int:
        """Up to which they fit into so many; one does."""
        return max(
            int(np.searchsorted(self._ends, self._ends[first] + room, side="right")) - 1, first + 1
        )

    def batch(self, first: int, stop: int) -> Batch:
        """These."""
        some, scratch = self._rows[first:stop], np.empty(self.room(first, stop), np.uint8)
        times = self._messages.times
        own = times[some]
        base = int(own[0])
        size = passes.put_records(
            self._columns, self._names, some, times, base, self._headers, scratch.ctypes.data
        )
        return Batch(_compressed(scratch[:size]), len(some), base, int(own.max()))


def crc32c(octets: memoryview) -> int:
    """The checksum of bytes that a record batch has."""
    view = np.frombuffer(octets, np.uint8)
    return int(passes.crc32c(_tables(), view.ctypes.data, len(view)))


def by_key(keys: pa.BinaryArray, count: int, without: int) -> Ints:
    """Of each message the partition that Java's clients give it, among so many.

    `without`: that of those that have no key.
    """
    chosen = np.full(len(keys), without, np.int64)
    passes.murmur2(np.array([addresses(keys)], np.int64), count, chosen)
    return chosen


def addresses(column: pa.Array) -> list[int]:
    """A column of bytes as passes are told of it: see `record_pass.DATA`."""
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


def _names(
    named: Sequence[bytes], same: Sequence[tuple[str, bytes]]
) -> tuple[Ints, bytes, list[Any]]:
    """See `record_pass.put_records`; the headers that all have; and what must live as
    long as the addresses are used.
    """
    others = b"".join(_sized(name.encode()) + _sized(value) for name, value in same)
    texts = [np.frombuffer(text or b"\0", np.uint8) for text in (*map(_sized, named), others)]
    lengths = [len(_sized(name)) for name in named] + [len(others)]
    return (
        np.array([(text.ctypes.data, n) for text, n in zip(texts, lengths, strict=True)], np.int64),
        others,
        texts,
    )


def _sized(octets: bytes) -> bytes:
    word, out = len(octets) << 1, bytearray()
    while word >= 128:
        out.append(word & 127 | 128)
        word >>= 7
    return bytes(out) + bytes([word]) + octets


def _compressed(octets: npt.NDArray[np.uint8]) -> bytearray:
    """Room for a batch's head, and its records in an LZ4 frame."""
    out, codec = bytearray(_HEAD.size), pa.Codec("lz4_raw")
    out += _FRAME
    for start in range(0, len(octets), _BLOCK):
        block = pa.py_buffer(octets[start : start + _BLOCK])
        smaller = codec.compress(block)
        plain = smaller.size >= block.size
        out += struct.pack("<I", block.size | _AS_IT_IS if plain else smaller.size)
        out += memoryview(block if plain else smaller)
    out += bytes(4)
    return out


@cache
def _tables() -> Ints:
    """For eight bytes at once: the n-th is of a byte that n more bytes stand behind."""
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for n in range(1, 8):
        tables[n] = tables[0, tables[n - 1] & 255] ^ (tables[n - 1] >> 8)
    return tables
