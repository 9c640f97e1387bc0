"""What can be told, and done, about transactions that runs left open: asked of sinks
that publish by transactions, and of no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from windrow.ingest.model.plan import Plan


class HeldBack(msgspec.Struct, frozen=True, order=True):
    """A topic-partition that an open transaction holds back: readers of committed
    messages wait at `stable`, and the log ends at `end`.

    `window`: whose message lies at `stable`, by its own word; None: another program's,
    or it can't be told.
    """

    topic: str
    partition: int
    stable: int
    end: int
    window: str | None


class OpenTransactions(Protocol):
    """The transactions of one table."""

    def ids(self, pipeline_id: str, plans: Sequence[Plan]) -> list[str]:
        """The transactional ids that runs of these windows use, and the one of the
        table's receipts first.

        Asks nothing.
        """

    def held_back(self) -> list[HeldBack]:
        """Where an open transaction, of anybody, holds back readers of the table's topics.

        Raises:
            UnreachableError: the cluster.
        """

    def end(self, ids: Sequence[str]) -> None:
        """Take these ids from whoever has them: what is open under one is taken back,
        and what was decided is waited for.

        Raises:
            SpecError: this client may not.
            UnreachableError: the cluster.
        """


@runtime_checkable
class Transactional(Protocol):
    """A sink that publishes by transactions."""

    def transactions(self) -> OpenTransactions:
        """What can be told and done about them.

        Raises:
            SpecError: this table is written without any.
        """
