"""Observers: they receive figures of a pipeline's runs, for monitoring.

All figures come from the driver, which plans and commits. Tasks return their counts together
with their staged files.
"""

from __future__ import annotations

from typing import Protocol

_TOPIC_PARTITION = ("topic", "partition")

FIGURES = {
    "windrow_windows_total": (
        "Windows that were run: committed, reported (it was there), refused, failed.",
        ("outcome",),
    ),
    "windrow_rows_total": ("Rows of committed windows.", ()),
    "windrow_dead_letters_total": ("Dead letters of committed windows.", ()),
    "windrow_late_total": ("Messages of committed windows with times before their hours.", ()),
    "windrow_seconds_total": (
        "Seconds of the driver: in plan, read (with Spark's tasks) and commit.",
        ("phase",),
    ),
    "windrow_commit_tries_total": ("Puts that commits took.", ()),
    "windrow_committed_at_seconds": ("When a window was committed last, in epoch seconds.", ()),
    "windrow_maintained_total": (
        (
            "Changes by maintenance: joined_files, new_files, expired_versions,"
            " expired_dead_letters, expired_rows, removed_files."
        ),
        ("change",),
    ),
    "windrow_lag_records": ("Offsets of the topic that no window has yet.", ("topic",)),
    "windrow_lag_seconds": ("The age of the first of them.", ("topic",)),
    "windrow_bytes_in_total": ("Bytes of messages of committed windows.", _TOPIC_PARTITION),
    "windrow_current_offset": (
        "The offset up to which the last window that was committed read.",
        _TOPIC_PARTITION,
    ),
    "windrow_committed_offset": ("The first offset that no window has yet.", _TOPIC_PARTITION),
    "windrow_end_offset": ("The end of the log that can be read.", _TOPIC_PARTITION),
    "windrow_partition_lag_records": ("Offsets that no window has yet.", _TOPIC_PARTITION),
    "windrow_offset_commits_total": (
        "Offsets of topic-partitions that the group was told: succeeded, failed.",
        ("outcome",),
    ),
}
"""Each figure's meaning, and the labels that divide it. A total only grows."""

Figure = tuple[str, float, *tuple[str, ...]]
"""A figure's name, its value, and the values of its labels."""


class Observer(Protocol):
    """A receiver of figures. An error that it raises fails no window (`runner.observing`)."""

    def see(self, figure: str, value: float, *labels: str) -> None:
        """Adds to a total, or sets another figure, for these values of its labels."""

    def report(self) -> None:
        """Sends the figures that were seen since the last report.

        Raises:
            SpecError: an extra isn't installed.
            UnreachableError: nothing could be sent; it is kept for the next report.
        """
