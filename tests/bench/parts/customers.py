"""The looked-up table of customers, in PostgreSQL and as a Delta table.

Nine of ten customers exist. The rows that a side writes are checked against the table.
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
"""The columns of a customer's number, in the SQL of PostgreSQL and DuckDB."""


def in_postgres(server: str) -> None:
    """Makes the table `customers` in PostgreSQL."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE customers AS SELECT {_COLUMNS}"
            f" FROM generate_series(0, {CUSTOMERS - 1}::bigint) AS numbers (n) WHERE n % 10 <> 0"
        )
        connection.execute("ALTER TABLE customers ADD PRIMARY KEY (name)")
        connection.execute("ANALYZE customers")


def in_delta(folder: Path) -> None:
    """Makes a Delta table of one file."""
    write_deltalake(folder, duckdb.sql(f"SELECT * FROM {_customers_sql()}").to_arrow_table())


def lookup(source: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the lookup step of a spec."""
    return {
        "lookup": "customers",
        "key": {"customer": "name"},
        "take": TAKE,
        "from": dict(source),
    }


def right_rows(folder: Path, shape: Shape, messages: int) -> int:
    """Returns the number of rows in all Parquet files below a folder.

    Raises:
        FailedError: the rows aren't the topic's orders with the right answers.
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
    """Returns the expected count and checksum of the topic's rows.

    DuckDB computes them, so they depend neither on windrow nor on the peer.
    """
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
    """Returns the number of rows, and a checksum that doesn't depend on their order."""
    row = "order_id::BIGINT, customer::VARCHAR, amount::DOUBLE, tier::VARCHAR, credit::BIGINT"
    count_and_checksum = connection.execute(
        f"SELECT count(*), sum(hash({row})::HUGEINT) FROM {rows}"
    ).fetchone()
    assert count_and_checksum is not None
    return count_and_checksum
