"""How windrow's cost grows: with topic-partitions, with windows, with rows.

Each size has a topic and a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.harness.figures import Point
from tests.bench.harness.shapes import DAY_MS, PARTITIONS, SMALL, fill
from tests.bench.harness.side import Program, parquet_rows
from tests.bench.parts.sides import windrow
from tests.bench.parts.targets import Job

EACH = 100
"""Messages of a window, where windows grow."""

MESSAGES = 1_000_000
"""In the topic, where topic-partitions grow."""


@dataclass(frozen=True)
class Grown:
    """What a size means: rows that become a table, messages of the topic, its
    topic-partitions, and what windrow is told besides.
    """

    rows: int
    messages: int
    partitions: int
    more: Mapping[str, Any]

    @property
    def every_ms(self) -> float:
        """Between messages: so that all windows have as many, or all messages are of one day."""
        return 60_000 / EACH if self.more else min(1.0, DAY_MS / (self.messages + 1))


def _of_windows(size: int) -> Grown:
    # What lies behind the last window shows that the log has passed it.
    more = {"grid": "* * * * *", "windows": size, "window_seconds": 60}
    return Grown(size * EACH, (size + 1) * EACH, 1, more)


@dataclass(frozen=True)
class Kind:
    """Something that grows: in words, by which sizes, and what each of them means."""

    title: str
    sizes: tuple[int, ...]
    grown_of: Callable[[int], Grown]


KINDS = {
    "partitions": Kind(
        f"{MESSAGES:,} small messages in more and more topic-partitions",
        (1, 10, 100, 1_000),
        lambda n: Grown(MESSAGES, MESSAGES, n, {}),
    ),
    "windows": Kind(
        f"More and more windows of {EACH} small messages in one run",
        (10, 100, 1_000, 10_000),
        _of_windows,
    ),
    "rows": Kind(
        "More and more small messages in one window",
        (10_000, 100_000, 1_000_000, 4_000_000, 40_000_000),
        lambda n: Grown(n, n, PARTITIONS, {}),
    ),
}


def grow(
    bootstrap: str, kind: Kind, sizes: Sequence[int], seconds: float, scratch: Path
) -> tuple[list[Point], list[int]]:
    """A point for each size, smallest first, and the sizes that `seconds` don't suffice
    for, as the last one tells.
    """
    points: list[Point] = []
    began, spent = time.monotonic(), 0.0
    warm = f"growth.{time.time_ns()}.warm"
    values = SMALL.values()
    fill(bootstrap, warm, values, 10_000)
    for number, size in enumerate(sorted(sizes)):
        if points and time.monotonic() - began + spent * size / points[-1].size > seconds:
            return points, sorted(sizes)[number:]
        started = time.monotonic()
        point = _point(bootstrap, kind.grown_of(size), size, warm, values, scratch)
        spent = time.monotonic() - started
        print(
            f"  {size:,}: {point.seconds:.2f} s, {point.cpu_seconds:.2f} CPU s,"
            f" {point.worker_mb:.0f} MB a worker",
            flush=True,
        )
        points.append(point)
    return points, []


def _point(
    bootstrap: str, grown: Grown, size: int, warm: str, values: list[bytes], scratch: Path
) -> Point:
    """The second run of a fresh process: the first one, of a small topic, warms it up."""
    topic, side = f"{warm}.{size}", windrow("table", "")
    fill(
        bootstrap,
        topic,
        values,
        grown.messages,
        partitions=grown.partitions,
        every_ms=grown.every_ms,
    )
    with Program(side.command(bootstrap), scratch / topic, side.environment) as program:
        written = partial(parquet_rows, program.out)
        program.run(
            side.instructions(Job(bootstrap, warm, SMALL, 10_000, program.out)),
            10_000,
            expected=10_000,
            written=written,
        )
        job = Job(bootstrap, topic, SMALL, grown.messages, program.out, more=grown.more)
        run = program.run(side.instructions(job), grown.rows, expected=grown.rows, written=written)
    return Point(size, run.seconds, run.cpu_seconds, run.peaks.get("worker", 0.0))
