"""Tables that are partitioned by columns: rows, replays, files, and what readers skip."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.expressions import And, EqualTo, IsNull
from pyspark.sql import SparkSession

from tests.sinks.files.world import FORMATS, FilesBoth
from tests.sinks.iceberg.world import TABLE, IcebergBoth, state_of
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.errors import RefusedError, SchemaChangedError
from windrow.ingest.ports.sink import Done, Maintained, Maintenance
from windrow.ingest.schema.partition_fields import MOST_PARTITIONS, PartitionField
from windrow.ingest.sinks.files.reader import list_files
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.testing.contracts.windows import plan, staged_rows, window

pytestmark = pytest.mark.slow

INSTANT = pa.timestamp("us", "UTC")
ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", INSTANT)])
BY_DAY = PartitionField("day", "at", "at_day")
BY_ID = PartitionField("bucket", "id", "id_bucket", 2)
KINDS = ("delta", "iceberg", "files")
DAY = 86_400_000_000
FIRST = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)
FAR = [None, -62_135_596_800_000_000, 253_402_300_799_999_999, -(2**60), 2**59]
"""Null, the first and the last instant of the calendar, and instants before and after it."""


def open_table(
    kind: str, folder: Path, *fields: PartitionField, rows: pa.Schema = ROWS, **more: Any
) -> Any:
    """Opens a table of a kind."""
    if kind == "delta":
        return DeltaBoth(str(folder / "table"), rows, partition_by=fields, **more)
    if kind == "files":
        return FilesBoth(str(folder / "table"), rows, partition_by=fields, **more)
    table = CatalogTable.in_folder(str(folder), TABLE)
    return IcebergBoth(table, rows, partition_by=fields, **more)


def batch_of(instants: Sequence[int | None], rows: pa.Schema = ROWS) -> pa.RecordBatch:
    """Returns a row for each instant."""
    columns = [pa.array(range(len(instants)), rows.field(0).type), pa.array(instants, INSTANT)]
    return pa.record_batch(columns, schema=rows)


def commit(sink: Any, number: int, batch: pa.RecordBatch, generation: int = 0) -> Any:
    """Commits the rows as each of the two splits of a window; returns its receipt."""
    sink.prepare()
    planned = plan(sink, number, (number * batch.num_rows, (number + 1) * batch.num_rows))
    cuts = [batch.slice(0, 3), batch.slice(3)]
    receipt, staged = staged_rows(sink, planned, lambda _: cuts, generation, f"a{generation}")
    assert isinstance(sink.commit(receipt, staged), Done)
    return receipt


def files_of(sink: Any) -> int:
    """Returns the number of the table's files."""
    with sink.store.reading() as state:
        return sum(map(len, state.files_by_partition().values()))


def assert_whole(sink: Any, receipts: Sequence[Any], values: list[int | None]) -> None:
    """Asserts that windows have exactly their rows, by their checksums and values."""
    for receipt in receipts:
        batches = list(sink.audit().contents(receipt.window))
        contents = sum_by_split(receipt.splits, iter(batches), sink.metadata)
        assert contents.checksums == tuple(s.checksums.rows for s in receipt.splits)
        read = [v for b in batches for v in b["at"].cast(pa.int64()).to_pylist()]
        assert sorted(map(str, read)) == sorted(map(str, values * 2))
        assert sum(held.rows for held in sink.audit().rows_held(receipt.window)) == len(read)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_of_many_partitions_is_one_commit(kind: str, tmp_path: Path) -> None:
    """Null and far instants are in it, and come back; a replay replaces it and nothing else; and
    maintenance joins files of one window and partition alone.
    """
    sink = open_table(kind, tmp_path, BY_DAY, BY_ID)
    instants = [*FAR, *(FIRST + n * DAY for n in (0, 0, 1, 1, 1))]
    batch = batch_of(instants)
    sink.prepare()
    with sink.store.reading() as state:
        version = state.version
    receipts = [commit(sink, number, batch) for number in range(2)]
    assert_whole(sink, receipts, instants)
    files = files_of(sink)
    receipts[0] = commit(sink, 0, batch, generation=1)
    sink = open_table(kind, tmp_path, BY_DAY, BY_ID)
    assert_whole(sink, receipts, instants)
    assert files_of(sink) == files
    with sink.store.reading() as state:
        assert state.version == version + 3
    done = sink.maintain(Maintenance(timedelta(days=1), file_size=1 << 20))
    assert (done.joined_files, done.new_files) == (files, files // 2)
    assert_whole(sink, receipts, instants)
    sink = open_table(kind, tmp_path, BY_DAY, BY_ID)
    assert sink.maintain(Maintenance(timedelta(days=1), file_size=1 << 20)) == Maintained()
    assert_whole(sink, receipts, instants)


def test_readers_of_delta_skip_files_by_the_visible_column(tmp_path: Path) -> None:
    """deltalake reads one file of four for a day, also for a filter on the instant itself."""
    sink = open_table("delta", tmp_path, BY_DAY)
    commit(sink, 0, batch_of([FIRST, FIRST + DAY, FIRST + DAY, None]))
    table = DeltaTable(sink.uri)
    assert len(table.file_uris()) == 6
    assert len(table.file_uris(file_pruning_predicate="at_day = '2026-01-02'")) == 2
    read = table.to_pyarrow_table(filters=[("at_day", "=", date(2026, 1, 2))])
    assert read["id"].to_pylist() == [1, 2, 1, 2]
    assert table.to_pyarrow_table()["at_day"].null_count == 2
    statistics = table.to_pyarrow_dataset().get_fragments(
        pc.field("at") < pa.scalar(FIRST + 1, INSTANT)
    )
    assert len(list(statistics)) == 2


def test_readers_of_iceberg_skip_files_by_the_column(tmp_path: Path) -> None:
    """A filter on the instant chooses the partitions, and nobody needs their names."""
    sink = open_table("iceberg", tmp_path, BY_DAY)
    commit(sink, 0, batch_of([FIRST, FIRST + DAY, FIRST + DAY, 2**59, None]))
    table = state_of(sink).table
    second = datetime.fromtimestamp((FIRST + DAY) / 1e6, UTC).isoformat()
    for row_filter, ids in ((EqualTo("at", second), [1, 2]), (IsNull("at"), [4])):  # type: ignore[call-arg, arg-type]
        scan = table.scan(row_filter)
        assert len(list(scan.plan_files())) == 2
        assert sorted(set(scan.to_arrow()["id"].to_pylist())) == ids


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_texts_that_look_alike_are_not_joined(kind: str, tmp_path: Path) -> None:
    """Null and the text None, and texts with commas, stay in partitions of their own. So readers
    who skip files by the texts find all rows.
    """
    rows = pa.schema([ROWS.field(0), pa.field("a", pa.string()), pa.field("b", pa.string())])
    pairs = [("None", None), (None, "None"), (None, None), ("x, y", "z"), ("x", "y, z")]
    columns = [range(len(pairs)), *map(list, zip(*pairs, strict=True))]
    batch = pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, rows, strict=True)], schema=rows
    )
    fields = [PartitionField("identity", name, f"{name}_is") for name in "ab"]
    sink = open_table(kind, tmp_path, *fields, rows=rows)
    commit(sink, 0, batch)
    maintained = sink.maintain(Maintenance(timedelta(days=1), file_size=1 << 20))
    assert (maintained.joined_files, maintained.new_files) == (2 * len(pairs), len(pairs))
    if kind == "iceberg":
        table = state_of(sink).table
        for number, pair in enumerate(pairs):
            terms = [
                IsNull(name) if text is None else EqualTo(name, text)  # type: ignore[call-arg, arg-type]
                for name, text in zip("ab", pair, strict=True)
            ]
            assert table.scan(And(*terms)).to_arrow()["id"].to_pylist() == [number] * 2


@pytest.mark.parametrize("written", FORMATS)
def test_duckdb_skips_files_by_their_folders(written: str, tmp_path: Path) -> None:
    """It takes the day from folders, and opens the files of one day alone."""
    sink = open_table("files", tmp_path, BY_DAY, written=FORMATS[written])
    commit(sink, 0, batch_of([FIRST, FIRST + DAY, FIRST + DAY, None]))
    reader = {"parquet": "read_parquet", "jsonl": "read_json", "csv": "read_csv"}[written]
    source = f"{reader}({list_files(sink.uri)}, hive_partitioning = true)"
    query = f"SELECT id FROM {source} WHERE at_day = '2026-01-02' ORDER BY ALL"
    assert duckdb.sql(query).fetchall() == [(1,), (1,), (2,), (2,)]
    told = duckdb.sql(f"EXPLAIN ANALYZE {query}").fetchall()[0][1]
    if written == "parquet":
        assert re.search(r"Total Files Read: 2\b|Scanning Files: 2/6", told), told


@pytest.mark.parametrize("kind", ["delta", "files"])
def test_spark_skips_files_by_their_folders(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    """It takes the day from folders, and reads two files of six."""
    sink = open_table(kind, tmp_path, BY_DAY)
    commit(sink, 0, batch_of([FIRST, FIRST + DAY, FIRST + DAY, None]))
    files = DeltaTable(sink.uri).file_uris() if kind == "delta" else list_files(sink.uri)
    frame = spark.read.option("basePath", f"{sink.uri}/data").parquet(*files)
    rows = frame.where("at_day = DATE'2026-01-02'")
    assert sorted(row.id for row in rows.collect()) == [1, 1, 2, 2]
    scan = rows._jdf.queryExecution().executedPlan().collectLeaves().head()  # noqa: SLF001
    assert scan.metrics().apply("numFiles").value() == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_keeps_its_partitions(kind: str, tmp_path: Path) -> None:
    """Another partition_by, one more or none is refused, with the way back."""
    batch = batch_of([FIRST, FIRST + DAY])
    commit(open_table(kind, tmp_path / "plain"), 0, batch)
    commit(open_table(kind, tmp_path / "by_day", BY_DAY), 0, batch)
    month = PartitionField("month", "at", "at_month")
    for folder, fields, there, back in (
        ("plain", [BY_DAY], "no column of the schema", "Remove it"),
        ("by_day", [], "day(at) as at_day", "Set sink.partition_by back to day(at) as at_day"),
        ("by_day", [BY_DAY, BY_ID], "day(at) as at_day", "back to day(at) as at_day"),
        ("by_day", [month], "day(at) as at_day", "back to day(at) as at_day"),
    ):
        with pytest.raises(SchemaChangedError) as caught:
            open_table(kind, tmp_path / folder, *fields).prepare()
        assert f"is partitioned by {there}, and sink.partition_by is" in caught.value.message
        assert back in caught.value.advice
    commit(open_table(kind, tmp_path / "by_day", BY_DAY), 1, batch)
    commit(open_table(kind, tmp_path / "plain"), 1, batch)


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_a_split_are_bounded(kind: str, tmp_path: Path) -> None:
    """One partition more refuses the window, with the column and the number; by month the same
    rows are taken.
    """
    days = [FIRST + n * DAY for n in range(MOST_PARTITIONS + 1)]
    sink = open_table(kind, tmp_path / "by_day", BY_DAY)
    with pytest.raises(RefusedError) as caught:
        commit(sink, 0, batch_of(days))
    assert f"more than {MOST_PARTITIONS} files" in caught.value.message
    assert "sink.partition_by is day(at) as at_day" in caught.value.message
    by_month = open_table(kind, tmp_path / "by_month", PartitionField("month", "at", "at_month"))
    receipt = commit(by_month, 0, batch_of(days))
    assert_whole(by_month, [receipt], days)
    assert files_of(by_month) == 2 * 17


def test_files_that_become_wider_stay_in_their_partitions(tmp_path: Path) -> None:
    """A commit that widens a column rewrites all files of a Delta table, each in its partition."""
    batch = batch_of([FIRST, FIRST + DAY, None])
    narrow = pa.schema([pa.field("id", pa.int32(), nullable=False), ROWS.field(1)])
    by = BY_DAY, PartitionField("identity", "id", "id_identity")
    narrow_table = open_table("delta", tmp_path, *by, rows=narrow)
    old = commit(narrow_table, 0, batch_of([FIRST, FIRST + DAY, None], narrow))
    wide = open_table("delta", tmp_path, *by, evolve="widen")
    new = commit(wide, 1, batch)
    assert [held.rows for held in wide.audit().rows_held(old.window)] == [3, 3]
    for day, rows in (("2026-01-01", 4), ("2026-01-02", 4)):
        assert (
            len(DeltaTable(wide.uri).file_uris(file_pruning_predicate=f"at_day = '{day}'")) == rows
        )
    of_window = f"_window = '{window(1).key}' AND id_identity = 2"
    assert len(DeltaTable(wide.uri).file_uris(file_pruning_predicate=of_window)) == 2
    assert_whole(wide, [new], [FIRST, FIRST + DAY, None])
