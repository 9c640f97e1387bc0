"""Sinks: tables that take windows.

Executors stage rows; then the driver commits data and receipt in one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import Committed, Receipt, Staged, Staging

Delivered = Literal["none", "at-least-once", "exactly-once"]


class Capabilities(msgspec.Struct, frozen=True):
    """The promises of a kind of sink. A run refuses settings that need more.

    Attributes:
        atomic: the part of a window that becomes visible at once: the whole window, a split, or
            a table. The receipt comes last.
        replaces: whether another generation can replace a committed window.
        mode: "append": each committed row stays a row of the table. "upsert": rows of one key
            replace each other. Changes are staged (`ingest.schema.row_changes`), and the
            receipt says how they changed the table (`Receipt.merged`). "changes": changes are
            staged, and each of them stays, for readers to merge.
        delivery: the delivery guarantee, in Flink's words. Rows of a committed window may be in
            the table twice (at-least-once), or may also be missing (none).
    """

    atomic: Literal["window", "split", "table"] = "window"
    replaces: bool = True
    mode: Literal["append", "changes", "upsert"] = "append"
    delivery: Delivered = "exactly-once"

    def allows(self, *, loss: bool) -> bool:
        """Returns whether the delivery guarantee allows lost rows (`loss`), or duplicate rows."""
        return self.delivery == "none" or (self.delivery == "at-least-once" and not loss)


class Stager(Protocol):
    """A writer of the rows of one attempt at one split, under names that no other attempt uses.

    Nothing becomes visible. Executors use it.
    """

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """Stages rows.

        Values may be dictionary-encoded.

        Args:
            rows: the rows.
            messages: the message of each row, in the same order.

        Raises:
            BugError: the columns are not the agreed ones, or don't match in length.
            UnstorableRowsError: the table can't hold some of the rows. No row of the batch was
                taken, and the caller may add the rest again.
        """

    def finish(self) -> Staging:
        """Closes the files; returns the committables, with a count and a checksum."""

    def discard(self) -> None:
        """Closes without a result, after a failure. `Sink.maintain` removes the staged files."""


@runtime_checkable
class CheckingStager(Protocol):
    """A stager that can check whether the table can hold some rows before it takes them."""

    def check(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Callable[[], None]:
        """Checks rows, and returns a function that takes them.

        The function takes them as `add` does, and refuses none.

        Raises:
            UnstorableRowsError: as `add`.
        """


StagerFactory = Callable[[Split], Stager]
"""Makes the stager of one task attempt, with names that are unique to the call. Picklable."""


class Done(msgspec.Struct, frozen=True):
    """A result of a commit: this call made the window visible.

    Attributes:
        committed: the committed window.
        tries: number of tries.
    """

    committed: Committed
    tries: int = 1


class AlreadyDone(msgspec.Struct, frozen=True):
    """A result of a commit: this generation, or a later one, was committed before.

    Nothing was written.
    """

    committed: Committed
    tries: int = 0


class Unknown(msgspec.Struct, frozen=True):
    """A result of a commit: it was sent, and its outcome isn't known, even after another look."""

    reason: str


Outcome = Done | AlreadyDone | Unknown


OWNER = "owner"
"""The key in `Unreadable` that stands for the table's owner, if the owner can't be read.

Every receipt names the owner too.
"""


class Unreadable(msgspec.Struct, frozen=True):
    """A committed window whose receipt is missing or damaged.

    Attributes:
        key: the window's key, or OWNER if the table's owner can't be read.
        message: the problem.
        advice: the way to solve it.
    """

    key: str
    message: str
    advice: str


class RowsHeld(msgspec.Struct, frozen=True, order=True):
    """The rows of one topic-partition in one window of a table.

    Attributes:
        topic: the topic.
        partition: the partition.
        rows: number of rows.
        offsets: number of distinct offsets.
        lowest: the lowest offset.
        highest: the highest offset.
    """

    topic: str
    partition: int
    rows: int
    offsets: int
    lowest: int
    highest: int


PUBLISHED = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("hash", pa.uint64(), nullable=False),
    ]
)
"""The columns of a published row: its source message's position, and a hash of its content."""


class KeyedAudit(Protocol):
    """Further questions of verification, to a table whose rows replace each other."""

    def rows(self) -> int:
        """Returns the number of rows in the table, as the table counts them."""

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows of the table, in batches of bounded size, without the bucket's column."""

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        """Yields all tombstones, if the table keeps the tombstones of all windows in one place.

        They come in batches of bounded size. Each tombstone has the deleted key, and the window
        and position of the message that deleted it. A table whose windows have tombstones of
        their own (see `Merged`) yields none.

        Raises:
            DamagedError: the place of the tombstones doesn't exist.
        """

    def lost_tombstones(
        self, receipts: Sequence[Receipt]
    ) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        """Yields the committed windows whose tombstones can't be read, each with the reason."""


class Audit(Protocol):
    """The questions of verification to a sink.

    Each answer is read from the table as it is now. Only `restore` writes. Methods that read
    rows raise UnreachableError if these can't be reached, and RefusedError if they are gone or
    damaged.
    """

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's names of metadata columns (`ingest.model.metadata_columns`)."""

    @property
    def keyed(self) -> KeyedAudit | None:
        """The questions to ask instead of `windows`, `rows_held` and `contents`.

        None if rows of the table don't replace each other.
        """

    @property
    def lists(self) -> Sequence[ListAudit]:
        """The tables that may list their windows in files; the table with the receipts is last."""

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """Yields every committed window, with its receipt or with the receipt's problem.

        Reads the table again; receipts that this process has read before aren't used.
        """

    def windows(self) -> set[str]:
        """Returns the keys of all windows whose rows the table holds."""

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """Returns the counts of one window's rows for each topic-partition."""

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Yields all rows of a window, in batches of bounded size."""

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """Restores the lost receipt of a committed window from its exact text.

        A receipt that exists and is good stays as it is.

        Args:
            window: the window of the receipt.
            text: the receipt, byte by byte as it was committed (`Sink.receipt_text`).
            dry_run: only check whether it would work.

        Raises:
            RefusedError: the window isn't committed, or its commit named another text.
        """


@dataclass(frozen=True)
class PublishedRows:
    """A window's rows in their published form, which doesn't have all of their columns.

    Attributes:
        noted: the checksum of each split, noted when it was published, by topic, partition and
            first offset. It is the sum of the hashes of the split's rows.
        rows: batches of `PUBLISHED`, of bounded size.
    """

    noted: Mapping[tuple[str, int, int], str]
    rows: Iterator[pa.RecordBatch]


WrittenReceipt = tuple[Receipt, str]
"""A receipt, and its exact text."""


class ListAudit(Audit, Protocol):
    """Further questions, to a table that may list its windows in files of their own."""

    @property
    def location(self) -> str:
        """The table's name for people."""

    @property
    def lost_at(self) -> int | None:
        """The table's version if its list of windows is lost, else None.

        A list is lost if one of its files is missing or damaged.
        """

    def stored_receipts(self) -> Iterator[WrittenReceipt]:
        """Yields all receipts in the table's files, whether or not a commit names them."""

    def relist(self, version: int, receipts: Collection[WrittenReceipt]) -> None:
        """Writes a lost list again from receipts, by one commit. A list that isn't lost stays.

        Args:
            version: `lost_at`, before the receipts were chosen.
            receipts: the receipts of all windows that the table holds.

        Raises:
            RefusedError: another commit came since, and the list is still lost.
            OutcomeUnknownError: it is unknown whether the commit arrived.
        """


@runtime_checkable
class PublishedAudit(Protocol):
    """Further questions of verification, to a table whose rows are published."""

    def published(self, window: Window) -> PublishedRows | None:
        """Returns one window's rows as they were published; None if `Audit.contents` has them.

        Raises:
            UnreachableError, RefusedError: as `Audit`, also while the rows are read.
        """

    def unfinished(self) -> Mapping[str, Sequence[Split]]:
        """Returns the published splits of windows without a receipt, by the window's key."""

    def may_lack(self, window: Window) -> str | None:
        """Returns a harmless reason why rows of a window may be gone, as a sentence, or None."""

    def outside(self, pipeline: str, newest: int | None = None) -> Mapping[str, int]:
        """Counts a pipeline's rows that no receipt or record names, by their window's key.

        They were published in addition to the rows of a receipt, or their receipt is lost.

        Args:
            pipeline: the pipeline's id.
            newest: number of the newest offsets of each topic-partition to read; None for all.

        Raises:
            SpecError: the client may not read the rows.
        """


@runtime_checkable
class KeyedTablesAudit(Protocol):
    """Further questions of verification, to several tables of which some have a primary key."""

    @property
    def keyed_tables(self) -> Sequence[Audit]:
        """The tables with a primary key. The group's own answers leave out their rows."""

    def less_keyed(self, receipt: Receipt) -> Receipt:
        """Returns a window's receipt without the rows and deletes of the keyed tables."""


class ProgressFolder(Protocol):
    """A folder for small files in which workers note how far they have read. Picklable.

    An error of this folder must fail nothing else: a job goes on without these files.
    """

    def names(self, folder: str) -> Collection[str]:
        """Returns the names of the files in a subfolder; "" means the folder itself."""

    def get(self, path: str) -> bytes:
        """Returns the content of a file. It may be incomplete while the file is written.

        Raises:
            FileNotFoundError: it doesn't exist.
        """

    def open_output(self, path: str) -> pa.NativeFile:
        """Opens a file for writing. An existing file is overwritten."""

    def remove(self, path: str) -> None:
        """Deletes a file, if it exists. `Sink.maintain` removes files that weren't deleted."""


@runtime_checkable
class ShowsProgress(Protocol):
    """A sink whose tasks can write files that the driver can read."""

    def progress_folder(self) -> ProgressFolder | None:
        """Returns a folder among those of staged files; None if there is no place for it."""


@runtime_checkable
class TopicSink(Protocol):
    """A sink that writes to topics of a Kafka cluster."""

    def cluster_id(self) -> str:
        """Asks for the id of that cluster."""

    def written_topics(self) -> Sequence[str]:
        """Returns the names of all topics that it writes to."""

    def retention(self) -> tuple[str, timedelta] | None:
        """Returns the topic with the shortest retention, and this retention.

        It counts from the time of a row's source message. None if no topic deletes rows by that
        time.
        """


@runtime_checkable
class TableGroup(Protocol):
    """A sink of several tables."""

    def owners(self) -> Mapping[str, TableOwner | None]:
        """Returns the owners of its tables, by the tables' identities.

        The table with the receipts is left out. None for a table that doesn't exist.
        """


class Maintenance(msgspec.Struct, frozen=True):
    """The limits of a table's maintenance.

    Attributes:
        keep_files: the grace period of files that nobody needs.
        keep_versions: how long older versions of the table can be read; None for as long as the
            table's other writers keep them.
        file_size: the size up to which files of one partition are joined, in bytes; 0 joins none.
        keep_rows: how long rows stay (`Receipt.aging_since`); None for ever.
    """

    keep_files: timedelta
    keep_versions: timedelta | None = None
    file_size: int = 0
    keep_rows: timedelta | None = None


class Maintained(msgspec.Struct, frozen=True):
    """The changes of a table by its maintenance.

    Attributes:
        joined_files: the number of files whose rows are in larger files now.
        new_files: the number of these larger files.
        expired_versions: the number of older versions that can't be read any more.
        expired_dead_letters: the number of dead letters that were removed for their age.
        expired_rows: the number of rows that were removed for the age of their windows.
        removed_files: the URIs of the removed files.
    """

    joined_files: int = 0
    new_files: int = 0
    expired_versions: int = 0
    expired_dead_letters: int = 0
    expired_rows: int = 0
    removed_files: tuple[str, ...] = ()

    @classmethod
    def sum(cls, parts: Iterable[Maintained]) -> Maintained:
        """Returns the changes of several tables together."""
        total = cls()
        for part in parts:
            total = cls(
                total.joined_files + part.joined_files,
                total.new_files + part.new_files,
                total.expired_versions + part.expired_versions,
                total.expired_dead_letters + part.expired_dead_letters,
                total.expired_rows + part.expired_rows,
                total.removed_files + part.removed_files,
            )
        return total


class Sink(Protocol):
    """A table that takes windows.

    Executors stage rows; then the driver commits data and receipt atomically.

    Guarantee: the data of a window is visible if and only if its receipt is. Both are committed
    by one atomic operation, at most once for each generation. If `capabilities.atomic` isn't
    "window", there are several operations, and that of the receipt is last. No method deletes
    or overwrites anything while a commit's outcome is unknown.
    """

    @property
    def identity(self) -> str:
        """The identity of the table; part of the plan's digest.

        It is stable for a configured place, and needs no I/O.
        """

    @property
    def capabilities(self) -> Capabilities:
        """The promises of this kind of sink."""

    def is_at(self, identity: str) -> bool:
        """Returns whether an identity names this table, possibly in another spelling.

        For example, a path may contain a link.
        """

    def refuse_unwritable(self) -> None:
        """Checks whether the table could be created, or written, at its place.

        Raises:
            SpecError: it can't; the error says why, and what to do.
        """

    def warnings(self) -> Sequence[str]:
        """Returns problems of a writable place that will appear later, each with advice.

        Raises:
            UnreachableError: the place can't be reached.
        """

    def places(self) -> Sequence[str]:
        """Returns the folders and buckets that tasks write to, as URIs.

        Empty if tasks write nothing, or if a catalog says how to write.
        """

    def owner(self) -> TableOwner | None:
        """Reads the owner that `prepare` bound the table to; None if there is no table.

        Raises:
            SpecError: something other than windrow made the table.
        """

    def prepare(self, owner: TableOwner, replaced: Collection[str] = ()) -> None:
        """Creates the table and binds it to its owner, or compares the owner if it exists.

        Idempotent, and safe under concurrent calls. The columns of an existing table change
        only with the commit of the first rows that need it.

        Args:
            owner: the table's owner.
            replaced: keys of the committed windows that the caller is about to replace.

        Raises:
            SchemaChangedError: the columns differ by more than the sink may change; the error
                shows the difference. It is also raised if the table keeps every committed row,
                as Delta's append-only tables do, and some would be replaced.
            GridError, OwnerError: the table is bound to another owner; the error says what to
                do.
        """

    def columns_to_come(self) -> Sequence[str]:
        """Returns the column changes that the next commit would make, in words.

        Empty if the table doesn't exist. Writes nothing.

        Raises:
            SchemaChangedError: as `prepare`.
            SpecError: the schema can't be loaded, or stored.
        """

    def look(self, window: Window) -> Committed | None:
        """Reads the receipt of the window's newest committed generation; None if it has none.

        It is read from the table now. Writes nothing.

        Raises:
            DamagedError: the window is committed, and its receipt is missing or damaged.
        """

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """Yields the result of `look` for several windows, in their order.

        All results are of one state of the table.

        Raises:
            DamagedError: a window is committed, and its receipt is missing or damaged. It is
                raised when the iteration reaches that window.
        """

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """Returns the windows among these that are committed, all in one state of the table.

        A sink of several tables returns the windows that are committed in all tables with rows
        of them. It reads no receipt unless a table lacks a window.
        """

    def receipts(self) -> Iterator[Committed]:
        """Yields the newest committed receipt of every window in the table.

        Raises:
            DamagedError: a receipt is missing or damaged.
        """

    def wait_until_decided(self) -> None:
        """Waits until all earlier commits are visible, if other writers may hold them back.

        Raises:
            UnreachableError: a writer holds them back for too long.
        """

    def size(self) -> tuple[int, int] | None:
        """Returns the number of rows and the bytes of the table's files.

        None if the sink doesn't know them without reading rows.

        Raises:
            UnreachableError: the table can't be reached.
        """

    def receipt_text(self, receipt: Receipt) -> str:
        """Returns the exact text of a receipt that this sink has read or committed.

        Another version of windrow may have written it.
        """

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        """Returns the factory of stagers for an attempt's rows."""

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Makes rows and receipt visible in one atomic operation.

        An older generation of the same window is replaced. If the receipt is of a dead-letter
        replay, the rows of the older generation stay, and the new rows are added.

        1. It reads the table's state.
        2. It decides by this state (`sinks.kit.commit.conflicts`).
        3. It commits on exactly this state. If another commit came first, it begins again.

        Raises:
            OverlapError: a range is already committed under another window; the error names it.
            RefusedError: the window is committed under another plan, or a generation was left
                out.
            GridError, OwnerError: the table is bound to another owner.
        """

    def audit(self) -> Audit:
        """Returns the questions that verification asks."""

    def maintain(self, settings: Maintenance, *, dry_run: bool = False) -> Maintained:
        """Joins small files, expires rows and old versions, and removes files that nobody needs.

        The rows that don't expire stay the same, and so do their receipts. A kind without such
        files or versions only removes the files that attempts have staged and no commit names.

        Rows expire with their whole window, by a commit that writes its next generation
        (`Receipt.without_rows`). The section of a sink whose windows can't expire refuses this
        limit.

        A removed file can't be committed any more: neither by an attempt that is still running,
        nor by a commit that was sent and not answered. Such an attempt is refused at its
        commit, and its window can be run again.

        Args:
            settings: the limits.
            dry_run: change nothing.

        Raises:
            RefusedError: another process maintains the table, or a file of it can't be read.
            ValueError: the grace period is shorter than a run may take to stage.
            UnreachableError: the table can't be reached; the steps before are done.
        """
