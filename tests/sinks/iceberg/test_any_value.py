"""Values of every column type in an Iceberg table, read by readers that don't know windrow."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.expressions import GreaterThanOrEqual, LessThanOrEqual

from tests.sinks.iceberg.world import IcebergBoth, state_of
from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.testing.contracts.windows import commit_rows, window

pytestmark = pytest.mark.slow


def commit_table(folder: str, rows: pa.RecordBatch) -> IcebergBoth:
    """Commits the rows to a new table, once per topic-partition."""
    sink = IcebergBoth(CatalogTable.in_folder(folder, "ns.t"), rows.schema)
    commit_rows(sink, rows)
    return sink


def _local(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None)


EVERY: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a": (pa.int8(), [-128, None, 127]),
    "b": (pa.int16(), [-(2**15), None, 2**15 - 1]),
    "c": (pa.int32(), [-(2**31), None, 2**31 - 1]),
    "d": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "e": (pa.float32(), [-1.5, None, 1.5]),
    "f": (pa.float64(), [float("-inf"), None, float("inf")]),
    "g": (pa.bool_(), [False, None, True]),
    "h": (pa.string(), ["", None, "\U0010ffff" * 20]),
    "i": (pa.string(), ["a" * 5000, None, "ä" * 17]),
    "j": (pa.binary(), [b"", None, b"\xff" * 20]),
    "k": (pa.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    "m": (pa.timestamp("us"), [_local(1), None, _local(9999)]),
    "n": (
        pa.timestamp("us", tz="UTC"),
        [
            datetime(1, 1, 1, tzinfo=ZoneInfo("UTC")),
            None,
            datetime(9999, 12, 31, tzinfo=ZoneInfo("UTC")),
        ],
    ),
    "o": (pa.decimal128(5, 2), [Decimal("-999.99"), None, Decimal("999.99")]),
    "p": (pa.decimal128(18, 4), [Decimal("-1.0001"), None, Decimal("99999999999999.9999")]),
    "q": (
        pa.decimal128(38, 10),
        [Decimal("-1.0000000001"), None, Decimal("1" + "0" * 27 + "." + "0" * 10)],
    ),
    "r": (pa.list_(pa.int16()), [[], None, [1, None]]),
    "s": (pa.map_(pa.string(), pa.timestamp("us")), [[], None, [("x", _local(2026))]]),
    "t": (
        pa.struct(
            [pa.field("u", pa.list_(pa.struct([pa.field("v", pa.int64(), nullable=False)])))]
        ),
        [{"u": []}, None, {"u": [{"v": 1}]}],
    ),
    "select": (pa.int64(), [1, None, 2]),
    'quote"d': (pa.string(), ["x", None, "y"]),
    "Größe 日本": (pa.int64(), [1, None, 2]),
    "1st": (pa.int64(), [1, None, 2]),
}
"""Each kind of column with its extreme values, and names that are keywords, need quotes or
aren't ASCII.
"""


@pytest.fixture(scope="module")
def full_table(tmp_path_factory: pytest.TempPathFactory) -> IcebergBoth:
    """A table with every column of `EVERY`."""
    arrays = [pa.array(values, kind) for kind, values in EVERY.values()]
    return commit_table(
        str(tmp_path_factory.mktemp("lake of all")),
        pa.RecordBatch.from_arrays(arrays, names=[*EVERY]),
    )


def expected(name: str) -> list[str]:
    return sorted(repr(value) for value in EVERY[name][1] * 2)


def test_pyiceberg_reads_every_column(full_table: IcebergBoth) -> None:
    """PyIceberg's scan reads the same values, with nothing but the catalog's address."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{full_table.catalog_table.warehouse}/catalog.db"
    )
    rows = catalog.load_table("ns.t").scan().to_arrow()
    catalog.close()
    zone = "zoneinfo.ZoneInfo(key='UTC')"  # pyarrow before 21 gives pytz's zone
    texts_by_column = {
        n: [repr(v).replace("<UTC>", zone) for v in rows[n].to_pylist()] for n in EVERY
    }
    assert {name: sorted(values) for name, values in texts_by_column.items()} == {
        name: expected(name) for name in EVERY
    }
    assert rows["_window"].unique().to_pylist() == [window(0).key]


def test_pyiceberg_takes_a_null_list_of_structs_for_an_empty_one(tmp_path: Path) -> None:
    """PyIceberg 0.12 reads a null list of structs as an empty list; windrow's reader, which
    uses Parquet's, reads null.
    """
    kind = pa.list_(pa.struct([pa.field("a", pa.int64())]))
    sink = commit_table(
        str(tmp_path), pa.RecordBatch.from_arrays([pa.array([None], kind)], names=["c"])
    )
    state = state_of(sink)
    assert state.table.scan().to_arrow()["c"].to_pylist() == [[], []]
    assert [
        row for batch in sink.audit().contents(window(0)) for row in batch["c"].to_pylist()
    ] == [None, None]


# polars warns that a package is missing
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
def test_polars_reads_every_column(full_table: IcebergBoth) -> None:
    """polars.scan_iceberg reads the same rows."""
    state = state_of(full_table)
    plain = [name for name in EVERY if name not in {"r", "s", "t"}]
    frame = pl.scan_iceberg(state.table.metadata_location).select(*plain, "_window").collect()
    assert frame.height == 6
    assert {name: sorted(map(repr, frame[name].to_list())) for name in plain} == {
        name: expected(name) for name in plain
    }


def test_duckdb_reads_the_files(full_table: IcebergBoth) -> None:
    """The files that the manifests name are whole Parquet files, with the window and Iceberg's
    field ids.
    """
    state = state_of(full_table)
    files = [task.file.file_path.removeprefix("file://") for task in state.tasks()]
    with duckdb.connect() as connection:
        rows = connection.read_parquet(files)
        assert rows.aggregate("count(*), count(distinct _window), min(d)").fetchall() == [
            (6, 1, -(2**63))
        ]
        fields = connection.execute(
            "SELECT name, field_id FROM parquet_schema(?) WHERE field_id IS NOT NULL", [files[0]]
        ).fetchall()
    assert dict(fields)["select"] == state.table.schema().find_field("select").field_id


@pytest.mark.parametrize("name", [n for n in EVERY if n not in "rst"])
def test_bounds_skip_no_row_that_is_asked_for(full_table: IcebergBoth, name: str) -> None:
    """A filter for a column's greatest or least value finds its file: bounds are cut outwards."""
    state = state_of(full_table)
    low, _, high = EVERY[name][1]
    if name == "i":
        low, high = high, low  # in UTF-8, ä sorts after a
        low, high = min(low, high), max(low, high)
    for ask, value in ((GreaterThanOrEqual, high), (LessThanOrEqual, low)):
        if isinstance(value, bool):
            continue
        assert list(state.table.scan(row_filter=ask(name, _to_literal(value))).plan_files()), (
            f"{name} {ask.__name__} {value!r}"
        )


def _to_literal(value: Any) -> Any:
    """Returns a value as PyIceberg takes it in a filter."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if hasattr(value, "isoformat") else value


def test_the_bounds_are_those_of_pyiceberg(full_table: IcebergBoth) -> None:
    """The bounds are the least and the greatest value, read by PyIceberg's conversions, if no
    bound was cut.
    """
    from pyiceberg.conversions import from_bytes

    state = state_of(full_table)
    file = state.tasks()[0].file
    for name in "abcdeo":
        field = state.table.schema().find_field(name)
        ends = [
            from_bytes(field.field_type, bounds[field.field_id])
            for bounds in (file.lower_bounds, file.upper_bounds)
        ]  # type: ignore[call-overload]
        assert ends == [EVERY[name][1][0], EVERY[name][1][2]], name
        assert (file.value_counts[field.field_id], file.null_value_counts[field.field_id]) == (3, 1)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("u", pa.uint32())], "u: uint32"),
        ([("t", pa.time64("us"))], "t: time64"),
        ([("n", pa.timestamp("ns"))], "n: timestamp"),
        ([("z", pa.timestamp("us", tz="Europe/Berlin"))], "z: timestamp"),
        ([("s", pa.struct([]))], "s: struct"),
        ([("l", pa.list_(pa.uint8()))], "l: list"),
        ([("a", pa.int64()), ("A", pa.int64())], "a: the name is used twice"),
        ([("a.b", pa.int64())], "a.b: a name with a point"),
        ([], "there are no columns"),
    ],
)
def test_what_it_cannot_hold_is_told_by_column(
    tmp_path: Path, columns: list[tuple[str, pa.DataType]], says: str
) -> None:
    """A column that Iceberg would store as another type is refused before anything is made."""
    with pytest.raises(SpecError, match=says):
        IcebergBoth(CatalogTable.in_folder(str(tmp_path), "ns.t"), pa.schema(columns))
    assert not list(tmp_path.iterdir())
