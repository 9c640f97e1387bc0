"""The newest state of a table, look by look: what the look before has read is not read again.

A load takes in the log since its checkpoint and every file of the table, and between two windows of one run nothing has come to it but the
first one's commit. So the state of a look is kept, and the next one takes in what has come since, from whomever. That the log is the one
that was looked at, the entry of that version tells: each has an instant in it, and each of windrow's a receipt's fingerprint.

    1 A looks: version 7, and keeps it with its entry.  2 The table is removed, and made anew up to version 9.
    3 A looks again: entry 7 is another one, so it loads the table afresh. Else it would have read on from a table that isn't there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from ingest.errors import UnreachableError
from ingest.sinks.delta import table as tables
from ingest.sinks.delta.log import committed_in, entry_name, transactions
from ingest.sinks.delta.names import COMMITS_APP
from ingest.sinks.delta.place import Place
from ingest.sinks.delta.receipts import VersionOf


@dataclass(frozen=True)
class State:
    """A table as it was looked at.

    `every`: all its application versions; None where only deltalake knows them, which is asked one by one. `new`: those of them that have
    come since the look before; all, if that wasn't kept.
    """

    table: DeltaTable
    version_of: VersionOf
    every: Mapping[str, int] | None
    new: Mapping[str, int] | None


@dataclass(frozen=True)
class _Kept:
    table: DeltaTable
    version: int
    entry: bytes
    every: dict[str, int]


class Newest:
    """Looks at one table, for one thread."""

    def __init__(self, uri: str, place: Place) -> None:
        self._uri = uri
        self._place = place
        self._kept: _Kept | None = None

    def forget(self) -> None:
        """Load afresh the next time: after a commit that may have arrived, what is there is all that counts."""
        self._kept = None

    def look(self) -> State | None:
        """The table as it is now; None if it isn't there.

        Raises:
            UnreachableError: if that can't be told.
        """
        kept, self._kept = self._kept, None
        state = None if kept is None else self._followed(kept)
        return self._loaded() if state is None else state

    def _loaded(self) -> State | None:
        table = tables.load(self._uri)
        if table is None:
            return None
        ask, every = tables.versions(self._uri, table), transactions(self._place, table.version())
        if every is None or every.get(COMMITS_APP) != ask(COMMITS_APP):
            return State(table, ask, None, None)
        self._keep(table, every)
        return State(table, every.get, every, every)

    def _followed(self, kept: _Kept) -> State | None:
        """The kept table with what has come since; None if it can't be followed."""
        if self._entry(kept.version) != kept.entry:
            return None
        table, new = kept.table, dict[str, int]()
        try:
            table.update_incremental()
            for version in range(kept.version + 1, table.version() + 1):
                new |= committed_in(self._entry(version) or b"")
        except Exception:  # noqa: BLE001  # whatever it is, a load tells it in words, or mends it
            return None
        every = {**kept.every, **new}  # another dictionary: who still has the state before sees none of this
        if every.get(COMMITS_APP) != tables.versions(self._uri, table)(COMMITS_APP):
            return None
        self._keep(table, every)
        return State(table, every.get, every, new)

    def _keep(self, table: DeltaTable, every: dict[str, int]) -> None:
        version = table.version()
        entry = self._entry(version)
        self._kept = None if entry is None else _Kept(table, version, entry, every)

    def _entry(self, version: int) -> bytes | None:
        """None if it isn't there, or can't be had."""
        try:
            return self._place.get(entry_name(version))
        except (OSError, UnreachableError):
            return None
