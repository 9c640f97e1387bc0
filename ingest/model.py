"""The nouns of windrow: immutable values, JSON both ways (`to_json`, `from_json`).

Offsets always mean the next message to read; ranges are half-open. Instants are aware datetimes in UTC. A value checks its own invariants
when it is made and when it is read back from JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Literal, TypeVar

import msgspec

T = TypeVar("T")

Label = datetime | int
"""What a boundary is frozen under: an instant of the grid, or, between micro-batches, a sequence number."""

How = Literal["settled", "end", "open", "clamped", "log_start", "position", "batch", "removed"]
"""How a boundary's offset was found.

settled: the settled message. end: nothing at or after the label, so the last stable offset. open: the last stable offset, behind which a
transaction was still open after all the patience that was asked for. clamped: moved to a frozen neighbour. log_start: the log's own start
above 0, which proves nothing about what was there before. position: where the spec's `start` says. batch: where a micro-batch ends.
removed: carried on from the lower neighbour, for a topic that is not there, or not asked for, any more.
"""


def to_json(value: msgspec.Struct) -> str:
    """Canonical JSON: the fields in their declared order, no spaces."""
    return msgspec.json.encode(value).decode()


def from_json(text: str | bytes, kind: type[T]) -> T:
    """The value back.

    Raises:
        msgspec.ValidationError: if the text is not of this kind or breaks one of its invariants.
    """
    return msgspec.json.decode(text, type=kind)


def instant(moment: datetime) -> str:
    """The one text form of an instant: `2026-01-02T03:00:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def label_text(label: Label) -> str:
    """The one text form of a label: an instant, or `batch-000000007`, which sorts as the numbers do."""
    return instant(label) if isinstance(label, datetime) else f"batch-{label:09d}"


def _ascending(values: Sequence[tuple[str, int]] | Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(values))  # type: ignore[operator]  # of one kind


def _require_label(name: str, label: Label) -> None:
    if isinstance(label, int):
        if label < 0:
            msg = f"{name} must not be negative: {label}"
            raise ValueError(msg)
    elif label.utcoffset() != UTC.utcoffset(None):
        msg = f"{name} must be an aware datetime in UTC, not {label!r}"
        raise ValueError(msg)


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A Kafka topic-partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """`topic[3]`, for people only."""
        return f"{self.topic}[{self.partition}]"


class TopicSeen(msgspec.Struct, frozen=True, order=True):
    """A topic as a boundary saw it: which one it is (made anew it has the same name and another id), and how many partitions it had."""

    topic: str
    topic_id: str
    partitions: int


class Mark(msgspec.Struct, frozen=True, order=True):
    """Where a boundary cuts one topic-partition, and how that was found.

    `leader_epoch` is the witness that the log was whole up to here: when the mark was cut, the messages of this epoch and of those before
    it reached up to the offset or beyond, and none below the offset had a later epoch. A log that is cut off below the offset grows again
    under a later epoch only, so the cluster can tell ever after. None where the cluster named no epoch, or an older version cut the mark.
    """

    topic: str
    partition: int
    offset: int
    how: How
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        """An offset is never negative: sentinels are resolved before a mark exists."""
        if self.offset < 0:
            msg = f"offset {self.offset} of {self.topic}[{self.partition}] is negative"
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        """The topic-partition it cuts."""
        return TopicPartition(self.topic, self.partition)


class Boundary(msgspec.Struct, frozen=True):
    """Per topic-partition offsets under one label, of one cluster and known topics.

    Total: a partition that was added to a known topic later is cut at 0 here. A topic-partition that is not read yet (a topic that is new
    to the pattern or the spec) is in no mark; the first boundary that has it says in `begins` where its first window begins, should that
    window start at a boundary that doesn't know it.
    """

    label: Label
    cluster_id: str
    topics: tuple[TopicSeen, ...]
    marks: tuple[Mark, ...]
    begins: tuple[Mark, ...] = ()

    def __post_init__(self) -> None:
        """Marks are sorted, each topic-partition is cut once and begins at or before its cut."""
        _require_label("label", self.label)
        if not (
            _ascending([(m.topic, m.partition) for m in self.marks])
            and _ascending([(m.topic, m.partition) for m in self.begins])
            and _ascending([t.topic for t in self.topics])
        ):
            msg = f"topics, marks and begins of boundary {label_text(self.label)} must be sorted and unique"
            raise ValueError(msg)
        cuts = self.by_tp() if self.begins else {}
        if any(b.tp not in cuts or b.offset > cuts[b.tp].offset for b in self.begins):
            msg = f"a begin of boundary {label_text(self.label)} lies behind its cut, or has none"
            raise ValueError(msg)

    @classmethod
    def of(
        cls, label: Label, cluster_id: str, topics: Iterable[TopicSeen], marks: Iterable[Mark], begins: Iterable[Mark] = ()
    ) -> Boundary:  # fmt: skip
        """A boundary from topics and marks in any order."""
        return cls(label, cluster_id, tuple(sorted(topics)), tuple(sorted(marks)), tuple(sorted(begins)))

    def by_tp(self) -> dict[TopicPartition, Mark]:
        """Its marks by topic-partition."""
        return {m.tp: m for m in self.marks}

    def by_topic(self) -> dict[str, TopicSeen]:
        """The topics it knows, by name."""
        return {t.topic: t for t in self.topics}

    def cut(self, tp: TopicPartition) -> Mark | None:
        """Where it cuts: its mark; offset 0 for a partition that was added to one of its topics later; None for what it doesn't know."""
        return next((m for m in self.marks if m.tp == tp), self._later(tp))

    def _later(self, tp: TopicPartition) -> Mark | None:
        seen = next((t for t in self.topics if t.topic == tp.topic), None)
        return None if seen is None or tp.partition < seen.partitions else Mark(tp.topic, tp.partition, 0, "clamped")

    def cuts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Mark]:
        """Where it cuts each of these; what it doesn't know is left out."""
        known = self.by_tp()
        found = {tp: known.get(tp) or self._later(tp) for tp in tps}
        return {tp: mark for tp, mark in found.items() if mark is not None}


class Window(msgspec.Struct, frozen=True, order=True):
    """What was asked: of one pipeline the time from `start` to `end`, on its grid; or the micro-batch between two sequence numbers."""

    pipeline: str
    start: Label
    end: Label

    def __post_init__(self) -> None:
        """A window has a length; a micro-batch's is 1."""
        _require_label("start", self.start)
        _require_label("end", self.end)
        batch = isinstance(self.start, int) and isinstance(self.end, int) and self.end == self.start + 1
        hours = isinstance(self.start, datetime) and isinstance(self.end, datetime) and self.start < self.end
        if not batch and not hours:
            msg = f"a window must end after it starts, a micro-batch with the next number: {self.start} / {self.end}"
            raise ValueError(msg)

    @property
    def key(self) -> str:
        """Its text in the window's column: the start; the grid gives the end."""
        return label_text(self.start)

    @property
    def hours(self) -> tuple[datetime, datetime] | None:
        """From when until when, half-open; None for a micro-batch."""
        return (self.start, self.end) if isinstance(self.start, datetime) and isinstance(self.end, datetime) else None


class Split(msgspec.Struct, frozen=True, order=True):
    """One offset range of one topic-partition: the unit of reading, one Spark task. Integers only: every sentinel was resolved before.

    `leader_epoch` and `stop_epoch` are witnesses as a mark's is, for the start and for the stop: no message of the split may have a later
    epoch than `stop_epoch`.
    """

    topic: str
    partition: int
    start: int
    stop: int
    leader_epoch: int | None = None
    stop_epoch: int | None = None

    def __post_init__(self) -> None:
        """Never negative, never empty: an empty range needs no task."""
        if not 0 <= self.start < self.stop:
            msg = f"a split of {self.topic}[{self.partition}] must hold 0 <= start < stop, not {self.start}..{self.stop}"
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        """The topic-partition it reads."""
        return TopicPartition(self.topic, self.partition)


class Plan(msgspec.Struct, frozen=True):
    """What was decided for a window: integers only, frozen before anything is written."""

    window: Window
    start: Boundary
    stop: Boundary
    splits: tuple[Split, ...]
    sink: str

    @property
    def digest(self) -> str:
        """Covers source ranges and sink, not code or schema: after a refusal the usual cure is to mend the schema and try again."""
        ids = {t.topic: t.topic_id for t in self.stop.topics}
        ranges = [(ids.get(s.topic), s.topic, s.partition, s.start, s.stop) for s in self.splits]
        cuts = [[(m.topic, m.partition, m.offset) for m in boundary.marks] for boundary in (self.start, self.stop)]
        named = [
            self.window,
            self.stop.cluster_id,
            ranges,
            cuts,
            self.sink,
        ]  # named one by one: a field that a later version adds is not in it
        return hashlib.sha256(msgspec.json.encode(named)).hexdigest()


RECEIPT_VERSION = 2  # the form that is written now; 1: without a version, and without checksums
Checksum = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]  # of the sum that `ingest.checksum` defines


class Checksums(msgspec.Struct, frozen=True):
    """Of one split's rows and dead letters, every column of each as it stands in a staged file; of nothing it is 0."""

    rows: Checksum = "0" * 16
    dead: Checksum = "0" * 16


class SplitCounts(msgspec.Struct, frozen=True):
    """What one task counted, by independent hands: the reader messages and bytes, the decoder verdicts, the stager rows.

    `next_offset` is where the reader stood at the end; `missing` offsets of the range held no visible message, `aborted` of them were
    seen to be messages of aborted transactions, the rest are transaction markers or were compacted away. `skipped` offsets were not in the
    log any more (retention, truncation, a topic that is gone): nobody knows what they held. `reasons` counts dead letters by stage and
    reason, `first_dead` gives offset and reason of the first few. `late` and `early` messages are stamped before and after the window's
    hours; `late_by` says of the late ones which windows' hours they are stamped in (its key; the earliest stands for all before it too).
    `regrown`: below `start` the log was cut off after that was frozen, and grew again before `stop` was: what is new there is in no window.
    `checksums` are the stager's; unset in receipts from before there were any.
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

    @property
    def missing(self) -> int:
        """Offsets of the range that were there and held no visible message."""
        return self.stop - self.start - self.read - self.skipped


class Counts(msgspec.Struct, frozen=True):
    """The window's totals: `read = valid + dead + dropped`, and `read + invisible + skipped` is the length of the ranges."""

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
        )


class Receipt(msgspec.Struct, frozen=True):
    """What the sink itself says happened to a window. Written with the data, in one commit; enough to rebuild the ledger from.

    `partial`: what the window has lost, or may have lost, one sentence each; empty for a whole window. `version`: the receipt's form
    (`RECEIPT_VERSION`); unset in the first one, which had no such field, and gets none when it is put into JSON again.
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
    """A receipt as the sink holds it: with the sink's own version of the commit where that is still known."""

    receipt: Receipt
    version: int | None


class Covered(msgspec.Struct, frozen=True, order=True):
    """A committed range under the identity that offsets have: topic id, not name."""

    topic_id: str
    partition: int
    start: int
    stop: int

    def overlaps(self, other: Covered) -> bool:
        """Whether both hold an offset of the same topic-partition."""
        same = (self.topic_id, self.partition) == (other.topic_id, other.partition)
        return same and self.start < other.stop and other.start < self.stop


def covered(plan: Plan) -> tuple[Covered, ...]:
    """The ranges of a plan by topic id."""
    ids = {t.topic: t.topic_id for t in plan.stop.topics}
    return tuple(Covered(ids[s.topic], s.partition, s.start, s.stop) for s in plan.splits)
