"""The ledger's database: transactions that exclude each other, on SQLite and PostgreSQL.

SQLite keeps its rollback journal. The ledger is then one file that can be copied, on any
file system with locks. A write-ahead log wouldn't make its few small transactions faster.
Each transaction opens the file again, which takes a third of a millisecond. A kept
connection would continue to write to a file that was moved away.

A process keeps one connection to a server. The connection is tested before each
transaction, so a lost connection is replaced without an error. A forked process makes its
own connection.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError

from windrow.ingest.errors import (
    DamagedError,
    SpecError,
    UnreachableError,
    require_extra,
    see_runbook,
)
from windrow.ingest.ledger.entries import ITSELF, PRIVILEGES, TABLE
from windrow.ingest.model.owner import LEDGER_ANEW
from windrow.ingest.settings.database_password import TWO_PASSWORDS, connection_event
from windrow.ingest.settings.grants import LACKING, lacking_error, parameters, to_use_tables
from windrow.ingest.settings.libpq import TCP, tls_advice
from windrow.ingest.settings.paths import home
from windrow.ingest.settings.secrets import Secret, masked
from windrow.ingest.waiting import lock_holder, waiting_for

WAIT_SECONDS = 30
"""The maximum seconds that a transaction waits for another one."""

OWN_FOLDER = ".windrow"
"""The folder next to a spec that is created for its ledger. Any other folder must exist."""

_FORMS = "Write a path, sqlite:///path or postgresql://user@host/database."
_ESCAPE = (
    "What is special in a user or a password is percent-encoded: @ as %40, / as %2F, : as %3A."
)
_CHECK = (
    "Check that the place exists, that it is reachable and that you may write there, then run this"
    " again."
)
_OTHER_FORMS = ("windrow_ledger_", "windrow_facts")
"""The beginnings of the names of tables that other versions of windrow made."""

_DENIED = {"42501", "3F000"}
"""SQLSTATE of a missing privilege, and of a schema that the user may not use."""

_WRITES = "windrow_writes"
NAME_QUERIES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": (
        "SELECT relname::text FROM pg_class WHERE relname LIKE 'windrow_%%' AND relkind = 'r' AND"
        " pg_table_is_visible(oid)"
    ),
}
"""The queries for the names of the existing tables, by the kind of database that a ledger is in."""


@dataclass(frozen=True)
class Database:
    """A database, as an engine of SQLAlchemy.

    Attributes:
        engine: the engine.
        name: the name for messages, without password and options.
        file: the path of an SQLite database; None for a server.
        secrets: texts that no message may show.

    Raises:
        UnreachableError: by `reading` and `writing`: the database can't be reached, or
            stays locked.
        SpecError: by `reading` and `writing`: TLS refuses the server; the file has a sink's
            tables; or another version of windrow made the ledger.
        DamagedError: by `reading` and `writing`: the file isn't a database, or is damaged.
    """

    engine: Engine
    name: str
    file: Path | None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """Opens a transaction; None if there is no ledger.

        On SQLite all its queries see one state. On a server each query sees everything that
        is committed by then.
        """
        with self._explain_errors():
            if self.file is not None and not self.file.exists():  # SQLite would create it
                yield None
                return
            with self.engine.connect() as connection, connection.begin():
                yield connection if self._has_table(connection) else None

    @contextmanager
    def writing(self, pipeline: str) -> Iterator[Connection]:
        """Opens a transaction that excludes all others of the same pipeline until its commit.

        On SQLite it excludes all others. It creates a missing table, a missing file, and
        the file's folder if that is windrow's own. On a server the first writes of two
        pipelines exclude each other, too:

        1. A and B see no table.
        2. A takes the ledger's own lock, and B waits for it.
        3. A creates the table and commits.
        4. B continues, and finds the table.
        """
        with self._explain_errors():
            if self.file is not None and self.file.parent.name == OWN_FOLDER:
                self.file.parent.mkdir(exist_ok=True)
            with (
                self.engine.connect().execution_options(**{_WRITES: True}) as connection,
                connection.begin(),
            ):
                _lock(connection, pipeline)
                if not self._has_table(connection):
                    _lock(connection, ITSELF)
                    TABLE.create(connection, checkfirst=True)
                yield connection

    def _has_table(self, connection: Connection) -> bool:
        names = set(connection.exec_driver_sql(NAME_QUERIES[connection.dialect.name]).scalars())
        if self.file is not None and "windrow_tables" in names:
            raise SpecError(
                f"The file {self.name} holds tables of a sink; a ledger has one for itself",
                "setup",
                "Set state, or sink.path, to another file.",
            )
        if any(name.startswith(_OTHER_FORMS) for name in names - {TABLE.name}):
            raise SpecError(
                f"The ledger {self.name} was made by another version of windrow",
                "ledger",
                f"Use that version. Or, if this one reads the table: {LEDGER_ANEW}"
                + see_runbook("upgrade"),
            )
        return TABLE.name in names

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Converts SQLAlchemy's errors to windrow's, whose own texts may repeat a request."""
        try:
            # a lock of a file is waited for in `_begin`
            with nullcontext() if self.file else waiting_for(f"the ledger {self.name}"):
                yield
        except DBAPIError as error:
            # this very class means "not a database" or "malformed" for SQLite
            if type(error) is DatabaseError and self.engine.dialect.name == "sqlite":
                raise DamagedError(
                    f"The ledger {self.name} is damaged: {self._reason(error)}",
                    "ledger",
                    LEDGER_ANEW,
                ) from None
            denied = getattr(error.orig, "sqlstate", None) in _DENIED
            if denied and (lacking := self._find_lacking()):
                raise self._lacking_error(lacking) from None
            advice = tls_advice(str(error.orig)) if self.file is None else None
            if advice is not None:
                raise SpecError(
                    f"The ledger's server {self.name} isn't trusted: {self._reason(error)}",
                    "ledger",
                    advice,
                ) from None
            raise UnreachableError(
                f"The ledger {self.name} can't be used: {self._reason(error)}",
                "ledger",
                _advice(error),
            ) from None
        except OSError as error:
            raise UnreachableError(
                f"The ledger {self.name} can't be used: {error.strerror}", "ledger", _CHECK
            ) from error

    def refuse_lacking(self) -> None:
        """Refuses a user of a server who lacks a privilege, or of a file who may not write it.

        Writes nothing.

        Raises:
            SpecError: the user lacks privileges; the error has the statements that grant them.
            UnreachableError: the file can't be written, or can't be made.
        """
        if self.file is not None:
            folder = self.file.parent
            makes_folder = folder.name == OWN_FOLDER and not folder.exists()
            nearest = folder.parent if makes_folder else folder
            writable = self.file if self.file.exists() else nearest
            with self._explain_errors():
                os.scandir(nearest).close()  # an error, unless it is a folder
                if not os.access(writable, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if lacking := self._find_lacking():
            raise self._lacking_error(lacking)

    def _find_lacking(self) -> Sequence[Sequence[str]]:
        """Returns the privileges that the user lacks, as rows of `LACKING`; none if it can't ask.

        The next request tells why the server can't be asked.
        """
        if self.file is not None:
            return []
        needs = parameters(list(to_use_tables("", {TABLE.name: PRIVILEGES})))
        with suppress(DBAPIError), self.engine.connect() as connection:
            return connection.exec_driver_sql(LACKING, needs).all()
        return []

    def _lacking_error(self, lacking: Sequence[Sequence[str]]) -> SpecError:
        return lacking_error(f"The ledger {self.name} can't be used", lacking, "ledger")

    def _reason(self, error: DBAPIError) -> str:
        """Returns the first line of the database's message, without secrets."""
        return masked(_first_line(error), self.secrets)


def open_database(url: str, password: Secret | None = None) -> Database:
    """Makes a database from an SQLAlchemy URL, or from the path of an SQLite file. Opens nothing.

    Args:
        url: the URL or path.
        password: the reference to the password, which is read for each new connection.

    Raises:
        SpecError: it is neither a URL nor a path, its driver isn't installed, or the password
            doesn't fit the URL.
    """
    if not url.isprintable():
        raise SpecError("The ledger's place holds control characters", "spec", _FORMS)
    try:
        parsed = make_url(url) if "://" in url else URL.create("sqlite", database=url)
    except (ArgumentError, ValueError):
        # the error's text may hold the password
        raise SpecError("The ledger's URL can't be parsed", "spec", f"{_FORMS} {_ESCAPE}") from None
    if password is not None and (parsed.password or "password" in parsed.query):
        raise SpecError(f"The ledger's URL {TWO_PASSWORDS}", "spec", _FORMS)
    if parsed.drivername == "sqlite" and password is None:
        return _sqlite(parsed)
    if parsed.drivername in {"postgresql", "postgresql+psycopg"}:
        key = parsed, password
        return _opened.get(key) or _opened.setdefault(key, _postgresql(parsed, password))
    with_password = "" if password is None else " with state_password"
    raise SpecError(f"A ledger{with_password} can't be at {parsed.drivername}://", "spec", _FORMS)


def _sqlite(url: URL) -> Database:
    if url.database in {None, "", ":memory:"} or url != URL.create(
        url.drivername, database=url.database
    ):
        raise SpecError(
            "A ledger in SQLite is a file, and its URL has no more than the path",
            "spec",
            "Write a path, or sqlite:///path with three slashes and nothing behind it.",
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
    event.listen(engine, "connect", _begin_no_transactions)
    event.listen(engine, "begin", _begin)
    return Database(engine, str(path), path)


def _begin_no_transactions(connection: object, _: object) -> None:
    """Prevents Python's sqlite3 from beginning transactions.

    sqlite3 would begin one only before the first write. That is too late for the reads that
    the write relies on.
    """
    connection.isolation_level = None  # type: ignore[attr-defined]


def _begin(connection: Connection) -> None:
    """Begins a transaction. A writer takes the lock before its first read.

    It waits for readers here, too, with a message, instead of silently in its COMMIT.
    """
    if not connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql("BEGIN")
        return
    with waiting_for(
        lambda: (
            f"the ledger {connection.engine.url.database},"
            f" {lock_holder(str(connection.engine.url.database))}"
        )
    ):
        connection.exec_driver_sql("BEGIN EXCLUSIVE")


_opened: dict[tuple[URL, Secret | None], Database] = {}
"""The databases on servers by their URLs. Each keeps a connection, so a process has one per URL.

If threads open one at the same time, each may make an engine. All of them use the engine
that was stored first. The other engines have not opened a connection yet.
"""


def _postgresql(url: URL, password: Secret | None) -> Database:
    _refuse_misread(url)
    with require_extra("postgres", "The ledger can't be in PostgreSQL"):
        # Not a stricter isolation level, although it may be the server's default. It takes its
        # snapshot before the advisory lock is granted, so it would not see the boundaries of
        # the transactions that it has waited for.
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=1,
            max_overflow=-1,
            pool_pre_ping=True,
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            connect_args={name: value for name, value in TCP.items() if name not in url.query},
        )
    if password is not None:
        event.listen(engine, "do_connect", connection_event(password, "state_password"))
    name = f"postgresql://{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"
    return Database(engine, name, None, secrets=_secrets(url))


def _refuse_misread(url: URL) -> None:
    """Refuses a URL whose password isn't percent-encoded.

    Otherwise a part of the password would count as the host or the database, which messages
    show.
    """
    try:
        (url.host or "").encode("idna")
    except UnicodeError:
        raise SpecError("The ledger's URL names no host", "spec", _FORMS) from None
    if "@" in f"{url.host}{url.database}":
        raise SpecError("The ledger's URL has an @ too many", "spec", _ESCAPE)


def _secrets(url: URL) -> tuple[str, ...]:
    """Returns the texts that a driver's message may quote and that must not be shown.

    They are the password and the values of all options, because an option may be the
    password. Only the value of `sslrootcert` is shown: an error about a missing file needs
    its name.
    """
    values = [
        v
        for name, value in url.query.items()
        if name != "sslrootcert"
        for v in ([value] if isinstance(value, str) else value)
    ]
    return tuple(v for v in (url.password, *values) if v)


def _forget_connections() -> None:
    """Forgets the parent's connections in a forked child, without closing them.

    Two processes must not use one connection, because their messages would mix.
    """
    for database in _opened.values():
        database.engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)


def _lock(connection: Connection, pipeline: str) -> None:
    """Takes the pipeline's advisory lock until the end of the transaction.

    On SQLite the writer already has the file's only lock. On a server, a client that was
    stopped while it has the lock loses its session and the lock. That happens before the
    transactions that wait for the lock give up.
    """
    if connection.dialect.name != "postgresql":
        return
    connection.execute(text(f"SET LOCAL lock_timeout = {WAIT_SECONDS * 1000}"))
    connection.execute(
        text(f"SET LOCAL idle_in_transaction_session_timeout = {WAIT_SECONDS * 500}")
    )
    number = int.from_bytes(
        hashlib.sha256(f"windrow ledger {pipeline}".encode()).digest()[:8], signed=True
    )
    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})


def _advice(error: DBAPIError) -> str:
    if "lock" in _first_line(error):
        return (
            f"Another process held the lock for more than {WAIT_SECONDS} s: look for one that is"
            " stopped, then run this again."
        )
    return _CHECK


def _first_line(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
