"""What takes windows: rows are staged on executors, then data and receipt are committed
in one operation on the driver.

The three outcomes of a commit are borrowed from PyIceberg's `CommitStateUnknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Split
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged, Staging
from windrow.ingest.model.window import Window

Delivered = Literal["none", "at-least-once", "exactly-once"]


class Capabilities(msgspec.Struct, frozen=True):
    """What a kind of sink can hold; a run refuses what it can't, and the contract suite
    holds it to the rest.

    `atomic`: a window becomes visible as a whole; or split by split, or table by table,
    the receipt last. `replaces`: another generation can take a committed window's
    place. `mode`: each row that is committed stays a row of the table (append), or rows
    of one key replace each other (upsert): then changes are staged
    (`ingest.schema.changes`), and the receipt says what they did to the table
    (`Receipt.merged`); or changes are staged and each of them stays, for readers to
    merge (changes). `delivery`: whether a row of a committed window may be there twice
    (at-least-once), or also be missing (none), in Flink's words.
    """

    atomic: Literal["window", "split", "table"] = "window"
    replaces: bool = True
    mode: Literal["append", "changes", "upsert"] = "append"
    delivery: Delivered = "exactly-once"

    def allows(self, *, lost: bool) -> bool:
        """Whether rows that are lost, or else rows that are there twice, are within
        what is promised.
        """
        return self.delivery == "none" or (self.delivery == "at-least-once" and not lost)


class Stager(Protocol):
    """Writes what one attempt at one split brings, under names that no other attempt uses.

    Nothing becomes visible. Used on executors.
    """

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """Stage rows beside the messages that they came from, equal in length and
        order; values may lie in a dictionary.

        Raises:
            BugError: they are not the columns that were agreed, or don't fit them.
            UnfitRowsError: the table has no place for some of them; none of the batch
                was taken, and the rest may come again.
        """

    def finish(self) -> Staging:
        """Close what was written: what to commit, with the stager's own count and checksum."""

    def discard(self) -> None:
        """Close without a result, after a failure. What was written is left to `sweep`."""


@runtime_checkable
class Choosy(Protocol):
    """What a stager has besides whose table has no place for some rows: it can judge
    rows before it takes any.
    """

    def ready(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Callable[[], None]:
        """What takes these rows, as `add` would, and refuses none of them any more.

        Raises:
            UnfitRowsError: as `add`.
        """


StagerFactory = Callable[[Split], Stager]
"""Picklable; each call makes the stager of one task attempt, whose names are unique to the call."""


class Done(msgspec.Struct, frozen=True):
    """This call made the window visible."""

    committed: Committed


class AlreadyDone(msgspec.Struct, frozen=True):
    """This generation, or a later one, was there before; nothing was written."""

    committed: Committed


class Unknown(msgspec.Struct, frozen=True):
    """The commit was sent and its outcome isn't known, also after looking again."""

    why: str


Outcome = Done | AlreadyDone | Unknown


OWNER = "owner"
"""In the place of a window's key: what is unreadable is whose the table is, which each
receipt says too.
"""


class Unreadable(msgspec.Struct, frozen=True):
    """A committed window whose receipt is missing or damaged: its key, or OWNER; what
    is the matter, and what to do.
    """

    key: str
    what: str
    do: str


class RowsHeld(msgspec.Struct, frozen=True, order=True):
    """What a table holds of one topic-partition in one window: rows, different offsets,
    the lowest and the highest of those.
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
"""A row as it was published: from which message it came, and a number for all that it says."""


class KeyedAudit(Protocol):
    """What verification asks besides of a table whose rows replace each other."""

    def rows(self) -> int:
        """How many rows the table holds, by its own word."""

    def every(self) -> Iterator[pa.RecordBatch]:
        """All rows of the table, in batches of bounded size, each with all of its
        columns but the bucket's.
        """

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        """All tombstones of a table that keeps those of all windows in one place
        (`Merged.buried`), in batches of bounded size.

        Each has the key that was taken out, and the window and place of the message
        that did it. None where each window has its own.

        Raises:
            DamagedError: the place isn't there.
        """

    def lost_tombstones(
        self, receipts: Sequence[Receipt]
    ) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        """Of committed windows those of which it can't be told what they took out: what
        is missing, or why nobody can look.
        """


class Audit(Protocol):
    """The questions that verification puts to a sink.

    Each is answered from the table as it is now; only `restore` writes.

    Whatever reads rows raises UnreachableError where they can't be got at, and
    RefusedError where they are gone or damaged.
    """

    @property
    def metadata(self) -> Mapping[str, str]:
        """The table's names of metadata columns (`ingest.model.metadata_columns`)."""

    @property
    def keyed(self) -> KeyedAudit | None:
        """Where rows replace each other: what is asked instead of `windows`,
        `rows_held` and `contents`.

        None for all other tables.
        """

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """Every committed window, also where its receipt can't be read.

        Reads anew what this process has read before.
        """

    def windows(self) -> set[str]:
        """The keys of all windows that the table holds rows of."""

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """One window's rows, counted per topic-partition."""

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """All rows of a window, in batches of bounded size."""

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """Put the lost receipt of a committed window back from its exact text.

        One that is there and good stays as it is.

        Args:
            window: whose receipt it is.
            text: the receipt, byte by byte as it was committed (`Sink.receipt_text`).
            dry_run: only see whether that would work.

        Raises:
            RefusedError: the window isn't committed, or its commit named another text.
        """


class PublishedRows(msgspec.Struct, frozen=True):
    """A window's rows in the form that they were published in, from which rows can't be
    made again, or not all of their columns.

    `noted`: of each split, by its topic, partition and first offset, the checksum that
    was noted when it was published; `rows`: batches of `PUBLISHED`, of bounded size.
    What was noted is the sum of a split's hashes.
    """

    noted: Mapping[tuple[str, int, int], str]
    rows: Iterator[pa.RecordBatch]


@runtime_checkable
class PublishedAudit(Protocol):
    """Asked besides `Audit` of a table whose rows are published."""

    def published(self, window: Window) -> PublishedRows | None:
        """One window's rows as they were published; None where `Audit.contents` has them.

        Raises:
            UnreachableError, RefusedError: as `Audit`, also while they are read.
        """

    def replaced(self) -> bool:
        """Whether rows may be gone because later ones of the same keys have replaced them."""


@runtime_checkable
class Sized(Protocol):
    """A sink that knows how large its table is without reading it."""

    def size(self) -> tuple[int, int] | None:
        """How many rows the table holds, and how many bytes its files have; None where it can't tell.

        Raises:
            UnreachableError: it can't be seen.
        """  # noqa: E501


@runtime_checkable
class Awaited(Protocol):
    """A sink in which what was committed may not be seen yet, behind what others write."""

    def wait_until_decided(self) -> None:
        """Wait until all is seen that was committed before.

        Raises:
            UnreachableError: something holds it back for too long.
        """


@runtime_checkable
class Warns(Protocol):
    """A sink whose place may be one that can be written, and is wrong for its table all
    the same.
    """

    def warnings(self) -> list[str]:
        """What will go wrong later as things are now, and what to do, one sentence each.

        Raises:
            UnreachableError: it can't be seen.
        """


class Sink(Protocol):
    """A table that takes windows: stage on executors, then one atomic commit of data
    and receipt on the driver.

    INV: the data of a window is visible exactly if its receipt is, both by one atomic
    operation; per generation at most once; no method deletes or overwrites anything
    while a commit's outcome is unknown.
    """

    @property
    def identity(self) -> str:
        """Which table this is; part of the plan's digest.

        Stable for a configured place; needs no I/O.
        """

    @property
    def capabilities(self) -> Capabilities:
        """What this kind of sink can hold."""

    def is_at(self, identity: str) -> bool:
        """Whether an identity names this table, perhaps in another spelling: its place
        may be reached through a link.
        """

    def refuse_unwritable(self) -> None:
        """Try whether the table could be made, or written, where it lies, before anything needs it.

        Raises:
            SpecError: it can't; says why, and what to do.
        """

    def places(self) -> Sequence[str]:
        """The folders and buckets that tasks write to, as URIs; none where tasks write
        nothing, or where a catalog says how to.
        """

    def owner(self) -> TableOwner | None:
        """What `prepare` bound the table to, read now; None if the table isn't there.

        Raises:
            SpecError: the table was made by something else.
        """

    def prepare(self, owner: TableOwner) -> None:
        """Create the table if it isn't there and bind it, or compare. Idempotent, safe to race.

        Columns of a table that is there change with the commit that brings the first
        rows which need it, and not before.

        Raises:
            SchemaChangedError: columns differ in more than the sink may change; shows
                the difference.
            GridError, OwnerError: the table is bound to something else; with the way
                out.
        """

    def columns_to_come(self) -> Sequence[str]:
        """The columns that the next rows would bring, or change, in words; none if the
        table isn't there.

        Writes nothing.

        Raises:
            SchemaChangedError: as `prepare`.
            SpecError: the schema can't be loaded, or stored.
        """

    def look(self, window: Window) -> Committed | None:
        """The receipt of the window's newest committed generation, read from the sink
        now; None if it isn't committed.

        Writes nothing.

        Raises:
            DamagedError: it is committed, and its receipt is missing or damaged.
        """

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """The same of several windows, in their order, all seen in one state of the table.

        Raises:
            DamagedError: at a window that is committed, and whose receipt is missing or damaged.
        """

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """Those of some windows that the table says are committed, all seen in one state of it.

        No receipt is read.
        """

    def receipts(self) -> Iterator[Committed]:
        """The newest committed receipt of every window in the table.

        Raises:
            DamagedError: one is missing or damaged.
            RefusedError: the table holds rows of a window that was never committed.
        """

    def receipt_text(self, receipt: Receipt) -> str:
        """The exact text of a receipt that this sink has read or committed; another
        version of windrow may have written it.
        """

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        """What executors stage rows with."""

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Make rows and receipt visible in one atomic operation, replacing an older
        generation of the same window.

        Where the receipt is of a dead-letter replay, the rows of the generation before stay, and
        these are added to them.

        Looks at the table afresh, decides on what it saw (`ingest.sinks.conflicts`),
        commits on exactly that, and begins again if another commit came first.

        Raises:
            OverlapError: a range is already committed under another window, which it names.
            RefusedError: the window is there under another plan, or a generation was left out.
            GridError, OwnerError: the table is bound to something else.
        """

    def audit(self) -> Audit:
        """What verification asks."""

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """Remove what attempts have staged and no commit names, if it is older than a
        grace period; what was, or would be, removed.

        What is removed can't be committed any more: not by an attempt that is still at
        work, nor by a commit that was sent and not answered. Such an attempt is refused
        at its commit, and its window can be run again.

        Raises:
            ValueError: the grace period is shorter than runs take to stage.
        """
