"""Statistics of Delta files: they never make a reader skip a row that it asks for.

These tests rely on deltalake 1.6:

- Statistics with bounds for some columns only make readers drop rows silently: they take a
  missing bound as "null here". So a file has bounds for all plain columns, or for none.
- Beside a struct column, bounds become a comparison with the struct itself, which is never
  true: filters on it skipped rows. So files with a struct column at the top have no bounds.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from windrow.ingest.schema.messages import HEADERS
from windrow.ingest.sinks.delta.stats import statistics

YEARS = (datetime(1970, 1, 2), datetime(2200, 1, 1))  # noqa: DTZ001
PLAIN: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float64(), st.floats(allow_infinity=False)),
    "s": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=40)),
    "b": (pa.bool_(), st.booleans()),
    "d": (pa.decimal128(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "t": (pa.timestamp("us", tz="UTC"), st.datetimes(*YEARS, timezones=st.just(UTC))),
    "n": (pa.timestamp("us"), st.datetimes(*YEARS)),
    "day": (pa.date32(), st.dates()),
    "y": (pa.binary(), st.binary(max_size=5)),
}
SCHEMA = pa.schema([pa.field(n, t) for n, (t, _) in PLAIN.items()])
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "map": (pa.map_(pa.string(), pa.binary()), [[("a", b"b")], [], None]),
    "list": (HEADERS, [[{"key": "a", "value": None}] * 2, [], None]),
    "struct": (pa.struct([pa.field("i", pa.int64())]), [{"i": 1}, {"i": None}, None]),
}
"""Columns for which Delta asks no statistics."""


def write(path: Path, table: pa.Table, *, nan: tuple[str, ...] = ()) -> str:
    """Writes a Parquet file of two row groups, and returns its statistics."""
    done: list[pq.FileMetaData] = []
    with pq.ParquetWriter(path, table.schema, metadata_collector=done) as writer:
        writer.write_table(table, row_group_size=max(1, (table.num_rows + 1) // 2))
    return statistics(done[0], table.schema, nan)


def rows(size: int) -> st.SearchStrategy[pa.Table]:
    """Returns a strategy for tables with every plain type and nulls."""
    columns = [
        st.lists(st.none() | values, min_size=size, max_size=size) for _, values in PLAIN.values()
    ]
    return st.tuples(*columns).map(
        lambda data: pa.table(
            [pa.array(c, f.type) for c, f in zip(data, SCHEMA, strict=True)], schema=SCHEMA
        )
    )


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(table=rows(4))
def test_bounds_hold_every_value(tmp_path: Path, table: pa.Table) -> None:
    """Bounds enclose every value, nulls are counted, and either all columns have bounds or none."""
    nan = tuple(n for n in ("f",) if pc.any(pc.is_nan(table[n])).as_py())
    stats = json.loads(write(tmp_path / "f.parquet", table, nan=nan), parse_float=Decimal)
    assert stats["numRecords"] == 4
    assert all(stats["nullCount"][n] == table[n].null_count for n in SCHEMA.names)
    with_values = {n for n in SCHEMA.names if n != "y" and table[n].null_count < table.num_rows}
    least, greatest = stats.get("minValues", {}), stats.get("maxValues", {})
    assert set(least) == set(greatest)
    assert set(least) in ({}.keys(), with_values) if nan else with_values == set(least)
    for name in set(least) & {"i", "s", "d"}:
        values = [v for v in table[name].to_pylist() if v is not None]
        assert all(least[name] <= v <= greatest[name] for v in values)


@pytest.mark.parametrize("nested", [[], *([name] for name in NESTED), list(NESTED)], ids=str)
@pytest.mark.parametrize("hard", ["none", "nan", "long text", "far instant", "all null"])
def test_no_reader_skips_what_it_asks_for(tmp_path: Path, hard: str, nested: list[str]) -> None:
    """Filters on every column, also nested ones, find the same rows as without statistics."""
    easy: dict[str, list[Any]] = {
        "i": [1, 2, None],
        "f": [1.5, 2.5, None],
        "s": ["a", "z" * 50, None],
        "b": [True, False, None],
        "d": [Decimal("1.50"), Decimal("2.50"), None],
        "t": [datetime(2026, 1, 1, 0, 0, 0, 999_999, UTC), datetime(2026, 1, 2, tzinfo=UTC), None],
        "n": [datetime(2026, 1, 1), datetime(2026, 1, 2), None],  # noqa: DTZ001
        "day": [date(2026, 1, 1), date(2026, 1, 2), None],
        "y": [b"a", b"b", None],
    }
    hard_columns = dict(easy)
    if hard == "nan":
        hard_columns["f"] = [float("nan"), 2.5, None]
    elif hard == "long text":
        hard_columns["s"] = ["a", "z" * 10_000, None]
    elif hard == "all null":
        hard_columns["t"] = hard_columns["s"] = [None, None, None]
    tables = [
        pa.table([pa.array(c[f.name], f.type) for f in SCHEMA], schema=SCHEMA)
        for c in (easy, hard_columns)
    ]
    if hard == "far instant":
        far = pa.array([2**62, 1, None]).cast(pa.timestamp("us", tz="UTC"))
        tables[1] = tables[1].set_column(SCHEMA.get_field_index("t"), SCHEMA.field("t"), far)
    for name in nested:
        kind, values = NESTED[name]
        tables = [t.append_column(pa.field(name, kind), pa.array(values, kind)) for t in tables]
    uri = str(tmp_path / "t")
    _table_of(uri, tables)
    all_rows = pa.concat_tables(tables)
    data = DeltaTable(uri).to_pyarrow_dataset()
    for predicate in (
        ds.field("i") == 2,
        ds.field("f") >= 1.6,
        ds.field("s") >= "b",
        ds.field("s") == "a",
        ds.field("b"),
        ~ds.field("b"),
        ds.field("d") >= Decimal("2.00"),
        ds.field("t") >= datetime(2026, 1, 1, 12, tzinfo=UTC),
        ds.field("n") >= datetime(2026, 1, 2),  # noqa: DTZ001
        ds.field("t") == datetime(2026, 1, 1, 0, 0, 0, 999_999, UTC),
        ds.field("day") == date(2026, 1, 2),
        ds.field("y") == b"b",
        ds.field("t").is_null(),
        ds.field("s").is_null(),
        ds.field("i").is_null(),
    ):
        assert data.to_table(filter=predicate).num_rows == all_rows.filter(predicate).num_rows, str(
            predicate
        )
    if "struct" in nested:
        assert data.to_table(filter=ds.field(("struct", "i")) == 1).num_rows == 2
    for name in nested:
        assert (
            data.to_table(filter=ds.field(name).is_null(), columns=["i"]).num_rows
            == all_rows[name].null_count
        )
    query_rows = pa.table(
        QueryBuilder()
        .register("t", DeltaTable(uri))
        .execute("select count(*) from t where s >= 'b' and i = 2")
    )
    assert (
        query_rows.column(0)[0].as_py()
        == all_rows.filter((ds.field("s") >= "b") & (ds.field("i") == 2)).num_rows
    )


def _table_of(uri: str, tables: list[pa.Table]) -> None:
    from deltalake.transaction import AddAction

    DeltaTable.create(
        uri,
        Schema.from_arrow(
            tables[0].schema.append(pa.field("_window", pa.string(), nullable=False))
        ),
        partition_by=["_window"],
    )
    for i, table in enumerate(tables):
        path = Path(uri) / f"{i}.parquet"
        stats = write(path, table, nan=("f",) if pc.any(pc.is_nan(table["f"])).as_py() else ())
        action = AddAction(
            path.name, path.stat().st_size, {"_window": "w"}, 1, data_change=True, stats=stats
        )
        delta_table = DeltaTable(uri)
        delta_table.create_write_transaction([action], "append", delta_table.schema(), ["_window"])
