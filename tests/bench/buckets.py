"""The cost of a window for a table with a primary key, by the number of its buckets.

    python -m tests.bench.buckets [--kind iceberg] [--rows 2000000] [--changes 20000] [--windows 5]

The table has the given number of customers of about 100 bytes. The changes of a window are of
random customers, which are in all buckets, or of hot ones: all customers of 1 % of the buckets,
but at least of one bucket. Each line has its own process.

The output has the seconds of a window's commit and the size of the files that it writes, both
as medians, and the peak memory of the process, which also makes the first window, of all
customers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from tests.bench.upserts import ROWS, changes, commit_window, peak
from tests.sinks.iceberg.world import TABLE, IcebergBoth
from tests.sinks.with_dead_letters import DeltaKeyedBoth
from windrow.ingest.schema.primary_key import BUCKET, PrimaryKey
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable

BUCKETS = (16, 64, 256, 1024)


def open_sink(kind: str, folder: str, key: PrimaryKey) -> Any:
    """Opens a new table."""
    if kind == "delta":
        return DeltaKeyedBoth(f"{folder}/table", ROWS, key)
    return IcebergBoth(CatalogTable.in_folder(folder, TABLE), ROWS, primary_key=key)


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Commits the windows, and returns the figures of a line."""
    key = PrimaryKey(("id",), buckets=options.buckets)
    sink, offset, figures = open_sink(options.kind, folder, key), 0, []
    sink.prepare()
    hot_ids = None
    if options.keys == "hot":
        ids = np.arange(options.rows)
        buckets = key.bucket_of(pa.record_batch([pa.array(ids)], ["id"]))
        hot_ids = ids[buckets < max(1, options.buckets // 100)]
    sizes: dict[Path, int] = {}
    for number in range(options.windows + 1):
        window_changes = changes(number, options.rows, options.changes, hot_ids)
        seconds = commit_window(sink, number, window_changes, offset)
        offset += window_changes.num_rows
        files = {p: p.stat().st_size for p in Path(folder).rglob(f"{BUCKET}=*/*.parquet")}
        figures.append((seconds, sum(size for p, size in files.items() if p not in sizes)))
        sizes = files
    seconds_of, bytes_of = zip(*figures[1:], strict=True)
    return {"seconds": median(seconds_of), "bytes": median(bytes_of), "peak": peak()}


def main() -> None:
    """Prints a line for each number of buckets."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("delta", "iceberg"), default="iceberg")
    parser.add_argument("--keys", choices=("random", "hot"))
    parser.add_argument("--buckets", type=int)
    for name, default in (("rows", 2_000_000), ("changes", 20_000), ("windows", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if options.keys:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(options, folder)))
        return
    print(
        f"{options.kind}, {options.rows} rows, {options.changes} changes a window\n"
        f"{'buckets':>8} {'keys':>7} {'commit, s':>10} {'written, MB':>12} {'peak, MB':>9}"
    )
    same = [f"--{name}={getattr(options, name)}" for name in ("kind", "rows", "changes", "windows")]
    for buckets in BUCKETS:
        for keys in ("random", "hot"):
            arguments = [f"--keys={keys}", f"--buckets={buckets}", *same]
            command = [sys.executable, "-m", "tests.bench.buckets", *arguments]
            ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
            line = json.loads(ran.stdout)
            print(
                f"{buckets:8} {keys:>7} {line['seconds']:10.2f} {line['bytes'] / 1e6:12.1f}"
                f" {line['peak'] / 1e6:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
