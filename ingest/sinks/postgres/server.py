"""Connections to the server, transactions, and windrow's errors for the driver's errors.

A transaction that writes takes the table's lock and looks at the receipts first. So after a COMMIT
without an answer, the run simply begins the transaction again, and finds its own receipt:

    1 A's COMMIT arrives, but its answer is lost.
    2 A connects again and waits for the lock, until the server has ended its old session.
    3 A looks: if its receipt is missing, the COMMIT didn't arrive, and A writes again.

A client that is stopped in its transaction would hold the lock for ever. A client whose machine is
lost would hold it for hours. So the server ends a session that is idle in a transaction for `IDLE`,
and a session whose machine answers no keepalive. When a stopped client continues, its COMMIT fails.
It looks again, and finds the other run's receipt.

Two waits have no limit:

- A client is stopped in the middle of a COPY, on a machine that stays up. For the server it isn't
  idle. It holds the lock until somebody ends its session. The error of the waiting runs names that
  session.
- A COMMIT or a merge gets no answer. It may take long, or its answer may be lost in a proxy that
  stays connected; no time limit can tell these apart. The wait for a COMMIT is logged, and the
  proxy's own keepalives end it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
import psycopg
from psycopg import conninfo, sql

from windrow.ingest.errors import (
    DamagedError,
    LostConnectionError,
    RefusedError,
    SpecError,
    Stage,
    UnreachableError,
    WindrowError,
    join_first_few,
)
from windrow.ingest.settings.database_password import connect_with
from windrow.ingest.settings.grants import (
    LACKING,
    Privilege,
    lacking_error,
    parameters,
    to_use_tables,
)
from windrow.ingest.settings.libpq import TCP, tls_advice
from windrow.ingest.settings.secrets import masked
from windrow.ingest.sinks.kit import waiting_for
from windrow.ingest.sinks.postgres.names import OWN_TABLES, PRIVILEGES, TableName
from windrow.ingest.sinks.postgres.url import ServerUrl

IDLE = "10s"
"""The longest time that a session may be idle in a transaction. Windrow never works for long
between two statements.
"""

WAITS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The seconds before each retry after a lost connection.

A server that crashed is usually back by the last retry.
"""

LOCK_WAIT = "10min"
"""Longest wait of a statement for a lock. A commit waits for the commits of other windows, and a
reader waits while a commit changes columns.
"""

_DEFAULTS = {**TCP, "application_name": "windrow"}
_PLANNING = {"enable_seqscan": "off", "jit": "off"}
"""Settings for the planner, so that a window's rows are read by the index.

Otherwise the server would read the whole table to find that it has no row of a window.
"""

_WHOLE = {
    "row_security": "off",
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "quote_all_identifiers": "off",
}
"""Settings for reliable answers.

A query returns all rows or an error, never only the rows that a policy shows. There is no time
limit. The names of types are those of `columns.column_type`.
"""

_KEEPALIVES = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""Settings with which the server notices a lost client machine within half a minute."""

_RETRIED = {"40001", "40P01"}
"""SQLSTATE of a serialization failure and of a deadlock."""

_ENDED = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}
"""SQLSTATE of sessions that an administrator, a crash, a start or a time limit has ended."""

_CHECK = (
    "Check that the server is up and reachable, and the user's password and rights, then run this"
    " again."
)
_OF_THE_TABLE = {"54", "55"}
"""SQLSTATE classes of errors that no retry fixes.

They are limits, for example the size of an index entry, or states, for example a publication
without a replica identity.
"""

_MAKE_ROOM = "Nothing was committed. Make room there, or raise its limit, then run this again."
_OTHER_TYPES = (
    RefusedError,
    "a staged row is of other types than the table's columns ({})",
    "Nothing was committed. The table was changed meanwhile: run the window again.",
)
"""Error for a COPY of other types. COPY detects them by a value with too many or too few bytes."""

_KNOWN: Mapping[str, tuple[type[WindrowError], str, str]] = {
    "53100": (UnreachableError, "its disk is full ({})", _MAKE_ROOM),
    "53200": (UnreachableError, "it is out of memory, or of room for locks ({})", _MAKE_ROOM),
    "53300": (UnreachableError, "it takes no more connections ({})", _MAKE_ROOM),
    "55P03": (
        UnreachableError,
        f"another session held a lock for more than {LOCK_WAIT}: {{}}",
        (
            "Nothing was committed. SELECT pid, state, query FROM pg_stat_activity says what a"
            " session does, and SELECT pg_terminate_backend(pid) ends it; then run this again."
        ),
    ),
    "08P01": _OTHER_TYPES,
    "22P03": _OTHER_TYPES,
    "0A000": (
        SpecError,
        "{}",
        (
            "Of several servers in sink.url target_session_attrs=read-write takes the one that"
            " isn't a standby. A table of your own is partitioned by columns of sink.primary_key"
            " alone. If the table has a rule, take it off (DROP RULE): triggers may stand beside."
        ),
    ),
    "3F000": (SpecError, "{}", "Create that schema, or name another one in sink.table."),
    "42501": (
        SpecError,
        "it refuses it: {}",
        "Grant it: `windrow help permissions` says which rights it takes.",
    ),
    "42P01": (
        DamagedError,
        "{}",
        (
            "Was that table renamed or dropped? Give it its name back (ALTER TABLE ... RENAME); or"
            " restore it from a backup, together with the table and the schema of windrow's own"
            " tables. Until then no window can be committed."
        ),
    ),
    "42703": (
        RefusedError,
        "{}",
        (
            "Was that column renamed or dropped? Give it its name back (ALTER TABLE ... RENAME"
            " COLUMN). If its values are gone, add it again, nullable, then replay the windows"
            " that windrow verify SPEC --deep names."
        ),
    ),
}
"""By SQLSTATE: the error's class, its message (`{}` is the server's reason), and the advice."""

OF_A_ROW = {"22", "23", "P0"}
"""SQLSTATE classes of errors about a row, whose messages may quote its values."""

_NAMING = {"execMain.c", "execPartition.c", "execIndexing.c", "nbtinsert.c", "ri_triggers.c"}
"""PostgreSQL's source files whose errors about a row quote only names, and no values."""


def identifier(*parts: str) -> sql.Composable:
    """Makes an identifier for a query with parameters, in which a percent sign is escaped."""
    return sql.Identifier(*(part.replace("%", "%%") for part in parts))


class TablePlace(msgspec.Struct, frozen=True):
    """A table on a server. Picklable.

    Attributes:
        url: the server's URL.
        name: the table's name.
        own_schema: the schema with windrow's own tables.
    """

    url: ServerUrl
    name: TableName
    own_schema: str

    @property
    def identity(self) -> str:
        """The table's identity, which doesn't depend on user and options."""
        return f"postgres:{self}"

    def __str__(self) -> str:
        return f"{self.url.address}/{self.name}"

    @property
    def table(self) -> sql.Composable:
        """The table's name in SQL."""
        return identifier(self.name.schema, self.name.table)

    def query(self, text: str, **names: sql.Composable) -> sql.Composed:
        """Fills the names of the table and of windrow's own tables into a query.

        The query must be run with parameters, even if they are an empty list (see `identifier`).
        """
        own_tables = {name: identifier(self.own_schema, name) for name in OWN_TABLES}
        return sql.SQL(text).format(
            table=self.table, own=identifier(self.own_schema), **own_tables, **names
        )


def refuse_unusable(url: ServerUrl) -> None:
    """Refuses a URL that the driver can't use. It opens no connection.

    Raises:
        SpecError: the URL has an option that the driver doesn't know.
    """
    try:
        conninfo.conninfo_to_dict(url.text)
    except psycopg.ProgrammingError:
        raise SpecError(
            f"the URL of the server {url.address} can't be read, or has an option that libpq"
            " doesn't know",
            "spec",
            "See PostgreSQL's documentation, libpq: connection URIs. What is special in a user or a"
            " password is percent-encoded.",
        ) from None  # the driver's text may contain the password


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that logs a message if the server takes long to answer."""

    def wait(self, *args: Any, **options: Any) -> Any:
        with waiting_for(lambda: f"the answer of the server at {self.info.host}"):
            return super().wait(*args, **options)


def _connect(url: ServerUrl) -> Connection:
    url_settings = conninfo.conninfo_to_dict(url.text)
    options = {
        **{k: v for k, v in _DEFAULTS.items() if k not in url_settings},
        "client_encoding": "UTF8",
    }
    connect = partial(
        Connection.connect,
        url.text,
        autocommit=True,
        prepare_threshold=None,
        **options,  # type: ignore[arg-type]
    )
    with waiting_for(f"a connection to the server {url.address}"):
        if url.password is None:
            return connect()
        return connect_with(url.password, "sink.password", lambda text: connect(password=text))


def begin_read(location: TablePlace, stage: Stage = "setup") -> AbstractContextManager[Connection]:
    """Opens a connection in a read-only transaction that sees one state of all tables."""
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    return _transaction(location, stage, begin, idle_in_transaction_session_timeout="0")


def begin_write(
    location: TablePlace, stage: Stage = "commit"
) -> AbstractContextManager[Connection]:
    """Opens a connection in a transaction that writes, whatever the server's defaults are.

    Each statement sees all commits before it. Work that isn't committed is rolled back.
    """
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    lasts = {"synchronous_commit": "on", "idle_in_transaction_session_timeout": IDLE}
    return _transaction(location, stage, begin, **_KEEPALIVES, **lasts)


@contextmanager
def _transaction(
    location: TablePlace, stage: Stage, begin: str, **settings: str
) -> Iterator[Connection]:
    """Opens a connection, and begins a transaction with its own settings.

    Raises:
        LostConnectionError: the connection was lost, or the server rolled the transaction back by
            itself. Nothing was written unless a COMMIT was sent.
        UnreachableError, SpecError, RefusedError: the server refused a statement; nothing was
            committed.
    """
    try:
        connection = _connect(location.url)
        try:
            connection.execute(begin)
            set_local(connection, lock_timeout=LOCK_WAIT, **_PLANNING, **_WHOLE, **settings)
            yield connection
        finally:
            with suppress(psycopg.Error):
                connection.rollback()
            connection.close()
    except psycopg.Error as error:
        raised = to_windrow_error(location, error, stage)
        if is_lost(error) or error.sqlstate in _RETRIED:
            raised = LostConnectionError(raised.message, stage, raised.advice)
        raise raised from None  # the server's text may repeat a request


def set_local(connection: Connection, **settings: str) -> None:
    """Applies the settings that the server knows, until the end of the transaction."""
    query = (
        "SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) AS s (name,"
        " value) WHERE current_setting(name, true) IS NOT NULL"
    )
    connection.execute(query, [[*settings], [*settings.values()]])


def is_true(
    connection: Connection, question: str | sql.SQL | sql.Composed, *values: object
) -> bool:
    """Runs a query with a single boolean result; null counts as false."""
    row = connection.execute(question, values).fetchone()
    return row is not None and bool(row[0])


def has_table(connection: Connection, name: TableName) -> bool:
    """Returns whether a table of this name exists."""
    return is_true(connection, "SELECT to_regclass(%s) IS NOT NULL", name.quoted)


def commit(connection: Connection) -> None:
    """Commits the transaction.

    Raises:
        psycopg.Error: the transaction wasn't committed, or no answer came.
    """
    cursor = connection.execute("COMMIT")
    # the server answers COMMIT without an error even if the transaction had failed before
    if cursor.statusmessage != "COMMIT":
        raise psycopg.errors.TransactionRollback("the transaction was rolled back")


def is_lost(error: psycopg.Error) -> bool:
    """Returns whether the connection was lost, and with it the last statement's answer.

    It is False for a connection that TLS refused, because that connection was never opened.
    """
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError) and tls_advice(str(error)) is None
    return state not in _KNOWN and (state.startswith("08") or state in _ENDED)


def to_windrow_error(location: TablePlace, error: psycopg.Error, stage: Stage) -> WindrowError:
    """Makes windrow's error for an error of the driver.

    Unlike the server's message, its message quotes no values.
    """
    url, state = location.url, error.sqlstate or ""
    cause = _lock_holders(location) if state == "55P03" else reason(url, error)
    advice = tls_advice(str(error)) if not state else None
    if advice is not None:
        return SpecError(f"the server {url.address} isn't trusted: {cause}", stage, advice)
    if state == "42501" and (
        lacking := find_lacking(location) or find_lacking(location, rare=True)
    ):
        return lacking_error(f"the server {url.address}", lacking, stage)
    if state in _KNOWN:
        kind, template, next_step = _KNOWN[state]
        return kind(f"the server {url.address}: {template.format(cause)}", stage, next_step)
    unable = (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        and state[:2] not in _OF_THE_TABLE
    )
    if unable or is_lost(error) or state in {"25006", "57014"}:
        return UnreachableError(f"the server {url.address} can't be used: {cause}", stage, _CHECK)
    return RefusedError(
        f"the server {url.address} refused it: {cause}",
        stage,
        "Nothing was committed. A constraint, an index or a trigger of the table, or somebody's"
        " change of it? Fix that, or refuse such rows by a rule of the schema; then run the window"
        " again.",
    )


def find_lacking(location: TablePlace, *, rare: bool = False) -> Sequence[tuple[str, str]]:
    """Returns the privileges that the user lacks, as rows of `LACKING`, on a new connection.

    Args:
        location: the table's place.
        rare: whether those count that only some tables and commands need: a new table with a
            primary key, and the restore of receipts.
    """
    own, name = location.own_schema, location.name
    privileges = [
        Privilege("CREATE", "DATABASE", own),
        *to_use_tables(own, PRIVILEGES),
        Privilege("USAGE", "SCHEMA", name.schema),
        Privilege("CREATE", "SCHEMA", name.schema, name.table),
        Privilege("OWNER", "TABLE", name.schema, name.table),
    ]
    if rare:
        privileges = [
            Privilege("CREATE", "SCHEMA", own),
            Privilege("DELETE", "TABLE", own, "receipts"),
        ]
    with suppress(psycopg.Error), _connect(location.url) as connection:
        return connection.execute(LACKING, parameters(privileges)).fetchall()
    return ()


_LOCK_HOLDERS = """
SELECT DISTINCT l.pid FROM pg_locks l LEFT JOIN {targets} t ON t.relation = to_regclass(%s)
WHERE l.granted AND (l.relation = to_regclass(%s) OR l.transactionid = t.xmax)
"""
"""A session blocks others by a lock on the table, or by a change of its row in `targets`."""


def _lock_holders(location: TablePlace) -> str:
    """Lists the sessions that have locks on a table, or on its row in `targets`."""
    pids: list[object] = []
    with suppress(psycopg.Error), _connect(location.url) as connection:
        connection.execute("SET lock_timeout = '1s'")
        names = [location.name.quoted] * 2
        pids = [pid for (pid,) in connection.execute(location.query(_LOCK_HOLDERS), names)]
    return f"pid {join_first_few(pids) or 'unknown'}"


def reason(url: ServerUrl, error: psycopg.Error) -> str:
    """Returns the first line of the server's message, or only names if it may quote values.

    A trigger may raise an error with any text and any SQLSTATE.
    """
    state, diag = error.sqlstate, error.diag
    if state is not None and state[:2] in OF_A_ROW and diag.source_file not in _NAMING:
        named = [
            f"{noun} {name}"
            for noun, name in (("constraint", diag.constraint_name), ("column", diag.column_name))
            if name
        ]
        return " ".join([type(error).__name__, *named, f"(SQLSTATE {state})"])
    lines = str(error).strip().splitlines()
    return masked(lines[0].rstrip(".") if lines else type(error).__name__, url.secrets)
