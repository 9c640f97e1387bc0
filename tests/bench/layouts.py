"""What it costs and saves to divide a table's files by window first, and then by day.

    python -m tests.bench.layouts [--windows 24] [--days 30] [--rows 30000]

Each window has rows of all days, as those of late events or of a snapshot. `window, day` is the
layout of windrow; in `day` the window is a plain column, whose statistics files have. Both get
the same rows, window by window, with one file for each day, and then all small files are
joined: within a window and a day, or within a day.

The output has the number of files; those that a query of one day reads; and, for one window,
the files with its rows and their size. These are what a replay replaces, and what
`verify --deep` reads. Sizes are of Parquet files.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual

from tests.sinks.iceberg.world import TABLE, IcebergBoth, state_of
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.ports.sink import Done, Maintenance
from windrow.ingest.schema.partition_fields import PartitionField
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.testing.contracts.windows import plan, staged_rows, window

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("created_at", pa.timestamp("us", "UTC")),
    ]
)
BY_DAY = (PartitionField("day", "created_at", "created_at_day"),)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def rows_of_window(number: int, rows: int, days: int) -> pa.RecordBatch:
    """Returns the rows of a window, with random instants of the days."""
    dice = np.random.default_rng(number)
    instants = int(FIRST.timestamp() * 1e6) + dice.integers(0, days * 86_400_000_000, rows)
    names = [f"customer {i} of the window {number}" for i in dice.integers(0, 10**9, rows)]
    columns = [dice.integers(0, 10**9, rows), names, pa.array(instants, ROWS.field(2).type)]
    return pa.record_batch([pa.array(c) for c in columns], schema=ROWS)


def line(table: DeltaTable, last_day: datetime) -> tuple[int, int, int, int]:
    """Returns the figures of a Delta table. Its files are chosen by partitions and statistics."""
    files = table.to_pyarrow_dataset()
    of_window = list(files.get_fragments(pc.field("_window") == window(0).key))
    of_day = files.get_fragments(pc.field("created_at") >= last_day)
    size = sum(f.filesystem.get_file_info(f.path).size for f in of_window)
    return len(table.file_uris()), len(list(of_day)), len(of_window), size


def iceberg_line(sink: Any, last_day: datetime) -> tuple[int, int, int, int]:
    """Returns the figures of an Iceberg table, by the plans of PyIceberg."""
    table = state_of(sink).table
    of_window = list(table.scan(EqualTo("_window", window(0).key)).plan_files())  # type: ignore[call-arg, arg-type]
    newest = GreaterThanOrEqual("created_at", last_day.isoformat())  # type: ignore[call-arg, arg-type]
    size = sum(task.file.file_size_in_bytes for task in of_window)
    counts = len(list(table.scan().plan_files())), len(list(table.scan(newest).plan_files()))
    return *counts, len(of_window), size


def commit(sink: Any, number: int, batch: pa.RecordBatch) -> None:
    """Commits a window of one split."""
    count = batch.num_rows
    planned = plan(sink, number, (number * count, (number + 1) * count))
    receipt, staged = staged_rows(
        sink, planned, lambda split: [batch] if split.partition == 0 else [batch.slice(0, 0)]
    )
    assert isinstance(sink.commit(receipt, staged), Done)


def main() -> None:
    """Prints a line for each layout, before and after small files are joined."""
    parser = argparse.ArgumentParser()
    for name, default in (("windows", 24), ("days", 30), ("rows", 30_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    last_day = FIRST + timedelta(days=options.days - 1)
    with tempfile.TemporaryDirectory() as folder:
        delta = DeltaBoth(f"{folder}/delta", ROWS, partition_by=BY_DAY)
        iceberg = IcebergBoth(CatalogTable.in_folder(folder, TABLE), ROWS, partition_by=BY_DAY)
        delta.prepare()
        iceberg.prepare()
        by_day = str(Path(folder, "by_day"))
        for number in range(options.windows):
            batch = rows_of_window(number, options.rows, options.days)
            commit(delta, number, batch)
            commit(iceberg, number, batch)
            rows = pa.Table.from_batches([batch])
            key = pa.repeat(window(number).key, len(rows))
            day = pc.cast(pc.floor_temporal(rows["created_at"], unit="day"), pa.date32())
            rows = rows.append_column("_window", key).append_column("created_at_day", day)
            write_deltalake(by_day, rows, mode="append", partition_by=["created_at_day"])
        print(
            f"{options.windows} windows, each with rows of {options.days} days\n"
            f"{'':>34} {'files':>6} {'of a day':>9} {'of a window':>12} {'their size, MB':>15}"
        )
        figures = {
            "Delta: window, day": line(DeltaTable(delta.uri), last_day),
            "Iceberg: window, day": iceberg_line(iceberg, last_day),
            "Delta: day": line(DeltaTable(by_day), last_day),
        }
        delta.maintain(Maintenance(timedelta(days=7), file_size=128 << 20))
        DeltaTable(by_day).optimize.compact()
        figures["Delta: window, day; joined"] = line(DeltaTable(delta.uri), last_day)
        figures["Delta: day; joined"] = line(DeltaTable(by_day), last_day)
        for name, (files, of_day, of_window, size) in figures.items():
            print(f"{name:>34} {files:6} {of_day:9} {of_window:12} {size / 1e6:15.2f}")


if __name__ == "__main__":
    main()
