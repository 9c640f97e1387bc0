"""The interfaces between windrow and what it stands on; each has a contract suite in tests/contracts that runs on every implementation.

`pipeline.py` knows these and the values of `ingest.model`; it never sees a client. The narrow helper in place of a client is borrowed from
Flink's `OffsetsInitializer.PartitionOffsetsRetriever`, the three outcomes of a commit from PyIceberg's `CommitStateUnknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.model.boundary import TopicPartition
from ingest.model.plan import Plan, Split
from ingest.model.receipt import Checksums, Committed, Receipt, SplitCounts
from ingest.model.refusals import Kinds
from ingest.model.source import OnLoss
from ingest.model.window import Window

# ---------------------------------------------------------------------------------------------------------------------------- Kafka


class TopicInfo(msgspec.Struct, frozen=True):
    """What the cluster says of a topic. `retention_ms` is None where nothing expires by time; `append_time`: the broker stamps messages."""

    topic: str
    topic_id: str
    partitions: int
    compacted: bool
    retention_ms: int | None
    append_time: bool = False


class Position(msgspec.Struct, frozen=True):
    """An offset that the cluster named, with the leader epoch where it knows one."""

    offset: int
    leader_epoch: int | None


class Stamps(msgspec.Struct, frozen=True):
    """Visible messages of a piece of log: ascending offsets, timestamps in epoch milliseconds (-1: none), leader epochs (-1: none)."""

    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]
    epochs: npt.NDArray[np.int32]


class Broker(Protocol):
    """The questions that planning asks.

    An implementation has one isolation level, which every answer but `ends` goes by: under read_committed, the default, "stable" means the
    last stable offset and "visible" a committed message; under read_uncommitted they are the high watermark and any message.

    All methods raise UnreachableError if the cluster doesn't answer within its bounded retries. Used on the driver only.
    """

    def cluster_id(self) -> str:
        """The cluster's id."""

    def topic(self, name: str) -> TopicInfo:
        """What the cluster says of a topic now.

        Raises:
            SpecError: if there is no such topic, or the client may not see it.
        """

    def names(self) -> list[str]:
        """The names of all topics that the client may see, sorted, without Kafka's internal ones."""

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """What the cluster says of several topics now, in few questions; those that aren't there are left out.

        Raises:
            SpecError: one may not be seen.
        """

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there; above 0 after retention or a deletion of records."""

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        """The stable ends: everything below is decided."""

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks, whatever the isolation level: above the last stable offset while a transaction is open."""

    def committed(self, group: str, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The next offsets that a consumer group has committed; None where it has committed none."""

    def publish(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str | None]:
        """Commit offsets to a consumer group, for the tools that watch groups; per topic-partition None, or why it did not work.

        Never raises for what the cluster answers or doesn't: nothing depends on it.
        """

    def first_at_or_after(self, tps: Sequence[TopicPartition], moment: datetime) -> dict[TopicPartition, Position | None]:
        """Kafka's own answer: the first offset whose timestamp is at or after the moment, or None.

        The offset may be a transaction marker (stamped by the broker's clock) or an aborted message, and may lie beyond the last stable
        offset asked before.
        """

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """The visible messages of [start, stop) in chunks of at most a few thousand, lazily: the caller may close the iterator early.

        Raises:
            DataLossError: if `start` lies below the log start.
        """


class ReadSummary(msgspec.Struct, frozen=True):
    """What a reader counted when its split was read to the end. `aborted`: offsets in gaps that were seen to hold aborted messages.

    `skipped`: offsets of the split that were not in the log any more, and that the reader was told to go on without. `regrown`: told so, it
    went on although the log had been cut off below the split's start, and had grown again, before the split was planned.
    """

    next_offset: int
    read: int
    bytes: int
    aborted: int
    skipped: int = 0
    regrown: bool = False


class ReadPlan(msgspec.Struct, frozen=True):
    """What a reader is made for: the cluster and the topic ids (by name) that the plan was made on, and what to do where messages are gone.

    `on_loss` "skip": what retention, or a truncation of the log's end, has removed is counted as skipped instead of raised.
    """

    cluster_id: str
    topics: dict[str, str]
    on_loss: OnLoss


class Reader(Protocol):
    """Reads one split to its end. Picklable before `batches` is called; used on executors."""

    def batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The visible messages of the split, in offset order, as `MESSAGES` batches bounded by bytes and rows; never an empty batch.

        Ends when the position reached `split.stop`, over markers, aborted messages and compaction gaps; an empty poll is never the end.
        Resources are released when the iterator ends, fails or is closed.

        Raises:
            DataLossError: if retention removed the start, or truncation the end, also where the log has grown again since: the split's
                epochs tell. It names what was wanted and what is there. Not if the reader was told to skip: then it reads what is left
                of what was planned, and `summary` says how many offsets were skipped.
            IdentityError: if cluster or topic id are not those of the plan.
            UnreachableError: if nothing arrives for the stall limit.
        """

    def summary(self) -> ReadSummary:
        """The counts of the split that `batches` has just read to its end."""


# ----------------------------------------------------------------------------------------------------------------------------- sink


class Staged(msgspec.Struct, frozen=True):
    """What one task staged: names and sizes of files that are not visible yet, in the sink's own words; small, JSON, safe to lose.

    `refused` says what was wrong with the dead letters, and how often (see `ingest.model.refusals`). It is for the error of a window that
    is refused, so it is no part of the counts, which the receipt keeps for ever.
    """

    split: Split
    counts: SplitCounts
    rows: tuple[str, ...]
    dead: tuple[str, ...]
    refused: Kinds = ()


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


# --------------------------------------------------------------------------------------------------------------------------- engine


class Engine(Protocol):
    """Runs one task per split somewhere and brings the small results back."""

    def run(self, task: Callable[[Split], Staged], splits: Sequence[Split]) -> list[Staged]:
        """One call of `task` (picklable, may be tried again) per split; exactly one result per split, in the order of `splits`.

        Raises:
            WindrowError: a task's own error, as it was raised.
            UnreachableError: the engine itself failed.
        """
