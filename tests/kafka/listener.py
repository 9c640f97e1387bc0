"""A port that speaks TLS, or nothing, but no Kafka. It is enough to refuse a client."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TLS = Path(__file__).parent / "tls"
"""The folder of certificates and keys.

- broker.pem, broker.key.pem: a self-signed certificate of 127.0.0.1 for a hundred years, and
  its key.
- other.pem: a CA that has signed nothing.
- client.p12: broker.pem and its key as PKCS#12.

They were made by: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days
36500 -addext "subjectAltName=IP:127.0.0.1"; openssl pkcs12 -export
"""


def server_context(*, asks_clients: bool = False) -> ssl.SSLContext:
    """The TLS of a server with `broker.pem`, which may ask its clients for the same certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=TLS / "broker.pem")
    context.load_cert_chain(TLS / "broker.pem", TLS / "broker.key.pem")
    context.verify_mode = ssl.CERT_REQUIRED if asks_clients else ssl.CERT_NONE
    return context


@contextmanager
def listening(*, tls: bool = True, clients: Path | None = None) -> Iterator[str]:
    """Yields the address of a listener that sends nothing after the handshake.

    Args:
        tls: whether it speaks TLS.
        clients: the CA file for the certificates that clients must show; None: none needed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "broker.pem", TLS / "broker.key.pem")
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    server = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def speak(plain: socket.socket) -> None:
        with (
            suppress(OSError),
            context.wrap_socket(plain, server_side=True) if tls else plain as connection,
        ):
            connection.recv(1)
            if not tls:
                return
            while connection.recv(4096):
                pass

    def accept() -> None:
        with suppress(OSError):
            while True:
                plain, _ = server.accept()
                plain.settimeout(30)
                open_ones.append(plain)
                threading.Thread(target=speak, args=(plain,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in open_ones:
            with suppress(OSError):
                connection.close()
