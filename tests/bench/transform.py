"""The cost of a step for a window: orders as JSON, from Kafka to the committed table.

python -m tests.bench.transform [--messages 1000000] [--rounds 5]

The ways are no step, and one step of each kind except lookups. They read the same topic. Each
way has a process of windrow with two tasks. The processes take turns, and the first turn of
each warms up. The output also has the peak memory of the largest worker and of Java.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.harness.figures import Run, Spread
from tests.bench.harness.shapes import SMALL, fill
from tests.bench.harness.side import Program, parquet_rows
from tests.bench.orders import DISTINCT
from tests.bench.parts.sides import windrow
from tests.bench.parts.targets import Job
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

WAYS = {
    "without one": None,
    "sql: filter, a column": {
        "sql": "SELECT * REPLACE (round(amount * 100) AS amount) FROM rows WHERE sku IS NOT NULL"
    },
    "python: a column": {
        "python": "measured/functions.py:rounded",
        "schema": "orders_schema.py:Order",
    },
    "spark: all rows as they are": {"spark": "measured/functions.py:same"},
    "spark: the newest of each id": {"spark": "measured/functions.py:newest"},
}
"""The measured ways: a description and the step.

Lookups are compared with Flink's in `parts/sides.py: LOOKUPS`.
"""
MOST_MB = 500
"""The most MB of a worker, with any step."""


def measure(messages: int, rounds: int, scratch: Path) -> dict[str, list[Run]]:
    """Returns the runs of each way, without the first."""
    side, topic = windrow("table", ""), "bench.transform"
    runs: dict[str, list[Run]] = {step_name: [] for step_name in WAYS}
    with ExitStack() as stack:
        bootstrap = stack.enter_context(EmbeddedBroker(scratch / "kafka", find_jars())).bootstrap
        fill(bootstrap, topic, SMALL.values(), messages)
        programs = {
            step_name: stack.enter_context(Program(side.command(bootstrap), scratch / str(n), {}))
            for n, step_name in enumerate(WAYS)
        }
        for number in range(rounds + 1):
            for step_name, step in WAYS.items():
                newest = step_name.endswith("of each id")
                out, rows = programs[step_name].out, min(messages, DISTINCT) if newest else messages
                more = {"transform": {"steps": [step]}} if step else {}
                instructions = side.instructions(
                    Job(bootstrap, topic, SMALL, messages, out, more=more)
                )
                run = programs[step_name].run(
                    instructions, rows, expected=rows, written=partial(parquet_rows, out)
                )
                if number:
                    runs[step_name].append(run)
    return runs


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch:
        runs = measure(options.messages, options.rounds, Path(scratch))
    plain = next(iter(runs.values()))
    for step_name, step_runs in runs.items():
        rate = Spread.of([options.messages / run.seconds / 1e3 for run in step_runs])
        cpu = Spread.of([run.cpu_seconds / options.messages * 1e6 for run in step_runs])
        times = Spread.of([a.seconds / b.seconds for a, b in zip(step_runs, plain, strict=True)])
        peaks = {
            kind: max(run.peaks.get(kind, 0.0) for run in step_runs) for kind in ("worker", "Java")
        }
        line = (
            f"{step_name:29} {rate.median:6,.0f} thousand messages/s ({rate.lowest:,.0f} to"
            f" {rate.highest:,.0f}), {cpu.median:.2f} CPU s per million"
        )
        line += f", peaks: worker {peaks['worker']:,.0f} MB (limit {MOST_MB})"
        line += f", Java {peaks['Java']:,.0f} MB"
        print(
            line
            + (
                ""
                if step_runs is plain
                else f"; {times.median:.1f} times the time"
                f" ({times.lowest:.1f} to {times.highest:.1f})"
            )
        )


if __name__ == "__main__":
    main()
