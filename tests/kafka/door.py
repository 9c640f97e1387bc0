"""A port in front of a broker's port, which a test opens and closes. Open connections stay open."""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress

_ROOM = 1 << 16
LIMIT = 60
"""The timeout in seconds for a connection to the broker, and for the end of the threads."""


class _Passage(socketserver.BaseRequestHandler):
    """Carries one connection."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Port)
        server.door.carry(self.request)


class _Port(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    door: Door


def _pass(source: socket.socket, target: socket.socket) -> None:
    """Forwards all bytes until one of the sockets is closed."""
    with suppress(OSError):
        while chunk := source.recv(_ROOM):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Door:
    """A port that forwards connections to a broker. It is open at first.

    A broker tells its own address to a connected client. So only the first connection uses this
    port.
    """

    def __init__(self, bootstrap: str) -> None:
        """Opens the port.

        Args:
            bootstrap: the broker's own address; for another server also the path of its socket.
        """
        self._inner = bootstrap
        self._address = ("127.0.0.1", 0)
        self.open()

    @property
    def bootstrap(self) -> str:
        """The address of the port."""
        return f"{self._address[0]}:{self._address[1]}"

    def open(self) -> None:
        """Opens the port with the same number as before."""
        self._port = _Port(self._address, _Passage)
        self._port.door = self
        self._address = ("127.0.0.1", self._port.server_address[1])
        self._serving = threading.Thread(target=self._port.serve_forever, args=(0.05,), daemon=True)
        self._serving.start()

    def close(self) -> None:
        """Closes the port. New connections are refused when this returns."""
        self._port.shutdown()
        self._port.server_close()
        self._serving.join(LIMIT)

    def carry(self, client: socket.socket) -> None:
        """Forwards one connection in both directions until it is closed."""
        with self.connect() as inner:
            back = threading.Thread(target=_pass, args=(inner, client), daemon=True)
            back.start()
            _pass(client, inner)
            back.join(LIMIT)

    def connect(self) -> socket.socket:
        """Returns a new connection to the server behind the port."""
        if self._inner.startswith("/"):
            inner = socket.socket(socket.AF_UNIX)
            inner.connect(self._inner)
            return inner
        host, _, port = self._inner.rpartition(":")
        inner = socket.create_connection((host, int(port)), LIMIT)
        inner.settimeout(None)
        return inner
