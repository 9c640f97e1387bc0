"""Observers: they receive figures of a pipeline's runs, for monitoring.

All figures come from the driver, which plans and commits. Tasks return their counts together
with their staged files.
"""

from __future__ import annotations

from typing import Protocol

FIGURES = {
    "windrow_windows_total": (
        "Windows that were run: committed, reported (it was there), refused, failed.",
        "outcome",
    ),
    "windrow_rows_total": ("Rows of committed windows.", ""),
    "windrow_dead_letters_total": ("Dead letters of committed windows.", ""),
    "windrow_seconds_total": (
        "Seconds of the driver: in plan, read (with Spark's tasks) and commit.",
        "phase",
    ),
    "windrow_commit_tries_total": ("Puts that commits took.", ""),
    "windrow_committed_at_seconds": ("When a window was committed last, in epoch seconds.", ""),
    "windrow_lag_records": ("Offsets of the topic that no window has yet.", "topic"),
    "windrow_lag_seconds": ("The age of the first of them.", "topic"),
}
"""Each figure's meaning, and the label that divides it. A total only grows."""


class Observer(Protocol):
    """A receiver of figures. An error that it raises fails no window (`runner.observing`)."""

    def see(self, figure: str, value: float, label: str = "") -> None:
        """Adds to a total, or sets another figure."""

    def report(self) -> None:
        """Sends the figures that were seen since the last report.

        Raises:
            SpecError: an extra isn't installed.
            UnreachableError: nothing could be sent; it is kept for the next report.
        """
