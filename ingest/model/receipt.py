"""Receipts of committed windows, and the results of the tasks that they are made of.

A table keeps its receipts for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Self

import msgspec

from windrow.ingest.model.grid import neighbours
from windrow.ingest.model.lookup import LookedUp, Pin, merged
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.refusal_summary import RefusedAt
from windrow.ingest.model.source import FrozenStop
from windrow.ingest.model.writer_schema import WriterSchema

RECEIPT_VERSION = 5
"""The form of receipts. Only this form is written and read."""

Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
"""A checksum in hexadecimal, as `ingest.schema.checksum` defines it."""


class Checksums(msgspec.Struct, frozen=True):
    """Checksums of the rows and the dead letters of one split.

    Each covers all columns as they are in a staged file; without rows it is 0.
    """

    rows: Checksum = "0" * 16
    dead: Checksum = "0" * 16


class Tombstones(msgspec.Struct, frozen=True):
    """A file of the sink with the keys that a window's last changes took out of the table.

    An older window that is committed later must not bring these rows back.
    """

    path: str
    sha256: str
    keys: int


class Changed(msgspec.Struct, frozen=True):
    """The rows that the commits of a window added to a table and removed from it.

    The checksums are sums modulo 2**64.
    """

    rows_added: int = 0
    rows_removed: int = 0
    added: Checksum = "0" * 16
    removed: Checksum = "0" * 16


class Merged(Changed, frozen=True):
    """The effect of a window's commits on a table with a primary key.

    Summed over all windows, rows added less rows removed are the rows of the table, and
    so are their checksums (of all columns but the bucket's).

    The keys that were taken out are recorded in one of two ways. `tombstones` is this
    generation's file; None if it took out nothing, or if the table marks such rows
    itself. `tombstones_changed` is for a sink that keeps the tombstones of all windows in one
    table: their sum over the windows is that table, as with the rows.

    `kept` and `unknown` count the keys whose last change in the window left some columns
    unchanged. `unknown` ones had no row to take the values of all of them from, so that null
    stands there; all others are `kept`.
    """

    tombstones: Tombstones | None = None
    tombstones_changed: Changed | None = None
    kept: int = 0
    unknown: int = 0


class SplitCounts(msgspec.Struct, frozen=True):
    """The counts of one task.

    Each message that was `read` is counted once more: `valid` messages became at least
    one of `rows` and `deletes`; `dead` ones were refused; `dropped` ones had no value,
    and the spec says to pass over those; `filtered` ones were fine and became no row.
    The stager counts by itself the rows and deletes (`rows_staged`) and the dead
    letters (`dead_staged`) that it was given. `deletes` take rows out of the table by
    their keys, also if the table has no such row. `truncated` messages lost the part of
    a timestamp below a microsecond.

    `next_offset` is the reader's position at the end. `missing` offsets of the range
    held no visible message: `aborted` of them were messages of aborted transactions,
    the others are transaction markers or were compacted away. `skipped` offsets were
    gone from the log (by retention, truncation, or a deleted topic). `diverged`: the log
    was truncated below `start` after that was frozen, and grew again before `stop` was
    frozen; the new messages below `start` are in no window.

    `reasons` counts the dead letters by reason, and `first_dead` holds offset
    and reason of the first few. `late` and `early` messages have timestamps before and
    after the window's hours; `late_by` counts the late ones by the key of the window in
    whose hours they are stamped, and the earliest key counts all before it too.
    `checksums` are the stager's. `schemas`: id and digest of each writer's schema that
    was used. `lookups`: what was looked up for the rows of its messages.

    `ignored` messages have fields that no column is for; refused ones don't count.
    `ignored_fields` counts the paths of the first of these fields in the first of these
    messages; `others` are the fields beyond, and `*` stands for a map's keys.
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

    @classmethod
    def of_nothing(cls, split: Split) -> Self:
        """The counts of a split of which nothing was read, up to its end."""
        range_ = (split.topic, split.partition, split.start, split.stop, split.stop)
        return cls(*range_, 0, 0, 0, 0, 0, 0, 0, 0, rows=0)

    @property
    def missing(self) -> int:
        """The offsets of the range that were in the log and held no visible message."""
        return self.stop - self.start - self.read - self.skipped


class Counts(msgspec.Struct, frozen=True):
    """The totals of a window, with the meanings of `SplitCounts`.

    `read = valid + dead + dropped + filtered`, and `read + invisible + skipped` is the
    length of the ranges.
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
    """Says that a generation was made by a dead-letter replay.

    The rows of the generation before stay, and rows of its dead letters are added.
    `of`: the attempt of the generation before, whose open dead letters were replayed.
    `read_by`: the attempt that read the log and left all dead letters of the window. Of
    those, `messages` have been accepted by this generation and the ones before it;
    `edited` of these were changed before they were decoded. `pins`: the versions that the
    lookups of the last such replay asked, which are newer than those of the receipt.
    """

    of: str
    read_by: str
    messages: int
    edited: int = 0
    pins: tuple[Pin, ...] = ()


class Routed(msgspec.Struct, frozen=True):
    """A window's rows in another table than the one with the receipt, and their checksum."""

    table: str
    rows: int
    checksum: Checksum


class Receipt(msgspec.Struct, frozen=True):
    """The sink's record of a committed window: its plan, counts and checksums.

    It is written with the data, in one commit, and is enough to rebuild the ledger
    from.

    `seconds`: from the begin of the window's first task to the end of its last one; for
    a dead-letter replay, how long that took. `partial`: one sentence for each loss that
    the window has or may have; empty for a complete window. `merged` is filled in by
    the sink, because only the sink knows what its table held; None if rows are only
    appended. `dead_replay` is set for a dead-letter replay only. `routed` is filled in
    by a sink of several tables, with one entry for each of the other tables.
    `passed_over`: how many offsets the log held below those where topics begin that
    joined in this window; they are in no window. `pins`: the version that each lookup asked.
    `stop`: where the pipeline's micro-batches end, if they do.
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

    def __post_init__(self) -> None:
        """Checks that the digest is the plan's."""
        if self.digest != self.plan.digest:
            msg = f"the digest in the receipt of window {self.plan.window.key} is not its plan's"
            raise ValueError(msg)

    @property
    def window(self) -> Window:
        return self.plan.window

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
        """The number of keys whose last change in the window left values as they were.

        Those with unknown values are among them: an older window may have been to bring them.
        """
        return 0 if self.merged is None else self.merged.kept + self.merged.unknown

    @property
    def done(self) -> bool:
        """Returns whether the window reaches the end of the pipeline's micro-batches."""
        return self.stop is not None and not self.stop.left(self.plan.stop)

    @property
    def reasons(self) -> Counter[str]:
        """The number of dead letters by reason."""
        return sum((Counter(dict(split.reasons)) for split in self.splits), Counter[str]())

    @property
    def ignored_fields(self) -> Counter[str]:
        """The fields that no column is for, as far as they are named, by the messages with them."""
        return sum((Counter(dict(split.ignored_fields)) for split in self.splits), Counter[str]())

    @property
    def lookups(self) -> tuple[LookedUp, ...]:
        """What each lookup did for all splits; a key counts once for each split that had it."""
        return merged(part for split in self.splits for part in split.lookups)


class Committed(msgspec.Struct, frozen=True):
    """A receipt that was read from the sink, with the sink's version of its commit.

    `version` is None if the sink doesn't know it any more.
    """

    receipt: Receipt
    version: int | None


class Staging(msgspec.Struct, frozen=True):
    """The result of one stager: its own count and checksum, and what to commit.

    `checksum` covers every column that was staged (`ingest.schema.checksum`), so not
    the window's column. `committables` are texts that only the sink, or the dead-letter
    store, that staged them reads: names and sizes of files, or the rows themselves.
    They are small, and losing them does no harm.
    """

    rows: int = 0
    checksum: Checksum = "0" * 16
    committables: tuple[str, ...] = ()


class Staged(msgspec.Struct, frozen=True):
    """The result of one task: its counts, and what to commit.

    `rows` and `dead` are the committables of its rows and of its dead letters; nobody
    sees these yet. `refused` holds the number, kinds and first offsets of the dead
    letters of each stage: limits are checked against it, and the error of a refused
    window shows it. It isn't in the counts, because the receipt keeps those for ever.
    `schemas`: the writers' schemas that the task asked the registry for. `ran`: begin
    and end of the task, in epoch seconds of its machine's clock.
    """

    split: Split
    counts: SplitCounts
    rows: tuple[str, ...]
    dead: tuple[str, ...]
    refused: tuple[RefusedAt, ...] = ()
    schemas: tuple[WriterSchema, ...] = ()
    ran: tuple[float, float] | None = None
