"""Servers of HTTP that lie, redirect, stall, or send slowly or without end, against each client.

A client ends in time and in bounded memory, with an error that names the server or the place.
"""

from __future__ import annotations

import ast
import gzip
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa
import pytest

from tests.kafka.listener import TLS, server_context
from tests.kafka.tokens import bearer
from tests.lookups.test_http import MODEL
from tests.shape.sources import PACKAGES, ROOT, modules, nodes
from windrow.ingest.errors import BugError, RefusedError, WindrowError
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.lookups.http import client as lookup_client
from windrow.ingest.lookups.http.kind import HttpSection
from windrow.ingest.observers import prometheus
from windrow.ingest.registry.client import Registry
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.settings.logins import OidcLogin
from windrow.ingest.settings.secrets import InEnvironment
from windrow.ingest.sinks.delta.store import DeltaStore
from windrow.ingest.sinks.iceberg import catalogs, pyiceberg_internals
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.kit.files import put_if_absent
from windrow.ingest.sinks.kit.files.filesystem import Place

LIBRARIES = {
    "boto3",
    "http.client",
    "httpcore2",
    "httpx2",
    "pyiceberg.catalog.rest",
    "requests",
    "urllib.request",
    "urllib3",
}
CA = str(TLS / "broker.pem")
MOST_MEMORY = 100 << 20

Connection = socket.socket
Worse = Callable[["Server", Connection], None]
Ask = Callable[[str, pytest.MonkeyPatch, Path], None]
"""Sends a request to an address. A folder may have files for it."""


@dataclass
class Server:
    """A server that answers each request with `worse`, by HTTP or, if a client begins so, HTTPS."""

    worse: Worse
    speaks: bool = True
    elsewhere: Server | None = None
    requests: list[bytes] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._listener, self._tls = socket.create_server(("127.0.0.1", 0)), server_context()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, plain: Connection) -> None:
        with suppress(OSError), plain:
            if not self.speaks:
                self.over.wait(600)
                return
            is_tls = plain.recv(1, socket.MSG_PEEK) == b"\x16"
            connection = self._tls.wrap_socket(plain, server_side=True) if is_tls else plain
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(1 << 16) or self._end()
                self.requests.append(head)
                self.worse(self, connection)

    def _end(self) -> bytes:
        raise OSError

    def drip(self, connection: Connection, first: bytes, drop: bytes, seconds: float) -> None:
        """Sends drops without end."""
        connection.sendall(first)
        while not self.over.wait(seconds):
            connection.sendall(drop)


def page(_: Server, connection: Connection) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n<html>sign in</html>")


def half(_: Server, connection: Connection) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{"')


def redirect(server: Server, connection: Connection) -> None:
    assert server.elsewhere is not None
    address = server.elsewhere.address.encode()
    connection.sendall(
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://%s/\r\nContent-Length: 0\r\n\r\n"
        % address
    )


def silence(server: Server, _: Connection) -> None:
    server.over.wait(600)


def slow_head(server: Server, connection: Connection) -> None:
    server.drip(connection, b"HTTP/1.1 200 OK\r\nx: ", b"x", 0.02)


def slow_body(server: Server, connection: Connection) -> None:
    server.drip(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ", 0.02)


def interim(server: Server, connection: Connection) -> None:
    server.drip(connection, b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02)


def flood(server: Server, connection: Connection) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.drip(connection, head, b"10000\r\n%s\r\n" % (b" " * (1 << 16)), 0)


def packed(_: Server, connection: Connection) -> None:
    """Sends a gigabyte in a megabyte."""
    body = gzip.compress(b" " * (1 << 20)) * 1024
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    connection.sendall(body)


WORSE = [page, half, redirect, silence, slow_head, slow_body, interim, flood, packed]

# --------------------------------------------------------------------------------------------------


def ask_registry(address: str, _: pytest.MonkeyPatch, _folder: Path) -> None:
    Registry(f"https://{address}", ca=CA, timeout=0.3, retries=0).schema("1")


def ask_glue(address: str, patch: pytest.MonkeyPatch, _: Path) -> None:
    patch.setenv("AWS_ACCESS_KEY_ID", "windrow")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "C4nary")
    glue = Registry(f"https://{address}", ca=CA, timeout=0.3, retries=0, region="eu-central-1")
    glue.schema("glue-00000000-0000-0000-0000-000000000007")


def ask_provider(address: str, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    patch.setenv("CLIENT_SECRET", "C4nary")
    secret = InEnvironment("CLIENT_SECRET")
    login = OidcLogin(
        token_url=f"https://{address}/token", client_id="me", client_secret=secret, ca=CA
    )
    Registry("https://127.0.0.1:1", oauth=login, timeout=0.3, retries=0).reveal()


def ask_lookup(address: str, patch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "geo.py").write_text(MODEL)
    patch.setattr(lookup_client, "MOST_FAILURES", 2)
    http = {"http": f"https://{address}/{{ip}}", "timeout": "1s", "tls": {"ca": CA}}
    source = HttpSection.model_validate(http | {"schema": "geo.py:Place"}).source(folder)
    keys = pa.table({"ip": ["a"]})
    answers = source.open("", keys.schema)(keys)
    if answers.refused:  # dead letters
        raise RefusedError(f"{address}: {', '.join(answers.refused)}", "decode", "See them.")


def tell_pushgateway(address: str, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    patch.setattr(prometheus, "TIMEOUT", 0.5)
    prometheus.Prometheus("things", f"http://{address}").report()


def reach_store(address: str, patch: pytest.MonkeyPatch) -> None:
    for name, setting in {
        "AWS_ENDPOINT_URL": f"http://{address}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "windrow",
        "AWS_SECRET_ACCESS_KEY": "C4nary",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
    }.items():
        patch.setenv(name, setting)


def put_into_store(address: str, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    reach_store(address, patch)
    patch.setattr(put_if_absent, "REQUEST_SECONDS", 1.0)
    patch.setattr(put_if_absent.PutIfAbsent, "waits", ())
    put_if_absent.s3_client.cache_clear()
    puts = put_if_absent.S3Puts(Place("s3://bucket/things"))
    try:
        puts.retry(lambda: puts.put("log/1", b""))
    finally:
        put_if_absent.s3_client.cache_clear()


def read_by_arrow(address: str, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    reach_store(address, patch)
    Place("s3://bucket/things").stat_files(["a"])


def read_by_deltalake(address: str, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    reach_store(address, patch)
    with DeltaStore("s3://bucket/things").reading():
        pass


def ask_catalog(address: str, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    patch.setattr(pyiceberg_internals, "REQUEST_SECONDS", 0.5)
    patch.setattr(pyiceberg_internals, "MOST_BYTES", 1 << 20)
    patch.setattr(catalogs, "STORE_WAITS", ())
    catalogs.load(CatalogTable.in_catalog("a.b", {"type": "rest", "uri": f"http://{address}"}))


def log_in_to_kafka(address: str, patch: pytest.MonkeyPatch, _folder: Path) -> None:
    patch.setenv("CLIENT_SECRET", "C4nary")
    user = bearer(
        method="oidc",
        token_url=f"https://{address}/token",
        ca=CA,
        client_id="me",
        client_secret={"env": "CLIENT_SECRET"},
    )
    KafkaBroker("127.0.0.1:1", user, patience_seconds=5).cluster_id()


def connect_to_spark(address: str, _: pytest.MonkeyPatch, _folder: Path) -> None:
    ConnectedSpark(f"sc://{address}").session()


@dataclass(frozen=True)
class Client:
    """A client of HTTP.

    Attributes:
        ask: sends a request to an address, with limits that a test can wait for.
        names: what its error names; empty: the address.
        modules: the modules of windrow that load its library.
        spared: what it isn't held against, each with the reason in a comment.
    """

    ask: Ask
    names: str = ""
    modules: Sequence[str] = ()
    spared: Sequence[Worse] = ()


CLIENTS = {
    "registry": Client(
        ask_registry, modules=("ingest/registry/client.py", "ingest/registry/sessions.py")
    ),
    "provider of a registry's tokens": Client(
        ask_provider, modules=("ingest/registry/sessions.py", "ingest/http_timeouts.py")
    ),
    "AWS Glue": Client(ask_glue, modules=("ingest/registry/sessions.py",)),
    "lookup": Client(
        ask_lookup, modules=("ingest/lookups/http/client.py", "ingest/http_timeouts.py")
    ),
    # whatever a Pushgateway says that isn't its figures, they begin anew
    "Pushgateway": Client(
        tell_pushgateway, modules=("ingest/observers/prometheus.py",), spared=(page, packed)
    ),
    "puts into S3": Client(
        put_into_store, "s3://bucket/things", ("ingest/sinks/kit/files/put_if_absent.py",)
    ),
    "Iceberg's REST catalog": Client(
        ask_catalog, modules=("ingest/sinks/iceberg/pyiceberg_internals.py",)
    ),
}
"""The clients whose limits are windrow's."""

OTHERS = {
    # HEAD has no body; libcurl follows redirections, and S3 believes its own empty answers
    "Arrow in S3": Client(
        read_by_arrow, "s3://bucket/things", (), (page, half, redirect, slow_body, flood, packed)
    ),
    # as Arrow's; a page is a store without this table
    "deltalake in S3": Client(read_by_deltalake, "s3://bucket/things", (), (page, redirect)),
    "provider of Kafka's tokens": Client(log_in_to_kafka),
    "Spark Connect": Client(connect_to_spark),
}
"""The clients whose limits are their libraries': some minutes."""


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    """A server to which others redirect."""
    with Server(page) as server:
        yield server


def check(
    client: Client, worse: Worse, elsewhere: Server, patch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Asks a server, and checks the error."""
    with Server(worse, elsewhere=elsewhere) as server:
        with pytest.raises(WindrowError) as caught:
            client.ask(server.address, patch, folder)
        assert server.requests
    error = caught.value
    assert not isinstance(error, BugError)
    assert (client.names or server.address) in error.message
    assert error.advice
    assert len(error.message) < 1000
    assert not {"C4nary", "sign in"} & set(str(error).split())
    assert elsewhere.requests == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "worse"),
    [(name, worse) for name in CLIENTS for worse in WORSE if worse not in CLIENTS[name].spared],
)
def test_a_hostile_server(
    name: str, worse: Worse, elsewhere: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client ends within its limit of time, and takes no more memory than its limit of size.

    Its error names the server and says what to do. It quotes no secret and no answer, and the
    client follows no redirection.
    """
    if worse not in (flood, packed):
        check(CLIENTS[name], worse, elsewhere, monkeypatch, tmp_path)
        return
    tracemalloc.start()
    try:
        check(CLIENTS[name], worse, elsewhere, monkeypatch, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ask", [ask_registry, ask_provider, ask_lookup])
def test_a_port_that_never_speaks_tls(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A port that accepts connections, and never speaks TLS, is given up in time."""
    with Server(page, speaks=False) as server, pytest.raises(WindrowError, match=server.address):
        ask(server.address, monkeypatch, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "worse"),
    [(name, worse) for name in OTHERS for worse in WORSE if worse not in OTHERS[name].spared],
)
def test_a_hostile_server_of_a_library(
    name: str, worse: Worse, elsewhere: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A library that sends its own requests ends in time, too."""
    check(OTHERS[name], worse, elsewhere, monkeypatch, tmp_path)


def imported(path: Path) -> set[str]:
    """Returns the names of the modules that a module imports anywhere."""
    return {
        name
        for node in nodes(path)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }


def test_each_client_has_a_hostile_server() -> None:
    """A module that begins to load a library of HTTP needs a client in the table."""
    clients = {
        str(file.relative_to(ROOT))
        for file in modules(*PACKAGES, "airflow")
        if imported(file) & LIBRARIES
    }
    assert clients == {module for client in CLIENTS.values() for module in client.modules}
