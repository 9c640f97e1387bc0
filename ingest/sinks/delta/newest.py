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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import msgspec
from deltalake import DeltaTable
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from windrow.ingest.errors import UnreachableError
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.entry import Tip, is_plain
from windrow.ingest.sinks.delta.log import TableLog, entry_in, entry_name, newest_checkpoint, parts_in_checkpoint, read_log
from windrow.ingest.sinks.delta.logged import LoggedTable, Table
from windrow.ingest.sinks.delta.names import COMMITS_APP
from windrow.ingest.sinks.delta.receipts import VersionOf
from windrow.ingest.sinks.place import Place

_FEW = 1_000
"""So many application versions are copied at each look; beyond that they are put to the many others."""


class WindowsHeld:
    """Which windows a table holds rows of: those that it held when it was looked at afresh, and those that it was given rows of since.

    Args:
        first: tells the former, whenever it is asked.
    """

    def __init__(self, first: Callable[[], frozenset[str]]) -> None:
        self._first = first
        self._since: set[str] = set()

    def add(self, keys: set[str]) -> None:
        """These, too. Where they are taken away again, they count all the same until it is looked at afresh."""
        self._since |= keys

    def __contains__(self, key: object) -> bool:
        return key in self._since or key in self._before

    def every(self) -> set[str]:
        """All of them."""
        return self._since | self._before

    @cached_property
    def _before(self) -> frozenset[str]:
        return self._first()


def _with(every: Mapping[str, int], new: Mapping[str, int]) -> Mapping[str, int]:
    """All application versions, and newer ones. Who still has those of before sees none of this; and what is copied is little."""
    newer, older = every.maps if isinstance(every, ChainMap) else ({}, every)
    if len(newer) < _FEW:
        return ChainMap({**newer, **new}, older)  # type: ignore[arg-type]
    return ChainMap({**new}, {**older, **newer})


@dataclass(frozen=True)
class State:
    """A table, at a place, as it was looked at.

    `table` is what the log says, or deltalake's handle, of this version or an earlier one: its columns, properties and protocol still hold.
    `entry`: that of the version, where it can be read and the table is a plain one (`entry.is_plain`). `every`: all application versions;
    None where only deltalake knows them, which is asked one by one.
    """

    place: Place
    table: Table
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


def _parts(place: Place, log: TableLog) -> frozenset[str]:
    """What the partition column is in any file, where no entry behind the checkpoint takes files away."""
    (column,) = log.metadata.partition_columns
    before = frozenset[str]() if log.checkpoint < 0 else parts_in_checkpoint(place, log.checkpoint, column)
    return before | {key for values in log.added if (key := values[column]) is not None}


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
        log = read_log(self._place) if self._place.is_local else None
        if log is not None and not log.removes:
            logged = LoggedTable(self._uri, log, partial(tables.load, self._uri))
            if is_plain(self._place, logged):
                every = log.transactions
                return State(self._place, logged, log.version, log.entry, every.get, every, WindowsHeld(partial(_parts, self._place, log)))
        table = tables.load(self._uri)
        return None if table is None else self._of(table)

    def _of(self, table: DeltaTable) -> State:
        """As deltalake has loaded it."""
        version, ask, held = table.version(), tables.versions(self._uri, table), WindowsHeld(partial(tables.parts, table))
        log = read_log(self._place, version)
        if log is None or log.transactions.get(COMMITS_APP) != ask(COMMITS_APP):
            return State(self._place, table, version, None, ask, None, held)
        entry = log.entry if is_plain(self._place, table) else None
        return State(self._place, table, version, entry, log.transactions.get, log.transactions, held)

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
