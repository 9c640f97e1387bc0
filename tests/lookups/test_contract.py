"""The contract suite on every kind of source of lookups."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.lookups.test_http import Asked, Reply, serving
from windrow.ingest import client_cache
from windrow.ingest.lookups.http.kind import HttpSection
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.lookups.table.kind import TableSection
from windrow.ingest.ports.lookup import LookupSource
from windrow.ingest.testing.contracts.lookup import PEOPLE, LookupContract

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
    """As in a worker: what was opened is kept for the next split."""
    with client_cache.keeping():
        yield


class TestDelta(LookupContract):
    """A Delta table."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> LookupSource:
        write_deltalake(tmp_path / "people", NARROW)
        return TableSection(table="people").source(tmp_path)


class TestParquet(LookupContract):
    """A folder of Parquet files."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> LookupSource:
        (tmp_path / "people").mkdir()
        pq.write_table(PEOPLE.slice(0, 1), tmp_path / "people" / "a.parquet")
        pq.write_table(PEOPLE.slice(1), tmp_path / "people" / "b.parquet")
        return TableSection(table="people").source(tmp_path)


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
    """A service, key by key and many keys at once."""

    @pytest.fixture(params=["one", "many"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LookupSource]:
        people = {row["id"]: row for row in PEOPLE.to_pylist()}

        def reply(asked: Asked) -> Reply:
            if asked.method == "POST":
                return Reply([people[key] for key in asked.body["ids"] if key in people])
            found = people.get(int(asked.key))
            return Reply(status=404) if found is None else Reply(found)

        (tmp_path / "person.py").write_text(PERSON)
        with serving(reply) as service:
            many = {"http": service.url, "body": {"ids": ["{id}"]}}
            there = many if request.param == "many" else {"http": service.url + "/{id}"}
            section = HttpSection.model_validate({**there, "schema": "person.py:Person"})
            yield section.source(tmp_path)
