"""What was measured, and what is made of it: pure values, kept as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec


class Run(msgspec.Struct, frozen=True):
    """One run of one side.

    `seconds`: from the job's beginning to its answer. `cpu_seconds`: of all processes of the side.

    `peaks`: by the kind of process, the largest one's resident memory in MB at its
    highest since it began. `together_mb`: the highest sum over all processes of their
    share of memory (PSS: what several map is divided among them), looked at once a
    second.
    """

    seconds: float
    cpu_seconds: float
    rows: int
    peaks: dict[str, float]
    together_mb: float


class Measured(msgspec.Struct, frozen=True):
    """A side in one part.

    `ready`: seconds from its start until it could take a job. `first`: its first run,
    which warms up.

    `failed`: why it ended, in a line; then what was measured before is kept, and
    nothing is made of it.
    """

    name: str
    does: str
    version: str
    ready: float = 0.0
    first: Run | None = None
    runs: tuple[Run, ...] = ()
    failed: str = ""


class Result(msgspec.Struct, frozen=True):
    """A part that was measured: when, on what, of which commit, for how long, and its
    sides, the first of which others are held against.
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
    """One size of what grows, and what it cost."""

    size: int
    seconds: float
    cpu_seconds: float
    worker_mb: float


class Growth(msgspec.Struct, frozen=True):
    """How the cost of something grows with its size.

    `left_out`: sizes that time didn't suffice for.
    """

    part: str
    date: str
    commit: str
    machine: str
    took: float
    what: str
    points: tuple[Point, ...]
    left_out: tuple[int, ...] = ()


class Said(msgspec.Struct, frozen=True):
    """What a measurement of one step printed."""

    part: str
    date: str
    commit: str
    machine: str
    took: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Spread:
    """A median with the least and the most that was seen."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def ratios(ours: Measured, peer: Measured) -> Spread | None:
    """Our time divided by the other's, round by round: what ran one after the other is compared.

    None if there is no round of both.
    """
    pairs = [a.seconds / b.seconds for a, b in zip(ours.runs, peer.runs, strict=False)]
    return Spread.of(pairs) if pairs and not (ours.failed or peer.failed) else None


def exponent(points: Sequence[Point]) -> float:
    """The steepest step of a growth: 1 is linear, 2 quadratic.

    Of each pair of neighbours, by the logarithms of size and seconds.
    """
    return max(
        (math.log(b.seconds / a.seconds) / math.log(b.size / a.size) for a, b in pairwise(points)),
        default=0.0,
    )
