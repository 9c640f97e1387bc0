"""A sink together with a store of dead letters, as a pipeline has both."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

import pyarrow as pa

from windrow.ingest.admin.chosen_dead_letters import refused_attempts
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.sink import Maintenance, Sink
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_LETTERS

OWNER = TableOwner("orders", "ledger-1", "hourly")


def read_dead(
    sink: Sink,
    store: DeadLetters,
    window: Window,
    limit: int | None = None,
    attempt: str | None = None,
) -> pa.Table:
    """Returns the dead letters of a window's committed attempt, or of another attempt.

    Args:
        sink: the sink.
        store: the store of dead letters.
        window: the window.
        limit: the largest number of dead letters.
        attempt: the attempt; None for the committed attempt.
    """
    if attempt is None:
        committed = sink.look(window)
        if committed is None:
            return DEAD_LETTERS.empty_table()
        attempt = committed.receipt.attempt
    return store.read(window, attempt, limit)


def swept(table: Sink | DeadLetters, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
    """Maintains a table, but joins and expires nothing; returns the URIs of removed files."""
    return [*table.maintain(Maintenance(older_than), dry_run=dry_run).removed_files]


class WithDeadLetters:
    """A mixin for a sink class: it does the steps of a run on sink and dead letters.

    Attributes:
        dead_letters: the store of dead letters.
    """

    dead_letters: DeadLetters

    def prepare(self, owner: TableOwner = OWNER, replaced: Collection[str] = ()) -> None:
        super().prepare(owner, replaced)  # type: ignore[misc]
        self.dead_letters.prepare(owner)

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        self.dead_letters.commit(plan, attempt, staged)

    def read_dead(
        self, window: Window, limit: int | None = None, attempt: str | None = None
    ) -> pa.Table:
        return read_dead(self, self.dead_letters, window, limit, attempt)  # type: ignore[arg-type]

    def refused(self) -> dict[str, str]:
        committed = {c.receipt.window for c in self.receipts()}  # type: ignore[attr-defined]
        return refused_attempts(self.dead_letters, committed, None)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """Removes staged files of the sink alone; returns their URIs."""
        return swept(self, older_than, dry_run=dry_run)  # type: ignore[arg-type]

    def sweep_both(self, older_than: timedelta = timedelta(days=1)) -> list[str]:
        """Removes staged files of the sink and of the dead letters; returns their URIs."""
        return [*self.sweep(older_than), *swept(self.dead_letters, older_than)]
