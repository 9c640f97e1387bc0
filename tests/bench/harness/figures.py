"""Measured figures and their evaluation. They are pure values and are kept as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec


class Run(msgspec.Struct, frozen=True):
    """One run of one side.

    Attributes:
        seconds: the time from the job's beginning to its answer.
        cpu_seconds: the CPU seconds of all processes of the side.
        rows: the number of rows.
        peaks: for each kind of process, the largest one's peak of resident memory in MB, since
            the process began.
        together_mb: the highest sum over all processes of their share of memory in MB, sampled
            once a second. The share is PSS, which divides shared pages among the processes that
            map them.
    """

    seconds: float
    cpu_seconds: float
    rows: int
    peaks: dict[str, float]
    together_mb: float


class Measured(msgspec.Struct, frozen=True):
    """A side in one part.

    Attributes:
        name: the side's name.
        does: what the side does in this part.
        version: the side's version.
        ready: the seconds from its start until it could take a job.
        first: its first run, which warms up.
        runs: its later runs.
        failed: why it ended, in a line; empty if it didn't. Its earlier runs are kept but not
            evaluated.
    """

    name: str
    does: str
    version: str
    ready: float = 0.0
    first: Run | None = None
    runs: tuple[Run, ...] = ()
    failed: str = ""


class Result(msgspec.Struct, frozen=True):
    """The result of a comparison.

    Attributes:
        part: the part.
        date: the day of the measurement.
        commit: the commit that was measured.
        machine: a description of the machine.
        took: the seconds of the whole measurement.
        messages: the number of messages.
        message_bytes: the mean bytes of a message.
        partitions: the number of topic-partitions.
        sides: the sides. The others are compared with the first one.
    """

    part: str
    date: str
    commit: str
    machine: str
    took: float
    messages: int
    message_bytes: int
    partitions: int
    sides: tuple[Measured, ...]


class Point(msgspec.Struct, frozen=True):
    """The cost of one size of a growth."""

    size: int
    seconds: float
    cpu_seconds: float
    worker_mb: float


class Growth(msgspec.Struct, frozen=True):
    """The growth of a cost with its size.

    Attributes:
        part: the part.
        date: the day of the measurement.
        commit: the commit that was measured.
        machine: a description of the machine.
        took: the seconds of the whole measurement.
        what: a description of what grows.
        points: the measured sizes.
        left_out: the sizes for which the time didn't suffice.
    """

    part: str
    date: str
    commit: str
    machine: str
    took: float
    what: str
    points: tuple[Point, ...]
    left_out: tuple[int, ...] = ()


class PrintedResult(msgspec.Struct, frozen=True):
    """The printed lines of a measured step."""

    part: str
    date: str
    commit: str
    machine: str
    took: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Spread:
    """A median with the least and the greatest value."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns the spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def ratios(ours: Measured, peer: Measured) -> Spread | None:
    """Returns windrow's time divided by the peer's, for each round.

    Runs of the same round are compared, because they follow each other. It is None if there is
    no such round, or if a side failed.
    """
    pairs = [a.seconds / b.seconds for a, b in zip(ours.runs, peer.runs, strict=False)]
    return Spread.of(pairs) if pairs and not (ours.failed or peer.failed) else None


def exponent(points: Sequence[Point]) -> float:
    """Returns the steepest exponent of a growth: 1 is linear, 2 quadratic.

    It is computed for neighbouring points, from the logarithms of size and seconds.
    """
    return max(
        (math.log(b.seconds / a.seconds) / math.log(b.size / a.size) for a, b in pairwise(points)),
        default=0.0,
    )
