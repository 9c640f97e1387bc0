"""What a column may hold, the files give back: every type, to its edges, in JSON and in
CSV; and readers that know no windrow read them.
"""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from tests.sinks.files.world import FORMATS, FilesBoth
from tests.sinks.things import ROWS, staged_receipt
from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.schema.checksum import row_hashes
from windrow.ingest.sinks.files.columns import check_rows
from windrow.ingest.sinks.files.reader import list_files
from windrow.ingest.sinks.files.stage import FileFormat, read_file
from windrow.ingest.sinks.files.text import ValueTexts
from windrow.ingest.sinks.place import Place

STAMPS = [0, 1, -62135596800000000, 253402300799999999, None, 1_500_000]
ODD = "we\"i'rd {x}, $1 select; 日本\\"

PLAIN = pa.table(
    {
        "f": pa.array([1.5, float("nan"), float("inf"), -0.0, 1e300, None]),
        "f32": pa.array(np.array([0.1, np.nan, 3.4e38, 1e-45, -np.inf, 16777216], np.float32)),
        "at": pa.array(STAMPS, pa.timestamp("us", "UTC")),
        "local": pa.array(STAMPS, pa.timestamp("us")),
        "day": pa.array([0, 1, -719162, 2932896, None, 5], pa.date32()),
        "digits": pa.array(
            [Decimal("1.50"), None, Decimal("-0.01"), Decimal("9" * 36 + ".99"), None, None],
            pa.decimal128(38, 2),
        ),
        "bytes": pa.array([b"\x00\xff", b"", None, b"abc", b"x", b"y"]),
        "i8": pa.array([-128, 127, 0, None, 1, 2], pa.int8()),
        "i64": pa.array([-(2**63), 2**63 - 1, 0, None, 1, 2], pa.int64()),
        "s": pa.array(["", 'a"b\\c\n\u2028\x00', None, "é😀", "\t\r\n,;'", "null"]),
        "b": pa.array([True, False, None, True, True, True]),
        ODD: pa.array(list("abcdef")),
    }
)
"""Every type that a column may have and that is no nest, with the values at its edges."""

_PAIRS = pa.array(
    [[("a", 1.0), ("a", float("nan"))], [], None] * 2, pa.map_(pa.string(), pa.float64())
)
_DEEP = pa.struct(
    [
        pa.field(
            ODD,
            pa.struct(
                [
                    pa.field("x", pa.decimal128(5, 1)),
                    pa.field("m", pa.map_(pa.string(), pa.binary())),
                ]
            ),
        )
    ]
)
NESTED = PLAIN.append_column(
    "list",
    pa.array(
        [[{"k": "a", "v": b"1"}, None], [], None] * 2,
        pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())])),
    ),
)
NESTED = NESTED.append_column("map", _PAIRS).append_column(
    "floats", pa.array([[[1.0, float("inf")], None, []], [], None] * 2)
)
NESTED = NESTED.append_column(
    "deep",
    pa.array([{ODD: {"x": Decimal("1.2"), "m": [("k", b"\xff")]}}, None, {ODD: None}] * 2, _DEEP),
)


def hashes(rows: pa.Table) -> list[int]:
    """Of each row, in order."""
    return [int(h) for batch in rows.combine_chunks().to_batches() for h in row_hashes(batch, ())]


@pytest.mark.parametrize("name", NESTED.column_names)
def test_json_gives_every_value_back(name: str) -> None:
    """Also NaN and the infinities, bytes, keys that a map has twice, and empty lists,
    which are no nulls.
    """
    rows = NESTED.select([name])
    lines = ValueTexts(rows.schema, "json")
    assert hashes(lines.rows(lines.text(rows))) == hashes(rows)


@pytest.mark.parametrize("name", PLAIN.column_names)
def test_csv_gives_every_value_back(name: str) -> None:
    """Also empty texts, which are no nulls, and texts with line ends and quotes."""
    rows, out = PLAIN.select([name]), io.BytesIO()
    lines = ValueTexts(rows.schema, "csv")
    pacsv.write_csv(lines.text(rows), out)
    options = pacsv.ConvertOptions(
        column_types={name: pa.string()},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    back = pacsv.read_csv(
        io.BytesIO(out.getvalue()),
        parse_options=pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=options,
    )
    assert hashes(lines.rows(back)) == hashes(rows)


def test_csv_refuses_what_it_cannot_hold() -> None:
    """Lists, maps and structs are told before anything is made, each by its column;
    also those among the metadata columns.
    """
    with pytest.raises(SpecError, match=r"list: list.*map: map.*kafka headers: map"):
        check_rows(
            NESTED.select(["i8", "list", "map"]).schema,
            DEFAULT | {"headers": "kafka headers"},
            "csv",
        )
    check_rows(NESTED.schema, DEFAULT, "jsonl")
    check_rows(PLAIN.schema, DEFAULT | {"key": "_key"}, "csv")


def test_json_refuses_names_that_differ_by_case_alone() -> None:
    """What writes JSON takes two such fields of a struct for one: that is told by the
    column before anything is made, however deep.
    """
    twice = pa.struct([pa.field("a", pa.int64()), pa.field("A", pa.int64())])
    schema = pa.schema([pa.field("ok", pa.int64()), pa.field("deep", pa.map_(pa.string(), twice))])
    with pytest.raises(SpecError, match=r"deep: map.*names that differ by more than case"):
        check_rows(schema, DEFAULT, "jsonl")
    check_rows(schema, DEFAULT, "parquet")


@pytest.mark.parametrize(
    "written",
    [
        *FORMATS.values(),
        FileFormat("jsonl", "zstd"),
        FileFormat("csv", "gzip"),
        FileFormat("parquet", "snappy"),
    ],
)
def test_readers_without_windrow_read_them(tmp_path: Path, written: FileFormat) -> None:
    """DuckDB and polars go by the endings of the names, and have the columns and rows
    that were committed.
    """
    sink = FilesBoth(str(tmp_path / "orders"), ROWS, written=written)
    sink.prepare()
    made, staged = staged_receipt(sink, 0, dead=False)
    sink.commit(made, staged)
    paths = list_files(sink.uri)
    names = [
        *ROWS.names,
        *(DEFAULT[n] for n in ("topic", "partition", "offset", "timestamp", "window")),
    ]
    source = {"parquet": "read_parquet", "jsonl": "read_json", "csv": "read_csv"}[written.format]
    rows = duckdb.sql(f"SELECT * FROM {source}({paths})")
    assert (rows.columns, len(rows.fetchall())) == (names, 20)
    scan = {"parquet": pl.scan_parquet, "jsonl": pl.scan_ndjson, "csv": pl.scan_csv}[written.format]
    assert scan(paths).collect().shape == (20, len(names))
    back = pa.Table.from_batches(
        batch
        for path in paths
        for batch in read_file(
            Place(str(tmp_path)), path[len(str(tmp_path)) + 1 :], sink_schema(sink)
        )
    )
    assert sorted(back["_offset"].to_pylist()) == sorted([*range(10)] * 2)


def sink_schema(sink: FilesBoth) -> pa.Schema:
    """What its files hold."""
    from windrow.ingest.sinks.columns import whole_schema

    return whole_schema(sink.schema, sink.metadata)


@pytest.mark.parametrize("size", [1, 7, 20, 21, 22, 1000])
@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_at_the_ends_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, end: str
) -> None:
    """Wherever a block ends, in a line or behind one, verification reads every line."""
    monkeypatch.setattr("windrow.ingest.sinks.files.stage._READ", size)
    lines = [f'{{"id":"{n}","amount":{n}}}' for n in range(7)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + end)
    schema = pa.schema([("id", pa.string()), ("amount", pa.int64())])
    batches = read_file(Place(str(tmp_path)), "x.jsonl", schema)
    assert [n for batch in batches for n in batch["amount"].to_pylist()] == list(range(7))


def test_a_quoted_text_is_no_null(tmp_path: Path) -> None:
    """In CSV an empty cell is null and a quoted one is the empty text, as verification reads it."""
    (tmp_path / "x.csv").write_text('id,amount\n"",1\n,2\n')
    schema = pa.schema([("id", pa.string()), ("amount", pa.int64())])
    (batch,) = read_file(Place(str(tmp_path)), "x.csv", schema)
    assert batch["id"].to_pylist() == ["", None]
