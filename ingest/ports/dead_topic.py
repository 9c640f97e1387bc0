"""A topic that the dead letters of committed windows are published to.

Their store stays the truth; see `runner.dead_publishing` for the order.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol

import pyarrow as pa

from windrow.ingest.model.window import Window


class PublishAttempt(Protocol):
    """One try at publishing an attempt's dead letters: a transaction.

    Whoever published the same attempt before can't commit any more.

    Left without a commit, nothing of it is ever read.
    """

    def is_published(self) -> bool:
        """Whether an earlier publish attempt has committed.

        Asked within a publish attempt, the answer can't be overtaken.

        The topic forgets that after `DeadTopic.remembers`.

        Raises:
            UnreachableError: that can't be told now.
        """

    def write(self, dead_letters: Iterable[pa.RecordBatch]) -> None:
        """Write dead letters, as their store gives them. Nobody sees them yet.

        Raises:
            RefusedError: the topic doesn't take one of them; says which.
            UnreachableError: it can't be got at, or another publish attempt was begun.
        """

    def commit(self, count: int) -> None:
        """Have all that was written seen, and remembered as published, in one step.

        Raises:
            OutcomeUnknownError: that was sent and can't be told to have arrived.
            UnreachableError: it can't be got at, or another publish attempt was
                begun; nothing was published.
        """


class DeadTopic(Protocol):
    """The topic."""

    @property
    def name(self) -> str:
        """What it is called."""

    def refuse_unwritable(self) -> None:
        """Look whether it is there and may be written. Makes nothing.

        Raises:
            SpecError: it isn't, or mayn't; says what to do.
            UnreachableError: that can't be told now.
        """

    def remembers(self) -> timedelta:
        """For how long at least it is known which attempts were published."""

    def publishing(self, window: Window, attempt: str) -> AbstractContextManager[PublishAttempt]:
        """The next try at an attempt of a window.

        Raises (when entered):
            SpecError, UnreachableError: as `refuse_unwritable`.
        """
