"""The password of a database, by reference: read anew for each connection."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.sinks.postgres.world import place_of
from windrow.ingest.errors import SpecError
from windrow.ingest.ledger.database import open_database
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.settings.database_password import connect_with
from windrow.ingest.settings.secrets import InCommand, InEnvironment, InFile, Secret
from windrow.ingest.sinks.postgres.server import begin_read
from windrow.ingest.sinks.postgres.url import server_url


class Server:
    """A server with one user, which repeats a wrong password, and the passwords that were tried."""

    def __init__(self, password: str) -> None:
        self.password, self.tried = password, list[str]()

    def connect(self, password: str) -> str:
        self.tried.append(password)
        if password != self.password:
            raise OSError(f'FATAL:  password authentication failed for user "me" by {password}')
        return "connected"


def printing(file: Path) -> InCommand:
    """Returns the reference to a program that prints a file."""
    return InCommand((sys.executable, "-c", f"print(open({str(file)!r}).read())"), (), 300)


def test_a_refused_password_is_read_once_more(tmp_path: Path) -> None:
    """A kept output of a command that the server refuses is replaced, and tried once more.

    An unchanged password isn't tried twice, for servers lock users out; other errors aren't about
    the password. The error hides the password that was tried, the first or the second.
    """
    file = tmp_path / "password"
    file.write_text("first")
    secret, server = printing(file), Server("first")
    assert connect_with(secret, "sink.password", server.connect) == "connected"
    file.write_text("second")
    assert connect_with(secret, "sink.password", server.connect) == "connected"
    server.password = "second"
    assert connect_with(secret, "sink.password", server.connect) == "connected"
    assert server.tried == ["first", "first", "first", "second"]
    server.password, server.tried = "third", []
    with pytest.raises(OSError, match=r"authentication failed .* by \*\*\*$"):
        connect_with(secret, "sink.password", server.connect)
    assert server.tried == ["second"]
    file.write_text("no third")
    with pytest.raises(OSError, match=r"authentication failed .* by \*\*\*$"):
        connect_with(secret, "sink.password", server.connect)
    assert server.tried == ["second", "second", "no third"]
    file.write_text("third")
    with pytest.raises(ZeroDivisionError):
        connect_with(secret, "sink.password", lambda _: 1 // 0)
    assert connect_with(InFile(str(file)), "sink.password", server.connect) == "connected"


def _sink(url: str, password: Secret) -> Callable[[], None]:
    place = place_of(f"{url}#orders")

    def come() -> None:
        named = type(place)(server_url(url, password), place.name, place.own_schema)
        assert str(named) == str(place), "the table's name doesn't depend on the password"
        with begin_read(named):
            pass

    return come


def _ledger(url: str, password: Secret) -> Callable[[], None]:
    database = open_database(url, password)

    def come() -> None:
        database.engine.dispose()
        with database.reading():
            pass
        database.engine.dispose()

    return come


def _lookup(url: str, password: Secret) -> Callable[[], None]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (id integer)")
    section = SqlSection(sql=url, relation="customers", password=password)

    def come() -> None:
        section.source(Path("/")).schema()

    return come


@pytest.mark.parametrize(
    ("connector", "setting"),
    [(_sink, "sink.password"), (_ledger, "state_password"), (_lookup, "from.password")],
)
def test_each_connection_reads_the_password(
    connector: Callable[[str, Secret], Callable[[], None]],
    setting: str,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Table, ledger and lookup read it in this process, at the connection and not before."""
    come = connector(database, InEnvironment("DATABASE_PASSWORD"))
    monkeypatch.setenv("DATABASE_PASSWORD", "C4nary")
    come()
    monkeypatch.delenv("DATABASE_PASSWORD")
    with pytest.raises(SpecError, match=f"DATABASE_PASSWORD, which {setting} refers to, isn't set"):
        come()


def test_a_ledger_has_one_password() -> None:
    """A password in its URL beside a reference, and a reference without a server, are refused."""
    secret = InEnvironment("X")
    for url in ("postgresql://me:C4nary@db/x", "postgresql://me@db/x?password=C4nary"):
        with pytest.raises(SpecError, match="leave one of them out") as refused:
            open_database(url, secret)
        assert "C4nary" not in str(refused.value)
    with pytest.raises(SpecError, match="with state_password can't be at sqlite"):
        open_database("state.db", secret)
