"""What is looked up: a table of customers, nine of ten of which are there, in PostgreSQL and as
a Delta table; and whether the rows that a side has written have what that table says.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import psycopg
from deltalake import write_deltalake

from tests.bench.harness.shapes import Shape
from tests.bench.harness.side import FailedError, parquet_files
from tests.bench.orders import CUSTOMERS

TAKE = {"tier": "tier", "credit": "credit"}
_COLUMNS = "'customer-' || n AS name, 'tier-' || n % 7 AS tier, n * 7919 % 1000003 AS credit"
"""Of a number, in the SQL of PostgreSQL and of DuckDB alike."""


def in_postgres(server: str) -> None:
    """Makes the table `customers`."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE customers AS SELECT {_COLUMNS}"
            f" FROM generate_series(0, {CUSTOMERS - 1}::bigint) AS numbers (n) WHERE n % 10 <> 0"
        )
        connection.execute("ALTER TABLE customers ADD PRIMARY KEY (name)")
        connection.execute("ANALYZE customers")


def in_delta(folder: Path) -> None:
    """Makes a table of one file."""
    write_deltalake(folder, duckdb.sql(f"SELECT * FROM {_customers_sql()}").to_arrow_table())


def lookup(source: Mapping[str, Any]) -> dict[str, Any]:
    """The step of a spec."""
    return {
        "lookup": "customers",
        "key": {"customer": "name"},
        "take": TAKE,
        "from": dict(source),
    }


def right_rows(folder: Path, shape: Shape, messages: int) -> int:
    """Counts the rows in all Parquet files below a folder.

    Raises:
        FailedError: they aren't the topic's orders, each with what the table says.
    """
    files = [str(path) for path in parquet_files(folder)]
    with duckdb.connect() as connection:
        count_and_checksum = _sum(connection, f"read_parquet({files})") if files else (0, None)
    if count_and_checksum[0] == messages and count_and_checksum != _expected(
        shape.values, messages
    ):
        raise FailedError("looked up other answers than the table has")
    return count_and_checksum[0]


@cache
def _expected(orders: Callable[[], list[bytes]], messages: int) -> tuple[int, int | None]:
    """The sum of the topic's messages, by neither of the two products."""
    values = orders()
    written = (
        f"range({messages}) AS written (n) JOIN orders ON written.n % {len(values)} = orders.n"
    )
    with duckdb.connect() as connection:
        order_frame = pl.read_ndjson(io.BytesIO(b"\n".join(values))).with_row_index("n")
        connection.register("orders", order_frame)
        return _sum(connection, f"{written} LEFT JOIN {_customers_sql()} ON customer = name")


def _customers_sql() -> str:
    return f"(SELECT {_COLUMNS} FROM range({CUSTOMERS}) AS numbers (n) WHERE n % 10 <> 0)"


def _sum(connection: duckdb.DuckDBPyConnection, rows: str) -> tuple[int, int | None]:
    """How many rows, and a checksum of them, whatever their order."""
    row = "order_id::BIGINT, customer::VARCHAR, amount::DOUBLE, tier::VARCHAR, credit::BIGINT"
    count_and_checksum = connection.execute(
        f"SELECT count(*), sum(hash({row})::HUGEINT) FROM {rows}"
    ).fetchone()
    assert count_and_checksum is not None
    return count_and_checksum
