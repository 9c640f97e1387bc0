"""Connections to the server, transactions, and what the driver's errors stand for.

A transaction that writes looks first, under a lock; so one whose COMMIT was sent and
not answered is run again, and finds what it did:

    1 A's COMMIT arrives, its answer doesn't.    2 A connects again and waits for the
    lock, until its old session has ended, one way or the
    other.    3 A looks: its receipt is there, or it isn't, and then it writes.

A client that was stopped in its transaction would hold the lock for ever. The server
ends a session that is idle in one for `IDLE`, so those who wait go on; when the client
wakes, its COMMIT fails, it looks again, and finds the other's receipt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec
import psycopg
from psycopg import conninfo, sql

from windrow.ingest.errors import (
    LostConnectionError,
    RefusedError,
    SpecError,
    Stage,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.settings.libpq import TCP, tls_cure
from windrow.ingest.settings.watched import WatchedConnection
from windrow.ingest.sinks.postgres.names import TableName
from windrow.ingest.sinks.postgres.url import ServerUrl
from windrow.ingest.waiting import waiting_for

Connection = WatchedConnection

IDLE = "10s"
"""So long a session may do nothing in a transaction of ours; between two statements of
one lies no work.
"""

WAITS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between tries at a transaction whose connection was lost: a server that
crashed is back within them, as a rule.
"""

_WITH_TRANSACTION_TIMEOUT = 170_000
"""The first version of a server that has this setting."""

LOCK_WAIT = "10min"
"""For readers of the table, where its columns change."""

_DEFAULTS = {**TCP, "application_name": "windrow"}
_PLANNING = {"enable_seqscan": "off", "jit": "off"}
"""A window's rows are asked for by the index.

The planner would expect a row of any window soon, and read all of a table that has none.
"""

_WHOLE = {"row_security": "off", "statement_timeout": "0", "quote_all_identifiers": "off"}
"""All rows or an error, never some of them without a word; as long as it takes; and the
catalog's names of types as they are compared.
"""

_RETRIED = {"40001", "40P01"}  # serialization failure, deadlock
# by an administrator, a crash, a start, or for idling
_ENDED = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}
_CHECK = (
    "Check that the server is up and reachable, and the user's password and rights, then run this"
    " again."
)
# a limit, as of what an index takes; a state, as a publication without a replica
# identity: no try fixes these
_OF_THE_TABLE = {"54", "55"}
_ROOM = {
    "53100": "its disk is full",
    "53200": "it is out of memory, or of room for locks",
    "53300": "it takes no more connections",
}


def identifier(*parts: str) -> sql.Composable:
    """A name for SQL that is run with values, be they none: there a percent sign would
    begin a placeholder.
    """
    return sql.Identifier(*(part.replace("%", "%%") for part in parts))


class TablePlace(msgspec.Struct, frozen=True):
    """A table on a server, and the schema that holds windrow's own tables. Picklable."""

    url: ServerUrl
    name: TableName
    own: str

    @property
    def identity(self) -> str:
        """Which table this is, whoever comes to it and how."""
        return f"postgres:{self}"

    def __str__(self) -> str:
        return f"{self.url.place}/{self.name}"

    @property
    def dead(self) -> TablePlace:
        """Of the dead letters beside it."""
        return TablePlace(self.url, self.name.dead, self.own)

    @property
    def table(self) -> sql.Composable:
        """The table, for SQL."""
        return identifier(self.name.schema, self.name.table)

    def mine(self, table: str) -> sql.Composable:
        """One of windrow's own tables, for SQL."""
        return identifier(self.own, table)

    def query(self, text: str, **names: sql.Composable) -> sql.Composed:
        """SQL with the names of the table and of windrow's own tables filled in; to be
        run with values (see `identifier`).
        """
        own = {name: self.mine(name) for name in ("targets", "receipts", "ranges", "notes")}
        return sql.SQL(text).format(table=self.table, own=identifier(self.own), **own, **names)


def refuse_unusable(url: ServerUrl) -> None:
    """Hold a URL against what the driver knows. Opens nothing.

    Raises:
        SpecError: it has an option that the driver doesn't know.
    """
    try:
        conninfo.conninfo_to_dict(url.text)
    except psycopg.ProgrammingError:
        raise SpecError(
            f"the URL of the server {url.place} has an option that libpq doesn't know, or can't be"
            " read",
            "spec",
            "See PostgreSQL's documentation, libpq: connection URIs. What is special in a user or a"
            " password is percent-encoded.",
        ) from None  # the driver's text may hold the password


@contextmanager
def connected(url: ServerUrl, stage: Stage = "setup") -> Iterator[Connection]:
    """A connection, which is closed at the end.

    Raises:
        UnreachableError: there is no way to the server, or it was lost.
        SpecError: the user may not do this.
    """
    with explained(url, stage), _connect(url) as connection:
        yield connection


def _connect(url: ServerUrl) -> Connection:
    given = conninfo.conninfo_to_dict(url.text)
    options = {**{k: v for k, v in _DEFAULTS.items() if k not in given}, "client_encoding": "UTF8"}
    with waiting_for(f"a connection to the server {url.place}"):
        return WatchedConnection.connect(
            url.text,
            autocommit=True,
            prepare_threshold=None,
            **options,  # type: ignore[arg-type]
        )


@contextmanager
def reading(url: ServerUrl, stage: Stage = "setup") -> Iterator[Connection]:
    """A connection in a transaction that sees one state of everything, and writes nothing.

    Raises as `connected`.
    """
    with connected(url, stage) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        _set(
            connection,
            {
                **_PLANNING,
                **_WHOLE,
                "lock_timeout": LOCK_WAIT,
                "idle_in_transaction_session_timeout": "0",
            },
        )
        yield connection


def begin(connection: Connection) -> None:
    """Begin a transaction that writes, whatever the server's defaults are.

    Each statement of it sees what is committed before it.
    """
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    waits = {"lock_timeout": LOCK_WAIT, "idle_in_transaction_session_timeout": IDLE}
    _set(connection, {**_PLANNING, **_WHOLE, **waits, "synchronous_commit": "on"})


def set_lock_timeout(connection: Connection, wait: str = LOCK_WAIT) -> None:
    """How long the statements that follow in this transaction wait for a lock."""
    _set(connection, {"lock_timeout": wait})


def _set(connection: Connection, settings: Mapping[str, str]) -> None:
    if (
        connection.info.server_version >= _WITH_TRANSACTION_TIMEOUT
        and "statement_timeout" in settings
    ):
        settings = {**settings, "transaction_timeout": "0"}
    asked = sql.SQL(", ").join(
        sql.SQL("set_config({}, {}, true)").format(*pair) for pair in settings.items()
    )
    row = connection.execute(sql.SQL("SELECT pg_backend_pid(), {}").format(asked)).fetchone()
    connection.session = None if row is None else row[0]


@contextmanager
def writing(url: ServerUrl, stage: Stage = "commit") -> Iterator[Connection]:
    """A connection in a transaction that writes; whatever isn't committed at the end is taken back.

    Raises:
        LostConnectionError: the connection was lost, or the server took the transaction
            back by itself. Nothing was written unless a COMMIT was sent.
        UnreachableError, SpecError, RefusedError: the server refuses it; nothing was
            committed.
    """
    try:
        connection = _connect(url)
        try:
            begin(connection)
            yield connection
        finally:
            with suppress(psycopg.Error):
                connection.rollback()
            connection.close()
    except psycopg.Error as error:
        told = as_error(url, error, stage)
        if is_lost(error) or error.sqlstate in _RETRIED:
            told = LostConnectionError(told.what, stage, told.do)
        raise told from error


def commit(connection: Connection) -> None:
    """COMMIT. A transaction that failed before is rolled back by it, and no error says so."""
    cursor = connection.execute("COMMIT")
    if cursor.statusmessage != "COMMIT":
        raise psycopg.errors.TransactionRollback("the transaction was rolled back")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, so that nothing is known of what was sent last.

    One that TLS refused never was.
    """
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError) and tls_cure(str(error)) is None
    return state.startswith("08") or state in _ENDED


@contextmanager
def explained(url: ServerUrl, stage: Stage) -> Iterator[None]:
    """The driver's errors in our words; the original stays attached for --debug."""
    try:
        yield
    except psycopg.Error as error:
        raise as_error(url, error, stage) from error


def as_error(url: ServerUrl, error: psycopg.Error, stage: Stage) -> WindrowError:
    """What an error of the driver's stands for.

    Of what the server says of values nothing is told: it quotes them.
    """
    state, why = error.sqlstate or "", reason(url, error)
    cure = tls_cure(str(error)) if not state else None
    if cure is not None:
        return SpecError(f"the server {url.place} isn't trusted: {why}", stage, cure)
    if state in _ROOM:
        what = f"the server {url.place} can't do it: {_ROOM[state]} ({why})"
        return UnreachableError(
            what,
            stage,
            "Nothing was committed. Make room there, or raise its limit, then run this again.",
        )
    if state == "55P03":
        what = f"the server {url.place}: another session held a lock for more than {LOCK_WAIT}"
        return UnreachableError(
            what,
            stage,
            "Nothing was committed. See pg_stat_activity for who holds it, then run this again.",
        )
    if state == "3F000":
        return SpecError(
            f"the server {url.place}: {why}",
            stage,
            "Create that schema, or name another one in sink.table.",
        )
    if state == "42501":
        return SpecError(
            f"the server {url.place} refuses it: {why}",
            stage,
            "Grant it: docs/sinks/postgres.md says which rights it takes.",
        )
    unable = (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        and state[:2] not in _OF_THE_TABLE
    )
    if unable or is_lost(error) or state in {"25006", "57014"}:
        return UnreachableError(f"the server {url.place} can't be used: {why}", stage, _CHECK)
    return RefusedError(
        f"the server {url.place} refused it: {why}",
        stage,
        "Nothing was committed. A constraint, an index or a trigger of the table, or somebody's"
        " change of it? Fix that, or refuse such rows by a rule of the schema; then run the window"
        " again.",
    )


def reason(url: ServerUrl, error: psycopg.Error) -> str:
    """The server's own first line, or where values may stand in it, only what was hurt."""
    state, diag = error.sqlstate, error.diag
    if state is not None and state[:2] in {"22", "23", "P0"}:
        named = [
            f"{what} {name}"
            for what, name in (("constraint", diag.constraint_name), ("column", diag.column_name))
            if name
        ]
        return " ".join([type(error).__name__, *named, f"(SQLSTATE {state})"])
    lines = str(error).strip().splitlines()
    return url.as_error(lines[0].rstrip(".") if lines else type(error).__name__)
