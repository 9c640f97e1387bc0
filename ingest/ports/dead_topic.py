"""A topic to which the dead letters of committed windows are published.

Their store stays the source of truth; `runner.dead_publishing` has the order of the
steps.
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

    Once it has begun, an earlier publish attempt for the same dead letters can't commit
    any more. If it doesn't commit, consumers never see anything of it.
    """

    def is_published(self) -> bool:
        """True if an earlier publish attempt has committed.

        The topic remembers that for at least `DeadTopic.remembers`. Within a publish
        attempt the answer stays true: no earlier one can commit any more.

        Raises:
            UnreachableError: it can't be determined now.
        """

    def write(self, dead_letters: Iterable[pa.RecordBatch]) -> None:
        """Writes dead letters, as their store returns them. Consumers don't see them yet.

        Raises:
            RefusedError: the topic doesn't accept one of them; says which.
            UnreachableError: the topic can't be reached, or another publish attempt was
                begun.
        """

    def commit(self, count: int) -> None:
        """Makes all that was written visible, and marks it as published, atomically.

        Raises:
            OutcomeUnknownError: the commit was sent, and it is unknown if it arrived.
            UnreachableError: the topic can't be reached, or another publish attempt was
                begun; nothing was published.
        """


class DeadTopic(Protocol):
    """A topic for dead letters."""

    @property
    def name(self) -> str:
        """The topic's name."""

    def refuse_unwritable(self) -> None:
        """Checks that the topic exists and may be written. Creates nothing.

        Raises:
            SpecError: it doesn't exist, or may not be written; says what to do.
            UnreachableError: it can't be determined now.
        """

    def remembers(self) -> timedelta:
        """The shortest time for which the topic remembers published attempts."""

    def publishing(self, window: Window, attempt: str) -> AbstractContextManager[PublishAttempt]:
        """Begins the next publish attempt for an attempt of a window.

        Raises (when entered):
            SpecError, UnreachableError: as `refuse_unwritable`.
        """
