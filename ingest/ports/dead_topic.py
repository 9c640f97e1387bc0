"""A topic to which the dead letters of committed windows are published.

Their store stays the source of truth; `runner.dead_publishing` has the order of the
steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from windrow.ingest.model.plan import Window


class DeadTopic(Protocol):
    """A topic for dead letters."""

    @property
    def name(self) -> str:
        """The topic's name."""

    def cluster_id(self) -> str:
        """The id of its cluster, asked now."""

    def refuse_unwritable(self) -> None:
        """Checks that the topic exists and may be written. Creates nothing.

        Raises:
            SpecError: it doesn't exist, or may not be written; says what to do.
            UnreachableError: it can't be determined now.
        """

    def publish(self, window: Window, dead_letters: Iterable[pa.RecordBatch]) -> None:
        """Writes dead letters of a window, as their store returns them, and waits for them.

        All are in the topic when it returns; some may be if it raises.

        Raises:
            SpecError: as `refuse_unwritable`.
            RefusedError: the topic doesn't accept one of them; says which.
            UnreachableError: the topic can't be reached, or does not answer.
        """
