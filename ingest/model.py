"""The nouns of windrow: immutable values, JSON both ways (`to_json`, `from_json`).

Offsets always mean the next message to read; ranges are half-open. Instants are aware datetimes in UTC. A value checks its own invariants
when it is made and when it is read back from JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec

T = TypeVar("T")

How = Literal["settled", "end", "clamped", "log_start"]
"""How a boundary's offset was found: the settled message; nothing at or after the label, so the last stable offset; moved to a frozen
neighbour; the log's own start above 0, which proves nothing about what was there before."""


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


def _require_utc(name: str, moment: datetime) -> None:
    if moment.utcoffset() is None or moment.utcoffset() != UTC.utcoffset(None):
        msg = f"{name} must be an aware datetime in UTC, not {moment!r}"
        raise ValueError(msg)


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A Kafka topic-partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """`topic[3]`, for people only."""
        return f"{self.topic}[{self.partition}]"


class TopicIdentity(msgspec.Struct, frozen=True, order=True):
    """Which topic this is: a topic that was deleted and made again has the same name and another id."""

    topic: str
    topic_id: str


class Mark(msgspec.Struct, frozen=True, order=True):
    """Where a boundary cuts one topic-partition, and how that was found."""

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
    """Per topic-partition offsets under one label, of one cluster and known topics. Total: a partition it doesn't list is cut at 0."""

    label: datetime
    cluster_id: str
    topics: tuple[TopicIdentity, ...]
    marks: tuple[Mark, ...]

    def __post_init__(self) -> None:
        """Marks are sorted and each topic-partition is cut once."""
        _require_utc("label", self.label)
        tps = [m.tp for m in self.marks]
        if sorted(set(tps)) != tps:
            msg = f"marks of boundary {instant(self.label)} must be sorted and unique"
            raise ValueError(msg)

    @classmethod
    def of(cls, label: datetime, cluster_id: str, topics: Iterable[TopicIdentity], marks: Iterable[Mark]) -> Boundary:
        """A boundary from topics and marks in any order."""
        return cls(label, cluster_id, tuple(sorted(topics)), tuple(sorted(marks)))

    def by_tp(self) -> dict[TopicPartition, Mark]:
        """Its marks by topic-partition; one that is missing is cut at 0."""
        return {m.tp: m for m in self.marks}

    def offset(self, tp: TopicPartition) -> int:
        """Where it cuts; 0 for a partition that it doesn't list."""
        return next((m.offset for m in self.marks if m.tp == tp), 0)

    def clamped(self, lower: Boundary | None, upper: Boundary | None) -> Boundary:
        """This boundary moved between its frozen neighbours, so that windows tile. Pure.

        A partition that only the lower neighbour lists is taken over from it; one that the upper neighbour doesn't list is cut at 0 there,
        and so here: it belongs, whole, to a later window.
        """
        below = {} if lower is None else lower.by_tp()
        here = {tp: Mark(tp.topic, tp.partition, 0, "clamped") for tp in below} | self.by_tp()
        above = None if upper is None else upper.by_tp()
        marks = []
        for tp, mark in here.items():
            high = None if above is None else above[tp].offset if tp in above else 0
            marks.append(_between(mark, below.get(tp), high))
        return Boundary.of(self.label, self.cluster_id, self.topics, marks)


def _between(mark: Mark, below: Mark | None, high: int | None) -> Mark:
    """One mark moved to at least `below` and at most `high`.

    A log start found exactly at a neighbour's proven cut lost nothing, so it stops being a `log_start`; one that is moved down to the upper
    neighbour still is: what lay before it is gone.
    """
    proven = below is not None and below.offset == mark.offset and below.how != "log_start" and mark.how == "log_start"
    if below is not None and (mark.offset < below.offset or proven):
        mark = msgspec.structs.replace(below, how="clamped")
    if high is not None and mark.offset > high:
        mark = Mark(mark.topic, mark.partition, high, "log_start" if mark.how == "log_start" else "clamped")
    return mark


class Window(msgspec.Struct, frozen=True, order=True):
    """What was asked: the time from `start` to `end` of one pipeline, on its grid."""

    pipeline: str
    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        """A window has a length."""
        _require_utc("start", self.start)
        _require_utc("end", self.end)
        if self.start >= self.end:
            msg = f"a window must end after it starts: {instant(self.start)} / {instant(self.end)}"
            raise ValueError(msg)

    @property
    def key(self) -> str:
        """Its text in the `_window` column: the start; the grid gives the end."""
        return instant(self.start)


class Split(msgspec.Struct, frozen=True, order=True):
    """One offset range of one topic-partition: the unit of reading, one Spark task. Integers only: every sentinel was resolved before."""

    topic: str
    partition: int
    start: int
    stop: int
    leader_epoch: int | None = None

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


class SplitCounts(msgspec.Struct, frozen=True):
    """What one task counted, by independent hands: the reader messages and bytes, the decoder verdicts, the stager rows.

    `next_offset` is where the reader stood at the end; `missing` offsets of the range held no visible message, `aborted` of them were
    seen to be messages of aborted transactions, the rest are transaction markers or were compacted away. `reasons` counts dead letters
    by stage and reason, `first_dead` gives offset and reason of the first few.
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
    reasons: tuple[tuple[str, int], ...] = ()
    first_dead: tuple[tuple[int, str], ...] = ()
    min_timestamp: datetime | None = None
    max_timestamp: datetime | None = None

    @property
    def missing(self) -> int:
        """Offsets of the range that held no visible message."""
        return self.stop - self.start - self.read


class Counts(msgspec.Struct, frozen=True):
    """The window's totals: `read = valid + dead + dropped`, and `read + invisible` is the length of the ranges."""

    read: int = 0
    bytes: int = 0
    valid: int = 0
    dead: int = 0
    dropped: int = 0
    invisible: int = 0
    aborted: int = 0

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
        )


class Receipt(msgspec.Struct, frozen=True):
    """What the sink itself says happened to a window. Written with the data, in one commit; enough to rebuild the ledger from."""

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
