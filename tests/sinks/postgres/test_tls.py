"""A pipeline with table and ledger in PostgreSQL by TLS: it refuses a server that isn't the
expected one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Stage, hour, stage
from tests.kafka.listener import TLS
from tests.sinks.postgres.tls import tls_port
from tests.sinks.postgres.world import place_of
from windrow.ingest.errors import SpecError
from windrow.ingest.ledger.database import Database, open_database
from windrow.ingest.sinks.postgres.server import begin_read, begin_write
from windrow.ingest.sinks.postgres.url import server_url

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # starts a server

REFUSED = [
    (
        "127.0.0.1",
        "other.pem",
        "certificate verify failed",
        "names the file with the certificate of the authority",
    ),
    (
        "localhost",
        "broker.pem",
        'does not match host name "localhost"',
        "Write the host in the URL as the server's certificate names it",
    ),
    ("127.0.0.1", "gone.pem", "gone.pem", "names the file with the certificate of the authority"),
]


@pytest.fixture
def port(database: str) -> Iterator[int]:
    with tls_port(_socket(database)) as listening_port:
        yield listening_port


def _socket(database: str) -> str:
    return f"{server_url(database).hosts[0]}/.s.PGSQL.5432"


def _by_tls(database: str, host: str, port: int, ca: str) -> str:
    return f"postgresql://postgres@{host}:{port}/{server_url(database).database}?sslmode=verify-full&sslrootcert={TLS / ca}"  # noqa: E501


@pytest.fixture
def ledgers() -> Iterator[list[Database]]:
    """Opened ledgers, whose pooled connections are closed at the end of the test."""
    opened: list[Database] = []
    yield opened
    for database in opened:
        database.engine.dispose()


def test_table_and_ledger_by_tls(
    stage: Stage, database: str, port: int, ledgers: list[Database]
) -> None:
    """With verify-full a window is committed, replayed and verified on a port that accepts only
    TLS.
    """
    url = _by_tls(database, "127.0.0.1", port, "broker.pem")
    ledgers.append(open_database(url))
    spec = Path(stage.spec)
    sink = (
        f"sink: {{kind: postgres, url: '{url}', table: things, staging: lake/staged}}\nstate:"
        f" '{url}'"
    )
    spec.write_text(spec.read_text().replace("sink: {path: lake/things}", sink))
    stage.json("run", stage.spec, "--window", hour(0))
    stage.json("replay", stage.spec, "--window", hour(0))
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM things").fetchone() == (4,)
        assert connection.execute("SELECT count(*) > 0 FROM windrow_ledger_2").fetchone() == (True,)


@pytest.mark.parametrize(("host", "ca", "says", "advice"), REFUSED)
def test_a_server_that_is_not_trusted_is_refused(
    database: str, port: int, ledgers: list[Database], host: str, ca: str, says: str, advice: str
) -> None:
    """A wrong authority, a wrong host and a missing file raise SpecError with its advice, for
    table and ledger.
    """
    url = _by_tls(database, host, port, ca)
    ledgers.append(open_database(url))
    for come in (_read_table, _write_table, _read_ledger):
        with pytest.raises(SpecError, match="isn't trusted") as raised:
            come(url)
        assert says in raised.value.message
        assert advice in raised.value.advice


def test_a_server_without_tls_is_refused(database: str, ledgers: list[Database]) -> None:
    """A server without TLS gets nothing in clear text, and the error says that it doesn't
    support TLS.
    """
    with tls_port(_socket(database), tls=False) as port:
        url = _by_tls(database, "127.0.0.1", port, "broker.pem")
        ledgers.append(open_database(url))
        for come in (_read_table, _write_table, _read_ledger):
            with pytest.raises(SpecError, match="does not support SSL") as raised:
                come(url)
            assert "ssl=on" in raised.value.advice


def _read_table(url: str) -> None:
    with begin_read(place_of(f"{url}#orders")):
        pass


def _write_table(url: str) -> None:
    with begin_write(place_of(f"{url}#orders")):
        pass


def _read_ledger(url: str) -> None:
    with open_database(url).reading():
        pass
