"""Receipts of committed windows, and the results of tasks that receipts are made from.

A table keeps its receipts for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Self

import msgspec

from windrow.ingest.model.grid import neighbours
from windrow.ingest.model.lookup import LookedUp, Pin, merge_parts
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.refusal_summary import RefusedAt
from windrow.ingest.model.source import FrozenStop
from windrow.ingest.model.writer_schema import WriterSchema

RECEIPT_VERSION = 5
"""The version of the receipts' format. No other version is written or read."""

Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
"""A checksum in hexadecimal, as `ingest.schema.checksum` defines it."""


class Checksums(msgspec.Struct, frozen=True):
    """Checksums of the rows and of the dead letters of one split.

    Each covers all columns of the staged data. Without rows it is 0.
    """

    rows: Checksum = "0" * 16
    dead: Checksum = "0" * 16


class Tombstones(msgspec.Struct, frozen=True):
    """A file of the sink with the keys that a window removed from the table.

    A key is in it if its last change in the window was a delete. An older window that is
    committed later must not bring these rows back.
    """

    path: str
    sha256: str
    keys: int


class Changed(msgspec.Struct, frozen=True):
    """The numbers of rows that a window's commits added to a table and removed from it.

    Checksums are sums modulo 2**64.
    """

    rows_added: int = 0
    rows_removed: int = 0
    added: Checksum = "0" * 16
    removed: Checksum = "0" * 16


class Merged(Changed, frozen=True):
    """The effect of a window's commits on a table with a primary key.

    Summed over all windows, rows added minus rows removed is the number of rows in the
    table. The same holds for the checksums, which cover all columns but the bucket's.

    Removed keys are recorded in one of two ways: in a file per window (`tombstones`), or in
    one table for all windows (`tombstones_changed`).

    Attributes:
        tombstones: the file of this generation; None if the window removed no key, or if
            the table itself marks removed rows.
        tombstones_changed: the changes to the table of tombstones. Summed over all windows
            they give that table.
        kept_count: the number of keys whose last change left some columns unchanged, with
            the values taken from an earlier row.
        unknown: the number of such keys without an earlier row for all of these values; the
            missing ones are null.
    """

    tombstones: Tombstones | None = None
    tombstones_changed: Changed | None = None
    kept_count: int = msgspec.field(name="kept", default=0)
    unknown: int = 0


class SplitCounts(msgspec.Struct, frozen=True):
    """The counts of one task.

    Each message that was read is valid, dead, dropped or filtered. The stager counts the
    rows and the dead letters that it was given by itself (`rows_staged`, `dead_staged`).

    Attributes:
        topic: the topic of the split.
        partition: its partition.
        start: the first offset of the split.
        stop: the offset after the last one.
        next_offset: the reader's position at the end.
        read: messages that were read.
        bytes: their size.
        valid: messages that became at least one row or delete.
        dead: messages that were refused.
        dropped: messages without a value, which the spec says to skip.
        filtered: messages without an error that became no row.
        rows_staged: rows and deletes that the stager counted.
        dead_staged: dead letters that the stager counted.
        aborted: offsets of messages of aborted transactions; a part of `missing`.
        rows: rows that the valid messages became.
        deletes: deletes that the valid messages became. A delete removes a row by its key;
            it counts even if the table has no such row.
        truncated: messages with a timestamp that lost its part below a microsecond.
        skipped: offsets that were gone from the log, by retention, truncation or a deleted
            topic.
        reasons: the number of dead letters by reason.
        first_dead: offset and reason of the first few dead letters.
        late: messages with times before the window's hours. Which time counts is said by
            `Receipt.event_time`.
        early: messages with times after the window's hours.
        late_by: the late messages by the key of the window whose hours have their times.
            The earliest key also counts all messages before it.
        min_timestamp: the earliest time of a message.
        max_timestamp: the latest time of a message.
        late_stamps: messages that the broker stamped before the window's hours, if `late`
            counts event times; else None.
        latest_event: the latest event time before the window's end, without the broker's
            timestamps; None if no message has one.
        diverged: True if the log was truncated below `start` after `start` was frozen, and
            grew again before `stop` was frozen. The new messages below `start` are in no
            window.
        checksums: the stager's checksums.
        schemas: id and digest of each writer's schema that was used.
        lookups: the counts of each lookup for the rows.
        ignored: messages with fields that no column is for, without refused messages.
        ignored_fields: the number of messages by the path of such a field, in the first
            ignored messages. Only the first paths are named; all others count as `others`.
            `*` is any key of a map.
    """

    topic: str
    partition: int
    start: int
    stop: int
    next_offset: int
    read: int
    bytes: int
    valid: int
    dead: int
    dropped: int
    rows_staged: int
    dead_staged: int
    aborted: int
    rows: int
    filtered: int = 0
    deletes: int = 0
    truncated: int = 0
    skipped: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    first_dead: tuple[tuple[int, str], ...] = ()
    late: int = 0
    early: int = 0
    late_by: tuple[tuple[str, int], ...] = ()
    min_timestamp: datetime | None = None
    max_timestamp: datetime | None = None
    diverged: bool = False
    checksums: Checksums = Checksums()
    schemas: tuple[tuple[str, str], ...] = ()
    lookups: tuple[LookedUp, ...] = ()
    ignored: int = 0
    ignored_fields: tuple[tuple[str, int], ...] = ()
    late_stamps: int | None = None
    latest_event: datetime | None = None

    @classmethod
    def of_nothing(cls, split: Split) -> Self:
        """Returns the counts of a split without messages, with the reader's position at its end."""
        range_ = (split.topic, split.partition, split.start, split.stop, split.stop)
        return cls(*range_, 0, 0, 0, 0, 0, 0, 0, 0, rows=0)

    @property
    def stamped_late(self) -> int:
        """The messages that the broker stamped before the window's hours."""
        return self.late if self.late_stamps is None else self.late_stamps

    @property
    def missing(self) -> int:
        """The offsets of the range that were in the log and held no visible message.

        `aborted` of them were messages of aborted transactions. The others are transaction
        markers, or were compacted away.
        """
        return self.stop - self.start - self.read - self.skipped


class Counts(msgspec.Struct, frozen=True):
    """The totals of a window. The fields have the meanings of `SplitCounts`.

    `invisible` is the sum of the splits' `missing`. `read = valid + dead + dropped +
    filtered`, and `read + invisible + skipped` is the length of the ranges.
    """

    read: int = 0
    bytes: int = 0
    valid: int = 0
    dead: int = 0
    dropped: int = 0
    invisible: int = 0
    aborted: int = 0
    skipped: int = 0
    late: int = 0
    early: int = 0
    rows: int = 0
    filtered: int = 0
    deletes: int = 0
    truncated: int = 0
    ignored: int = 0

    @classmethod
    def total(cls, splits: Iterable[SplitCounts]) -> Counts:
        parts = list(splits)
        named = [name for name in cls.__struct_fields__ if name != "invisible"]
        return cls(
            invisible=sum(s.missing for s in parts),
            **{name: sum(getattr(s, name) for s in parts) for name in named},
        )


class DeadReplay(msgspec.Struct, frozen=True):
    """The facts about a generation that a dead-letter replay made.

    The rows of the previous generation stay, and rows of its dead letters are added.

    Attributes:
        replayed_attempt: the attempt of the previous generation. Its remaining dead letters
            were replayed.
        read_by: the attempt that read the log and made all dead letters of the window.
        messages: how many of these dead letters were accepted, by this generation and the
            ones before it.
        edited: how many of the accepted messages were edited before they were decoded.
        pins: the versions that the lookups of the last such replay asked. They are newer
            than those of the receipt.
    """

    replayed_attempt: str = msgspec.field(name="of")
    read_by: str
    messages: int
    edited: int = 0
    pins: tuple[Pin, ...] = ()


class Routed(msgspec.Struct, frozen=True):
    """A window's rows in one of the tables that don't have the receipt, and their checksum."""

    table: str
    rows: int
    checksum: Checksum


class Receipt(msgspec.Struct, frozen=True):
    """The sink's record of a committed window: its plan, counts and checksums.

    It is committed together with the data, and the ledger can be rebuilt from receipts
    alone.

    Attributes:
        plan: the plan of the window.
        digest: the plan's digest.
        generation: 0 for the first commit of the window; each replacement adds 1.
        attempt: the id of the attempt that was committed.
        request: the id of the request for the run.
        ledger: the id of the ledger.
        grid: the pipeline's grid.
        counts: the totals of the window.
        splits: the counts of each split.
        schema: name and type of each column of the schema.
        code: the version of windrow.
        staged_at: when the staging was over.
        seconds: the time from the begin of the window's first task to the end of its last
            one; for a dead-letter replay, its duration.
        warnings: one sentence for each warning.
        partial: one sentence for each loss that the window has or may have; empty for a
            complete window.
        version: the version of the receipt's format.
        merged: the effect on a table with a primary key. The sink sets it, because only the
            sink knows the table's rows. None if rows are only appended.
        dead_replay: the facts about a dead-letter replay; else None.
        routed: one entry for each of the other tables of a sink with several tables.
        passed_over: the number of offsets in the logs below the start of topics that joined
            in this window. These offsets are in no window.
        pins: the version that each lookup asked.
        stop: the end of the pipeline's micro-batches, if they have one.
        event_time: the column whose values are the times of the messages, in the counts of
            late and early messages; None: these are the broker's timestamps.
        files: the number of files of rows that the window's tasks staged. It is greater than
            the number of splits if the table is partitioned by columns, or if rows go to
            several tables. A dead-letter replay keeps it.
        expired_at: when the maintenance removed the window's rows from the table because of
            their age; None: they are there. The counts and the attempt are those of the
            generation that wrote the rows.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        for committed in windrow.read_receipts(pipeline):
            receipt = committed.receipt
            print(receipt.window.key, "has", receipt.counts.rows, "rows")
    """

    plan: Plan
    digest: str
    generation: int
    attempt: str
    request: str
    ledger: str
    grid: str
    counts: Counts
    splits: tuple[SplitCounts, ...]
    schema: tuple[tuple[str, str], ...]
    code: str
    staged_at: datetime
    seconds: float
    warnings: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    version: int = RECEIPT_VERSION
    merged: Merged | None = None
    dead_replay: DeadReplay | None = None
    routed: tuple[Routed, ...] = ()
    passed_over: int = 0
    pins: tuple[Pin, ...] = ()
    stop: FrozenStop | None = None
    event_time: str | None = None
    files: int = 0
    expired_at: datetime | None = None

    def __post_init__(self) -> None:
        """Checks that the digest is the plan's."""
        if self.digest != self.plan.digest:
            msg = f"the digest in the receipt of window {self.plan.window.key} is not its plan's"
            raise ValueError(msg)

    @property
    def window(self) -> Window:
        return self.plan.window

    @property
    def table_rows(self) -> int:
        """The number of the window's rows in a table to which rows are only appended."""
        return self.counts.rows if self.expired_at is None else 0

    @property
    def rows_generation(self) -> int:
        """The generation that wrote the rows. The next one may have removed them for their age."""
        return self.generation - (self.expired_at is not None)

    @property
    def aging_since(self) -> datetime:
        """The instant from which the age of the rows counts.

        It is the window's end. A micro-batch has no hours, and counts from its commit.
        """
        return self.staged_at if self.window.span is None else self.window.span[1]

    def without_rows(self, expired_at: datetime) -> Receipt:
        """Returns the receipt of the generation that removes the rows for their age."""
        splits = tuple(
            msgspec.structs.replace(split, checksums=Checksums(dead=split.checksums.dead))
            for split in self.splits
        )
        return msgspec.structs.replace(
            self, generation=self.generation + 1, splits=splits, expired_at=expired_at
        )

    @property
    def adjacent_windows(self) -> tuple[Window | None, Window]:
        """The window before, if the grid has one, and the window after."""
        window = self.window
        previous_label = neighbours(self.grid, window.start)[0]
        next_label = neighbours(self.grid, window.end)[1]
        return (
            None
            if previous_label is None
            else Window(window.pipeline, previous_label, window.start),
            Window(window.pipeline, window.end, next_label),
        )

    @property
    def kept_keys(self) -> int:
        """The number of keys whose last change in the window left some values unchanged.

        It includes keys with unknown values: an older window that isn't committed yet may
        have them.
        """
        return 0 if self.merged is None else self.merged.kept_count + self.merged.unknown

    @property
    def done(self) -> bool:
        """Whether the window reaches the end of the pipeline's micro-batches."""
        return self.stop is not None and not self.stop.remaining_offsets(self.plan.stop)

    @property
    def reasons(self) -> Counter[str]:
        """The number of dead letters by reason."""
        return sum((Counter(dict(split.reasons)) for split in self.splits), Counter[str]())

    @property
    def ignored_fields(self) -> Counter[str]:
        """The number of messages by the path of a named field that no column is for."""
        return sum((Counter(dict(split.ignored_fields)) for split in self.splits), Counter[str]())

    @property
    def lookups(self) -> tuple[LookedUp, ...]:
        """The counts of each lookup over all splits.

        A key counts once for each split that asked for it.
        """
        return merge_parts(part for split in self.splits for part in split.lookups)


class Committed(msgspec.Struct, frozen=True):
    """A receipt that was read from the sink.

    Attributes:
        receipt: the receipt.
        version: the table version that the commit made; None if the sink doesn't know it
            any more.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        for committed in windrow.read_receipts(pipeline):
            print(committed.receipt.window.key, "made version", committed.version)
    """

    receipt: Receipt
    version: int | None


class Staging(msgspec.Struct, frozen=True):
    """The result of one stager.

    Attributes:
        rows: the stager's own count.
        checksum: its checksum over every staged column (`ingest.schema.checksum`). The
            window's column isn't staged.
        committables: the data to commit, as texts that only the sink or the dead-letter
            store that staged it can read. They are names and sizes of files, or the rows
            themselves. They are small, and losing them does no harm.
    """

    rows: int = 0
    checksum: Checksum = "0" * 16
    committables: tuple[str, ...] = ()


class Staged(msgspec.Struct, frozen=True):
    """The result of one task.

    Attributes:
        split: the split that the task read.
        counts: its counts.
        rows: the committables of its rows, which no reader sees before the commit.
        dead: the committables of its dead letters.
        refused: the number, kinds and first offsets of the dead letters of each stage.
            Limits are checked against it, and the error of a refused window shows it. It
            isn't in the counts, because the receipt keeps those for ever.
        schemas: the writers' schemas that the task asked the registry for.
        ran: begin and end of the task, in epoch seconds of its machine's clock.
    """

    split: Split
    counts: SplitCounts
    rows: tuple[str, ...]
    dead: tuple[str, ...]
    refused: tuple[RefusedAt, ...] = ()
    schemas: tuple[WriterSchema, ...] = ()
    ran: tuple[float, float] | None = None
