"""A table or view of a database, asked for some keys at a time by SQLAlchemy."""

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
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, needing
from windrow.ingest.ports.lookup import Answers, Ask
from windrow.ingest.schema.dtypes import ROW_NUMBER, TIMESTAMP
from windrow.ingest.settings.libpq import TCP
from windrow.ingest.settings.secrets import Secret, read

KEYS_A_QUESTION = 1000
"""The most keys that a database is asked for at once."""


@dataclass(frozen=True)
class SqlSource:
    """A table or view. `timeout`: milliseconds that the database may take for a question."""

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
    def repeats(self) -> bool:
        return False

    def version(self) -> str:
        self.schema()
        return ""

    @contextmanager
    def held(self, _version: str, _tasks: int) -> Iterator[str]:
        """Holds one state of a PostgreSQL database for all tasks: yields its snapshot's name.

        Tasks join it as PostgreSQL documents under "Snapshot Synchronization Functions". MySQL
        and SQLite have none to share.
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
            with client_cache.borrowed(cache_key, open_client) as client, self._explain_errors():
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
                if self._dialect == "sqlite":  # which has texts that aren't UTF-8, too
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
        secret = None if self.password is None else read(self.password, "from.password")
        driver, extra = _DRIVERS[self._dialect]
        url = url.set(drivername=driver, password=secret)
        connect_args: dict[str, Any] = {n: v for n, v in TCP.items() if n not in url.query}
        if self._dialect == "mysql":
            seconds = self.timeout / 1000
            begin = _MYSQL.format(seconds=seconds, milliseconds=self.timeout)
            # with this charset nothing in a key can end the text that it is in; a server that is
            # gone is waited for some seconds longer than one that ends the question itself
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
        with needing(extra, f"{self.identity} can't be asked"):
            return create_engine(
                url,
                poolclass=NullPool,
                connect_args=connect_args,
                isolation_level="REPEATABLE READ",
                execution_options={"postgresql_readonly": True},
            )

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

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Makes windrow's errors of the database's, without their texts: these may have values."""
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
            of_settings = state.startswith(_OF_SETTINGS)
            # the beginning of the driver's words, which may go on with what was asked
            line = str(error.orig).strip().partition("\n")[0][:200]
            reason = line if of_settings or state[:2] in _PLAIN else state
            if of_settings:
                raise SpecError(
                    f"{self.identity} can't be asked: {reason}",
                    "setup",
                    "Check the URL, the user's rights and the relation.",
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
"""SQLAlchemy's name of each driver, and the extra that it is installed by."""

_MYSQL = (
    "SET time_zone = '+00:00', wait_timeout = 28800"
    " /*M! , max_statement_time = {seconds}, idle_transaction_timeout = 0"
    ", idle_readonly_transaction_timeout = 0 */"
    " /*!50708 , max_execution_time = {milliseconds} */"
)
"""How a connection begins. MariaDB alone reads the first comment, and MySQL the second."""

_BEGIN = {
    "postgresql": "SET datestyle = 'ISO'; SET timezone = 'UTC'; SET extra_float_digits = 3",
    "mysql": "START TRANSACTION READ ONLY",
}
"""How a worker's transaction begins. A server of PostgreSQL's may write dates, instants and floats
in another way by default, or cut their digits.
"""

_OF_SETTINGS = (
    *("28", "3D", "3F", "42"),
    *("SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_ERROR", "SQLITE_NOTADB"),
)
"""How a state begins of a user, a database, a schema, a name or a right that isn't there, and of
a file that is no database. No other try mends it.
"""

_NO_SNAPSHOT = "42704"
_CANCELLED = ("57014", "70100", "error 3024")
"""A question that took too long: for PostgreSQL, MariaDB and MySQL."""

_AS_TEXTS, _PLAINLY = (types.Date, types.DateTime, types.Uuid), types.NullType()

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
"""A UUID as PostgreSQL writes it; other texts aren't equal to it."""

_PLAIN = ("", "08", "53", "55", "57")
"""Classes of SQLSTATE whose texts have no values; empty: the server was not reached."""


def _state(error: DBAPIError) -> str:
    """SQLSTATE, what SQLite calls its errors, or MySQL's number of one that has no state."""
    sqlstate = getattr(error.orig, "sqlstate", None) or getattr(
        error.orig, "sqlite_errorname", None
    )
    if sqlstate == "HY000" and error.orig is not None:
        return f"error {error.orig.args[0]}"
    return str(sqlstate or "")


def _close(connection: Connection) -> None:
    """Gives a connection up, whatever became of it."""
    with suppress(SQLAlchemyError):
        connection.close()


@dataclass(frozen=True)
class _Client:
    """A connection in a worker, and the columns of the relation.

    `collations`: of texts that can't have all characters.
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
        # values as the driver gives them, not as SQLAlchemy would make them by the column's type;
        # PostgreSQL has dates and instants that Python hasn't, so these are texts
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
            # spaces that pad a CHAR don't count when it is compared
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
        """The keys without those that no value of a database is: texts with NUL, or no UUIDs."""
        for name in keys.column_names:
            if isinstance(self.table.c[name].type, types.Uuid):
                keys = keys.filter(pc.match_substring_regex(keys[name], _UUID))
            elif pa.types.is_string(keys[name].type):
                keys = keys.filter(pc.invert(pc.match_substring(keys[name], "\0")))
        return keys.combine_chunks()

    def _equal(
        self, key_columns: list[ColumnElement[Any]], keys: list[list[Any]]
    ) -> ColumnElement[bool]:
        """Says that columns have one of the keys, of which each has a list of values.

        PostgreSQL gets each list as an array, since a thousand parameters cost much more.
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
        """The column, for keys that may be too large for its type, or have other characters."""
        if isinstance(column.type, types.Integer):
            return type_coerce(column, types.BigInteger())
        if isinstance(column.type, types.Uuid):
            return type_coerce(column, types.Uuid(as_uuid=False))
        if isinstance(column.type, types.Enum) and self.connection.dialect.name == "postgresql":
            return cast_to(column, types.Text)
        collation = self.collations.get(column.name)
        return type_coerce(column, _Characters(collation)) if collation else column


def _array(values: Sequence[Any], field: pa.Field, unfit: dict[int, str]) -> pa.Array:
    """The values of a column; of a row with one that it can't have null, and why in `unfit`."""
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
    """Arrow's values of a driver's: in SQLite any value may be in any column."""
    value_types = set(map(type, values))
    if pa.types.is_floating(kind):
        values = [_FLOATS.get(value, value) for value in values]
    if pa.types.is_integer(kind) and float in value_types:  # of 1.5 Arrow would make 1
        return pa.array(values, pa.float64()).cast(kind)
    if pa.types.is_temporal(kind) and str in value_types:
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)


_FLOATS = {b"NaN": float("nan"), b"-0.0": -0.0}
"""How a windrow table of SQLite has what SQLite itself would change (`sinks.sqlite.columns`)."""


def _collations(connection: Connection, table: Table) -> dict[str, str]:
    """The collations of a MySQL table's columns that can't have all characters."""
    query = (
        "SELECT column_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = coalesce(:schema, database()) AND table_name = :name"
        " AND character_set_name <> 'utf8mb4'"
    )
    rows = connection.execute(text(query), {"schema": table.schema, "name": table.name})
    return {str(column): str(collation) for column, collation in rows}


def _answering_rows(rows: pa.Table, row_counts: list[int], keys: pa.Table) -> pa.Array:
    """The numbers of the rows that are equal to a key of the question that found them.

    A database may take texts for equal that differ, in upper and lower case for example: then a
    row answers several questions.

    `row_counts`: how many rows each question has found.
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
    """A text of MySQL's in another character set than that of all characters.

    A key in the column's own one can be compared with it. Characters that it lacks are question
    marks then.
    """

    impl, cache_ok = types.Text, True

    def __init__(self, collation: str) -> None:
        super().__init__()
        self.collation = collation

    def bind_expression(self, bindvalue: BindParameter[str]) -> ColumnElement[str]:
        character_set = mysql.CHAR(charset=self.collation.partition("_")[0])
        return collate(cast_to(bindvalue, character_set), self.collation)


def _arrow(kind: types.TypeEngine[Any], dialect: str) -> pa.DataType | None:
    """The type that a windrow table has for a column's; None if it has none."""
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
"""What SQLite stores as it is declared; dates, decimals and booleans are only called so."""

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
"""A type of SQLAlchemy's, and of its kin, with the one of a windrow table's."""
