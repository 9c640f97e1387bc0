"""The benchmark's command: `python -m tests.bench [PART ...]`.

Without a part it measures all parts, and writes docs/benchmark.md.

    small, wide, large      comparisons with peers, or one of them: small.raw, small.decoded,
                            small.table, ...
    lookup                  lookup.sql, compared with Flink's lookup join, and lookup.table
    growth                  growth.partitions, growth.windows, growth.rows
    sinks                   the cost of each sink above decoding, or one of them: sinks.delta,
                            sinks.postgres, sinks.kafka-flink, ...
    planning, windows, reading, decode, startup, formats, letters, postgres, driver     single
                            steps; formats are compared with Spark's
    workers                 the gain from a second worker of a cluster
    places                  the driver's cost of planning and committing, with local tasks, on
                            a cluster and on a Connect server
    transform               the cost of steps for a window
    steps                   the cost of steps for a task
    partitions              the cost of 5,000 micro-batches that are partitions of Dagster
    pipelines               the cost of 200 pipelines in a code location of Dagster, and in Airflow
    windows                 also the cost of the next window after 10,000 committed ones, by
                            sink: windows.delta, ..., windows.ledger
    page                    docs/benchmark.md and its pictures from the kept results, without
                            measuring

A part's result is kept in docs/benchmark, and replaces that of an earlier run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.bench.committed import KINDS as WINDOW_SINKS
from tests.bench.harness import picture, servers
from tests.bench.harness.figures import Growth, PrintedResult, Result
from tests.bench.harness.limits import find_broken_limits
from tests.bench.harness.page import page
from tests.bench.harness.results import commit, keep, kept_commit, kept_result, stamp
from tests.bench.harness.shapes import LOOKED_UP, PARTITIONS, SHAPES, SMALL, Shape, fill
from tests.bench.harness.side import ROOT
from tests.bench.parts import customers
from tests.bench.parts.compare import compare
from tests.bench.parts.growth import KINDS, grow
from tests.bench.parts.sides import COMPARISONS, LOOKUPS, SINK_COMPARISONS
from tests.bench.parts.targets import Job
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

STEPS = (
    "planning",
    "windows",
    "reading",
    "decode",
    "startup",
    "formats",
    "letters",
    "postgres",
    "driver",
    "workers",
    "places",
    "transform",
    "steps",
    "partitions",
    "pipelines",
)
COMPARED = tuple(f"{shape}.{stage}" for shape in SHAPES for stage in COMPARISONS)
GROWN = tuple(f"growth.{kind}" for kind in KINDS)
IN_SINKS = tuple(f"sinks.{name}" for name in SINK_COMPARISONS)
IN_LOOKUPS = tuple(f"lookup.{name}" for name in LOOKUPS)
WINDOWS = {f"windows.{kind}": ("windows", "--sink", kind) for kind in WINDOW_SINKS} | {
    "windows.ledger": ("planning",)
}
COMMITTED_WINDOWS = 10_000
"""The number of committed windows. A window's cost after them is compared with that after ten."""
PARTS = (*COMPARED, *IN_SINKS, *IN_LOOKUPS, *GROWN, *STEPS, *WINDOWS)
SINK_MESSAGES = 1_000_000
"""The number of small messages for sinks.

Decoding them takes a second, and a sink's cost is measured above that. Each run writes all of
them.
"""
PAGE = ROOT / "docs" / "benchmark.md"


class World:
    """The broker, its topics and the servers, which all parts of a command share.

    Each is made when a part first asks for it.
    """

    def __init__(self, scratch: Path, stack: ExitStack) -> None:
        self.scratch = scratch
        self._stack = stack
        self._topics: dict[tuple[str, int], tuple[str, int]] = {}

    @cached_property
    def bootstrap(self) -> str:
        """The broker's address."""
        return self._stack.enter_context(
            EmbeddedBroker(self.scratch / "kafka", find_jars())
        ).bootstrap

    @cached_property
    def postgres(self) -> str:
        """The URL of a PostgreSQL server."""
        return self._stack.enter_context(servers.postgres(self.scratch / "postgres"))

    @cached_property
    def customers(self) -> str:
        """The path of the looked-up Delta table. The same table is in PostgreSQL."""
        customers.in_postgres(self.postgres)
        customers.in_delta(self.scratch / "customers")
        return str(self.scratch / "customers")

    def topic(self, shape: Shape, messages: int) -> tuple[str, int]:
        """Returns a topic's name, and the mean number of bytes of its messages."""
        if (shape.name, messages) not in self._topics:
            name = f"bench.{shape.name}.{messages}"
            self._topics[shape.name, messages] = (
                name,
                fill(self.bootstrap, name, shape.values(), messages),
            )
        return self._topics[shape.name, messages]


def run_comparison(world: World, part: str, options: argparse.Namespace) -> Result:
    """Measures one comparison of a shape, a sink or a lookup."""
    kind, stage = part.split(".")
    if part in IN_SINKS:
        shape, full_messages, sides = SMALL, SINK_MESSAGES, SINK_COMPARISONS[stage]
    elif part in IN_LOOKUPS:
        shape, full_messages, sides = LOOKED_UP, LOOKED_UP.messages, LOOKUPS[stage]
    else:
        shape, full_messages, sides = SHAPES[kind], SHAPES[kind].messages, COMPARISONS[stage]
        if options.quick:
            sides = (sides[0], next(side for side in sides if side.name != sides[0].name))
    messages = max(int(full_messages * options.scale), PARTITIONS)
    topic, size = world.topic(shape, messages)
    more = {}
    if part in IN_LOOKUPS:
        more = {"customers": world.customers, "postgres": world.postgres}
    elif part == "sinks.postgres":
        more = {"postgres": world.postgres}
    job = Job(world.bootstrap, topic, shape, messages, world.scratch / part, **more)

    def measure() -> dict[str, Any]:
        measured = compare(sides, job, options.rounds)
        return {
            "messages": messages,
            "message_bytes": size,
            "partitions": PARTITIONS,
            "sides": tuple(measured),
        }

    return Result(**stamp(part, measure))


def run_growth(world: World, part: str, options: argparse.Namespace) -> Growth:
    """Measures one growth."""
    kind = KINDS[part.split(".")[1]]

    def measure() -> dict[str, Any]:
        points, left_out = grow(
            world.bootstrap, kind, options.sizes or kind.sizes, options.seconds, world.scratch
        )
        return {"what": kind.title, "points": tuple(points), "left_out": tuple(left_out)}

    return Growth(**stamp(part, measure))


def run_step(part: str) -> PrintedResult:
    """Runs the program of a step and returns its output."""

    def measure() -> dict[str, Any]:
        program, *words = (
            (*WINDOWS[part], "--committed", str(COMMITTED_WINDOWS)) if part in WINDOWS else (part,)
        )
        command = [sys.executable, "-m", f"tests.bench.{program}", *words]
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=14_400,
            env=os.environ,
        )
        print(done.stdout, end="", flush=True)
        done.check_returncode()
        return {"lines": tuple(done.stdout.splitlines())}

    return PrintedResult(**stamp(part, measure))


def measure_parts(parts: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Measures parts in sequence, and keeps each result at once.

    Returns:
        The broken limits as texts.
    """
    broken_limits: list[str] = []
    with ExitStack() as stack:
        world = World(
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windrow-bench-"))), stack
        )
        for part in parts:
            print(f"{part} ...", flush=True)
            result = (
                run_comparison(world, part, options)
                if part in (*COMPARED, *IN_SINKS, *IN_LOOKUPS)
                else run_growth(world, part, options)
                if part in GROWN
                else run_step(part)
            )
            if not isinstance(result, PrintedResult):
                broken_limits += find_broken_limits(result)
            if not options.quick:
                keep(result)
            print(f"{part}: {result.took:.0f} s", flush=True)
    return broken_limits


def write_page() -> None:
    """Writes the page and its pictures from all kept results."""
    results = [result for part in COMPARED if (result := kept_result(part, Result))]
    sinks = {part: kept_result(part, Result) for part in IN_SINKS}
    lookups = [result for part in IN_LOOKUPS if (result := kept_result(part, Result))]
    growths = [result for part in GROWN if (result := kept_result(part, Growth))]
    PAGE.write_text(
        page(
            results,
            sinks,
            lookups,
            growths,
            [result for part in (*STEPS, *WINDOWS) if (result := kept_result(part, PrintedResult))],
        ),
        encoding="utf-8",
    )
    pictures = {
        "benchmark.svg": map(picture.bars, results),
        "benchmark-sinks.svg": picture.sinks([result for result in sinks.values() if result]),
        "benchmark-growth.svg": map(picture.line, growths),
    }
    for name, panels in pictures.items():
        if drawn := list(panels):
            picture.draw(drawn, PAGE.with_name(name))
    print(f"{PAGE.relative_to(ROOT)} is written", flush=True)


def choose_parts(words: Sequence[str]) -> list[str]:
    """Returns the parts that the words name, alone or by their common prefix.

    Raises:
        SystemExit: a word names no part.
    """
    if unknown := [
        word
        for word in words
        if not any(part == word or part.startswith(f"{word}.") for part in PARTS)
    ]:
        sys.exit(f"No such part: {', '.join(unknown)}. There are: {', '.join(PARTS)}, page")
    return [
        part
        for part in PARTS
        if not words or any(part == word or part.startswith(f"{word}.") for word in words)
    ]


def main() -> None:
    """Parses the arguments, measures, checks the limits and writes the page."""
    # A SIGTERM then ends the broker and the sides too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of a comparison, after one that warms up (5)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of a comparison's number of messages (1)"
    )
    parser.add_argument(
        "--sizes",
        type=lambda text: tuple(map(int, text.split(","))),
        help="of a growth: 10,100,1000",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=900.0,
        help="a growth leaves out sizes that would need more in all (900)",
    )
    parser.add_argument(
        "--missing", action="store_true", help="only parts of which nothing is kept of this commit"
    )
    parser.add_argument(
        "--quick", action="store_true", help="windrow and its nearest peer only; nothing is kept"
    )
    options = parser.parse_args()
    if options.parts == ["page"]:
        write_page()
        return
    parts = [
        part
        for part in choose_parts(options.parts)
        if not (options.missing and kept_commit(part) == commit())
    ]
    broken_limits = measure_parts(parts, options)
    if not options.quick:
        write_page()
    if broken_limits:
        sys.exit("limits broken:\n" + "\n".join(broken_limits))


if __name__ == "__main__":
    main()
