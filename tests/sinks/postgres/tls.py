"""A port on which a real PostgreSQL is reached only by TLS.

The test kit's PostgreSQL is built without TLS, so TLS ends here, as at many a pooler. The
client's libpq requests, checks and refuses TLS itself, and all later bytes go to the server
unchanged.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from tests.kafka.listener import TLS

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104
LIMIT = 60
"""Seconds for the port to open, and to close."""

LIFE = 600
"""Seconds that the port is open at most: the time limit of a test."""


@contextmanager
def tls_port(socket: str, *, tls: bool = True) -> Iterator[int]:
    """Opens a port of 127.0.0.1, with a certificate for it, in front of a server's socket.

    Args:
        socket: the server's socket.
        tls: True to accept TLS, False to refuse it.
    """
    opened: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(socket, tls, opened)), daemon=True)
    thread.start()
    port, loop, stop = opened.result(LIMIT)
    try:
        yield port
    finally:
        with suppress(RuntimeError):  # the loop may have ended after `LIFE`
            loop.call_soon_threadsafe(stop.set_result, None)
        thread.join(LIMIT)


async def _serve(
    socket: str,
    tls: bool,
    opened: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]],
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "broker.pem", TLS / "broker.key.pem")
    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # a client that refuses the certificate leaves in the middle of the handshake
        with suppress(OSError, asyncio.IncompleteReadError):
            try:
                while await _request(reader) == _GSS_REQUEST:
                    writer.write(b"N")
                writer.write(b"S" if tls else b"N")
                await writer.drain()
                if tls:
                    await writer.start_tls(context)
                    server_reader, server_writer = await asyncio.open_unix_connection(socket)
                    try:
                        await asyncio.gather(
                            _forward(reader, server_writer), _forward(server_reader, writer)
                        )
                    finally:  # also if it is cancelled before either has begun
                        await _hang_up(server_writer)
                else:
                    # wait until the client leaves: hanging up first may lose the answer
                    await reader.read()
            finally:
                await _hang_up(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        opened.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
        await asyncio.wait({stop}, timeout=LIFE)
    while inside := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in inside:
            task.cancel()
        await asyncio.wait(inside, timeout=LIMIT)


async def _request(reader: asyncio.StreamReader) -> int:
    """Returns the code of a client's first request.

    A client that begins in clear text is disconnected.
    """
    _, code = struct.unpack("!ii", await reader.readexactly(8))
    if code not in {_SSL_REQUEST, _GSS_REQUEST}:
        raise ConnectionAbortedError
    return int(code)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies bytes until one side ends, then ends the other."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        await _hang_up(writer)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Closes a connection at once, and waits: a loop that ends earlier leaves an open transport."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
