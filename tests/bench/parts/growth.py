"""The growth of windrow's cost with topic-partitions, windows and rows.

Each size has its own topic and its own process.
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
"""The number of messages of a window, for the growth of windows."""

MESSAGES = 1_000_000
"""The number of messages of the topic, for the growth of topic-partitions."""


@dataclass(frozen=True)
class Grown:
    """A size of a growth.

    Attributes:
        rows: the rows of the table.
        messages: the messages of the topic.
        partitions: the topic-partitions.
        more: further instructions for windrow.
    """

    rows: int
    messages: int
    partitions: int
    more: Mapping[str, Any]

    @property
    def every_ms(self) -> float:
        """The milliseconds between messages.

        All windows have the same number of messages, or without windows all messages are of one
        day.
        """
        return 60_000 / EACH if self.more else min(1.0, DAY_MS / (self.messages + 1))


def _of_windows(size: int) -> Grown:
    # The messages after the last window show that the log has passed it.
    more = {"grid": "* * * * *", "windows": size, "window_seconds": 60}
    return Grown(size * EACH, (size + 1) * EACH, 1, more)


@dataclass(frozen=True)
class Kind:
    """Something that grows.

    Attributes:
        title: a description.
        sizes: the sizes.
        grown_of: the meaning of a size.
    """

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
    """Measures the sizes in ascending order, as long as the time suffices.

    Args:
        bootstrap: the broker.
        kind: what grows.
        sizes: the sizes.
        seconds: the time for all sizes. The next size's time is estimated from the last one's.
        scratch: a folder for the processes.

    Returns:
        A point for each measured size, and the sizes that were left out.
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
    """Returns the cost of a new process's second run.

    The first run, of a small topic, warms it up.
    """
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
    return Point(size, run.seconds, run.cpu_seconds, run.peaks["worker"])
