"""A table or view of a database, asked for some keys at a time by SQLAlchemy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    NullPool,
    Table,
    create_engine,
    make_url,
    select,
    text,
    tuple_,
    type_coerce,
    types,
)
from sqlalchemy.exc import DataError, DBAPIError, NoSuchTableError, SQLAlchemyError

from windrow.ingest import client_cache
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, how_to_install
from windrow.ingest.ports.lookup import Answers, Ask
from windrow.ingest.schema.dtypes import TIMESTAMP
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
    def held(self, version: str) -> Iterator[str]:
        """Holds one state of a PostgreSQL database for all tasks: yields its snapshot's name.

        Tasks join it as PostgreSQL documents under "Snapshot Synchronization Functions". SQLite
        has none to share.
        """
        del version
        if self._sqlite:
            yield ""
            return
        with self._explained():
            connection = self._engine().connect()
        try:
            with self._explained():
                name = connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()
            yield str(name)
        finally:
            _closed(connection)

    def schema(self) -> pa.Schema:
        with self._explained(), self._engine().connect() as connection:
            found = self._reflected(connection)
        fields = ((column.name, _arrow(column.type, self._sqlite)) for column in found.columns)
        return pa.schema([pa.field(name, kind) for name, kind in fields if kind is not None])

    def open(self, version: str, columns: pa.Schema) -> Ask:
        def ask(keys: pa.Table) -> Answers:
            kept = client_cache.taken((self, version))
            client = kept if isinstance(kept, _Client) else self._client(version)
            try:
                with self._explained():
                    answers = client.answers(keys, columns)
            except BaseException:
                client.close()
                raise
            client_cache.keep((self, version), client)
            return answers

        return ask

    @property
    def _sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    def _client(self, version: str) -> _Client:
        with self._explained():
            connection = self._engine().connect()
        try:
            with self._explained():
                if version:
                    connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{version}'")
                return _Client(self.identity, connection, self._reflected(connection))
        except BaseException:
            _closed(connection)
            raise

    def _engine(self) -> Engine:
        url = make_url(self.url)
        if self._sqlite:
            at = f"file:{quote(url.database or '')}"
            url = url.set(database=at, query={"mode": "ro", "uri": "true"})
            return create_engine(url, poolclass=NullPool)
        secret = None if self.password is None else read(self.password, "from.password")
        own = f"-c statement_timeout={self.timeout} -c idle_in_transaction_session_timeout=0"
        query = {**url.query, "options": f"{url.query.get('options', '')} {own}".strip()}
        url = url.set(drivername="postgresql+psycopg", password=secret, query=query)
        try:
            return create_engine(
                url,
                poolclass=NullPool,
                connect_args={name: v for name, v in TCP.items() if name not in url.query},
                isolation_level="REPEATABLE READ",
                execution_options={"postgresql_readonly": True},
            )
        except ModuleNotFoundError as missing:
            what = f"PostgreSQL can't be asked: {missing.name} isn't installed"
            raise SpecError(what, "spec", how_to_install("postgres")) from missing

    def _reflected(self, connection: Connection) -> Table:
        schema, _, name = self.relation.rpartition(".")
        try:
            return Table(
                name, MetaData(schema=schema or None), autoload_with=connection, resolve_fks=False
            )
        except NoSuchTableError:
            what = f"there is no table or view {self.relation} in {self.identity}"
            raise SpecError(what, "setup", "Name one that the user may read.") from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Makes windrow's errors of the database's, without their texts: these may have values."""
        try:
            yield
        except DBAPIError as error:
            state = _state(error)
            if state == _NO_SNAPSHOT:
                what = f"the state of {self.identity} that all tasks share is gone"
                raise UnreachableError(what, "setup", "Run the window again.") from None
            if isinstance(error, DataError) or state.startswith("22"):
                what = f"{self.identity} has a value that can't be read, or compared ({state})"
                do = "Mend the value, or look up another column."
                raise RefusedError(what, "validate", do) from None
            why = _first_line(error) if state[:2] in (*_PLAIN, *_OF_SETTINGS) else state
            if state[:2] in _OF_SETTINGS:
                do = "Check the URL, the user's rights and the relation."
                raise SpecError(f"{self.identity} can't be asked: {why}", "setup", do) from None
            do = "Run the window again."
            if state == _CANCELLED:
                why = f"a question took longer than {self.timeout / 1000:g} s"
                do += (
                    " If it is always so slow, index the key's columns, or set a longer `timeout`."
                )
            what = f"{self.identity} doesn't answer: {why}"
            raise UnreachableError(what, "setup", do) from None
        except SQLAlchemyError as error:
            what = f"{self.identity} can't be asked: {type(error).__name__}"
            raise SpecError(what, "setup", "Check the URL and the relation.") from None


_OF_SETTINGS = ("28", "3D", "3F", "42")
"""Classes of SQLSTATE: a user, a database, a schema, a name or a right that isn't there."""

_CANCELLED, _NO_SNAPSHOT = "57014", "42704"
_PLAIN = ("", "08", "53", "55", "57")
"""Classes of SQLSTATE whose texts have no values; empty: the server was not reached."""


def _state(error: DBAPIError) -> str:
    """SQLSTATE, or what SQLite calls its errors."""
    found = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", None)
    if found is None and isinstance(error.orig, sqlite3.Error):
        return type(error.orig).__name__
    return str(found or "")


def _closed(connection: Connection) -> None:
    """Gives a connection up, whatever became of it."""
    with suppress(SQLAlchemyError):
        connection.close()


@dataclass(frozen=True)
class _Client:
    """A connection in a worker, and the columns of the relation."""

    identity: str
    connection: Connection
    table: Table

    def close(self) -> None:
        _closed(self.connection)

    def answers(self, keys: pa.Table, columns: pa.Schema) -> Answers:
        lost = [name for name in columns.names if name not in self.table.c]
        if lost:
            what = f"{self.identity} has no column {lost[0]} any more"
            raise RefusedError(what, "setup", "Look up another column, or add it again.")
        by = [_comparable(self.table.c[name]) for name in keys.column_names]
        # SQLite's values as they are, not as the declared types of their columns would have them
        sqlite = self.connection.dialect.name == "sqlite"
        its = [self.table.c[name] for name in columns.names]
        wanted = select(*((type_coerce(c, types.NullType()) if sqlite else c) for c in its))
        found, requests = list[tuple[Any, ...]](), 0
        for batch in keys.to_batches(KEYS_A_QUESTION):
            every = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            values = [key for key in every if not any(map(_impossible, key))]
            where = by[0].in_([v for (v,) in values]) if len(by) == 1 else tuple_(*by).in_(values)
            found.extend(map(tuple, self.connection.execute(wanted.where(where))))
            requests += 1
        arrays = zip(*found, strict=True) if found else [() for _ in columns]
        padded = {c.name for c in its if isinstance(c.type, types.CHAR)}
        return Answers(
            pa.Table.from_arrays(
                [
                    self._array(_unpadded(values) if f.name in padded else values, f)
                    for values, f in zip(arrays, columns, strict=True)
                ],
                schema=columns,
            ),
            requests,
        )

    def _array(self, values: Sequence[Any], field: pa.Field) -> pa.Array:
        try:
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            what = f"{self.identity} has a value in {field.name} that is no {field.type}"
            do = "Mend the value, or look up another column."
            raise RefusedError(what, "validate", do) from None


def _comparable(column: Column[Any]) -> ColumnElement[Any]:
    """The column, for keys that may be too large for its type."""
    whole = isinstance(column.type, types.Integer)
    return type_coerce(column, types.BigInteger()) if whole else column


def _impossible(value: object) -> bool:
    """Returns whether no text of a database has such a value: it can't be asked for."""
    return isinstance(value, str) and "\0" in value


def _unpadded(values: Sequence[Any]) -> Sequence[Any]:
    """Takes off the spaces of CHAR(n), which don't count when it is compared."""
    return [value.rstrip(" ") if isinstance(value, str) else value for value in values]


def _first_line(error: DBAPIError) -> str:
    """The beginning of a driver's error, which may go on with what was asked."""
    return str(error.orig).strip().partition("\n")[0][:200]


def _arrow(kind: types.TypeEngine[Any], sqlite: bool) -> pa.DataType | None:
    """The type that a windrow table has for a column's; None if it has none."""
    if sqlite:
        return next((arrow for sql, arrow in _OF_SQLITE if isinstance(kind, sql)), None)
    if isinstance(kind, types.Numeric) and kind.asdecimal:
        digits, scale = kind.precision or 0, kind.scale or 0
        return pa.decimal128(digits, scale) if 0 <= scale <= digits <= 38 and digits else None
    if isinstance(kind, types.DateTime):
        return TIMESTAMP if kind.timezone else None
    if isinstance(kind, types.Enum):
        return None
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
    (types.Date, pa.date32()),
)
"""A type of SQLAlchemy's, and of its kin, with the one of a windrow table's."""
