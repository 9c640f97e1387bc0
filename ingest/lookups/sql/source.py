"""A table or view of a database as a lookup source, by SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from urllib.parse import quote

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    ARRAY,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    NullPool,
    Table,
    any_,
    collate,
    create_engine,
    event,
    func,
    literal,
    make_url,
    select,
    text,
    tuple_,
    type_coerce,
    types,
)
from sqlalchemy import cast as cast_to
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.exc import DataError, DBAPIError, NoSuchTableError, SQLAlchemyError

from windrow.ingest import client_cache
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, require_extra
from windrow.ingest.ports.lookup import Answers, Ask
from windrow.ingest.schema.dtypes import ROW_NUMBER, TIMESTAMP
from windrow.ingest.settings.database_password import connection_event
from windrow.ingest.settings.grants import LACKING, Privilege, lacking_error, parameters
from windrow.ingest.settings.libpq import TCP, tls_advice
from windrow.ingest.settings.secrets import Secret, masked

KEYS_A_QUESTION = 1000
"""Largest number of keys in one query."""


@dataclass(frozen=True)
class SqlSource:
    """A table or view.

    Attributes:
        url: SQLAlchemy's URL, without a password.
        relation: the name of the table or view, perhaps with its schema.
        password: the password of the URL's user; None if there is none.
        timeout: milliseconds that the database may take for one query.
    """

    url: str
    relation: str
    password: Secret | None
    timeout: int

    @property
    def identity(self) -> str:
        url = make_url(self.url)
        host = url.host or url.query.get("host", "")
        port = "" if url.port is None else f":{url.port}"
        return f"{url.drivername}://{host}{port}/{url.database}/{self.relation}"

    @property
    def is_repeatable(self) -> bool:
        return False

    def version(self) -> str:
        self.schema()
        return ""

    @contextmanager
    def hold(self, _version: str, _tasks: int) -> Iterator[str]:
        """Holds a snapshot of a PostgreSQL database for all tasks, and yields its name.

        Tasks import the snapshot; see "Snapshot Synchronization Functions" in PostgreSQL's
        documentation. MySQL and SQLite can't share a snapshot, so "" is yielded.
        """
        if self._dialect != "postgresql":
            yield ""
            return
        with self._explain_errors():
            connection = self._engine().connect()
        try:
            with self._explain_errors():
                name = connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()
            yield str(name)
        finally:
            _close(connection)

    def schema(self) -> pa.Schema:
        with self._explain_errors(), self._engine().connect() as connection:
            table = self._reflect(connection)
        fields = ((column.name, _arrow(column.type, self._dialect)) for column in table.columns)
        return pa.schema([pa.field(name, kind) for name, kind in fields if kind is not None])

    def open(self, version: str, columns: pa.Schema) -> Ask:
        def ask(keys: pa.Table) -> Answers:
            cache_key, open_client = (self, version), partial(self._client, version)
            with (
                client_cache.borrow_client(cache_key, open_client) as client,
                self._explain_errors(),
            ):
                return client.answers(keys, columns)

        return ask

    @property
    def _dialect(self) -> str:
        return self.url.partition(":")[0]

    def _client(self, version: str) -> _Client:
        with self._explain_errors():
            connection = self._engine().connect()
        try:
            with self._explain_errors():
                if version:
                    connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{version}'")
                if begin := _BEGIN.get(self._dialect):
                    connection.exec_driver_sql(begin)
                table = self._reflect(connection)
                collations = _collations(connection, table) if self._dialect == "mysql" else {}
                if self._dialect == "sqlite":  # a text in SQLite may be invalid UTF-8
                    cast("Any", connection.connection.driver_connection).text_factory = bytes
                return _Client(self.identity, connection, table, collations)
        except BaseException:
            _close(connection)
            raise

    def _engine(self) -> Engine:
        url = make_url(self.url)
        if self._dialect == "sqlite":
            file_uri = f"file:{quote(url.database or '')}"
            url = url.set(database=file_uri, query={"mode": "ro", "uri": "true"})
            return create_engine(url, poolclass=NullPool)
        driver, extra = _DRIVERS[self._dialect]
        url = url.set(drivername=driver)
        connect_args: dict[str, Any] = {n: v for n, v in TCP.items() if n not in url.query}
        if self._dialect == "mysql":
            seconds = self.timeout / 1000
            begin = _MYSQL.format(seconds=seconds, milliseconds=self.timeout)
            # With utf8mb4 no character of a key can end the quoted text around it. The client
            # waits 10 s longer than the server, so that a server that is up ends the query itself.
            connect_args = {
                "charset": "utf8mb4",
                "init_command": begin,
                "read_timeout": seconds + 10,
            }
        else:
            timeouts = (
                f"-c statement_timeout={self.timeout} -c idle_in_transaction_session_timeout=0"
            )
            connect_args["options"] = f"{url.query.get('options', '')} {timeouts}".strip()
        with require_extra(extra, f"{self.identity} can't be asked"):
            engine = create_engine(
                url,
                poolclass=NullPool,
                connect_args=connect_args,
                isolation_level="REPEATABLE READ",
                execution_options={"postgresql_readonly": True},
            )
        if self.password is not None:
            event.listen(engine, "do_connect", connection_event(self.password, "from.password"))
        return engine

    def _reflect(self, connection: Connection) -> Table:
        schema, _, name = self.relation.rpartition(".")
        try:
            table = Table(
                name, MetaData(schema=schema or None), autoload_with=connection, resolve_fks=False
            )
        except NoSuchTableError:
            raise SpecError(
                f"there is no table or view {self.relation} in {self.identity}",
                "setup",
                "Name one that the user may read.",
            ) from None
        for column in table.columns:
            while isinstance(column.type, DOMAIN):
                column.type = column.type.data_type
        return table

    def _find_lacking(self) -> Sequence[Sequence[str]]:
        """Returns the privileges that the user lacks; none if the server can't be asked."""
        schema, _, name = self.relation.rpartition(".")
        if self._dialect == "mysql":
            url = make_url(self.url)
            table = f"`{schema or url.database}`.`{name}`"
            return [(f"SELECT on {table}", f"GRANT SELECT ON {table} TO '{url.username}'")]
        needs = [Privilege("USAGE", "SCHEMA", schema), Privilege("SELECT", "TABLE", schema, name)]
        with suppress(DBAPIError), self._engine().connect() as connection:
            return connection.exec_driver_sql(LACKING, parameters(needs)).all()
        return []

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turns the database's errors into windrow's.

        The database's texts are left out if they may have values of rows.
        """
        try:
            yield
        except DBAPIError as error:
            state = _state(error)
            if state == _NO_SNAPSHOT:
                raise UnreachableError(
                    f"the state of {self.identity} that all tasks share is gone",
                    "setup",
                    "Run the window again.",
                ) from None
            if isinstance(error, DataError) or state.startswith("22"):
                raise RefusedError(
                    f"{self.identity} has a value that can't be read, or compared ({state})",
                    "validate",
                    "Mend the value, or look up another column.",
                ) from None
            states = {state, *getattr(error.orig, "args", ())[:1]}
            if states & _DENIED and (lacking := self._find_lacking()):
                raise lacking_error(f"{self.identity} can't be asked", lacking, "setup") from None
            untrusted = None if state else tls_advice(str(error.orig))
            of_settings = untrusted is not None or state.startswith(_OF_SETTINGS)
            # only the first line: the driver may add the query and its values after it
            line = masked(str(error.orig).strip().partition("\n")[0], [])[:200]
            reason = line if of_settings or state[:2] in _PLAIN else state
            if of_settings:
                if untrusted is not None and self._dialect == "mysql":
                    untrusted = _MYSQL_TLS
                raise SpecError(
                    f"{self.identity} can't be asked: {reason}",
                    "setup",
                    untrusted or "Check the URL, the user's rights and the relation.",
                ) from None
            advice = "Run the window again."
            if state in _CANCELLED:
                reason = f"a question took longer than {self.timeout / 1000:g} s"
                advice += (
                    " If it is always so slow, index the key's columns, or set a longer `timeout`."
                )
            raise UnreachableError(
                f"{self.identity} doesn't answer: {reason}", "setup", advice
            ) from None
        except SQLAlchemyError as error:
            raise SpecError(
                f"{self.identity} can't be asked: {type(error).__name__}",
                "setup",
                "Check the URL and the relation.",
            ) from None


_DRIVERS = {
    "postgresql": ("postgresql+psycopg", "postgres"),
    "mysql": ("mysql+pymysql", "mysql"),
}
"""SQLAlchemy's name of each driver, and windrow's extra that installs the driver."""

_MYSQL_TLS = (
    "ssl_ca in the URL names the file with the certificate of the authority that signed the"
    " server's, and the host in the URL is one that the server's certificate names."
)
_MYSQL = (
    "SET time_zone = '+00:00', wait_timeout = 28800"
    " /*M! , max_statement_time = {seconds}, idle_transaction_timeout = 0"
    ", idle_readonly_transaction_timeout = 0 */"
    " /*!50708 , max_execution_time = {milliseconds} */"
)
"""First statement of a connection. Only MariaDB reads the first comment, only MySQL the second."""

_BEGIN = {
    "postgresql": "SET datestyle = 'ISO'; SET timezone = 'UTC'; SET extra_float_digits = 3",
    "mysql": "START TRANSACTION READ ONLY",
}
"""First statement of a worker's transaction.

By default, a PostgreSQL server may write dates, instants and floats in another way, or cut
their digits.
"""

_OF_SETTINGS = (
    *("28", "3D", "3F", "42"),
    *("SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_ERROR", "SQLITE_NOTADB"),
)
"""Beginnings of the states of errors that another try doesn't repair.

A user, database, schema, name or right is missing, or a file is no database.
"""

_DENIED = {"42501", 1044, 1142, 1143}
"""PostgreSQL's state of a missing privilege, and MySQL's numbers of it."""

_NO_SNAPSHOT = "42704"
_CANCELLED = ("57014", "70100", "error 3024")
"""States of a query that took too long, for PostgreSQL, MariaDB and MySQL."""

_AS_TEXTS, _PLAINLY = (types.Date, types.DateTime, types.Uuid), types.NullType()

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
"""Pattern of a UUID as PostgreSQL writes it. Any other text equals no UUID."""

_PLAIN = ("", "08", "53", "55", "57")
"""Classes of SQLSTATE whose texts have no values; "" if the server was not reached."""


def _state(error: DBAPIError) -> str:
    """Returns the SQLSTATE, SQLite's name of the error, or `error N` with MySQL's number N.

    MySQL's number is taken if the state is the general one, HY000. "" if there is no state.
    """
    sqlstate = getattr(error.orig, "sqlstate", None) or getattr(
        error.orig, "sqlite_errorname", None
    )
    if sqlstate == "HY000" and error.orig is not None:
        return f"error {error.orig.args[0]}"
    return str(sqlstate or "")


def _close(connection: Connection) -> None:
    """Closes a connection, and ignores errors of a broken one."""
    with suppress(SQLAlchemyError):
        connection.close()


@dataclass(frozen=True)
class _Client:
    """A connection in a worker, and the columns of the relation.

    Attributes:
        identity: the source's identity, for messages.
        connection: the open connection, inside a transaction.
        table: the relation and its columns.
        collations: the collations of columns whose character set lacks some characters, by
            column name.
    """

    identity: str
    connection: Connection
    table: Table
    collations: Mapping[str, str]

    def close(self) -> None:
        _close(self.connection)

    def answers(self, keys: pa.Table, columns: pa.Schema) -> Answers:
        missing_columns = [name for name in columns.names if name not in self.table.c]
        if missing_columns:
            raise RefusedError(
                f"{self.identity} has no column {missing_columns[0]} any more",
                "setup",
                "Look up another column, or add it again.",
            )
        keys = self._possible(keys)
        key_columns = [self._comparable(self.table.c[name]) for name in keys.column_names]
        selected_columns = [self.table.c[name] for name in columns.names]
        # values as the driver gives them, without SQLAlchemy's conversion by the column's type;
        # PostgreSQL has dates and instants that Python can't represent, so they are read as text
        texts = _AS_TEXTS if self.connection.dialect.name == "postgresql" else ()
        query = select(
            *(
                cast_to(c, types.Text) if isinstance(c.type, texts) else type_coerce(c, _PLAINLY)
                for c in selected_columns
            )
        )
        rows_per_question = list[Sequence[Any]]()
        for batch in keys.to_batches(KEYS_A_QUESTION):
            equal = self._equal(key_columns, [column.to_pylist() for column in batch.columns])
            rows_per_question.append(self.connection.execute(query.where(equal)).all())
        arrays, unfit = [], dict[int, str]()
        for n, (column, field) in enumerate(zip(selected_columns, columns, strict=True)):
            # databases ignore the padding of a CHAR when they compare it
            padded = str if isinstance(column.type, types.CHAR) else ()
            values = (row[n] for rows in rows_per_question for row in rows)
            stripped = [v.rstrip(" ") if isinstance(v, padded) else v for v in values]
            arrays.append(_array(stripped, field, unfit))
        rows = pa.Table.from_arrays(arrays, schema=columns)
        answered = _answering_rows(rows, [len(rows) for rows in rows_per_question], keys)
        reasons = pa.array([unfit.get(n) for n in answered.to_pylist()], pa.string())
        rows, its_keys = rows.take(answered), rows.select(keys.column_names).take(answered)
        refused = {w: its_keys.filter(pc.equal(reasons, w)) for w in set(unfit.values())}
        return Answers(rows.filter(reasons.is_null()), len(rows_per_question), refused)

    def _possible(self, keys: pa.Table) -> pa.Table:
        """Drops keys that no value of a database can equal.

        They are texts with NUL, and texts for a UUID column that are no UUIDs.
        """
        for name in keys.column_names:
            if isinstance(self.table.c[name].type, types.Uuid):
                keys = keys.filter(pc.match_substring_regex(keys[name], _UUID))
            elif pa.types.is_string(keys[name].type):
                keys = keys.filter(pc.invert(pc.match_substring(keys[name], "\0")))
        return keys.combine_chunks()

    def _equal(
        self, key_columns: list[ColumnElement[Any]], keys: list[list[Any]]
    ) -> ColumnElement[bool]:
        """Returns the condition that the key columns equal one of the keys.

        PostgreSQL gets each list of values as one array, because a thousand parameters cost
        much more.

        Args:
            key_columns: the columns that are compared.
            keys: the values of the keys, one list per column.
        """
        if self.connection.dialect.name == "postgresql":
            arrays = [literal(v, ARRAY(c.type)) for v, c in zip(keys, key_columns, strict=True)]
            if len(key_columns) > 1:
                return tuple_(*key_columns).in_(select(*map(func.unnest, arrays)))
            return key_columns[0] == any_(arrays[0])
        return (
            tuple_(*key_columns).in_(zip(*keys, strict=True))
            if len(key_columns) > 1
            else key_columns[0].in_(keys[0])
        )

    def _comparable(self, column: Column[Any]) -> ColumnElement[Any]:
        """Returns the column in a form that can be compared with every key.

        A key may be too large for the column's type, or have characters that its character
        set lacks.
        """
        if isinstance(column.type, types.Integer):
            return type_coerce(column, types.BigInteger())
        if isinstance(column.type, types.Uuid):
            return type_coerce(column, types.Uuid(as_uuid=False))
        if isinstance(column.type, types.Enum) and self.connection.dialect.name == "postgresql":
            return cast_to(column, types.Text)
        collation = self.collations.get(column.name)
        return type_coerce(column, _Characters(collation)) if collation else column


def _array(values: Sequence[Any], field: pa.Field, unfit: dict[int, str]) -> pa.Array:
    """Returns the values of a column; null for values that don't fit its type.

    Args:
        values: the driver's values.
        field: the column.
        unfit: gets the reason for each row with such a value, by the row's number.
    """
    try:
        return _to_arrow(values, field.type)
    except _MISFIT:
        fit = list[Any]()
        for n, value in enumerate(values):
            try:
                fit += _to_arrow([value], field.type).to_pylist()
            except _MISFIT:
                unfit[n] = f"its row has a value in {field.name} that is no {field.type}"
                fit.append(None)
        return pa.array(fit, field.type)


_MISFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)


def _to_arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Converts a driver's values to Arrow. In SQLite a column may have values of any type."""
    value_types = set(map(type, values))
    if pa.types.is_floating(kind):
        values = [_FLOATS.get(value, value) for value in values]
    if pa.types.is_integer(kind) and float in value_types:  # Arrow would turn 1.5 into 1
        return pa.array(values, pa.float64()).cast(kind)
    if pa.types.is_temporal(kind) and str in value_types:
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)


_FLOATS = {b"NaN": float("nan"), b"-0.0": -0.0}
"""Floats that a windrow table in SQLite stores as bytes, because SQLite would change them.

See `sinks.sqlite.columns`.
"""


def _collations(connection: Connection, table: Table) -> dict[str, str]:
    """Returns the collations of a MySQL table's text columns that aren't utf8mb4, by column."""
    query = (
        "SELECT column_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = coalesce(:schema, database()) AND table_name = :name"
        " AND character_set_name <> 'utf8mb4'"
    )
    rows = connection.execute(text(query), {"schema": table.schema, "name": table.name})
    return {str(column): str(collation) for column, collation in rows}


def _answering_rows(rows: pa.Table, row_counts: list[int], keys: pa.Table) -> pa.Array:
    """Returns the numbers of the rows whose key is exactly a key of the query that found them.

    A database may treat different texts as equal, for example in upper and lower case. Then
    several queries find the same row.

    Args:
        rows: the rows of all queries, one query after the other.
        row_counts: the number of rows that each query found.
        keys: all keys; each query has the next `KEYS_A_QUESTION` of them.
    """
    key_frame = cast("pl.DataFrame", pl.from_arrow(keys)).with_row_index(ROW_NUMBER)
    row_frame = cast(
        "pl.DataFrame", pl.from_arrow(rows.select(keys.column_names).cast(keys.schema))
    )
    key = row_frame.join(key_frame, keys.column_names, how="left", maintain_order="left")[
        ROW_NUMBER
    ]
    questions = pl.Series(np.repeat(np.arange(len(row_counts)), row_counts), dtype=pl.UInt32)
    return (key // KEYS_A_QUESTION == questions).arg_true().to_arrow()


class _Characters(types.TypeDecorator[str]):
    """A MySQL text column whose character set isn't utf8mb4.

    The key is cast to the column's character set, so that they can be compared. Characters
    that this set lacks become question marks.
    """

    impl, cache_ok = types.Text, True

    def __init__(self, collation: str) -> None:
        super().__init__()
        self.collation = collation

    def bind_expression(self, bindvalue: BindParameter[str]) -> ColumnElement[str]:
        character_set = mysql.CHAR(charset=self.collation.partition("_")[0])
        return collate(cast_to(bindvalue, character_set), self.collation)


def _arrow(kind: types.TypeEngine[Any], dialect: str) -> pa.DataType | None:
    """Returns the Arrow type for a database's column type; None if no type fits."""
    if dialect == "sqlite":
        return next((arrow for sql, arrow in _OF_SQLITE if isinstance(kind, sql)), None)
    if isinstance(kind, types.Integer) and getattr(kind, "unsigned", False):
        return pa.int64()
    if isinstance(kind, types.TIMESTAMP) and dialect == "mysql":
        return TIMESTAMP
    if isinstance(kind, types.Numeric) and not isinstance(kind, types.Float):
        digits, scale = kind.precision or 38, kind.scale or 18 * (kind.precision is None)
        return pa.decimal128(digits, scale) if 0 <= scale <= digits <= 38 else None
    if isinstance(kind, types.DateTime):
        return TIMESTAMP if kind.timezone else None
    return next((arrow for sql, arrow in _TYPES if isinstance(kind, sql)), None)


_OF_SQLITE: tuple[tuple[type[types.TypeEngine[Any]], pa.DataType], ...] = (
    (types.Integer, pa.int64()),
    (types.Float, pa.float64()),
    (types.String, pa.string()),
    (types.LargeBinary, pa.binary()),
)
"""Types whose values SQLite stores as declared, with the Arrow type of each.

SQLite has no storage for dates, decimals and booleans.
"""

_TYPES: tuple[tuple[type[types.TypeEngine[Any]], pa.DataType], ...] = (
    (types.BigInteger, pa.int64()),
    (types.SmallInteger, pa.int16()),
    (types.Integer, pa.int32()),
    (types.Boolean, pa.bool_()),
    (types.REAL, pa.float32()),
    (types.Float, pa.float64()),
    (types.String, pa.string()),
    (types.LargeBinary, pa.binary()),
    (types.BINARY, pa.binary()),
    (types.VARBINARY, pa.binary()),
    (types.Date, pa.date32()),
    (types.Uuid, pa.string()),
)
"""Types of SQLAlchemy, subclasses included, with the Arrow type of each. The first match counts."""
