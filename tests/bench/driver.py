"""The driver's cost of a window, for growing numbers of topic-partitions.

No task is measured. The figures are extrapolated to very wide topics.

    python -m tests.bench.driver [--sizes 100,1000,10000]

The broker is in memory, the ledger in a file, and the table is a Delta table on disk. Each
topic-partition has one message in each window. The rows are staged before the time is measured.
Each size has its own process. The output has these figures:
- the seconds of the first plan, of a later plan, of the commit, of a new process's look at the
  committed window, and of a checkpoint of the table;
- the kilobytes that are kept of a window, and those that Dagster is given;
- the peak memory of the process.

The last part is a model of 10,000 topic-partitions with 10,000,000 messages a second. It uses
these figures of the largest size, and the costs of a row and of a split from the kept results
of `growth.rows` and `growth.partitions`.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import dagster as dg
import msgspec
from deltalake import DeltaTable

from tests.bench.harness.figures import Growth
from tests.bench.harness.results import kept_result
from tests.bench.planning import filled, freeze_plan, planner
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.assets.metadata import window_metadata
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.ports.sink import Done
from windrow.ingest.runner.context import Result
from windrow.ingest.testing.contracts.windows import ROWS, receipt, stage

WINDOWS = 3
SIZES = (100, 1_000, 10_000)
WIDE, A_SECOND = 10_000, 10_000_000
MINUTES = (1, 10, 60)
DAY = 24 * 60

T = TypeVar("T")


class Cost(msgspec.Struct, frozen=True):
    """The costs for one number of topic-partitions.

    Attributes:
        partitions: the number of topic-partitions.
        first_plan: seconds of the first plan.
        plan: seconds of a later plan.
        commit: seconds of the commit.
        look: seconds of a new process's look at the committed window.
        checkpoint: seconds of a checkpoint of a table with the files of `WINDOWS` windows.
        ledger: bytes of a window in the ledger.
        receipt: bytes of a window's receipt.
        log: bytes of a window in the table's log.
        event: bytes of a window's event in Dagster.
        peak_mb: the process's peak memory in MB.
    """

    partitions: int
    first_plan: float
    plan: float
    commit: float
    look: float
    checkpoint: float
    ledger: float
    receipt: float
    log: float
    event: float
    peak_mb: float

    def line(self) -> str:
        """Returns a printed line."""
        return (
            f"{self.partitions:>7,} topic-partitions: first plan {self.first_plan:.2f} s, a later"
            f" one {self.plan:.2f} s, commit {self.commit:.2f} s, look {self.look:.2f} s,"
            f" checkpoint {self.checkpoint:.2f} s; ledger {self.ledger / 1e3:,.0f} kB, receipt"
            f" {self.receipt / 1e3:,.0f} kB, table's log {self.log / 1e3:,.0f} kB, Dagster"
            f" {self.event / 1e3:,.0f} kB; at most {self.peak_mb:,.0f} MB"
        )


def time_call(call: Callable[[], T]) -> tuple[float, T]:
    """Returns the seconds of a call, and its result."""
    began = time.perf_counter()
    outcome = call()
    return time.perf_counter() - began, outcome


def measure(partitions: int, folder: Path) -> Cost:
    """Measures one size in this process."""
    broker, table = filled(WINDOWS, partitions), folder / "table"
    sink = DeltaBoth(str(table), ROWS)
    sink.prepare(TableOwner("bench", "ledger-1", "hourly"))
    pipeline = replace(planner(broker, folder), sink=sink)
    plans, commits = [], []
    for hour in range(WINDOWS):
        took, plan = time_call(partial(freeze_plan, pipeline, hour))
        plans.append(took)
        staged = stage(sink, plan, 0, "a", dead=False)
        window_receipt = receipt(plan, staged, 0, "a")
        took, outcome = time_call(partial(sink.commit, window_receipt, staged))
        assert isinstance(outcome, Done), outcome
        pipeline.ledger.record(window_receipt)
        commits.append(took)
    look, committed_window = time_call(lambda: DeltaBoth(str(table), ROWS).look(plan.window))
    assert committed_window is not None
    checkpoint, _ = time_call(lambda: DeltaTable(str(table)).create_checkpoint())
    shown = window_metadata(
        pipeline.spec, pipeline.columns(), Result(committed_window, recovered=False)
    )
    return Cost(
        partitions,
        plans[0],
        min(plans[1:]),
        min(commits),
        look,
        checkpoint,
        (folder / "state.db").stat().st_size / WINDOWS,
        len(to_json(window_receipt)),
        max((table / "_delta_log").glob("*.json")).stat().st_size,
        sum(
            len(dg.serialize_value(value))
            for value in shown.values()
            if isinstance(value, dg.MetadataValue)
        ),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    )


def slope(growth: Growth | None) -> float | None:
    """Returns the CPU seconds of one more, from the two largest sizes."""
    if growth is None or len(growth.points) < 2:
        return None
    low, high = growth.points[-2:]
    return (high.cpu_seconds - low.cpu_seconds) / (high.size - low.size)


def on_paper(cost: Cost, rows: float | None, splits: float | None) -> Iterator[str]:
    """Yields the lines of the model, in which each cost is linear.

    Args:
        cost: the costs of the largest size.
        rows: CPU seconds of a row; None: not measured.
        splits: CPU seconds of a split; None: not measured.
    """
    yield f"On paper: {WIDE:,} topic-partitions that take {A_SECOND:,} small messages a second"
    if rows is not None:
        yield (
            f"    rows: {rows * 1e6:.2f} CPU s a million, so {rows * A_SECOND:.1f} cores are busy"
            " whatever the windows are"
        )
    per_split = (cost.plan + cost.commit) / cost.partitions
    per_file = cost.checkpoint / cost.partitions / WINDOWS
    for minutes in MINUTES:
        splits_line = (
            "" if splits is None else f"splits keep {splits * WIDE / minutes / 60:.2f} cores busy, "
        )
        driver, windows = per_split * WIDE / minutes / 60, DAY / minutes
        ledger, receipts = (
            windows * size / cost.partitions * WIDE / 1e9 for size in (cost.ledger, cost.receipt)
        )
        yield (
            f"    windows of {minutes:>2} min: {splits_line}the driver is busy {driver:.2%} of the"
            f" time and would be all of it at {WIDE / driver:,.0f} topic-partitions; a day makes"
            f" {windows * WIDE:,.0f} files, whose checkpoint takes {windows * WIDE * per_file:,.0f}"
            f" s, and keeps {ledger:.2f} GB in the ledger and {receipts:.2f} GB of receipts"
        )


def main() -> None:
    """Measures each size in turn and prints the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES
    )
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
            print(to_json(measure(options.one, Path(folder))))
        return
    for size in options.sizes:
        command = [sys.executable, "-m", "tests.bench.driver", "--one", str(size)]
        output = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, timeout=1_800
        ).stdout
        cost = msgspec.json.decode(output.splitlines()[-1], type=Cost)
        print(cost.line(), flush=True)
    for line in on_paper(
        cost,
        slope(kept_result("growth.rows", Growth)),
        slope(kept_result("growth.partitions", Growth)),
    ):
        print(line)


if __name__ == "__main__":
    main()
