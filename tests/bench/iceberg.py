"""The cost of an Iceberg table's committed windows for the next window.

    python -m tests.bench.iceberg --committed 1000

Both figures are given twice: with all snapshots of the windows, and after old snapshots are
expired. Iceberg rewrites the list of snapshots with each commit. After the expiry only the
windows themselves are left.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from unittest.mock import patch

from tests.sinks.iceberg.world import IcebergBoth, sink_at, state_of
from windrow.ingest.ports.sink import Done
from windrow.ingest.testing.contracts.windows import staged_receipt, window

COMMITS = 20
STEP = 500
"""The number of windows after which snapshots are expired, so that thousands take minutes."""


def commit(sink: IcebergBoth, number: int) -> float:
    """Commits a small window and returns the milliseconds of the commit alone."""
    window_receipt, staged = staged_receipt(sink, number, dead=False)
    return milliseconds_of(lambda: isinstance(sink.commit(window_receipt, staged), Done))


def milliseconds_of(call: Callable[[], object]) -> float:
    """Returns the milliseconds of a call."""
    began = time.perf_counter()
    assert call() is not False
    return (time.perf_counter() - began) * 1000


def expire(sink: IcebergBoth) -> None:
    """Expires every snapshot except the newest."""
    state = state_of(sink)
    newest = state.table.current_snapshot()
    old = [
        s.snapshot_id
        for s in state.table.snapshots()
        if newest is not None and s.snapshot_id != newest.snapshot_id
    ]
    if old:
        state.table.maintenance.expire_snapshots().by_ids(old).commit()


def print_costs(label: str, warehouse: str, first: int) -> None:
    """Measures the costs with a new handle of the table and prints them."""
    sink = sink_at(warehouse)
    look = milliseconds_of(lambda: sink.look(window(0)))
    commits = [commit(sink, first + n) for n in range(COMMITS)]
    print(
        f"{label:>45}: first look {look:.1f} ms, first commit {commits[0]:.1f} ms, later ones"
        f" {statistics.median(commits[1:]):.1f} ms"
    )


def main(windows: int) -> None:
    """Measures a table of ten windows, and then one of this number."""
    for count in (10, windows):
        with tempfile.TemporaryDirectory() as warehouse:
            sink = sink_at(warehouse)
            sink.prepare()
            with patch.object(os, "fsync", lambda _: None):
                for number in range(count):
                    commit(sink, number)
                    if number % STEP == STEP - 1 and number + STEP < count:
                        expire(sink)
            state = state_of(sink)
            print_costs(
                f"{count:,} windows, {len(state.table.snapshots()):,} snapshots kept",
                warehouse,
                count,
            )
            expire(sink)
            print_costs(f"{count:,} windows, 1 snapshot kept", warehouse, count + COMMITS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--committed", type=int, default=1000)
    main(parser.parse_args().committed)
