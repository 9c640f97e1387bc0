"""A server that refuses each request, and repeats all of it in its answer.

Real servers do it: S3 quotes the signed headers of a request whose signature is wrong, proxies
and frameworks show a page for debugging.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SECRET = re.compile("auth|token", re.IGNORECASE)


class EchoServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        status: the status of its answers.
        heard: the requests so far, as they are repeated.
    """

    daemon_threads = True

    def __init__(self, status: int, tls: ssl.SSLContext | None = None) -> None:
        self.status, self.heard = status, list[str]()
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that hung up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EchoServer

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size).decode("latin-1")
        # what is secret stands first: a limit of length must not be what hides it
        pairs = sorted(self.headers.items(), key=lambda pair: not _SECRET.search(pair[0]))
        head = "; ".join(f"{name}: {value}" for name, value in pairs)
        heard = f"{self.path} {body} {head}"
        self.server.heard.append(heard)
        answer = self._page(heard).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # the library's names  # noqa: N815

    def _page(self, heard: str) -> str:
        """Returns the error as registries, providers of tokens and catalogs have it, or as S3."""
        if "AWS4-HMAC-SHA256" in heard:
            return (
                f"<Error><Code>SignatureDoesNotMatch</Code><Message>It doesn't"
                f" match.</Message><CanonicalRequest>{heard}</CanonicalRequest></Error>"
            )
        return json.dumps(
            {"error_code": 40001, "message": heard, "error": heard, "error_description": heard}
        )

    def log_message(self, format: str, *args: Any) -> None:  # its name  # noqa: A002
        """Prints nothing."""


@contextmanager
def echoing(status: int, tls: ssl.SSLContext | None = None) -> Iterator[EchoServer]:
    """Runs a server until the end of the block."""
    server = EchoServer(status, tls)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


@contextmanager
def echoing_postgres() -> Iterator[str]:
    """Runs a server that asks for the password in clear, refuses it, and repeats it.

    Yields:
        Its host and port.
    """
    server = socket.create_server(("127.0.0.1", 0))

    def refuse(connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection, connection.makefile("rb") as received:
            while (size := struct.unpack(">i", received.read(4))[0]) == 8:  # SSL, or GSSAPI
                received.read(4)
                connection.sendall(b"N")
            received.read(size - 4)
            connection.sendall(b"R" + struct.pack(">ii", 8, 3))
            received.read(1)
            password = received.read(struct.unpack(">i", received.read(4))[0] - 4)
            message = b"SFATAL\0VFATAL\0C28P01\0Mno user has " + password + b"\0"
            connection.sendall(b"E" + struct.pack(">i", len(message) + 4) + message)

    def accept() -> None:
        with suppress(OSError):
            while True:
                refuse(server.accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(60)
