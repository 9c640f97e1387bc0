"""The cost of merging a window into a table with a primary key.

It is compared with deltalake's own merge.

    python -m tests.bench.upserts [--rows 2000000] [--changes 200000] [--windows 3]

deltalake merges the same changes into the same rows. Each side has its own process. The table
has the given number of customers of about 100 bytes. Each window has the given number of
changes of random customers: 90 % are updates, 5 % deletes, 5 % new.

The output has the seconds of each window's commit alone, without the staging, and the peak
memory of the process, which also makes and stages the changes. deltalake's merge keeps no
receipt, no checksums and no order of windows. It gets only the last change of each key, which
is computed before.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.sinks.with_dead_letters import DeltaKeyedBoth
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, Staged
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.schema.row_changes import DELETED
from windrow.ingest.testing.contracts.windows import plan_of, receipt, split_counts, window

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("credit", pa.float64()),
    ]
)
BATCH = 32_768


def changes(
    number: int, rows: int, count: int, hot_ids: npt.NDArray[np.int64] | None = None
) -> pa.RecordBatch:
    """Returns the changes of a window. The first window's changes insert all customers.

    Args:
        number: the number of the window.
        rows: the number of customers.
        count: the number of changes.
        hot_ids: the customers that all changes are of; None for random changes.
    """
    dice = np.random.default_rng(number)
    if not number:
        ids, deleted = np.arange(rows), np.zeros(rows, np.bool_)
    else:
        kind = dice.random(count)
        ids = np.where(
            kind < 0.95, dice.integers(0, rows, count), rows + number * count + np.arange(count)
        )
        deleted = (kind >= 0.90) & (kind < 0.95)
        if hot_ids is not None:
            ids = dice.choice(hot_ids, count)
    names = pa.array(
        [
            f"customer {i} of window {number}, who has a long name and lives far away in the"
            " country"
            for i in ids.tolist()
        ]
    )
    columns = [pa.array(ids, pa.int64()), names, pa.array(dice.random(len(ids))), pa.array(deleted)]
    return pa.RecordBatch.from_arrays(columns, [*ROWS.names, DELETED])


def messages(split: Split, start: int, stop: int) -> pa.RecordBatch:
    """Returns messages without contents, because only their coordinates are used."""
    n = stop - start
    columns = {
        "topic": pa.repeat(split.topic, n),
        "partition": pa.repeat(pa.scalar(split.partition, pa.int32()), n),
        "offset": pa.array(np.arange(start, stop)),
        "timestamp_type": pa.array(["CreateTime"] * n).dictionary_encode(),
    }
    empty = pa.array([[]] * n, MESSAGES.field("headers").type)
    return pa.RecordBatch.from_arrays(
        [
            (
                empty
                if f.name == "headers"
                else columns[f.name].cast(f.type)
                if f.name in columns
                else pa.nulls(n, f.type)
            )
            for f in MESSAGES
        ],
        schema=MESSAGES,
    )


def peak() -> int:
    """Returns the peak memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def commit_window(sink: Any, number: int, window_changes: pa.RecordBatch, start: int) -> float:
    """Stages and commits the changes of a window; returns the seconds of the commit alone.

    Args:
        sink: the table.
        number: the number of the window.
        window_changes: the changes.
        start: the first offset of the window.
    """
    stop = start + window_changes.num_rows
    planned = plan_of(sink, window(number), (start, stop), cluster="cluster")
    split = planned.splits[0]
    stager = sink.stager(planned, 0, f"a{number}")(split)
    for first in range(0, window_changes.num_rows, BATCH):
        part = window_changes.slice(first, BATCH)
        stager.add(part, messages(split, start + first, start + first + part.num_rows))
    staging = stager.finish()
    counts = split_counts(
        split,
        read=window_changes.num_rows,
        valid=window_changes.num_rows,
        rows_staged=staging.rows,
        checksums=Checksums(rows=staging.checksum),
        rows=window_changes.num_rows,
    )
    staged = [Staged(split, counts, staging.committables, ())]
    began = time.monotonic()
    assert isinstance(sink.commit(receipt(planned, staged, 0, f"a{number}"), staged), Done)
    return time.monotonic() - began


def merged_by_windrow(folder: Path, rows: int, count: int, windows: int) -> list[float]:
    """Returns the seconds of each commit by windrow."""
    sink, took, first_offset = (
        DeltaKeyedBoth(str(folder / "windrow"), ROWS, PrimaryKey(("id",))),
        [],
        0,
    )
    sink.prepare()
    for number in range(windows + 1):
        window_changes = changes(number, rows, count)
        took.append(commit_window(sink, number, window_changes, first_offset))
        first_offset += window_changes.num_rows
    return took


def merged_by_deltalake(folder: Path, rows: int, count: int, windows: int) -> list[float]:
    """Returns the seconds of each merge by deltalake."""
    uri, took = str(folder / "deltalake"), []
    for number in range(windows + 1):
        window_changes = changes(number, rows, count)
        last = np.sort(
            len(window_changes)
            - 1
            - np.unique(window_changes["id"].to_numpy()[::-1], return_index=True)[1]
        )
        source = pa.Table.from_batches([window_changes.take(pa.array(last))])
        began = time.monotonic()
        if not number:
            write_deltalake(uri, source.drop_columns([DELETED]))
        else:
            merger = DeltaTable(uri).merge(
                source, "s.id = t.id", source_alias="s", target_alias="t"
            )
            merger = merger.when_matched_delete("s._deleted").when_matched_update(
                {n: f"s.{n}" for n in ROWS.names}
            )
            merger.when_not_matched_insert(
                {n: f"s.{n}" for n in ROWS.names}, "not s._deleted"
            ).execute()
        took.append(time.monotonic() - began)
    return took


SIDES = {"windrow": merged_by_windrow, "deltalake": merged_by_deltalake}


def main() -> None:
    """Prints a line for each side."""
    parser = argparse.ArgumentParser()
    for name, default in (("rows", 2_000_000), ("changes", 200_000), ("windows", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--side", choices=SIDES)
    options = parser.parse_args()
    if options.side:
        with tempfile.TemporaryDirectory() as folder:
            took = SIDES[options.side](Path(folder), options.rows, options.changes, options.windows)
        print(json.dumps({"took": took, "peak": peak()}))
        return
    print(
        f"{options.rows} rows, {options.changes} changes a"
        f" window\n{'':12}{'first window, s':>18}{'each further, s':>18}{'peak, MB':>12}"
    )
    for side in SIDES:
        numbers = [f"--{name}={getattr(options, name)}" for name in ("rows", "changes", "windows")]
        command = [sys.executable, "-m", "tests.bench.upserts", f"--side={side}", *numbers]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
        figures = json.loads(ran.stdout)
        print(
            f"{side:12}{figures['took'][0]:18.1f}{median(figures['took'][1:]):18.1f}{figures['peak'] / 1e6:12.0f}"  # noqa: E501
        )


if __name__ == "__main__":
    main()
