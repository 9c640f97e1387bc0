"""The interface between the commit loop and a kind of table.

A store knows how its kind of table stores rows, receipts and notes. It never decides whether a
window may be committed, never tries again, and never reports the outcome of a commit.
`sinks.kit.commit.commit_loop` and `sinks.kit.commit.window_table` do that, once for all kinds.

    store    one table at the place that a spec names; creates the table, and opens states of it
    state    the content of the table at one moment; a change is put on exactly this state
    change   rows, receipt and notes, visible by one atomic operation or not at all
    answer   written, conflict, or unanswered; after the last two, only a look shows the outcome
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

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

    Attributes:
        key: the window's key.
        text: the exact text.
        version: the version of the table that the receipt's commit made; None if the table
            doesn't know it any more.
    """

    key: str
    text: str
    version: int | None


class JoinedFiles(msgspec.Struct, frozen=True):
    """Files of one partition of a table, and the file that has their rows from now on.

    Attributes:
        replaced: the paths of the files, in the words of the store.
        staged: the committable of the new file; empty if the files had no rows.
    """

    replaced: tuple[str, ...]
    staged: tuple[str, ...]


class TableChange(msgspec.Struct, frozen=True):
    """The content of one commit: one atomic operation makes all of it visible, or nothing.

    Attributes:
        window: the window whose rows change; None if only notes are put.
        staged: committables of the store's own stagers.
        replaces: whether the window's rows in the table are removed.
        receipt: the new receipt of the window; None for dead letters, which have none.
        notes: small numbers by name. Each replaces the earlier value of its name.
        columns: the table's columns as the staged rows need them; None if there are no rows.
        joined: files that are replaced by files with the same rows. Such a change has no window.
        expired_snapshots: the ids of the snapshots that are removed from the table's history.
        expired: the new receipts of windows whose rows are removed because of their age.
    """

    window: Window | None = None
    staged: tuple[str, ...] = ()
    replaces: bool = False
    receipt: Receipt | None = None
    notes: Mapping[str, int] = {}
    columns: pa.Schema | None = None
    joined: tuple[JoinedFiles, ...] = ()
    expired_snapshots: tuple[int, ...] = ()
    expired: tuple[Receipt, ...] = ()

    @property
    def receipts(self) -> Sequence[Receipt]:
        """All receipts of the commit, as they were proposed."""
        return self.expired if self.receipt is None else (self.receipt,)

    def expiries(self) -> Iterator[TableChange]:
        """Yields the same removals of rows as changes of one window each."""
        for receipt in self.expired:
            yield TableChange(window=receipt.window, replaces=True, receipt=receipt)


class Written(msgspec.Struct, frozen=True):
    """An answer to a put: the change is in the table.

    Attributes:
        version: the version of the table that the commit made.
        receipt: the receipt as it was written, if the store added the sums of its merge
            (`Receipt.merged`).
        tries: number of puts.
    """

    version: int | None
    receipt: Receipt | None = None
    tries: int = 1

    def outcome_for(self, receipt: Receipt) -> Outcome:
        """Returns the outcome of a commit of this receipt."""
        return Done(Committed(self.receipt or receipt, self.version), self.tries)


class Conflict(msgspec.Struct, frozen=True):
    """An answer to a put: another change came first.

    The other change may also be this very change, if the store's client sent it twice. So a
    conflict also means "may have arrived", and the loop looks whose change it was.
    """

    reason: str


class Unanswered(msgspec.Struct, frozen=True):
    """An answer to a put: the change was sent, and it is unknown whether it arrived.

    Attributes:
        reason: the reason, in the words of the store's client.
        full: whether the disk has no room. A change that the next look doesn't see never
            arrives then.
    """

    reason: str
    full: bool = False

    @classmethod
    def by_storage(cls, reason: str, *, is_local: bool) -> Unanswered:
        """Makes the answer from the error of a client of files.

        Its words may say that a local disk is full.
        """
        return cls(reason, is_local and is_disk_full(reason))

    def outcome_for(self, _receipt: Receipt) -> Outcome:
        """Returns the outcome of a commit of this receipt."""
        return Unknown(self.reason)


Answer = Written | Conflict | Unanswered
"""The result of a put, as far as the store knows it."""


class ReceiptState(Protocol):
    """One consistent state of a table's receipts."""

    @property
    def version(self) -> int:
        """The number of changes so far. States with different numbers are different."""

    @property
    def owner(self) -> TableOwner:
        """The pipeline, ledger and grid that the table is bound to.

        Raises:
            SpecError: something other than windrow made the table.
        """

    def committed(self) -> Collection[str]:
        """Returns the keys of all committed windows. It reads no receipt."""

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        """Yields the newest receipts of some windows, or of all, in the order of keys.

        A window that isn't committed has none.
        """

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        """Returns the keys of committed windows that hold any of these offsets.

        There may be some more keys.

        Raises:
            DamagedError: a receipt is missing that is needed for the answer.
        """


class TableState(ReceiptState, Protocol):
    """One consistent state of a table. A change is put on exactly the state that was looked at."""

    def note(self, name: str) -> int | None:
        """Returns the value of a note; None if it was never put."""

    def notes(self) -> Mapping[str, int]:
        """Returns the values of all notes, by name."""

    def holding(self, keys: Collection[str] | None = None) -> set[str]:
        """Returns the keys of windows whose rows the table has, among some windows or all."""

    def size(self) -> tuple[int, int] | None:
        """Returns the number of rows and of bytes, if the table knows them without reading rows."""

    def column_changes(self, columns: pa.Schema) -> Sequence[str]:
        """Returns the changes of the table's columns that rows with these columns make, in words.

        Raises:
            SchemaChangedError: such a change isn't allowed.
        """

    def scan(
        self, window: Window | None, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one window, or of all, in batches of bounded size.

        Another thread may continue the iteration.

        Args:
            window: the window of the rows; None for all.
            names: the columns to read; a store may read more. None for all.
        """

    def unneeded(self, old: Mapping[str, int], cutoff: int, /) -> Mapping[str, int]:
        """Returns the old staged files that no reader of this state needs.

        Args:
            old: the path of each old file, with its last write in epoch milliseconds, in the
                order of paths.
            cutoff: the latest possible last write, in epoch milliseconds.
        """

    def put(self, change: TableChange) -> Answer:
        """Commits a change on exactly this state. It is called at most once, and last.

        Raises:
            RefusedError, SchemaChangedError: such a change isn't allowed; nothing was sent.
            LostConnectionError: the connection to the table was lost; nothing was written.
            UnreachableError: the change couldn't be prepared; nothing was sent.
        """

    def restore(self, window: Window, text: str, *, dry_run: bool) -> None:
        """Writes the lost text of a committed window's receipt again.

        Args:
            window: the window whose receipt is missing or damaged in this state.
            text: the receipt, byte by byte as it was committed.
            dry_run: only check whether it would work.

        Raises:
            RefusedError: the commit named another text, or the table can't take a receipt back.
        """


class TableStore(Protocol):
    """One table of some kind, at a place that a spec names.

    Attributes:
        identity: the table's identity; it is part of plans' digests.
        location: the table's name for people.
        metadata: the names of the metadata columns.
        capabilities: the promises of this kind.
        primary_key: the columns by which rows replace each other; None if rows are only
            appended. With a primary key, each state is also a `ports.sink.KeyedAudit`.
        staged: the files of its stagers; None if tasks return the rows in their results.
    """

    @property
    def identity(self) -> str: ...
    @property
    def location(self) -> str: ...
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
        """Returns whether an identity names this table, possibly in another spelling."""

    def places(self) -> Sequence[str]:
        """Returns the folders and buckets that tasks write to (`ports.sink.Sink.places`)."""

    def check_columns(self, rows: pa.Schema) -> None:
        """Refuses columns whose values this kind of table can't store exactly.

        Raises:
            SpecError: there are such columns; the error names all of them.
        """

    def columns(self, rows: pa.Schema) -> pa.Schema:
        """Returns all columns of a table of such rows."""

    def check_write(self) -> None:
        """Checks whether the table can be written at its place.

        Raises:
            SpecError: it can't; the error says why, and what to do.
        """

    def ensure(self, columns: pa.Schema, owner: TableOwner) -> None:
        """Creates the table unless it exists.

        If several calls race, one creates it, and none fails. For an existing table it does the
        work that no commit can do: it checks that the storage keeps its promises, or switches a
        feature on.
        """

    def reading(self) -> AbstractContextManager[TableState | None]:
        """Opens the newest state, without locking out writers; None if there is no table."""

    def writing(self) -> AbstractContextManager[TableState | None]:
        """Opens the newest state, to put a change on it; None if there is no table.

        The state is locked until it is closed, or `put` refuses if another change came first.
        Closing it without a put changes nothing. Closing it after a put raises nothing. Opening
        it creates no table.
        """

    def stager(self, layout: Layout, window: Window) -> StagerFactory:
        """Returns the picklable factory of the stagers on executors."""


class DatabaseState(TableState, Protocol):
    """A table's state in a transaction that other tables share."""

    def write(self, change: TableChange) -> Receipt | None:
        """Writes a change without COMMIT; returns the receipt if it has the sums of a merge.

        Raises:
            RefusedError, SchemaChangedError: such a change isn't allowed.
        """

    def commit(self, receipt: Receipt | None) -> Answer:
        """Commits the transaction, which includes the changes of the other tables.

        Args:
            receipt: the receipt that `Written` returns.
        """


@runtime_checkable
class DatabaseStore(TableStore, Protocol):
    """A table that shares transactions with the other tables of its database.

    Attributes:
        database: the database; equal for tables that a single connection can write.
    """

    @property
    def database(self) -> object: ...

    def writing_all(
        self, stores: Sequence[Any]
    ) -> AbstractContextManager[Sequence[DatabaseState | None]]:
        """Opens and locks tables of this store's database in one transaction, like `writing`.

        Args:
            stores: the stores of the tables, which are of this store's class.
        """
