"""A catalog that swaps a table's metadata for newer metadata, if it still is what was
looked at: Iceberg.

Other engines swap it, too: they rewrite files, and expire old snapshots. What a
snapshot's summary said is gone then; what the table's properties say stays.
"""

from __future__ import annotations

from typing import Any

from tests.protocols.explore import Ask, Program
from tests.protocols.numbered import (
    DefaultRetries,
    DeleteOnUnknown,
    Entry,
    LogWorld,
    LookOnce,
    NumberedLog,
    Seen,
)
from tests.protocols.world import TRIES, Receipt, judge


class CatalogWorld(LogWorld):
    """The entries are the metadata's history: their number says which metadata it is."""

    def events(self) -> list[tuple[str, Any]]:
        """Another engine is at work once."""
        rewrite = Entry(None, frozenset({"another engine"}))
        if rewrite in self.store.entries or not any(e.receipt for e in self.store.entries):
            return super().events()
        entries = (*self.store.entries, rewrite)
        return [
            *super().events(),
            (
                "another engine rewrites files and expires snapshots",
                self._replace(store=self.store._replace(entries=entries)),
            ),
        ]

    def summaries(self, who: str) -> list[tuple[Seen, Any]]:
        """For twins: what the snapshots say that are still there."""
        removal_numbers = [
            n for n, e in enumerate(self.store.entries) if e.receipt is None and e.removes
        ]
        young = self.store.entries[removal_numbers[-1] :] if removal_numbers else self.store.entries
        kept_receipts = tuple(r for r in self.receipts() if r in {e.receipt for e in young})
        return [(Seen(len(self.store.entries) - 1, kept_receipts, frozenset()), self)]


class Catalog(NumberedLog):
    """Look, swap; whatever the answer but ok, look again: the library's own retries are off."""

    name = "iceberg"

    def __init__(self) -> None:
        super().__init__(CatalogWorld)


# --------------------------------------------------------------------------------------------------


class MarkerInTheSummary(Catalog):
    """The receipt is looked for in the snapshots alone, which expire."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """As the real one, but for what is asked."""
        snapshot: Seen = yield Ask("summaries")
        judgment = judge(receipt, snapshot.receipts)
        if isinstance(judgment, str):
            return ("Refused", judgment)
        if judgment is not None:
            return ("AlreadyDone", judgment)
        return self.handle_reply(receipt, (yield self.write(snapshot, receipt)), tries)


class CatalogRetries(DefaultRetries, Catalog):
    """The library swaps again by itself, on metadata that nobody looked at: its default."""


class CatalogLookOnce(LookOnce, Catalog):
    """Takes a 500 for a no."""


class CatalogDeletes(DeleteOnUnknown, Catalog):
    """Takes a 500 for a no, and cleans up."""
