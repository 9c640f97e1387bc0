"""Text files that other programs read: their content for readers without windrow, and columns
that a format can't hold.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from tests.sinks.files.world import FORMATS, FilesBoth, FilesWorld
from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.files.reader import list_files
from windrow.ingest.sinks.files.stage import FileFormat, check_rows, read_file
from windrow.ingest.sinks.files.text import ValueTexts
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt

LIST, MAP = pa.list_(pa.int8()), pa.map_(pa.string(), pa.float64())


def test_csv_refuses_what_it_cannot_hold() -> None:
    """CSV refuses lists, maps and structs before anything is made, with the column's name, also
    for metadata columns.
    """
    with pytest.raises(SpecError, match=r"list: list.*map: map.*kafka headers: map"):
        check_rows(
            pa.schema([("i8", pa.int8()), ("list", LIST), ("map", MAP)]),
            DEFAULT | {"headers": "kafka headers"},
            "csv",
        )
    check_rows(pa.schema([("list", LIST), ("map", MAP)]), DEFAULT, "jsonl")


def test_json_refuses_names_that_differ_by_case_alone() -> None:
    """JSON refuses fields of a struct whose names differ by case only, at any depth, before
    anything is made.

    The JSON writer takes such fields for one.
    """
    twice = pa.struct([pa.field("a", pa.int64()), pa.field("A", pa.int64())])
    schema = pa.schema([pa.field("ok", pa.int64()), pa.field("deep", pa.map_(pa.string(), twice))])
    with pytest.raises(SpecError, match=r"deep: map.*names that differ by more than case"):
        check_rows(schema, DEFAULT, "jsonl")
    check_rows(schema, DEFAULT, "parquet")


def test_a_slice_of_structs_is_written_as_it_is() -> None:
    """A slice of a larger batch keeps its rows, also structs inside structs."""
    kind = pa.struct([("a", pa.struct([("b", pa.int8())]))])
    rows = pa.table({"s": pa.array([None, {"a": {"b": 1}}, {"a": None}], kind)}).slice(1)
    texts = ValueTexts(rows.schema, "json")
    assert texts.rows(texts.text(rows)) == rows


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
    """DuckDB and Polars know the format by the file's extension, and read the committed columns
    and rows.
    """
    sink = FilesBoth(str(tmp_path / "orders"), ROWS, written=written)
    sink.prepare()
    receipt, staged = staged_receipt(sink, 0, dead=False)
    sink.commit(receipt, staged)
    paths = list_files(sink.uri)
    names = [
        *ROWS.names,
        *(DEFAULT[n] for n in ("topic", "partition", "offset", "timestamp", "window")),
    ]
    committed = pa.concat_tables(FilesWorld().pieces(sink)).select(["id", "amount", "_offset"])
    expected_rows = sorted(tuple(row.values()) for row in committed.to_pylist())
    assert len(expected_rows) == 20
    source = {"parquet": "read_parquet", "jsonl": "read_json", "csv": "read_csv"}[written.format]
    rows = duckdb.sql(f"SELECT * FROM {source}({paths})")
    assert rows.columns == names
    assert sorted(rows.project("id, amount, _offset").fetchall()) == expected_rows
    scan = {"parquet": pl.scan_parquet, "jsonl": pl.scan_ndjson, "csv": pl.scan_csv}[written.format]
    frame = scan(paths).collect()
    assert frame.columns == names
    assert sorted(frame.select("id", "amount", "_offset").rows()) == expected_rows


@pytest.mark.parametrize("size", [1, 7, 20, 21, 22, 1000])
@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_at_the_ends_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, end: str
) -> None:
    """Verification reads every line, whether a block ends inside or after a line."""
    monkeypatch.setattr("windrow.ingest.sinks.files.stage._READ", size)
    lines = [f'{{"id":"{n}","amount":{n}}}' for n in range(7)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + end)
    schema = pa.schema([("id", pa.string()), ("amount", pa.int64())])
    batches = read_file(Place(str(tmp_path)), "x.jsonl", schema)
    assert [n for batch in batches for n in batch["amount"].to_pylist()] == list(range(7))


def test_a_quoted_text_is_no_null(tmp_path: Path) -> None:
    """In CSV an empty cell is null, and a quoted empty cell is the empty text."""
    (tmp_path / "x.csv").write_text('id,amount\n"",1\n,2\n')
    schema = pa.schema([("id", pa.string()), ("amount", pa.int64())])
    (batch,) = read_file(Place(str(tmp_path)), "x.csv", schema)
    assert batch["id"].to_pylist() == ["", None]
