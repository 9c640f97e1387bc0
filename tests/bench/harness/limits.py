"""What a change must not break, of what is measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.harness.figures import Growth, Result, exponent, ratios

RATIOS = {
    ("small.table", "Spark's Kafka source", "from_json, Parquet"): 0.33,
    ("small.table", "Flink SQL", "json, blackhole"): 0.6,
}
"""windrow's time may be at most so much of a side's, in a part."""

WORKER_MB = {"small.table": 400.0}
"""The peak of a Python worker of windrow's."""

STEEPEST = 1.1
"""Cost grows at most linearly. Not 1: two runs of the same differ by some percent."""

WORKER_GROWTH = ("growth.rows", 1_000_000, 4_000_000, 1.15)
"""A fresh worker's peak with so many rows may be at most so much of that with fewer."""


def broken(result: Result | Growth) -> Iterator[str]:
    """The limits that a result breaks, and the sides that failed, in words."""
    yield from _compared(result) if isinstance(result, Result) else _grown(result)


def _compared(result: Result) -> Iterator[str]:
    ours = result.sides[0]
    for side in result.sides:
        if side.failed:
            yield f"{result.part}: {side.name}, {side.does} failed: {side.failed}"
        most, ratio = RATIOS.get((result.part, side.name, side.does)), ratios(ours, side)
        if most and ratio and ratio.median > most:
            yield (
                f"{result.part}: {ratio.median:.2f} of the time of {side.name}, {side.does} (limit"
                f" {most})"
            )
    peak, most = (
        max((run.peaks.get("worker", 0.0) for run in ours.runs), default=0.0),
        WORKER_MB.get(result.part),
    )
    if most and peak > most:
        yield f"{result.part}: a worker took {peak:.0f} MB (limit {most:.0f} MB)"


def _grown(result: Growth) -> Iterator[str]:
    if (steepest := exponent(result.points)) > STEEPEST:
        yield f"{result.part}: grows as size to the power of {steepest:.2f} (limit {STEEPEST})"
    part, fewer, more, most = WORKER_GROWTH
    peaks = {point.size: point.worker_mb for point in result.points}
    if result.part == part and {fewer, more} <= set(peaks) and peaks[more] > most * peaks[fewer]:
        yield (
            f"{part}: a worker takes {peaks[fewer]:.0f} MB for {fewer:,} messages, and"
            f" {peaks[more]:.0f} MB for {more:,}"
        )
