"""Open transactions of runs, for sinks that publish in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from windrow.ingest.model.plan import Plan


class HeldBack(msgspec.Struct, frozen=True, order=True):
    """A topic-partition in which an open transaction holds readers back.

    Readers of committed messages wait at `stable`, and the log ends at `end`. `window`:
    the window that the message at `stable` names; None if it is another program's
    message, or can't be read.
    """

    topic: str
    partition: int
    stable: int
    end: int
    window: str | None


class OpenTransactions(Protocol):
    """The transactions of one table."""

    def ids(self, pipeline_id: str, plans: Sequence[Plan]) -> list[str]:
        """The transactional ids that the runs of these windows use.

        The first is the id of the table's receipts. Asks nothing.
        """

    def held_back(self) -> list[HeldBack]:
        """The topic-partitions of the table in which a transaction holds readers back.

        The transaction may be anybody's.

        Raises:
            UnreachableError: the cluster can't be reached.
        """

    def end(self, ids: Sequence[str]) -> None:
        """Fences off whoever uses these transactional ids.

        An open transaction is aborted. One that is already being committed or aborted
        is waited for.

        Raises:
            SpecError: the client isn't authorized.
            UnreachableError: the cluster can't be reached.
        """


@runtime_checkable
class Transactional(Protocol):
    """A sink that publishes in transactions."""

    def transactions(self) -> OpenTransactions:
        """The table's transactions.

        Raises:
            SpecError: this table is written without transactions.
        """
