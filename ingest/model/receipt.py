"""Receipts: what the sink itself says happened to a window, and the counts and
checksums that it is made of.

Kept for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec

from windrow.ingest.model.plan import Plan
from windrow.ingest.model.window import Window

RECEIPT_VERSION = 3
"""The form that is written now. 1: without a version, and without checksums; 2: without
`rows` and `filtered`.
"""


# of the sum that `ingest.schema.checksum` defines
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class Checksums(msgspec.Struct, frozen=True):
    """Of one split's rows and dead letters, every column of each as it stands in a
    staged file; of nothing it is 0.
    """

    rows: Checksum = "0" * 16
    dead: Checksum = "0" * 16


class Tombstones(msgspec.Struct, frozen=True):
    """Which keys a window's last changes took out of the table: a file of the sink's,
    by its place, its SHA-256, and how many they are.

    An older window that is committed later must not bring them back.
    """

    path: str
    sha256: str
    keys: int


class Changed(msgspec.Struct, frozen=True):
    """How many rows the commits of a window brought to a table and took from it, and
    the sums of their checksums, modulo 2**64.
    """

    rows_added: int = 0
    rows_removed: int = 0
    added: Checksum = "0" * 16
    removed: Checksum = "0" * 16


class Merged(Changed, frozen=True):
    """What the commits of a window did to a table with a primary key, those of all its
    generations together.

    The rows of the table are the sum over its windows of rows added less rows removed,
    and so is their checksum (every column but the bucket's). What keys were taken out
    is kept by one of two: `tombstones` is the file of this generation; None if it took
    nothing out, or rows that are taken out are marked. `buried` is for a sink that
    keeps the tombstones of all windows in one table: they are the sum over windows as the
    rows are. `kept`: of how many keys the window's last change left values alone, so
    that they are from before.
    """

    tombstones: Tombstones | None = None
    buried: Changed | msgspec.UnsetType = msgspec.UNSET
    kept: int | msgspec.UnsetType = msgspec.UNSET


class _OfAnyForm:
    """How counts of rows and filtered messages are read, whether their receipt's form
    has them or not.
    """

    __slots__ = ()
    valid: int
    rows_: int | msgspec.UnsetType
    filtered_: int | msgspec.UnsetType
    deletes_: int | msgspec.UnsetType
    truncated_: int | msgspec.UnsetType

    @property
    def rows(self) -> int:
        """Rows that the valid messages became."""
        return self.rows_ if isinstance(self.rows_, int) else self.valid

    @property
    def filtered(self) -> int:
        """Messages that became no row, and were neither refused nor dropped."""
        return self.filtered_ if isinstance(self.filtered_, int) else 0

    @property
    def deletes(self) -> int:
        """Rows that the valid messages took out of the table by their keys, or would
        have if they had been there.
        """
        return self.deletes_ if isinstance(self.deletes_, int) else 0

    @property
    def truncated(self) -> int:
        """Messages with a timestamp finer than a microsecond, which lost that."""
        return self.truncated_ if isinstance(self.truncated_, int) else 0


class SplitCounts(_OfAnyForm, msgspec.Struct, frozen=True):
    """What one task counted, by independent hands: the reader messages and bytes, the
    task verdicts and rows, the stager what it staged.

    Each message that was `read` is counted once: `valid` messages became `rows` and
    `deletes`, at least one each; `dead` ones were refused; `dropped` ones had no value
    and were to be passed over; `filtered` ones were fine and became no row. Of the rows
    and deletes that the stager was given it counted `rows_staged` by itself, and of the
    dead letters `dead_staged`. Receipts of the first two forms leave `rows` and
    `filtered` unset: they are of windows in which each valid message became one row.
    `deletes` are unset where there can be none, and `truncated`, messages that lost
    what their timestamps had below a microsecond, where there are none.

    `next_offset` is where the reader stood at the end; `missing` offsets of the range
    held no visible message, `aborted` of them were seen to be messages of aborted
    transactions, the rest are transaction markers or were compacted away. `skipped`
    offsets were not in the log any more (retention, truncation, a topic that is gone):
    nobody knows what they held. `reasons` counts dead letters by stage and reason,
    `first_dead` gives offset and reason of the first few. `late` and `early` messages
    are stamped before and after the window's hours; `late_by` says of the late ones
    which windows' hours they are stamped in (its key; the earliest stands for all
    before it too). `regrown`: below `start` the log was cut off after that was frozen,
    and grew again before `stop` was: what is new there is in no window. `checksums` are
    the stager's; unset in receipts from before there were any. `schemas`: id and digest
    of each writer's schema that messages were decoded by; unset where there was none.
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
    skipped: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    first_dead: tuple[tuple[int, str], ...] = ()
    late: int = 0
    early: int = 0
    late_by: tuple[tuple[str, int], ...] = ()
    min_timestamp: datetime | None = None
    max_timestamp: datetime | None = None
    regrown: bool = False
    checksums: Checksums | msgspec.UnsetType = msgspec.UNSET
    rows_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="rows")
    filtered_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="filtered")
    deletes_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="deletes")
    truncated_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="truncated")
    schemas: tuple[tuple[str, str], ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def missing(self) -> int:
        """Offsets of the range that were there and held no visible message."""
        return self.stop - self.start - self.read - self.skipped


class Counts(_OfAnyForm, msgspec.Struct, frozen=True):
    """The window's totals, as in `SplitCounts`.

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
    rows_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="rows")
    filtered_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="filtered")
    deletes_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="deletes")
    truncated_: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="truncated")

    @classmethod
    def total(cls, splits: Iterable[SplitCounts]) -> Counts:
        """The sum over splits."""
        parts = list(splits)
        return cls(
            read=sum(s.read for s in parts),
            bytes=sum(s.bytes for s in parts),
            valid=sum(s.valid for s in parts),
            dead=sum(s.dead for s in parts),
            dropped=sum(s.dropped for s in parts),
            invisible=sum(s.missing for s in parts),
            aborted=sum(s.aborted for s in parts),
            skipped=sum(s.skipped for s in parts),
            late=sum(s.late for s in parts),
            early=sum(s.early for s in parts),
            rows_=sum(s.rows for s in parts),
            filtered_=sum(s.filtered for s in parts),
            deletes_=(
                sum(s.deletes for s in parts)
                if any(isinstance(s.deletes_, int) for s in parts)
                else msgspec.UNSET
            ),
            truncated_=sum(s.truncated for s in parts) or msgspec.UNSET,
        )


class DeadReplay(msgspec.Struct, frozen=True):
    """A generation made by a dead-letter replay: the rows of the one before stay, and rows
    of its dead letters are added.

    `of`: the attempt that it stands on, whose open dead letters it took. `read_by`: the
    attempt that read the log, whose dead letters are all that was refused then. Since
    that, `messages` of them were accepted, by this generation and those before it;
    `edited` of these are not as they are in the log.
    """

    of: str
    read_by: str
    messages: int
    edited: int = 0


class Routed(msgspec.Struct, frozen=True):
    """How many of a window's rows lie in another table than the one with the receipt,
    and the sum of their checksums.
    """

    table: str
    rows: int
    checksum: Checksum


class Receipt(msgspec.Struct, frozen=True):
    """What the sink itself says happened to a window.

    Written with the data, in one commit; enough to rebuild the ledger from.

    `seconds`: from when the first of the window's tasks began until the last one ended;
    of a dead-letter replay, how long that took. `partial`: what the window has lost,
    or may have lost, one sentence each; empty for a whole window. `version`: the
    receipt's form (`RECEIPT_VERSION`); unset in the first one, which had no such field,
    and gets none when it is put into JSON again. `merged` is filled in by the sink,
    which alone knows what its table held; unset where rows are only appended.
    `dead_replay_`: only of a dead-letter replay. `routed_`: filled in by a sink of
    several tables, one for each but this one.
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
    version: int | msgspec.UnsetType = msgspec.UNSET
    merged: Merged | msgspec.UnsetType = msgspec.UNSET
    dead_replay_: DeadReplay | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="dead_replay"
    )
    routed_: tuple[Routed, ...] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="routed"
    )

    def __post_init__(self) -> None:
        """The digest is the plan's."""
        if self.digest != self.plan.digest:
            msg = f"receipt of window {self.plan.window.key}: its digest is not its plan's"
            raise ValueError(msg)

    @property
    def window(self) -> Window:
        """The window it is of."""
        return self.plan.window

    @property
    def dead_replay(self) -> DeadReplay | None:
        """The dead-letter replay that made it; None of a generation read from the log."""
        return self.dead_replay_ if isinstance(self.dead_replay_, DeadReplay) else None

    @property
    def routed(self) -> tuple[Routed, ...]:
        """What other tables have of it; nothing where there is one table."""
        return self.routed_ if isinstance(self.routed_, tuple) else ()


class Committed(msgspec.Struct, frozen=True):
    """A receipt as the sink holds it: with the sink's own version of the commit where
    that is still known.
    """

    receipt: Receipt
    version: int | None
