"""The contract of lookup sources, for each kind of source."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.lookups.test_http import Reply, ServiceRequest, serving
from windrow.ingest import client_cache
from windrow.ingest.errors import RefusedError
from windrow.ingest.lookups.http.kind import HttpSection
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.lookups.table.kind import TableSection
from windrow.ingest.lookups.table.source import TableSource
from windrow.ingest.ports.lookup import Answers, Ask, LookupSource
from windrow.ingest.testing.contracts.lookup import CHANGED, PEOPLE, LookupContract

NARROW = PEOPLE.set_column(0, "id", PEOPLE["id"].cast(pa.int16()))
MADE = "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR(20), city TEXT)"
ROWS = "INSERT INTO people VALUES (1, 'Ann', 'Kyiv'), (2, 'Bob', NULL), (3, NULL, NULL)"
PERSON = """\
import pandera.polars as pa
import polars as pl

class Person(pa.DataFrameModel):
    id: pl.Int16
    name: pl.String = pa.Field(nullable=True)
    city: pl.String = pa.Field(nullable=True)
"""


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    """The cache of a worker, which keeps opened sources for the next split."""
    with client_cache.keeping():
        yield


class TableContract(LookupContract):
    """The contract of sources that read whole columns of tables."""

    def test_columns_that_nobody_takes_are_not_read(self, source: TableSource) -> None:
        """Columns that no lookup takes are not read, because they may be wide."""
        read = source.snapshots.read(source.version(), ["city"])
        assert {tuple(batch.schema.names) for batch in read} == {("city",)}


class TestDelta(TableContract):
    """A Delta table."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> LookupSource:
        write_deltalake(tmp_path / "people", NARROW)
        return TableSection(table="people").source(tmp_path)

    def changed(self, source: LookupSource) -> None:
        table_path = source.identity.removeprefix("delta:")
        write_deltalake(table_path, CHANGED.set_column(0, "id", NARROW["id"]), mode="overwrite")


class TestParquet(TableContract):
    """A folder of Parquet files."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> LookupSource:
        (tmp_path / "people").mkdir()
        pq.write_table(PEOPLE.slice(0, 1), tmp_path / "people" / "a.parquet")
        pq.write_table(PEOPLE.slice(1), tmp_path / "people" / "b.parquet")
        return TableSection(table="people").source(tmp_path)

    def changed(self, source: LookupSource) -> None:
        folder = Path(source.identity.removeprefix("parquet:"))
        (folder / "b.parquet").unlink()
        pq.write_table(CHANGED, folder / "a.parquet")


@dataclass(frozen=True)
class _Held:
    """A source that repeats: each version is a table in a list that grows."""

    states: list[pa.Table]
    identity: str = "held"
    is_repeatable: bool = True

    def version(self) -> str:
        return str(len(self.states) - 1)

    def schema(self) -> pa.Schema:
        return PEOPLE.schema

    def rows(self, version: str) -> pa.Table:
        return self.states[int(version)]

    def open(self, version: str, columns: pa.Schema) -> Ask:
        def ask(keys: pa.Table) -> Answers:
            rows = self.rows(version)
            if not set(columns) <= set(rows.schema):
                raise RefusedError("it has other columns", "setup", "Pin it anew.")
            return Answers(rows.join(keys, ["id"], join_type="left semi"), 0)

        return ask


class _IgnoresVersions(_Held):
    """A broken source: it answers from the newest table."""

    def rows(self, version: str) -> pa.Table:
        return self.states[-1]


class _KeepsTheFirst(_Held):
    """A broken source: it reads its table once in a worker."""

    def rows(self, version: str) -> pa.Table:
        return self.states[0]


class _SaysOneVersion(_Held):
    """A broken source: its version never changes, although its rows do."""

    def version(self) -> str:
        return "0"

    def rows(self, version: str) -> pa.Table:
        return self.states[-1]


class _ReadsAtTheOpening(_Held):
    """A broken source: it has the newest rows at the time it is opened, for any version."""

    def open(self, version: str, columns: pa.Schema) -> Ask:
        return _Held(self.states[-1:]).open("0", columns)


class _Casts(_Held):
    """A broken source: it casts numbers to texts, or texts to numbers, as requested."""

    def open(self, version: str, columns: pa.Schema) -> Ask:
        def ask(keys: pa.Table) -> Answers:
            rows = self.rows(version).join(keys, ["id"], join_type="left semi")
            is_text = columns.field("name").type == pa.string()
            names = rows["name"] if is_text else pa.nulls(rows.num_rows, pa.int64())
            return Answers(pa.table([rows["id"], names], schema=columns), 0)

        return ask


class _SuiteOfHeld(LookupContract):
    def changed(self, source: LookupSource) -> None:
        assert isinstance(source, _Held)
        source.states.append(CHANGED)


@pytest.mark.parametrize(
    ("source_class", "red"),
    [
        (_Held, None),
        (_IgnoresVersions, "an older version has new rows"),
        (_KeepsTheFirst, "the newest version has older rows"),
        (_SaysOneVersion, "an older version has new rows"),
        (_ReadsAtTheOpening, "an older version has new rows"),
        (_Casts, "DID NOT RAISE"),
    ],
)
def test_the_suite_is_red_for_a_source_that_does_not_repeat(
    source_class: type[_Held], red: str | None
) -> None:
    """The contract fails for a source that doesn't repeat its answers although it says so.

    Its replays would have other rows, without an error.
    """
    case, source = _SuiteOfHeld().test_a_version_has_its_rows_or_is_refused, source_class([PEOPLE])
    failures = (AssertionError, pytest.fail.Exception)
    with pytest.raises(failures, match=red) if red else nullcontext():
        case(cast("LookupSource", source))
    with pytest.raises(NotImplementedError, match="needs `changed` in its suite"):
        LookupContract().test_a_version_has_its_rows_or_is_refused(
            cast("LookupSource", source_class([PEOPLE]))
        )


class TestSqlite(LookupContract):
    """A table of SQLite."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> LookupSource:
        with sqlite3.connect(tmp_path / "there.db") as connection:
            connection.execute(MADE)
            connection.execute(ROWS)
        url = f"sqlite:///{tmp_path}/there.db"
        return SqlSection(sql=url, relation="people").source(tmp_path)


class TestPostgresql(LookupContract):
    """A table of PostgreSQL."""

    @pytest.fixture
    def source(self, database: str, tmp_path: Path) -> LookupSource:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(MADE)  # type: ignore[call-overload]
            connection.execute(ROWS)  # type: ignore[call-overload]
        return SqlSection(sql=database, relation="people").source(tmp_path)


class TestHttp(LookupContract):
    """An HTTP service, with one key or many keys in a request."""

    @pytest.fixture(params=["one", "many"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LookupSource]:
        people = {row["id"]: row for row in PEOPLE.to_pylist()}

        def reply(request_: ServiceRequest) -> Reply:
            if request_.method == "POST":
                return Reply([people[key] for key in request_.body["ids"] if key in people])
            person = people.get(int(request_.key))
            return Reply(status=404) if person is None else Reply(person)

        (tmp_path / "person.py").write_text(PERSON)
        with serving(reply) as service:
            batch_settings = {"http": service.url, "body": {"ids": ["{id}"]}}
            http_settings = (
                batch_settings if request.param == "many" else {"http": service.url + "/{id}"}
            )
            section = HttpSection.model_validate({**http_settings, "schema": "person.py:Person"})
            yield section.source(tmp_path)
