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
    """Forwards one connection in both directions."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Port)
        with socket.create_connection(server.inner, LIMIT) as inner:
            inner.settimeout(None)
            back = threading.Thread(target=_pass, args=(inner, self.request), daemon=True)
            back.start()
            _pass(self.request, inner)
            back.join(LIMIT)


class _Port(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    inner: tuple[str, int]


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
            bootstrap: the broker's own address.
        """
        host, _, port = bootstrap.rpartition(":")
        self._inner = (host, int(port))
        self._address = ("127.0.0.1", 0)
        self.open()

    @property
    def bootstrap(self) -> str:
        """The address of the port."""
        return f"{self._address[0]}:{self._address[1]}"

    def open(self) -> None:
        """Opens the port with the same number as before."""
        self._port = _Port(self._address, _Passage)
        self._port.inner = self._inner
        self._address = ("127.0.0.1", self._port.server_address[1])
        self._serving = threading.Thread(target=self._port.serve_forever, args=(0.05,), daemon=True)
        self._serving.start()

    def close(self) -> None:
        """Closes the port. New connections are refused when this returns."""
        self._port.shutdown()
        self._port.server_close()
        self._serving.join(LIMIT)
