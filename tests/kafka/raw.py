"""A Produce request, built byte by byte, for messages that no client's producer writes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

Message = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""Key, value and headers of a message."""

_PRODUCE, _VERSION = 0, 7
_CHECKED_FROM = 21
"""The position in a batch at which its checksum's range begins: the attributes."""


def send_stampless(address: str, topic: str, partition: int, messages: Sequence[Message]) -> None:
    """Writes one batch with the timestamps -1 to the leader at this address."""
    batch = _batch(messages)
    body = [
        struct.pack(">hhi", _PRODUCE, _VERSION, 1),
        _short(b"tests"),
        struct.pack(">hhi", -1, -1, 30_000),
        struct.pack(">i", 1) + _short(topic.encode()),
        struct.pack(">iii", 1, partition, len(batch)) + batch,
    ]
    request = b"".join(body)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answers = connection.makefile("rb")
        response = answers.read(struct.unpack(">i", answers.read(4))[0])
        answers.close()
    # The position is after the correlation id, the topic's name and the partition's number.
    error_position = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    assert struct.unpack_from(">h", response, error_position) == (0,), response


def _short(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _batch(messages: Sequence[Message]) -> bytes:
    records = b"".join(_sized(_record(n, *message)) for n, message in enumerate(messages))
    n = len(messages)
    checked = struct.pack(">hiqqqhii", 0, n - 1, -1, -1, -1, -1, -1, n) + records
    head = struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, _crc32c(checked))
    assert len(head) == _CHECKED_FROM
    return head + checked


def _record(
    number: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    parts = [b"\0", _varint(0), _varint(number), _sized(key), _sized(value), _varint(len(headers))]
    return b"".join(
        parts + [_sized(name.encode()) + _sized(header_value) for name, header_value in headers]
    )


def _sized(octets: bytes | None) -> bytes:
    return _varint(-1) if octets is None else _varint(len(octets)) + octets


def _varint(value: int) -> bytes:
    word, out = value << 1 ^ value >> 63, bytearray()
    while word >= 128:
        out.append(word & 127 | 128)
        word >>= 7
    return bytes([*out, word])


def _crc32c(octets: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in octets:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
