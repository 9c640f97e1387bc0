"""Where the ledger lies: transactions that exclude each other, on SQLite and
PostgreSQL, and what their errors mean.

SQLite keeps its rollback journal: the ledger is one file that can be copied, on any
file system that locks; its few small transactions would gain nothing from a write-ahead
log. No connection to a file is kept between transactions: opening one costs a third of
a millisecond, and a kept one would go on writing into a file that was moved away.

To a server one connection is kept per process. It is asked whether it lives before each
transaction, so one that died in between is replaced and not reported; a forked process
leaves its parent's alone and makes its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError

from windrow.ingest.errors import DamagedError, SpecError, UnreachableError
from windrow.ingest.settings.libpq import TCP, tls_cure
from windrow.ingest.settings.places import home
from windrow.ingest.waiting import waiting_for

WAIT_SECONDS = 30
"""How long a transaction waits for another one before it gives up."""

OWN_FOLDER = ".windrow"
"""The folder beside a spec that is made for its ledger; any other place must be there."""

REBUILD = (
    "Move it away and run `windrow doctor SPEC --rebuild-ledger`: everything in it comes back from"
    " the table's receipts."
)

_FORMS = "Write a path, sqlite:///path or postgresql://user@host/database."
_ESCAPE = (
    "What is special in a user or a password is percent-encoded: @ as %40, / as %2F, : as %3A."
)
_CHECK = (
    "Check that the place exists, that it is reachable and that you may write there, then run this"
    " again."
)
_WRITES = "windrow_writes"
_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": (
        "SELECT relname::text FROM pg_class WHERE relname LIKE 'windrow_%%' AND relkind = 'r' AND"
        " pg_table_is_visible(oid)"
    ),
}
"""One cheap question; SQLAlchemy's inspector asks one for each table."""


@dataclass(frozen=True)
class Database:
    """An engine and its name for people, which holds neither password nor options."""

    engine: Engine
    name: str
    file: Path | None
    """Where it is, if it is a file of ours."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What is never told of it."""
    seen: set[str] = field(default_factory=set)
    """Tables that were seen on a server; a file may be another one each time, and is
    asked by each connection.
    """

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """A transaction that sees one state; None if there is no file: opening one would make it.

        Raises:
            UnreachableError: the database can't be reached, or is locked.
            SpecError: it is on a server that isn't trusted.
            DamagedError: the file is not a ledger, or damaged.
        """
        with self._told():
            if self.file is not None and not self.file.exists():
                yield None
                return
            with self.engine.connect() as connection, connection.begin():
                yield connection

    @contextmanager
    def writing(self, scope: str) -> Iterator[Connection]:
        """A transaction that excludes all others of the same scope (SQLite: all
        others), from its beginning to its commit.

        Makes the file if it isn't there, and its folder if that is windrow's own.

        Raises:
            UnreachableError: the database can't be reached, or is locked.
            SpecError: it is on a server that isn't trusted.
            DamagedError: the file is not a ledger, or damaged.
        """
        with self._told():
            if self.file is not None and self.file.parent.name == OWN_FOLDER:
                self.file.parent.mkdir(exist_ok=True)
            with (
                self.engine.connect().execution_options(**{_WRITES: True}) as connection,
                connection.begin(),
            ):
                lock(connection, scope)
                yield connection

    def has(self, connection: Connection, *tables: str) -> bool:
        """Whether these tables are there."""
        seen: set[str] = (
            self.seen if self.file is None else connection.info.setdefault("windrow tables", set())
        )
        if not seen.issuperset(tables):
            seen.update(connection.exec_driver_sql(_TABLES[connection.dialect.name]).scalars())
        return seen.issuperset(tables)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLAlchemy's errors in our words; the original stays attached for --debug."""
        try:
            yield
        except DBAPIError as error:
            self.seen.clear()
            # SQLite's class for "not a database" and "malformed"
            if type(error) is DatabaseError and self.engine.dialect.name == "sqlite":
                raise DamagedError(
                    f"The ledger {self.name} is damaged: {self._reason(error)}", "ledger", REBUILD
                ) from error
            cure = tls_cure(str(error.orig)) if self.file is None else None
            if cure is not None:
                raise SpecError(
                    f"The ledger's server {self.name} isn't trusted: {self._reason(error)}",
                    "ledger",
                    cure,
                ) from error
            raise UnreachableError(
                f"The ledger {self.name} can't be used: {self._reason(error)}",
                "ledger",
                _cure(error),
            ) from error
        except OSError as error:
            raise UnreachableError(
                f"The ledger {self.name} can't be used: {error.strerror}", "ledger", _CHECK
            ) from error

    def _reason(self, error: DBAPIError) -> str:
        """The database's own first line.

        It names hosts and users; the value of a wrong option is taken out.
        """
        text = _first_line(error)
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def open_database(url: str) -> Database:
    """A database from an SQLAlchemy URL, or an SQLite file from its path. Opens no connection.

    Raises:
        SpecError: the URL is neither, or its driver isn't installed.
    """
    if not url.isprintable():
        raise SpecError("The ledger's place holds control characters", "spec", _FORMS)
    try:
        parsed = make_url(url) if "://" in url else URL.create("sqlite", database=url)
    except (ArgumentError, ValueError):
        # its text may hold the password
        raise SpecError("The ledger's URL can't be parsed", "spec", f"{_FORMS} {_ESCAPE}") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return _sqlite(parsed)
    if kind == "postgresql":
        return _opened.get(parsed) or _opened.setdefault(parsed, _postgresql(parsed))
    raise SpecError(f"A ledger can't lie in {kind}", "spec", _FORMS)


def _sqlite(url: URL) -> Database:
    if (
        url.drivername not in {"sqlite", "sqlite+pysqlite"}
        or url.host
        or url.username
        or url.password
        or url.query
    ):
        what = "The URL of a ledger in SQLite has more than a path"
        raise SpecError(
            what,
            "spec",
            "Write a path, or sqlite:///path with three slashes and nothing behind it.",
        )
    if url.database in {None, "", ":memory:"}:
        raise SpecError(
            "A ledger in memory is lost with the process", "spec", "Give the path of a file."
        )
    try:
        path = home(str(url.database)).absolute()
    except ValueError as error:
        raise SpecError(f"The ledger's place {error}", "spec", _FORMS) from None
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        hide_parameters=True,
        connect_args={"timeout": WAIT_SECONDS},
    )
    event.listen(engine, "connect", _leave_transactions_to_us)
    event.listen(engine, "begin", _begin)
    return Database(engine, str(path), path)


def _leave_transactions_to_us(connection: object, _: object) -> None:
    """Python's sqlite3 would begin a transaction only before the first write: too late
    for the reads that the write relies on.
    """
    connection.isolation_level = None  # type: ignore[attr-defined]


def _begin(connection: Connection) -> None:
    """A writer takes the lock before its first read: IMMEDIATE."""
    if not connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql("BEGIN")
        return
    with waiting_for(
        f"the ledger {connection.engine.url.database}, which another process writes to"
    ):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


_opened: dict[URL, Database] = {}
"""Those on servers, one per URL and process however often a ledger is opened: each keeps a connection.

Of threads that open one for the first time at once, each may make an engine. All get
the first that was put here; the others' have opened no connection yet.
"""  # noqa: E501


def _postgresql(url: URL) -> Database:
    _refuse_misread(url)
    driver = url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
    try:
        # Whatever the server's default is: a stricter level takes its snapshot before
        # the advisory lock is granted, and would then look at neighbours as they were
        # before those it waited for.
        engine = create_engine(
            driver,
            pool_size=1,
            max_overflow=-1,
            pool_pre_ping=True,
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            connect_args={name: value for name, value in TCP.items() if name not in url.query},
        )
    except ModuleNotFoundError as error:
        raise SpecError(
            f"The ledger's driver {error.name} is not installed",
            "spec",
            "Install windrow[postgres], or psycopg.",
        ) from error
    except ArgumentError:
        raise SpecError(
            f"There is no driver {driver.get_driver_name()} of PostgreSQL", "spec", _FORMS
        ) from None
    if engine.dialect.driver == "psycopg":
        event.listen(engine, "do_connect", _watched)
    if engine.dialect.is_async:
        raise SpecError(
            f"The ledger's driver {driver.get_driver_name()} is asynchronous", "spec", _FORMS
        )
    name = f"postgresql://{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"
    return Database(engine, name, None, secrets=_secrets(url))


def _watched(
    _dialect: object, _record: object, given: Sequence[Any], options: Mapping[str, Any]
) -> object:
    """In the place of the driver's own connection, one that waits for no answer without limit."""
    from windrow.ingest.settings.watched import (
        WatchedConnection,
    )  # brings the driver, which may not be there

    return WatchedConnection.connect(*given, **options)


def _refuse_misread(url: URL) -> None:
    """A password that isn't percent-encoded ends up in the host or the database, which are told."""
    try:
        (url.host or "").encode("idna")
    except UnicodeError:
        raise SpecError("The ledger's URL names no host", "spec", _FORMS) from None
    if "@" in f"{url.host}{url.database}":
        raise SpecError("The ledger's URL has an @ too many", "spec", _ESCAPE)


def _secrets(url: URL) -> tuple[str, ...]:
    """What a driver may repeat, and nobody should: the password, and the values of
    options, of which it may be one.

    But for `sslrootcert`: an error that names a file which isn't there helps nobody
    without its name.
    """
    values = [
        v
        for name, value in url.query.items()
        if name != "sslrootcert"
        for v in ([value] if isinstance(value, str) else value)
    ]
    return tuple(v for v in (url.password, *values) if v)


def _leave_to_parent() -> None:
    """In a forked child: forget the parent's connections without closing them; two
    processes on one connection garble it.
    """
    for database in _opened.values():
        database.engine.dispose(close=False)


os.register_at_fork(after_in_child=_leave_to_parent)


def lock(connection: Connection, scope: str) -> None:
    """Take the scope's advisory lock until the end of the transaction.

    On SQLite a writer holds the one lock there is from its beginning.

    A holder that was stopped loses its session, and with it the lock, before those who
    wait for it give up.
    """
    if connection.dialect.name != "postgresql":
        return
    connection.execute(text(f"SET LOCAL lock_timeout = {WAIT_SECONDS * 1000}"))
    connection.execute(
        text(f"SET LOCAL idle_in_transaction_session_timeout = {WAIT_SECONDS * 500}")
    )
    number = int.from_bytes(
        hashlib.sha256(f"windrow ledger {scope}".encode()).digest()[:8], signed=True
    )
    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})


def _cure(error: DBAPIError) -> str:
    if "lock" in _first_line(error):
        return (
            f"Another process held it for more than {WAIT_SECONDS} s: look for one that is stopped,"
            " then run this again."
        )
    return _CHECK


def _first_line(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
