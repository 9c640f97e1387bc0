"""Values in PostgreSQL columns: SQL reads them as the message meant them, and values that no
column can hold are refused.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from tests.sinks.postgres.world import PostgresBoth, place_of
from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.errors import SpecError, UnstorableRowsError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.kit.columns.sql_names import quote_identifier
from windrow.ingest.sinks.postgres.names import TableName, table_name
from windrow.ingest.testing.contracts.windows import commit_rows, messages, plan

pytestmark = pytest.mark.slow  # starts a server

_ZONED = pa.timestamp("us", tz="UTC")


@pytest.fixture
def sink_of(database: str) -> Any:
    return lambda schema, table="orders", **more: PostgresBoth(
        place_of(f"{database}#{table}"), schema, **more
    )


def test_sql_reads_what_was_meant(sink_of: Any, database: str) -> None:
    """SQL reads numbers, arrays, and bytes and times within JSON with their original values."""
    kind = pa.struct(
        [pa.field("b", pa.binary()), pa.field("at", _ZONED), pa.field("n", pa.decimal128(10, 2))]
    )
    schema = pa.schema(
        [
            pa.field("amount", pa.decimal128(12, 4)),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("more", kind),
        ]
    )
    row = {
        "amount": Decimal("-1234567.8900"),
        "tags": ["a", "b"],
        "more": {"b": b"hi", "at": datetime(2026, 1, 2, tzinfo=UTC), "n": 1},
    }
    commit_rows(sink_of(schema), pa.RecordBatch.from_pylist([row, row], schema=schema))
    query = """SELECT amount, tags[2], (more->>'b')::bytea, (more->>'at')::timestamptz, (more->>'n')::numeric FROM orders LIMIT 1"""  # noqa: E501
    with psycopg.connect(database) as connection:
        first_row = connection.execute(query).fetchone()
    assert first_row == (
        Decimal("-1234567.8900"),
        "b",
        b"hi",
        datetime(2026, 1, 2, tzinfo=UTC),
        Decimal("1.00"),
    )


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (pa.string(), "a\0b", "NUL"),
        (pa.list_(pa.string()), ["a", "\0"], "NUL"),
        (pa.date32(), np.int32(-(2**31)), "calendar"),
        (_ZONED, np.int64(-(2**63)), "calendar"),
    ],
)
def test_what_no_column_can_hold_is_refused_at_its_offset(
    sink_of: Any, kind: pa.DataType, value: object, says: str
) -> None:
    """A value that no column can hold is refused with topic-partition, offset and column, and
    without the value.

    No file is left.
    """
    sink = sink_of(pa.schema([pa.field("odd", kind)]))
    sink.prepare()
    values = [None, None, value, None, value]
    odd = (
        pa.array(values, kind)
        if not isinstance(value, np.generic)
        else pa.array([v or 0 for v in values], value.dtype.name).view(kind)
    )
    stager = sink.stager(plan(sink, 0), 0, "a1")(Split("shop.orders", 1, 0, 10))
    with pytest.raises(UnstorableRowsError, match=says) as refused:
        stager.add(pa.record_batch([odd], names=["odd"]), messages(Split("shop.orders", 1, 4, 9)))
    assert list(refused.value.row_indices) == [2, 4]
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.orders",
        1,
        6,
    )
    assert "column odd" in refused.value.message
    assert "\0" not in str(refused.value)


NAMES = [
    "select",
    'quo"te',
    "it's",
    "Ünïcödé",
    "with space",
    "semi;colon",
    "%s",
    "{table}",
    "a.b",
    "UPPER",
    "x" * 63,
    "\U0001f600",
]


def test_names_of_any_kind(sink_of: Any) -> None:
    """Columns and tables may have any name that PostgreSQL accepts, with quotes, keywords and
    templates.
    """
    schema = pa.schema([pa.field(name, pa.int64()) for name in NAMES])
    sink = sink_of(schema, table='"; DROP {} %s.Ta"ble \'x')
    with psycopg.connect(sink.place.url.text) as connection:
        connection.execute(f"CREATE SCHEMA {quote_identifier(sink.place.name.schema)}")
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2])] * len(NAMES), schema=schema)
    receipt = commit_rows(sink, rows)
    back = sum_by_split(receipt.splits, sink.audit().contents(receipt.window), DEFAULT)
    assert back.checksums == tuple(split.checksums.rows for split in receipt.splits)
    assert sink.audit().rows_held(plan(sink, 0).window)[0].rows == 2


@pytest.mark.parametrize(
    ("field", "says"),
    [
        (pa.field("x" * 64, pa.int64()), "longer than 63 bytes"),
        (pa.field("é" * 32, pa.int64()), "longer than 63 bytes"),
        (pa.field("n", pa.uint64()), "uint64"),
        (pa.field("t", pa.timestamp("ns")), "timestamp"),
        (pa.field("t", pa.time64("us")), "time64"),
        (pa.field("s", pa.struct([])), "struct"),
        (pa.field("l", pa.list_(pa.uint8())), "uint8"),
    ],
)
def test_columns_that_cannot_be(sink_of: Any, field: pa.Field, says: str) -> None:
    """A name or type that PostgreSQL would shorten or change is refused before anything is made."""
    with pytest.raises(SpecError, match=says):
        sink_of(pa.schema([field]))


def test_table_names() -> None:
    """A table's name is split at its point, and an impossible name raises ValueError."""
    assert table_name("a.b") == TableName("a", "b")
    assert table_name("B") == TableName("public", "B")
    for invalid_name in ("", ".", "a.", ".b", "a.b.c", "a\nb", "x" * 59):
        with pytest.raises(ValueError, match=r"must be|control|longer"):
            table_name(invalid_name)
