"""The interface between the one commit loop and a kind of table.

A store knows how rows, receipts and notes are stored in its kind of table. It never decides whether
a window may be committed, never tries again, and never says what became of a commit: all of that
`sinks.kit.commit.commit_loop` and `sinks.kit.commit.window_table` do, once for all kinds.

    store    one table at the place that a spec names; makes the table, and opens states of it
    state    what the table holds at one moment; a change is put on exactly this state
    change   rows, receipt and notes, visible by one atomic operation or not at all
    answer   written, conflict, or unanswered: after the last two only a look tells what happened
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec
import pyarrow as pa

from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, Window
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.sink import (
    Capabilities,
    Done,
    Outcome,
    StagerFactory,
    Unknown,
    Unreadable,
)
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.kit.files.file_stager import Layout
from windrow.ingest.sinks.kit.files.filesystem import is_disk_full
from windrow.ingest.sinks.kit.files.staged_files import HasSize, StagedFiles


class StoredReceipt(msgspec.Struct, frozen=True):
    """A receipt as a table holds it.

    `key`: its window's. `text`: exactly as it was written. `version`: the table's version that
    brought it, if the table still knows.
    """

    key: str
    text: str
    version: int | None


class TableChange(msgspec.Struct, frozen=True):
    """The content of one commit: all of it becomes visible by one atomic operation, or nothing.

    `window`: the window whose rows change; None if only notes are put. `staged`: committables of
    the store's own stager. `replaces`: whether the window's rows in the table are removed.
    `receipt`: replaces the window's receipt; None for dead letters, which have none. `notes`: small
    numbers by name, each of which replaces the one before. `columns`: the table's columns as the
    staged rows need them; None if there are no rows.
    """

    window: Window | None = None
    staged: tuple[str, ...] = ()
    replaces: bool = False
    receipt: Receipt | None = None
    notes: Mapping[str, int] = {}
    columns: pa.Schema | None = None


class Written(msgspec.Struct, frozen=True):
    """The change is in the table.

    `receipt`: as it was written, if the store added what it merged (`Receipt.merged`). `tries`: the
    puts that it took.
    """

    version: int | None
    receipt: Receipt | None = None
    tries: int = 1

    def outcome_for(self, sent: Receipt) -> Outcome:
        """What became of a receipt that was to be put, as a sink says it."""
        return Done(Committed(self.receipt or sent, self.version), self.tries)


class Conflict(msgspec.Struct, frozen=True):
    """Another change came first; or this very one did, and the store's client sent it again.

    So for the loop a conflict means "may have arrived", too: it looks whose change it was.
    """

    why: str


class Unanswered(msgspec.Struct, frozen=True):
    """The change was sent, and nobody knows whether it arrived.

    `full`: the disk has no room, so a change that the next look doesn't see never arrives.
    """

    why: str
    full: bool = False

    @classmethod
    def by_storage(cls, reason: str, *, is_local: bool) -> Unanswered:
        """The answer of a client of files, in whose words a local disk may be full."""
        return cls(reason, is_local and is_disk_full(reason))

    def outcome_for(self, _sent: Receipt) -> Outcome:
        """What became of a receipt that was to be put, as a sink says it."""
        return Unknown(self.why)


Answer = Written | Conflict | Unanswered
"""What became of a put, as far as its store knows."""


class ReceiptState(Protocol):
    """One consistent state of a table's receipts."""

    @property
    def version(self) -> int:
        """The number of changes so far. States with different numbers are different."""

    @property
    def owner(self) -> TableOwner:
        """The pipeline, ledger and grid that the table is bound to.

        Raises:
            SpecError: something else made the table.
        """

    def committed(self) -> Collection[str]:
        """The keys of all windows that are committed. No receipt is read."""

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        """The newest receipts of some windows, or of all, in the order of keys.

        A window that isn't committed has none.
        """

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        """The keys of committed windows that hold any of these offsets, and perhaps some more.

        Raises:
            DamagedError: a receipt is missing that is needed for the answer.
        """


class TableState(ReceiptState, Protocol):
    """One consistent state of a table. A change is put on exactly the state that was looked at."""

    def note(self, name: str) -> int | None:
        """The value of a note; None if it was never put."""

    def notes(self) -> Mapping[str, int]:
        """All notes."""

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        """The keys of windows that the table has rows of; of all windows, or of some."""

    def size(self) -> tuple[int, int] | None:
        """The number of rows and of bytes, if the table knows them without reading rows."""

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
            window: the window of the rows; None for all.
            names: the columns to read; a store may read more. None for all.
        """

    def unneeded(self, old: Mapping[str, int], cutoff: int, /) -> Mapping[str, int]:
        """Those of some old staged files that no reader of this state needs.

        Args:
            old: the path of each, with the instant of its last write in epoch milliseconds, in the
                order of paths.
            cutoff: they were written until this instant, in epoch milliseconds.
        """

    def put(self, change: TableChange) -> Answer:
        """Commits a change on exactly this state. Called at most once, and last.

        Raises:
            RefusedError, SchemaChangedError: this table may not be changed so; nothing was sent.
            LostConnectionError: the way to the table was lost; nothing was written.
            UnreachableError: the change couldn't be prepared; nothing was sent.
        """

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        """Puts back the lost text of a committed window's receipt.

        Args:
            window: the window whose receipt is missing or damaged in this state.
            text: the receipt, byte by byte as it was committed.
            dry_run: only check whether that would work.

        Raises:
            RefusedError: the commit named another text, or the table can't take one back.
        """


class TableStore(Protocol):
    """One table of some kind, at a place that a spec names.

    `identity`: goes into plans' digests. `place`: the table's name for people. `metadata`: the
    names of the metadata columns. `primary_key`: the columns by which rows replace each other, and
    then each state is a `ports.sink.KeyedAudit`, too; None if rows are only appended. `staged`: the
    files of its stagers; None if rows are in the tasks' results.
    """

    @property
    def identity(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def primary_key(self) -> PrimaryKey | None: ...
    @property
    def staged(self) -> StagedFiles[HasSize] | None: ...

    @property
    def waits(self) -> Sequence[float]:
        """The seconds before each further try."""

    def is_at(self, identity: str) -> bool:
        """Returns whether an identity names this table, perhaps in another spelling."""

    def places(self) -> Sequence[str]:
        """The folders and buckets that tasks write to, as URIs (`ports.sink.Sink.places`)."""

    def check_columns(self, rows: pa.Schema) -> None:
        """Refuses columns whose values this kind of table can't store exactly.

        Raises:
            SpecError: names each of them.
        """

    def columns(self, rows: pa.Schema) -> pa.Schema:
        """All columns of a table of such rows."""

    def check_write(self) -> None:
        """Checks whether the table can be written at its place.

        Raises:
            SpecError: it can't; says why, and what to do.
        """

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        """Creates the table unless it exists. Of calls that race one creates it, and none fails.

        For a table that exists, does what no commit can: it checks that the storage keeps its
        promises, or switches a feature on.
        """

    def reading(self) -> AbstractContextManager[TableState | None]:
        """Opens the newest state, without locking out writers; None if there is no table."""

    def writing(self) -> AbstractContextManager[TableState | None]:
        """Opens the newest state, to put a change on it; None if there is no table.

        It is locked until the end, or `put` refuses if another change came first. Closing it
        without a put changes nothing, closing it after a put raises nothing, and opening it creates
        no table.
        """

    def stager(self, layout: Layout, window: Window) -> StagerFactory:
        """Makes the picklable factory of the stagers on executors."""
