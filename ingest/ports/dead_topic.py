"""A topic to which the dead letters of committed windows are published.

The store of dead letters stays the source of truth. `runner.dead_publishing` has the order of
the steps.
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
        """Asks for the id of its cluster."""

    def refuse_unwritable(self) -> None:
        """Checks that the topic exists and may be written. Creates nothing.

        Raises:
            SpecError: it doesn't exist, or may not be written; the error says what to do.
            UnreachableError: it can't be checked now.
        """

    def publish(self, window: Window, dead_letters: Iterable[pa.RecordBatch]) -> None:
        """Writes dead letters of a window, and waits until the topic has them.

        If it raises, some of them may be in the topic.

        Args:
            window: the window.
            dead_letters: its dead letters, as their store returns them.

        Raises:
            SpecError: as `refuse_unwritable`.
            RefusedError: the topic doesn't accept one of them; the error says which.
            UnreachableError: the topic can't be reached, or doesn't answer.
        """
