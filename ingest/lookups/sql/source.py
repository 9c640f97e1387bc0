"""A table or view of a database, asked for some keys at a time by SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import (
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
    types,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchTableError, SQLAlchemyError

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
        return f"{make_url(self.url).set(username=None, query={})}/{self.relation}"

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
        if make_url(self.url).get_backend_name() == "sqlite":
            yield ""
            return
        with self._explained(), self._engine().connect() as connection:
            name = connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()
            yield str(name)

    def schema(self) -> pa.Schema:
        with self._explained(), self._engine().connect() as connection:
            found = self._reflected(connection)
        fields = ((column.name, _arrow(column.type, self._sqlite)) for column in found.columns)
        return pa.schema([pa.field(name, kind) for name, kind in fields if kind is not None])

    def open(self, version: str, columns: pa.Schema) -> Ask:
        place = (type(self).__name__, self.identity, self.password, version)

        def ask(keys: pa.Table) -> Answers:
            kept = client_cache.taken(place)
            client = kept if isinstance(kept, _Client) else self._client(version)
            with self._explained():
                answers = client.answers(keys, columns)
            client_cache.keep(place, client)  # one that failed isn't kept
            return answers

        return ask

    @property
    def _sqlite(self) -> bool:
        return make_url(self.url).get_backend_name() == "sqlite"

    def _client(self, version: str) -> _Client:
        with self._explained():
            connection = self._engine().connect()
            if version:
                connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{version}'")
            return _Client(self.identity, connection, self._reflected(connection))

    def _engine(self) -> Engine:
        url = make_url(self.url)
        if self._sqlite:
            url = url.set(database=f"file:{url.database}", query={"mode": "ro", "uri": "true"})
            return create_engine(url, poolclass=NullPool)
        secret = None if self.password is None else read(self.password, "from.password")
        url = url.set(drivername="postgresql+psycopg", password=secret)
        limits = {**TCP, "options": f"-c statement_timeout={self.timeout}"}
        try:
            return create_engine(
                url,
                poolclass=NullPool,
                connect_args={name: v for name, v in limits.items() if name not in url.query},
                isolation_level="REPEATABLE READ",
                execution_options={"postgresql_readonly": True},
            )
        except ModuleNotFoundError as missing:
            what = f"PostgreSQL can't be asked: {missing.name} isn't installed"
            raise SpecError(what, "spec", how_to_install("postgres")) from missing

    def _reflected(self, connection: Connection) -> Table:
        schema, _, name = self.relation.rpartition(".")
        try:
            return Table(name, MetaData(schema=schema or None), autoload_with=connection)
        except NoSuchTableError:
            what = f"there is no table or view {self.relation} in {self.identity}"
            raise SpecError(what, "setup", "Name one that the user may read.") from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            why = _first_line(error)
            what = f"{self.identity} doesn't answer: {why}"
            do = f"Run the window again. One question may take {self.timeout / 1000:g} s."
            raise UnreachableError(what, "setup", do) from None
        except (SQLAlchemyError, ArgumentError) as error:
            what = f"{self.identity} can't be asked: {type(error).__name__}"
            raise SpecError(what, "setup", "Check the URL and the relation.") from None


@dataclass(frozen=True)
class _Client:
    """A connection in a worker, and the columns of the relation."""

    identity: str
    connection: Connection
    table: Table

    def close(self) -> None:
        with suppress(SQLAlchemyError):
            self.connection.close()

    def answers(self, keys: pa.Table, columns: pa.Schema) -> Answers:
        by = [self.table.c[name] for name in keys.column_names]
        wanted = select(*(self.table.c[name] for name in columns.names))
        found, requests = list[tuple[Any, ...]](), 0
        for batch in keys.to_batches(KEYS_A_QUESTION):
            values = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            where = by[0].in_([v for (v,) in values]) if len(by) == 1 else tuple_(*by).in_(values)
            found.extend(map(tuple, self.connection.execute(wanted.where(where))))
            requests += 1
        arrays = zip(*found, strict=True) if found else [() for _ in columns]
        return Answers(
            pa.Table.from_arrays(
                [self._array(values, field) for values, field in zip(arrays, columns, strict=True)],
                schema=columns,
            ),
            requests,
        )

    def _array(self, values: tuple[Any, ...], field: pa.Field) -> pa.Array:
        try:
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            what = f"{self.identity} has a value in {field.name} that is no {field.type}"
            do = "Mend the value, or look up another column."
            raise RefusedError(what, "validate", do) from None


def _first_line(error: DBAPIError) -> str:
    """The beginning of a driver's error, which may go on with what was asked."""
    return str(error.orig).strip().partition("\n")[0][:200]


def _arrow(kind: types.TypeEngine[Any], sqlite: bool) -> pa.DataType | None:
    """The type that a windrow table has for a column's; None if it has none."""
    if isinstance(kind, types.Numeric) and kind.asdecimal:
        whole = kind.precision is not None and kind.precision <= 38
        return pa.decimal128(kind.precision, kind.scale or 0) if whole else None
    if isinstance(kind, types.DateTime):
        return TIMESTAMP if kind.timezone else None
    if isinstance(kind, types.Integer) and sqlite:
        return pa.int64()
    return next((arrow for sql, arrow in _TYPES if isinstance(kind, sql)), None)


_TYPES: tuple[tuple[type[types.TypeEngine[Any]], pa.DataType], ...] = (
    (types.BigInteger, pa.int64()),
    (types.SmallInteger, pa.int16()),
    (types.Integer, pa.int32()),
    (types.Boolean, pa.bool_()),
    (types.REAL, pa.float32()),
    (types.Float, pa.float64()),
    (types.Enum, pa.string()),
    (types.String, pa.string()),
    (types.LargeBinary, pa.binary()),
    (types.Date, pa.date32()),
)
"""A type of SQLAlchemy's, and of its kin, with the one of a windrow table's."""
