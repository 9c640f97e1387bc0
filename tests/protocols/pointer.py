"""The protocol of a catalog that swaps a table's metadata if it is still the one of the look,
for Iceberg.

Other engines swap it, too: they rewrite files and expire old snapshots. Then the snapshots'
summaries are gone, but the table's properties stay.
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
    """The log as the history of metadata; an entry's number identifies the metadata."""

    def events(self) -> list[tuple[str, Any]]:
        """Returns the world's own steps; another engine acts once."""
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
        """Reads the receipts in the summaries of the remaining snapshots; for twins."""
        removal_numbers = [
            n for n, e in enumerate(self.store.entries) if e.receipt is None and e.removes
        ]
        young = self.store.entries[removal_numbers[-1] :] if removal_numbers else self.store.entries
        kept_receipts = tuple(r for r in self.receipts() if r in {e.receipt for e in young})
        return [(Seen(len(self.store.entries) - 1, kept_receipts, frozenset()), self)]


class Catalog(NumberedLog):
    """The real protocol: look, and swap.

    After any answer but ok, look again. The library's own retries are off.
    """

    name = "iceberg"

    def __init__(self) -> None:
        super().__init__(CatalogWorld)


# --- broken twins


class MarkerInTheSummary(Catalog):
    """A twin that looks for receipts only in snapshots, which expire."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits like the real protocol, but asks only for the summaries."""
        snapshot: Seen = yield Ask("summaries")
        judgment = judge(receipt, snapshot.receipts)
        if isinstance(judgment, str):
            return ("Refused", judgment)
        if judgment is not None:
            return ("AlreadyDone", judgment)
        return self.handle_reply(receipt, (yield self.write(snapshot, receipt)), tries)


class CatalogRetries(DefaultRetries, Catalog):
    """A twin whose library swaps again by itself on metadata that the run hasn't looked at.

    This is the library's default.
    """


class CatalogLookOnce(LookOnce, Catalog):
    """A twin that takes status 500 as "not committed"."""


class CatalogDeletes(DeleteOnUnknown, Catalog):
    """A twin that takes status 500 as "not committed", and removes the files."""
