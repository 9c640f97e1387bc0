"""Limits for measured figures, which a change must not break. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from tests.bench.harness.figures import Growth, Measured, Result, exponent, ratios

RATIOS = {
    ("small.table", "Spark's Kafka source", "from_json, Parquet"): 0.33,
    ("small.table", "Flink SQL", "json, blackhole"): 0.6,
    ("lookup.sql", "Flink SQL", "JDBC lookup join, partial cache, Parquet"): 0.3,
}
"""The greatest ratio of windrow's time to a side's, by part and side."""

WORKER_MB = {"small.table": 400.0, "lookup.sql": 500.0, "lookup.table": 500.0}
"""The greatest peak of a Python worker of windrow in MB, by part."""

CPU_RATIOS = {("lookup.table", "no lookup, Delta commit"): 1.75}
"""The greatest ratio of windrow's CPU seconds to a side's, by part and side.

It is a ratio, because the seconds of two machines differ by a factor of three.
"""

MORE_WORKER_MB = {("lookup.table", "no lookup, Delta commit"): 100.0}
"""The most MB by which a worker of windrow may exceed a side's worker, by part and side."""

STEEPEST = 1.1
"""The greatest exponent of a growth: linear. It isn't 1, because repeated runs differ by some
percent.
"""

WORKER_GROWTH = ("growth.rows", 1_000_000, 4_000_000, 1.15)
"""The growth of a new worker's peak memory.

It has the part, a small and a large number of rows, and the greatest ratio of their peaks.
"""


def find_broken_limits(result: Result | Growth) -> Iterator[str]:
    """Yields a text for each broken limit and for each failed side."""
    yield from (
        _broken_by_comparison(result) if isinstance(result, Result) else _broken_by_growth(result)
    )


def _broken_by_comparison(result: Result) -> Iterator[str]:
    ours = result.sides[0]
    for side in result.sides:
        if side.failed:
            yield f"{result.part}: {side.name}, {side.does} failed: {side.failed}"
        limit_ratio, ratio = RATIOS.get((result.part, side.name, side.does)), ratios(ours, side)
        if limit_ratio and ratio and ratio.median > limit_ratio:
            yield (
                f"{result.part}: {ratio.median:.2f} of the time of {side.name}, {side.does} (limit"
                f" {limit_ratio})"
            )
        if limit := CPU_RATIOS.get((result.part, side.does)):
            cpu_ratio = median(
                a.cpu_seconds / b.cpu_seconds for a, b in zip(ours.runs, side.runs, strict=False)
            )
            if cpu_ratio > limit:
                yield (f"{result.part}: {cpu_ratio:.2f} of the CPU of {side.does} (limit {limit})")
        if limit := MORE_WORKER_MB.get((result.part, side.does)):
            more_mb = _worker(ours) - _worker(side)
            if more_mb > limit:
                yield (
                    f"{result.part}: a worker takes {more_mb:.0f} MB more than {side.does} (limit"
                    f" {limit:.0f} MB)"
                )
    if (limit := WORKER_MB.get(result.part)) and (peak := _worker(ours)) > limit:
        yield f"{result.part}: a worker took {peak:.0f} MB (limit {limit:.0f} MB)"


def _worker(side: Measured) -> float:
    """Returns the peak memory of a Python worker, in MB."""
    return max((run.peaks["worker"] for run in side.runs), default=0.0)


def _broken_by_growth(result: Growth) -> Iterator[str]:
    if (steepest := exponent(result.points)) > STEEPEST:
        yield f"{result.part}: grows as size to the power of {steepest:.2f} (limit {STEEPEST})"
    part, fewer, more, max_growth = WORKER_GROWTH
    peaks = {point.size: point.worker_mb for point in result.points}
    if (
        result.part == part
        and {fewer, more} <= set(peaks)
        and peaks[more] > max_growth * peaks[fewer]
    ):
        yield (
            f"{part}: a worker takes {peaks[fewer]:.0f} MB for {fewer:,} messages, and"
            f" {peaks[more]:.0f} MB for {more:,}"
        )
