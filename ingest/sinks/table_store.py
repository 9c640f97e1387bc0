"""The interface between the one commit loop and a kind of table.

A store knows how rows, receipts and notes lie in its kind of table. It never decides whether a
window may be committed, never tries again, and never says what became of a commit: all of that is
`ingest.sinks.settle`'s and `ingest.sinks.window_table`'s, once for all kinds.

    store    one table at the place that a spec names; makes the table, and opens states of it
    state    what the table holds at one moment; a change is put on exactly this state
    change   rows, receipt and notes, visible by one atomic operation or not at all
    answer   written, conflict, or unanswered: only a look tells what became of the last two
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Capabilities, StagerFactory, Unreadable
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.place import ListedFile
from windrow.ingest.sinks.staged_files import HasSize, StagedFiles
from windrow.ingest.sinks.staging import Layout

SWEPT = "swept"
"""A note: staged files last written until this instant, in epoch milliseconds, were given up by a
sweep, so no commit may name them."""


class StoredReceipt(msgspec.Struct, frozen=True):
    """A receipt as a table holds it.

    `key`: its window's; `text`: exactly as it was written; `version`: the table's by which it came,
    where the table still knows.
    """

    key: str
    text: str
    version: int | None


class TableChange(msgspec.Struct, frozen=True):
    """What one commit brings. All of it becomes visible by one atomic operation, or nothing does.

    `window`: whose rows change; None where only notes are put. `staged`: committables of the
    store's own stager. `replaces`: the rows of that window that are in the table go. `receipt`:
    takes the place of the window's receipt; None for dead letters, which have none. `notes`: small
    facts by name, each of which takes the place of the one before. `columns`: the table's columns
    as the staged rows need them; None where there are no rows.
    """

    window: Window | None = None
    staged: tuple[str, ...] = ()
    replaces: bool = False
    receipt: Receipt | None = None
    notes: Mapping[str, int] = {}
    columns: pa.Schema | None = None


class Written(msgspec.Struct, frozen=True):
    """The change is in the table.

    `receipt`: as it was written, where the store filled in what it merged (`Receipt.merged`).
    """

    version: int | None
    receipt: Receipt | None = None


class Conflict(msgspec.Struct, frozen=True):
    """Another change came first; or this very one did, and the store's client sent it again.

    That is why the loop takes a conflict for "may have arrived", too, and looks whose change it
    was.
    """

    why: str


class Unanswered(msgspec.Struct, frozen=True):
    """The change was sent, and nobody knows whether it arrived.

    `full`: the disk has no room, so what isn't in the table at the next look can't come later.
    """

    why: str
    full: bool = False


Answer = Written | Conflict | Unanswered


class ReceiptState(Protocol):
    """What one consistent state of a table says of windows."""

    @property
    def version(self) -> int:
        """The number of changes so far: another number is another state."""

    @property
    def owner(self) -> TableOwner:
        """The pipeline, ledger and grid that the table is bound to.

        Raises:
            SpecError: the table was made by something else.
        """

    def committed(self) -> Collection[str]:
        """The keys of all windows that are committed. No receipt is read."""

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        """The newest receipt of some windows, or of all, in the order of keys; none of
        a window that isn't committed.
        """

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        """The keys of committed windows that hold any of these offsets; perhaps of some more.

        Raises:
            DamagedError: a receipt is missing without which nobody can say.
        """


class TableState(ReceiptState, Protocol):
    """One consistent state of a table. What was looked at is exactly what a change is put on."""

    def note(self, name: str) -> int | None:
        """The value of a note; None if it was never put."""

    def notes(self) -> Mapping[str, int]:
        """All notes."""

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        """Of some windows, or of all, the keys of those that the table holds rows of."""

    def size(self) -> tuple[int, int] | None:
        """The number of rows and of bytes, where the table knows them without reading rows."""

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        """The changes of the table's columns that rows of these columns would bring, in words.

        Raises:
            SchemaChangedError: the table may not be changed so.
        """

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one window, or of all, in batches of bounded size. Any thread may read on.

        Args:
            window: whose rows; None for all.
            names: the columns that are wanted; a store may give more. None for all.
        """

    def unneeded(self, listed: Iterable[ListedFile], cutoff: int) -> dict[str, int]:
        """The staged files that no reader of this state needs and that are older than a cutoff.

        Args:
            listed: all files in the store's folders.
            cutoff: in epoch milliseconds.

        Returns:
            The path of each, with the instant at which it was last written, in epoch milliseconds.
        """

    def put(self, change: TableChange) -> Answer:
        """Commit a change on exactly this state. Called at most once, and last.

        Raises:
            RefusedError, SchemaChangedError: this table may not be changed so; nothing was sent.
            LostConnectionError: the way to the table was lost; nothing was written.
            UnreachableError: the change could not be prepared; nothing was sent.
        """

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        """Put the lost text of a committed window's receipt back.

        Args:
            window: whose receipt is missing or damaged in this state.
            text: the receipt, byte by byte as it was committed.
            dry_run: only see whether that would work.

        Raises:
            RefusedError: the commit named another text, or the table can't take one back.
        """


class KeyedState(TableState, Protocol):
    """A state of a table whose rows replace each other by a primary key."""

    def rows(self) -> int:
        """The number of rows, by the table's own word."""

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        """All tombstones of a table that keeps those of all windows in one place."""

    def lost_tombstones(self, receipt: Receipt) -> RefusedError | UnreachableError | None:
        """The reason why nobody can say which keys a window took out; None if it can be said."""


class TableStore(Protocol):
    """One table of some kind, at a place that a spec names.

    `identity`: goes into plans' digests. `place`: the table's name for people. `primary_key`: by
    which rows replace each other; None where rows are only appended. `lists_windows`: whether
    `TableState.holding` of all windows is cheap, so that each look for receipts asks it, too.
    `staged`: None where rows travel with what tasks bring back.
    """

    @property
    def identity(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def primary_key(self) -> PrimaryKey | None: ...
    @property
    def lists_windows(self) -> bool: ...
    @property
    def staged(self) -> StagedFiles[HasSize] | None: ...

    @property
    def waits(self) -> Sequence[float]:
        """The seconds before each further try."""

    def is_at(self, identity: str) -> bool:
        """Whether an identity names this table, perhaps in another spelling."""

    def places(self) -> Sequence[str]:
        """The folders and buckets that tasks write to, as URIs (`ports.sink.Sink.places`)."""

    def check_columns(self, rows: pa.Schema, metadata: Mapping[str, str]) -> None:
        """Refuse columns that this kind of table can't give back as they are.

        Raises:
            SpecError: naming each of them.
        """

    def columns(self, rows: pa.Schema, metadata: Mapping[str, str]) -> pa.Schema:
        """All columns of a table of such rows."""

    def check_write(self) -> None:
        """Try whether the table can be written where it lies.

        Raises:
            SpecError: it can't; says why, and what to do.
        """

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        """Make the table unless it is there. Of calls that race one makes it, and none fails.

        Of one that is there, see to what no commit can: that the storage keeps its promises, that
        a feature is on.
        """

    def reading(self) -> AbstractContextManager[TableState | None]:
        """The newest state, without keeping writers out; None if the table isn't there."""

    def writing(self) -> AbstractContextManager[TableState | None]:
        """The newest state, to put a change on: locked until the end, or to be refused
        at `put` if another change came first.

        Leaving it without a put changes nothing, leaving it behind a put raises nothing, and
        opening it makes no table.
        """

    def stager(self, layout: Layout, window: Window) -> StagerFactory:
        """The picklable factory by which executors stage rows."""
