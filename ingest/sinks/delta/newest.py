"""The newest state of a table, look by look: what the look before has read is not read again.

A load takes in the log since its checkpoint and every file of the table, and between two windows of one run nothing has come to it but the
first one's commit. So what a look saw is kept, and the next one reads the entries of the log that have come since, whoever wrote them. An
entry that does more than add or remove files makes it load afresh, and so does a log that isn't the one that was looked at. That, the entry
of the version tells: there is an instant in each, and in each of windrow's a receipt's fingerprint.

    1 A looks: version 7, and keeps it with its entry.  2 The table is removed, and made anew up to version 9.
    3 A looks again: entry 7 is another one, so it loads the table afresh. Else it would have read on in a table that isn't there.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
from deltalake import DeltaTable
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from ingest.errors import UnreachableError
from ingest.sinks.delta import table as tables
from ingest.sinks.delta.entry import Tip, is_plain
from ingest.sinks.delta.log import entry_in, entry_name, newest_checkpoint, transactions
from ingest.sinks.delta.names import COMMITS_APP
from ingest.sinks.delta.receipts import VersionOf
from ingest.sinks.place import Place

_FEW = 1_000
"""So many application versions are copied at each look; beyond that they are put to the many others."""


class WindowsHeld:
    """Which windows a table holds rows of: those that it held when it was loaded, and those that it was given rows of since."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._since: set[str] = set()

    def add(self, keys: set[str]) -> None:
        """These, too. Where they are taken away again, they count all the same until the table is loaded the next time."""
        self._since |= keys

    def __contains__(self, key: object) -> bool:
        return key in self._since or key in self._loaded

    @cached_property
    def _loaded(self) -> frozenset[str]:
        return tables.parts(self._table)


def _with(every: Mapping[str, int], new: Mapping[str, int]) -> Mapping[str, int]:
    """All application versions, and newer ones. Who still has those of before sees none of this; and what is copied is little."""
    newer, older = every.maps if isinstance(every, ChainMap) else ({}, every)
    if len(newer) < _FEW:
        return ChainMap({**newer, **new}, older)  # type: ignore[arg-type]
    return ChainMap({**new}, {**older, **newer})


@dataclass(frozen=True)
class State:
    """A table, at a place, as it was looked at.

    `table` is deltalake's handle, loaded at this version or an earlier one: what it says of columns, properties and protocol still holds.
    `entry`: that of the version, where it can be read and the table is a plain one (`entry.is_plain`). `every`: all application versions;
    None where only deltalake knows them, which is asked one by one.
    """

    place: Place
    table: DeltaTable
    version: int
    entry: bytes | None
    version_of: VersionOf
    every: Mapping[str, int] | None
    filled: WindowsHeld


def append_on(state: State, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
    """Add files on exactly this state; see `table.append`."""
    if state.entry is None:
        tables.append(tables.brought_to(state.table, state.version), actions, properties)
    else:
        tables.append(state.table, actions, properties, Tip(state.place, state.version, state.entry))


class Newest:
    """Looks at one table, for one thread."""

    def __init__(self, uri: str, place: Place) -> None:
        self._uri = uri
        self._place = place
        self._kept: State | None = None
        self._new: dict[str, int] | None = {}

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
        if state is None:
            state = self._loaded()
            self._new = None if state is None or state.every is None else dict(state.every)
        self._kept = state if state is not None and state.entry is not None and state.every is not None else None
        return state

    def take_new(self) -> dict[str, int] | None:
        """The application versions that looks have seen come since they were taken before: all, if a look loaded the table.

        Any number of looks may lie in between, whoever made them: what one of them saw is there for who takes it. None if it isn't known.
        """
        new, self._new = self._new, None if self._new is None else {}
        return new

    def _loaded(self) -> State | None:
        table = tables.load(self._uri)
        if table is None:
            return None
        version, ask = table.version(), tables.versions(self._uri, table)
        every, entry = transactions(self._place, version), self._entry(version) if is_plain(self._place, table) else None
        if every is None or every.get(COMMITS_APP) != ask(COMMITS_APP):
            return State(self._place, table, version, entry, ask, None, WindowsHeld(table))
        return State(self._place, table, version, entry, every.get, every, WindowsHeld(table))

    def _followed(self, kept: State) -> State | None:
        """The kept state with what has come since; None if it can't be followed."""
        assert kept.entry is not None
        assert kept.every is not None
        if self._entry(kept.version) != kept.entry:
            return None
        version, entry, new = kept.version, kept.entry, dict[str, int]()
        while (following := self._entry(version + 1)) is not None:
            try:
                read = entry_in(following)
            except msgspec.DecodeError:
                return None
            new |= read.transactions
            kept.filled.add({key for values in read.added for key in values.values() if key is not None})
            version, entry = version + 1, following
        checkpoint = newest_checkpoint(self._place)
        if checkpoint is None or checkpoint > version:  # the log goes on behind a gap that a clean-up made
            return None
        every = _with(kept.every, new) if new else kept.every
        if self._new is not None:
            self._new |= new
        return replace(kept, version=version, entry=entry, version_of=every.get, every=every)

    def _entry(self, version: int) -> bytes | None:
        """None if it isn't there, or can't be had."""
        try:
            return self._place.get(entry_name(version))
        except (OSError, UnreachableError):
            return None
