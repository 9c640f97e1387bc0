"""Sinks: tables that take windows.

Rows are staged on executors; then the driver commits data and receipt in one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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

    `atomic`: a window becomes visible as a whole, or split by split, or table by table;
    the receipt comes last. `replaces`: another generation can replace a committed
    window. `mode`: "append": each committed row stays a row of the table. "upsert":
    rows of one key replace each other; changes are staged (`ingest.schema.row_changes`),
    and the receipt says what they did to the table (`Receipt.merged`). "changes":
    changes are staged, and each of them stays, for readers to merge. `delivery`, in
    Flink's words: rows of a committed window may be in the table twice (at-least-once),
    or may also be missing (none).
    """

    atomic: Literal["window", "split", "table"] = "window"
    replaces: bool = True
    mode: Literal["append", "changes", "upsert"] = "append"
    delivery: Delivered = "exactly-once"

    def allows(self, *, loss: bool) -> bool:
        """Returns whether the promised delivery allows lost rows, or else duplicate rows."""
        return self.delivery == "none" or (self.delivery == "at-least-once" and not loss)


class Stager(Protocol):
    """Writes the rows of one attempt at one split, under names that no other attempt uses.

    Nothing becomes visible. Executors use it.
    """

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """Stages rows; `messages` has the message of each row, in the same order.

        Values may be dictionary-encoded.

        Raises:
            BugError: the columns are not the agreed ones, or don't match in length.
            UnstorableRowsError: the table can't hold some of the rows; none of the batch was
                taken, and the caller may add the rest again.
        """

    def finish(self) -> Staging:
        """Closes the files; returns the committables, with a count and a checksum."""

    def discard(self) -> None:
        """Closes without a result, after a failure. Staged files are left to `Sink.sweep`."""


@runtime_checkable
class CheckingStager(Protocol):
    """A stager that can check if the table can hold some rows before it takes them."""

    def check(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Callable[[], None]:
        """Checks rows, and returns a function that takes them.

        It takes them as `add` would, and refuses none.

        Raises:
            UnstorableRowsError: as `add`.
        """


StagerFactory = Callable[[Split], Stager]
"""Makes the stager of one task attempt, with names that are unique to the call. Picklable."""


class Done(msgspec.Struct, frozen=True):
    """This call made the window visible, with so many tries."""

    committed: Committed
    tries: int = 1


class AlreadyDone(msgspec.Struct, frozen=True):
    """This generation, or a later one, was committed before; nothing was written."""

    committed: Committed
    tries: int = 0


class Unknown(msgspec.Struct, frozen=True):
    """The commit was sent, and its outcome isn't known, even after another look."""

    reason: str


Outcome = Done | AlreadyDone | Unknown


OWNER = "owner"
"""Takes the place of a window's key in `Unreadable` if the table's owner can't be read.

Every receipt names the owner too.
"""


class Unreadable(msgspec.Struct, frozen=True):
    """A committed window whose receipt is missing or damaged.

    It has the window's key, or OWNER if it is the table's owner that can't be read,
    then what is wrong and what to do.
    """

    key: str
    message: str
    advice: str


class RowsHeld(msgspec.Struct, frozen=True, order=True):
    """The rows of one topic-partition in one window of a table.

    It has the number of rows and of different offsets, and the lowest and the highest
    offset.
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
"""The columns of a published row: the message it came from, and a hash of its content."""


class KeyedAudit(Protocol):
    """Further questions of verification, to a table whose rows replace each other."""

    def rows(self) -> int:
        """The number of rows in the table, as the table counts them."""

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        """All rows of the table, in batches of bounded size, without the bucket's column."""

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        """All tombstones, if the table keeps those of all windows in one place.

        They come in batches of bounded size, each with the key that was taken out, and
        the window and place of the message that did it. None if each window has
        tombstones of its own (see `Merged`).

        Raises:
            DamagedError: that place doesn't exist.
        """

    def lost_tombstones(
        self, receipts: Sequence[Receipt]
    ) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        """The committed windows whose tombstones can't be read, each with the reason."""


class Audit(Protocol):
    """The questions of verification to a sink.

    Each answer is read from the table as it is now; only `restore` writes. Methods that
    read rows raise UnreachableError if these can't be reached, and RefusedError if they
    are gone or damaged.
    """

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's names of metadata columns (`ingest.model.metadata_columns`)."""

    @property
    def keyed(self) -> KeyedAudit | None:
        """The questions to ask in the place of `windows`, `rows_held` and `contents`.

        None if rows of the table don't replace each other.
        """

    @property
    def lists(self) -> Sequence[ListAudit]:
        """The tables that may list their windows in files; the one with the receipts last."""

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """Every committed window, with its receipt or with what is wrong with that.

        Reads the table again: nothing that this process has read before is used.
        """

    def windows(self) -> set[str]:
        """The keys of all windows that the table holds rows of."""

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """The counts of one window's rows for each topic-partition."""

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """All rows of a window, in batches of bounded size."""

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """Restores the lost receipt of a committed window from its exact text.

        A receipt that exists and is good stays as it is.

        Args:
            window: the window of the receipt.
            text: the receipt, byte by byte as it was committed (`Sink.receipt_text`).
            dry_run: only check that it would work.

        Raises:
            RefusedError: the window isn't committed, or its commit named another text.
        """


@dataclass(frozen=True)
class PublishedRows:
    """A window's rows in their published form, which doesn't have all of their columns.

    `noted`: the checksum of each split, noted when it was published, by topic,
    partition and first offset. It is the sum of the split's hashes. `rows`: batches of
    `PUBLISHED`, of bounded size.
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
        """The table's version, if a file of that list is missing or damaged; else None."""

    def stored_receipts(self) -> Iterator[WrittenReceipt]:
        """All receipts in the table's files, whether or not a commit names them."""

    def relist(self, version: int, receipts: Collection[WrittenReceipt]) -> None:
        """Makes a lost list anew, of these receipts, by one commit; one that is whole stays.

        Args:
            version: `lost_at`, before the receipts were chosen.
            receipts: of all windows that the table holds.

        Raises:
            RefusedError: somebody committed since, and the list is still lost.
            OutcomeUnknownError: nobody knows whether the commit arrived.
        """


@runtime_checkable
class PublishedAudit(Protocol):
    """Further questions of verification, to a table whose rows are published."""

    def published(self, window: Window) -> PublishedRows | None:
        """One window's rows as they were published; None if `Audit.contents` has them.

        Raises:
            UnreachableError, RefusedError: as `Audit`, also while they are read.
        """

    def unfinished(self) -> Mapping[str, Sequence[Split]]:
        """The published splits of windows without a receipt, by the window's key."""

    def may_lack(self, window: Window) -> str | None:
        """Why rows of a window may be gone though nothing is wrong, as a sentence; else None."""

    def outside(self, pipeline: str, newest: int | None = None) -> Mapping[str, int]:
        """The number of a pipeline's rows that no receipt or record names, by their window's key.

        They were published besides those of a receipt, or their receipt is lost. Reads all
        that is there, or the `newest` offsets of each topic-partition.

        Raises:
            SpecError: the client may not read it.
        """


class ProgressFolder(Protocol):
    """A folder for small files in which workers say how far they have read. Picklable.

    What fails here must fail nothing else: a job goes on without these files.
    """

    def names(self, folder: str) -> Collection[str]:
        """The names of the files in it; `folder` is empty."""

    def get(self, path: str) -> bytes:
        """The content of a file; part of it while it is written.

        Raises:
            FileNotFoundError: it doesn't exist.
        """

    def open_output(self, path: str) -> pa.NativeFile:
        """Opens a file for writing, also one that is there."""

    def remove(self, path: str) -> None:
        """Deletes a file, if it exists. `Sink.sweep` removes those that nobody deletes."""


@runtime_checkable
class ShowsProgress(Protocol):
    """A sink whose tasks write where the driver reads."""

    def progress_folder(self) -> ProgressFolder | None:
        """A folder among those of staged files; None if there is no place for it."""


@runtime_checkable
class TopicSink(Protocol):
    """A sink that writes to topics of a Kafka cluster."""

    def cluster_id(self) -> str:
        """The id of that cluster, asked now."""

    def written_topics(self) -> Sequence[str]:
        """The names of all topics that it writes to."""

    def retention(self) -> tuple[str, timedelta] | None:
        """The topic that deletes rows first by the time of their source message, and its age then.

        None if no row is deleted by that time.
        """


@runtime_checkable
class TableGroup(Protocol):
    """A sink of several tables."""

    def owners(self) -> Mapping[str, TableOwner | None]:
        """The owners of its tables by their identities, but for the one with the receipts.

        None for a table that doesn't exist.
        """


class Sink(Protocol):
    """A table that takes windows.

    Rows are staged on executors; then the driver commits data and receipt atomically.

    Guarantee: the data of a window is visible if and only if its receipt is: both are
    committed by one atomic operation, at most once for each generation. If
    `capabilities.atomic` isn't "window", there are several, the receipt's the last. No method
    deletes or overwrites anything while a commit's outcome is unknown.
    """

    @property
    def identity(self) -> str:
        """The identity of the table; part of the plan's digest.

        It is stable for a configured place, and needs no I/O.
        """

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this kind of sink."""

    def is_at(self, identity: str) -> bool:
        """Returns whether an identity names this table, possibly in another spelling.

        A place may be reachable through a link.
        """

    def refuse_unwritable(self) -> None:
        """Tries if the table could be created, or written, at its place.

        Raises:
            SpecError: it can't; says why, and what to do.
        """

    def warnings(self) -> Sequence[str]:
        """The problems of a writable place that will appear later, each with what to do.

        Raises:
            UnreachableError: the place can't be reached.
        """

    def places(self) -> Sequence[str]:
        """The folders and buckets that tasks write to, as URIs.

        Empty if tasks write nothing, or if a catalog says how to write.
        """

    def owner(self) -> TableOwner | None:
        """The owner that `prepare` bound the table to, read now; None without a table.

        Raises:
            SpecError: something other than windrow made the table.
        """

    def prepare(self, owner: TableOwner, replaced: Collection[str] = ()) -> None:
        """Creates the table and binds it to its owner, or compares the owner if it exists.

        Idempotent, and safe under concurrent calls. The columns of an existing table
        change only with the commit of the first rows that need it.

        Args:
            owner: the table's owner.
            replaced: keys of the committed windows that the caller is about to replace.

        Raises:
            SchemaChangedError: the columns differ by more than the sink may change;
                shows the difference. Or it lets no committed row go, as Delta's
                append-only tables, and some would be replaced.
            GridError, OwnerError: the table is bound to another owner; says what to do.
        """

    def columns_to_come(self) -> Sequence[str]:
        """The column changes that the next commit would make, in words.

        Empty if the table doesn't exist. Writes nothing.

        Raises:
            SchemaChangedError: as `prepare`.
            SpecError: the schema can't be loaded, or stored.
        """

    def look(self, window: Window) -> Committed | None:
        """Reads the receipt of the window's newest committed generation, or None.

        It is read from the table now. Writes nothing.

        Raises:
            DamagedError: the window is committed, and its receipt is missing or
                damaged.
        """

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """Does `look` for several windows, in their order, all in one state of the table.

        Raises:
            DamagedError: at a window that is committed, and whose receipt is missing or
                damaged.
        """

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """The windows among these that are committed, all in one state of the table.

        Of several tables: in all that have rows of them. No receipt is read as long as no
        table lacks a window.
        """

    def receipts(self) -> Iterator[Committed]:
        """The newest committed receipt of every window in the table.

        Raises:
            DamagedError: one is missing or damaged.
        """

    def wait_until_decided(self) -> None:
        """Waits until all earlier commits are visible, if other writers may hold them back.

        Raises:
            UnreachableError: something holds them back for too long.
        """

    def size(self) -> tuple[int, int] | None:
        """The number of rows and the bytes of the table's files.

        None if the sink doesn't know them without reading rows.

        Raises:
            UnreachableError: the table can't be reached.
        """

    def receipt_text(self, receipt: Receipt) -> str:
        """The exact text of a receipt that this sink has read or committed.

        Another version of windrow may have written it.
        """

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        """The factory of stagers for an attempt's rows."""

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Makes rows and receipt visible in one atomic operation.

        An older generation of the same window is replaced. If the receipt is of a
        dead-letter replay, the rows of the older generation stay, and these are added.

        The commit reads the table's state, decides by it (`sinks.kit.commit.conflicts`),
        commits on exactly this state, and begins again if another commit came first.

        Raises:
            OverlapError: a range is already committed under another window, which it
                names.
            RefusedError: the window is committed under another plan, or a generation
                was left out.
            GridError, OwnerError: the table is bound to another owner.
        """

    def audit(self) -> Audit:
        """The questions that verification asks."""

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """Removes staged files that no commit names, if older than a grace period.

        Returns what was removed, or with `dry_run` what would be. A removed file can't
        be committed any more: neither by an attempt that is still running, nor by a
        commit that was sent and not answered. Such an attempt is refused at its commit,
        and its window can be run again.

        Raises:
            ValueError: the grace period is shorter than a run may take to stage.
        """
