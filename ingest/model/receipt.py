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

RECEIPT_VERSION = 4
"""The form of receipts, which alone is written and read."""


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
    and so is their checksum (every column but the bucket's). The keys that were taken
    out are kept in one of two ways: `tombstones` is the file of this generation; None if
    it took nothing out, or marks the rows that it takes out. `buried` is for a sink that
    keeps the tombstones of all windows in one table: they are the sum over windows as the
    rows are. `kept`: the number of keys of which the window's last change left some
    columns as they were before.
    """

    tombstones: Tombstones | None = None
    buried: Changed | None = None
    kept: int = 0


class SplitCounts(msgspec.Struct, frozen=True):
    """The counts of one task: the reader counts messages and bytes, the task verdicts and
    rows, the stager what it staged.

    Each message that was `read` is counted once: `valid` messages became `rows` and
    `deletes`, at least one each; `dead` ones were refused; `dropped` ones had no value,
    and the spec says to pass over these; `filtered` ones were fine and became no row. Of
    the rows and deletes that the stager was given it counted `rows_staged` by itself, and
    of the dead letters `dead_staged`. `deletes` took rows out of the table by their keys,
    or would have if these had been there. `truncated` messages lost the part of a
    timestamp below a microsecond.

    `next_offset` is the reader's position at the end; `missing` offsets of the range held
    no visible message, `aborted` of them were messages of aborted transactions, the rest
    are transaction markers or were compacted away. `skipped` offsets were not in the log
    any more (retention, truncation, a topic that is gone). `reasons` counts dead letters
    by stage and reason, `first_dead` gives offset and reason of the first few. `late` and
    `early` messages are stamped before and after the window's hours; `late_by` counts the
    late ones by the window whose hours they are stamped in (its key; the earliest counts
    all before it too). `regrown`: the log was cut off below `start` after that was frozen,
    and grew again before `stop` was: the new messages below `start` are in no window.
    `checksums` are the stager's. `schemas`: id and digest of each writer's schema that
    messages were decoded by.
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
    regrown: bool = False
    checksums: Checksums = Checksums()
    schemas: tuple[tuple[str, str], ...] = ()

    @property
    def missing(self) -> int:
        """The offsets of the range that were in the log and held no visible message."""
        return self.stop - self.start - self.read - self.skipped


class Counts(msgspec.Struct, frozen=True):
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
    rows: int = 0
    filtered: int = 0
    deletes: int = 0
    truncated: int = 0

    @classmethod
    def total(cls, splits: Iterable[SplitCounts]) -> Counts:
        """The sum over splits."""
        parts = list(splits)
        named = [name for name in cls.__struct_fields__ if name != "invisible"]
        return cls(
            invisible=sum(s.missing for s in parts),
            **{name: sum(getattr(s, name) for s in parts) for name in named},
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
    or may have lost, one sentence each; empty for a whole window. `merged` is filled in by
    the sink, which alone knows what its table held; None where rows are only appended.
    `dead_replay`: only of a dead-letter replay. `routed`: filled in by a sink of
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
    version: int = RECEIPT_VERSION
    merged: Merged | None = None
    dead_replay: DeadReplay | None = None
    routed: tuple[Routed, ...] = ()

    def __post_init__(self) -> None:
        """The digest is the plan's."""
        if self.digest != self.plan.digest:
            msg = f"receipt of window {self.plan.window.key}: its digest is not its plan's"
            raise ValueError(msg)

    @property
    def window(self) -> Window:
        """The window it is of."""
        return self.plan.window


class Committed(msgspec.Struct, frozen=True):
    """A receipt as the sink holds it: with the sink's own version of the commit where
    that is still known.
    """

    receipt: Receipt
    version: int | None
