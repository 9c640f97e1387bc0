"""What takes windows: stages on executors, commits data and receipt in one operation on the driver.

The three outcomes of a commit are borrowed from PyIceberg's `CommitStateUnknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from ingest.model.plan import Plan, Split
from ingest.model.receipt import Checksums, Committed, Receipt
from ingest.model.staged import Staged
from ingest.model.window import Window


class Stager(Protocol):
    """Writes one split's rows and dead letters under names that no other attempt uses. Nothing becomes visible. Used on executors."""

    def rows(self, messages: pa.RecordBatch, columns: pa.RecordBatch) -> None:
        """Stage rows: `columns` (the table's own) beside the `messages` they came from, equal in length and order."""

    def dead(self, messages: pa.RecordBatch, stage: pa.Array, reason: pa.Array, detail: pa.Array) -> None:
        """Stage dead letters: whole messages, each with the stage that refused it, a reason to count by, and a detail without payload."""

    def finish(self) -> tuple[int, int, tuple[str, ...], tuple[str, ...]]:
        """Close what was written: rows and dead letters counted by the stager itself, and what to commit for each."""

    def checksums(self) -> Checksums:
        """Of all that was staged so far, each column that a file holds (`ingest.schema.checksum`); the window's column is not in it."""

    def discard(self) -> None:
        """Close without a result, after a failure. What was written is left to the janitor."""


class StagerFactory(Protocol):
    """Picklable; makes the stager of one task attempt."""

    def __call__(self, split: Split) -> Stager:
        """A stager whose file names are unique to this call."""


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


class Bound(Protocol):
    """What a table is bound to from its first moment on."""

    @property
    def pipeline(self) -> str:
        """The one pipeline whose windows it takes."""

    @property
    def ledger(self) -> str:
        """The id of the ledger that freezes their boundaries."""

    @property
    def grid(self) -> str:
        """The grid that they lie on."""


class Unreadable(msgspec.Struct, frozen=True):
    """A committed window whose receipt is missing or damaged: its key, what is the matter, and what to do."""

    key: str
    what: str
    do: str


class Sink(Protocol):
    """A table that takes windows: stage on executors, then one atomic commit of data and receipt on the driver.

    INV: the data of a window is visible exactly if its receipt is, both by one atomic operation; per generation at most once; no method
    deletes or overwrites anything while a commit's outcome is unknown.
    """

    @property
    def identity(self) -> str:
        """Which table this is; part of the plan's digest. Stable for a configured place; needs no I/O."""

    def is_at(self, identity: str) -> bool:
        """Whether an identity names this table, perhaps in another spelling: its place may be reached through a link."""

    def refuse_other(self, ledger: str, pipeline: str, grid: str) -> None:
        """Hold what the table is bound to against who comes; a table that isn't there suits everybody. Writes nothing.

        Raises:
            GridError, BindingError: the table was begun on another grid, by another pipeline or ledger; with the way out.
            SpecError: it was made by something else.
        """

    def prepare(self, ledger: str, pipeline: str, grid: str) -> None:
        """Create the table if it isn't there and bind it to the ledger and grid, or compare. Idempotent, safe to race.

        Raises:
            SchemaChangedError: columns differ in more than new nullable ones (those are added); shows the difference.
            GridError, BindingError: the pipeline's windows were begun on another grid, or by another ledger; with the way out.
        """

    def look(self, window: Window) -> Committed | None:
        """The receipt of the window's newest committed generation, read from the sink now; None if it isn't committed. Writes nothing."""

    def receipts(self) -> Iterable[Committed]:
        """The newest committed receipt of every window in the table, of all its pipelines.

        Raises:
            DamagedError: one is missing or damaged.
            RefusedError: the table holds rows of a window that was never committed.
        """

    def inspect(self) -> Iterable[Committed | Unreadable]:
        """The same for who looks for damage: every committed window, also where its receipt can't be read."""

    def written(self, receipt: Receipt) -> str:
        """The exact text of a receipt that this sink has read or committed; another version of windrow may have written it."""

    def restore(self, window: Window, written: str, *, dry_run: bool = False) -> None:
        """Put the lost receipt of a committed window back from its exact text. One that is there and good stays as it is.

        Args:
            window: whose receipt it is.
            written: its text, byte by byte as it was committed.
            dry_run: only see whether that would work.

        Raises:
            RefusedError: the window isn't committed, or its commit named another text.
        """

    def binding(self) -> Bound | None:
        """What `prepare` bound the table to, read now; None if the table isn't there."""

    def read_dead(self, window: Window, limit: int | None = None, attempt: str | None = None) -> pa.Table:
        """The window's dead letters, at most `limit`: `_topic, _partition, _offset, _timestamp`, the message, `stage, reason, detail`.

        Those of the attempt that the receipt names; or, to look into a refusal, those of another `attempt`.
        """

    def refused(self) -> dict[str, str]:
        """Attempts whose dead letters are there though their window isn't committed: the newest per window key. Writes nothing.

        Such an attempt was refused, or died before its commit, or is at work now.
        """

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        """What executors stage with."""

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """Make an attempt's dead letters durable, before the data commit; readers see only the attempt of the receipt. Idempotent."""

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Make rows and receipt visible in one atomic operation, replacing an older generation of the same window.

        Loads the table afresh, looks, checks that no range overlaps another window's, commits on exactly that snapshot, and again from the
        top if another commit came first.

        Raises:
            OverlapError: a range is already committed under another window, which it names.
        """
