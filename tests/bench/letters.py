"""The cost of dead letters for a window, from Kafka to the committed table.

python -m tests.bench.letters [--messages 4000000] [--rounds 5]

One topic has whole orders as JSON. In the other, one order of a hundred is truncated. One
process of windrow with two tasks reads both in turn, and the first turn of each warms up.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from tests.bench.harness.figures import Run, Spread
from tests.bench.harness.shapes import SMALL, fill
from tests.bench.harness.side import Program, parquet_rows
from tests.bench.parts.sides import windrow
from tests.bench.parts.targets import Job
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

EVERY = 100
"""One message of this number is broken."""


def some_broken(values: list[bytes]) -> list[bytes]:
    """Returns the values, some of them without their last byte."""
    return [value[:-1] if i % EVERY == 0 else value for i, value in enumerate(values)]


def measure(messages: int, rounds: int, scratch: Path) -> dict[str, list[Run]]:
    """Returns the runs of both topics, without the first."""
    side = windrow("table", "")
    with (
        EmbeddedBroker(scratch / "kafka", find_jars()) as broker,
        Program(side.command(broker.bootstrap), scratch / "side", {}) as program,
    ):
        topics = {"whole": SMALL.values(), "broken": some_broken(SMALL.values())}
        runs: dict[str, list[Run]] = {name: [] for name in topics}
        for name, values in topics.items():
            fill(broker.bootstrap, name, values, messages)
        for number in range(rounds + 1):
            for name in topics:
                job = Job(broker.bootstrap, name, SMALL, messages, program.out)
                run = program.run(
                    side.instructions(job),
                    messages,
                    expected=messages,
                    written=partial(parquet_rows, program.out),
                )
                if number:
                    runs[name].append(run)
    return runs


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=SMALL.messages)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch:
        runs = measure(options.messages, options.rounds, Path(scratch))
    for name, words in (("whole", "whole"), ("broken", f"one of {EVERY} broken")):
        rate = Spread.of([run.rows / run.seconds / 1e3 for run in runs[name]])
        cpu = Spread.of([run.cpu_seconds / run.rows * 1e6 for run in runs[name]])
        rates = (
            f"{rate.median:7,.0f} thousand messages/s ({rate.lowest:,.0f} to {rate.highest:,.0f})"
        )
        print(f"{words:22} {rates}, {cpu.median:.2f} CPU s per million")
    more = Spread.of(
        [
            (b.seconds / a.seconds - 1) * 100
            for a, b in zip(runs["whole"], runs["broken"], strict=True)
        ]
    )
    print(
        f"broken ones cost {more.median:.0f}% more time ({more.lowest:.0f} to {more.highest:.0f})"
    )


if __name__ == "__main__":
    main()
