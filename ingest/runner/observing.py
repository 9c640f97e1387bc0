"""Reports of runs to a pipeline's observer.

An error of the observer is logged, and fails no window.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from windrow.ingest.errors import RefusedError, WindrowError
from windrow.ingest.ports.observer import Figure, Observer
from windrow.ingest.runner.context import PassedOver, Pipeline, Result

WINDOWS = "windrow_windows_total"

_LOG = logging.getLogger("windrow.observer")


def tell(observer: Observer | None, *figures: Figure, report: bool) -> None:
    """Tells an observer some figures, and lets it report them.

    Args:
        observer: the observer; None for no observer.
        figures: name, value and labels of each figure.
        report: the observer also reports the figures.
    """
    if observer is None:
        return
    try:
        for figure in figures:
            observer.see(*figure)
        if report:
            observer.report()
    except Exception as error:  # no error of an observer stops a window  # noqa: BLE001
        _LOG.warning("%s", error if isinstance(error, WindrowError) else type(error).__name__)


@contextmanager
def timed(pipeline: Pipeline, phase: str) -> Iterator[None]:
    """Tells the observer how long a block takes, also if the block fails."""
    began = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - began
        tell(pipeline.observer, ("windrow_seconds_total", took, phase), report=False)


def observe(
    pipeline: Pipeline, outcomes: Iterator[Result | PassedOver]
) -> Iterator[Result | PassedOver]:
    """Yields the outcomes of a run, and tells the observer about each."""
    try:
        for outcome in outcomes:
            tell(pipeline.observer, *_figures(pipeline, outcome), report=True)
            yield outcome
    except WindrowError as error:
        word = "refused" if isinstance(error, RefusedError) else "failed"
        tell(pipeline.observer, (WINDOWS, 1, word), report=True)
        raise


def _figures(pipeline: Pipeline, outcome: Result | PassedOver) -> list[Figure]:
    if isinstance(outcome, PassedOver):
        return [(WINDOWS, 1, "refused")]
    if outcome.recovered:
        return [(WINDOWS, 1, "reported")]
    receipt, altered = outcome.committed.receipt, outcome.group_offsets
    counts = receipt.counts
    figures: list[Figure] = [
        (WINDOWS, 1, "committed"),
        ("windrow_rows_total", counts.rows),
        ("windrow_dead_letters_total", counts.dead),
        ("windrow_late_total", counts.late),
        ("windrow_committed_at_seconds", pipeline.now().timestamp()),
        *(
            ("windrow_bytes_in_total", split.bytes, split.topic, str(split.partition))
            for split in receipt.splits
        ),
        *(
            ("windrow_current_offset", mark.offset, mark.tp.topic, str(mark.tp.partition))
            for mark in receipt.plan.stop.marks
        ),
    ]
    if altered is not None:
        figures += [
            ("windrow_offset_commits_total", altered.succeeded, "succeeded"),
            ("windrow_offset_commits_total", altered.failed, "failed"),
        ]
    return figures
