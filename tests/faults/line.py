"""A port in front of a server that knows where a request ends, and makes one of them fail."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

import msgspec

from tests.faults.injector import LIMIT, Channel, Injector, Mode
from tests.kafka.door import Door

APIS = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 18: "ApiVersions", 19: "CreateTopics", 22: "InitProducerId",
    23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn",
    28: "TxnOffsetCommit", 32: "DescribeConfigs", 60: "DescribeCluster",
}  # fmt: skip
"""The names of Kafka's requests by their keys."""


class Request(msgspec.Struct):
    """A part of a connection, as the client sends it.

    Attributes:
        content: its bytes.
        name: the name of the call; empty if it belongs to an earlier call.
        id: the first bytes of its answer, if the protocol numbers the answers.
    """

    content: bytes
    name: str = ""
    id: bytes = b""


def read_kafka(stream: BinaryIO, _: socket.socket, _is_first: bool) -> Request:
    """Reads one request of Kafka: its length, key, version and number come first."""
    size = stream.read(4)
    body = stream.read(struct.unpack(">i", size)[0])
    (key,) = struct.unpack_from(">h", body)
    return Request(size + body, APIS.get(key, f"request {key}"), body[4:8])


def read_postgres(stream: BinaryIO, _: socket.socket, is_first: bool) -> Request:
    """Reads one message of PostgreSQL. Only the first one of a connection has no type."""
    kind = b"" if is_first else stream.read(1)
    size = stream.read(4)
    body = stream.read(struct.unpack(">i", size)[0] - 4)
    sql = {b"Q": body, b"P": body.partition(b"\0")[2]}.get(kind)
    name = {b"": "connect", b"c": "end of COPY", b"B": "prepared statement"}.get(kind, "")
    if sql is not None:
        name = " ".join(re.findall(r"[A-Za-z]+", sql.decode(errors="replace"))[:3])
    return Request(kind + size + body, name)


def read_http(stream: BinaryIO, client: socket.socket, _is_first: bool) -> Request:
    """Reads one request of HTTP, and tells the client to send the body if it asks first."""
    head = _lines_to_blank(stream)
    if EXPECT.search(head):
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    size, body = re.search(rb"(?i)\ncontent-length: *(\d+)", head), b""
    if b"transfer-encoding: chunked" in head.lower():
        while not body.endswith(b"\r\n0\r\n") and body != b"0\r\n":
            line = stream.readline()
            body += line + (stream.read(int(line, 16) + 2) if int(line, 16) else b"")
        body += _lines_to_blank(stream)
    elif size:
        body = stream.read(int(size[1]))
    method, path = head.split(maxsplit=2)[:2]
    name = f"{method.decode()} {path.decode().partition('?')[0]}"
    return Request(EXPECT.sub(b"", head) + body, name)


EXPECT = re.compile(rb"(?i)expect: *100-continue\r\n")


def _lines_to_blank(stream: BinaryIO) -> bytes:
    lines = b""
    while not lines.endswith(b"\r\n\r\n") and lines != b"\r\n":
        lines += stream.readline() or _end()
    return lines


def _end() -> bytes:
    raise EOFError


READ: dict[Channel, Callable[[BinaryIO, socket.socket, bool], Request]] = {
    "kafka": read_kafka,
    "postgres": read_postgres,
    "http": read_http,
}


class FaultLine(Door):
    """A port in front of a server, with the faults of an injector.

    A broker tells its own address to its clients. The line replaces it by the line's.
    """

    def __init__(self, address: str, channel: Channel, injector: Injector) -> None:
        self._channel, self._injector = channel, injector
        super().__init__(address)
        host, _, port = address.rpartition(":")
        own_port = int(self.bootstrap.rpartition(":")[2])
        self._addresses = (
            [host.encode() + struct.pack(">i", number) for number in (int(port), own_port)]
            if channel == "kafka"
            else [b"-", b"-"]
        )

    def carry(self, client: socket.socket) -> None:
        """Forwards one connection until it is closed, or a fault closes it."""
        faults: dict[bytes, Mode] = {}
        with suppress(OSError, EOFError, struct.error), self.connect() as inner:
            back = threading.Thread(target=self._answer, args=(inner, client, faults), daemon=True)
            back.start()
            try:
                self._ask(client, inner, faults)
            finally:
                with suppress(OSError):
                    inner.shutdown(socket.SHUT_RDWR)
                back.join(LIMIT)
        reset(client)

    def _ask(self, client: socket.socket, inner: socket.socket, faults: dict[bytes, Mode]) -> None:
        stream, is_first, previous_name = client.makefile("rb"), True, ""
        while True:
            request = READ[self._channel](stream, client, is_first)
            is_first, name = False, request.name
            # one call: the statement, and its parameters
            is_call = name and (name != "prepared statement" or not previous_name)
            previous_name = name
            mode = self._injector.meet(self._channel, name) if is_call else None
            if mode == "stall":
                self._injector.released.wait(LIMIT)
                return
            if mode == "error" and self._channel == "http":
                client.sendall(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n")
                continue
            if mode in {"error", "cut", "gone"}:
                return
            if mode is not None:
                faults[request.id] = mode
            inner.sendall(request.content)

    def _answer(
        self, inner: socket.socket, client: socket.socket, faults: dict[bytes, Mode]
    ) -> None:
        stream = inner.makefile("rb")
        with suppress(OSError, struct.error):
            while True:
                if self._channel == "kafka":
                    size = stream.read(4)
                    content = size + stream.read(struct.unpack(">i", size)[0])
                    content = content.replace(*self._addresses)
                else:
                    content = inner.recv(1 << 16)
                mode = faults.get(content[4:8] if self._channel == "kafka" else b"")
                if not content or mode == "lost":
                    break
                client.sendall(content if mode is None else content[: len(content) // 2])
                if mode is not None:
                    break
        reset(client)


def reset(connection: socket.socket) -> None:
    """Ends a connection of both sides at once."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
