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

from windrow.ingest import client_cache
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.lookups.table.kind import TableSection
from windrow.ingest.ports.lookup import LookupSource
from windrow.ingest.testing.contracts.lookup import PEOPLE, LookupContract

NARROW = PEOPLE.set_column(0, "id", PEOPLE["id"].cast(pa.int16()))
MADE = "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR(20), city TEXT)"
ROWS = "INSERT INTO people VALUES (1, 'Ann', 'Kyiv'), (2, 'Bob', NULL), (3, NULL, NULL)"


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
