"""Broken twins of the Iceberg sink, each one step from the real one.

A suite that can't tell them apart proves nothing.

Each takes the same road as many sinks in the wild; `meanwhile` is called between the
look and the write, where the other run gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tests.sinks.hooks import on_put
from tests.sinks.iceberg.world import TABLE, IcebergBoth, state_of
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.commit import Prepared
from windrow.ingest.sinks.table_store import Answer, TableChange


class RealSink(IcebergBoth):
    """The sink itself; another run gets its turn between its first look and its first write."""

    def __init__(
        self, place: str, schema: pa.Schema, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(CatalogTable.in_folder(place, TABLE), schema)
        self.meanwhile = meanwhile
        self.store.send = self.sends  # type: ignore[method-assign]
        on_put(self, self._late)

    def _late(self, state: Any, change: TableChange) -> Answer:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        return self.once(state, change)

    def once(self, state: Any, change: TableChange) -> Answer:
        return state.put(change)  # type: ignore[no-any-return]

    def sends(self, ready: Prepared) -> None:
        """Send a commit; a twin sends it in another way."""
        ready.send()


class OwnRetry(RealSink):
    """Sends by PyIceberg's own commit, which tries again on a state that nobody looked at."""

    def sends(self, ready: Prepared) -> None:
        ready.commit_transaction()


class NoAssertion(RealSink):
    """Makes the same change on the newest snapshot, as a writer does that loads the
    table right before it commits.
    """

    def sends(self, ready: Prepared) -> None:
        loaded: Any = ready
        loaded._table.refresh()  # noqa: SLF001
        loaded._rebuild_snapshot_updates()  # noqa: SLF001
        loaded._requirements = ()  # noqa: SLF001
        ready.send()


class Repeated(RealSink):
    """After an answer that is lost it sends again without a look."""

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        outcome = super().commit(receipt, staged)
        words = tuple(word for s in staged for word in s.rows)
        state_of(self).put(TableChange(receipt.window, words, columns=self.columns))
        return outcome
