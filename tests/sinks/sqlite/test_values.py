"""Values in SQLite columns: a user sees each as the page says, or the column is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.sinks.sqlite.columns import batch_of, declared, driver_rows
from windrow.ingest.sinks.sqlite.store import SqliteStore


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as opened:
        yield opened


def write_and_read(database: sqlite3.Connection, batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    """Returns the values that an SQLite table holds for a batch."""
    names = [f'"{number}" {declared(field.type)}' for number, field in enumerate(batch.schema)]
    database.execute(f"CREATE TABLE held ({', '.join(names)})")
    database.executemany(
        f"INSERT INTO held VALUES ({', '.join('?' * len(names))})", driver_rows(batch)
    )
    return database.execute("SELECT * FROM held").fetchall()


def test_what_a_user_sees(database: sqlite3.Connection) -> None:
    """Values have the texts that the page shows, in SQLite's types."""
    batch = pa.record_batch(
        {
            "at": pa.array([1_767_323_045_000_006], pa.timestamp("us", "UTC")),
            "local": pa.array([0], pa.timestamp("us")),
            "day": pa.array([date(2026, 1, 2)]),
            "price": pa.array([Decimal("0.000000010")], pa.decimal128(20, 9)),
            "paid": pa.array([True]),
            "odd": pa.array([float("nan")]),
            "tags": pa.array([["a", None]]),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    (row,) = write_and_read(database, batch)
    assert row[:4] == (
        "2026-01-02 03:04:05.000006Z",
        "1970-01-01 00:00:00.000000",
        "2026-01-02",
        "0.000000010",
    )
    assert row[4:] == (1, "NaN", '["a",null]', '{"k":1}')
    (parts,) = database.execute(
        'SELECT strftime(\'%s\', "0"), date("2"), json_extract("7", \'$.k\') FROM held'
    )
    assert parts == ("1767323045", "2026-01-02", 1)


@pytest.mark.parametrize(
    "kind",
    [pa.uint8(), pa.time64("us"), pa.timestamp("ns"), pa.struct([]), pa.list_(pa.large_string())],
)
def test_other_types_are_refused(kind: pa.DataType) -> None:
    """A column of another type is refused with its name before anything is made."""
    with pytest.raises(SpecError, match="the columns can't be written in SQLite: wrong: "):
        SqliteStore("/tmp/none.sqlite", "orders").check_columns(
            pa.schema([pa.field("wrong", kind)])
        )


def test_a_value_of_somebody_elses_is_refused() -> None:
    """A foreign value that doesn't fit the column raises RefusedError with the column and
    without the value.
    """
    with pytest.raises(
        RefusedError, match="column at of orders holds a value that is no timestamp"
    ) as caught:
        batch_of([("secret",)], pa.schema([pa.field("at", pa.timestamp("us"))]), "orders")
    assert "secret" not in str(caught.value)


def test_a_table_has_one_identity(tmp_path: pytest.TempPathFactory) -> None:
    """A table's identity ignores the case of its name, as SQLite does.

    Another table of the file has another identity.
    """
    store = SqliteStore(f"{tmp_path}/a.sqlite", "Orders")
    assert store.is_at(SqliteStore(f"{tmp_path}/a.sqlite", "orders").identity)
    assert not store.is_at(SqliteStore(f"{tmp_path}/a.sqlite", "orders_dead").identity)
