"""Windows, their plans and splits: the offset ranges that a window reads."""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from windrow.ingest.model.boundary import (
    Boundary,
    Label,
    TopicPartition,
    label_text,
    require_label,
)


class Window(msgspec.Struct, frozen=True, order=True):
    """The messages of one pipeline between two labels.

    The labels are two instants of the grid, or the two consecutive sequence numbers of a
    micro-batch. The boundaries of the two labels say which offsets belong to the window.

    Attributes:
        pipeline: the id of the pipeline.
        start: the label at which the window starts.
        end: the label at which it ends.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        for window in windrow.windows_named(spec, "2026-01-05T09:00:00Z/2026-01-05T11:00:00Z"):
            print(window.key, "is from", window.start, "to", window.end)
    """

    pipeline: str
    start: Label
    end: Label

    def __post_init__(self) -> None:
        """Checks that the window ends after its start, and a micro-batch with the next number."""
        require_label("start", self.start)
        require_label("end", self.end)
        batch = (
            isinstance(self.start, int) and isinstance(self.end, int) and self.end == self.start + 1
        )
        in_time = (
            isinstance(self.start, datetime)
            and isinstance(self.end, datetime)
            and self.start < self.end
        )
        if not batch and not in_time:
            msg = (
                "a window must end after it starts, a micro-batch with the next number:"
                f" {self.start} / {self.end}"
            )
            raise ValueError(msg)

    @property
    def key(self) -> str:
        """The window's value in the window column: its start. The grid determines the end."""
        return label_text(self.start)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The start and the end as instants, half-open; None for a micro-batch."""
        return (
            (self.start, self.end)
            if isinstance(self.start, datetime) and isinstance(self.end, datetime)
            else None
        )


class Split(msgspec.Struct, frozen=True, order=True):
    """One offset range of one topic-partition, which one Spark task reads.

    All offsets are resolved, not Kafka's special offsets such as -1.

    Attributes:
        topic: the topic.
        partition: its partition.
        start: the first offset.
        stop: the offset after the last one.
        leader_epoch: the leader epoch of the mark at the start (see `Mark`).
        stop_epoch: the leader epoch of the mark at the stop. No message of the split may
            have a later epoch.
    """

    topic: str
    partition: int
    start: int
    stop: int
    leader_epoch: int | None = None
    stop_epoch: int | None = None

    def __post_init__(self) -> None:
        """Checks that the range isn't empty, because an empty range needs no task."""
        if not 0 <= self.start < self.stop:
            msg = (
                f"a split of {self.topic}[{self.partition}] must hold 0 <= start < stop, not"
                f" {self.start}..{self.stop}"
            )
            raise ValueError(msg)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Plan(msgspec.Struct, frozen=True):
    """The boundaries and the splits of a window. It is frozen before anything is written.

    Attributes:
        window: the window.
        start: the boundary at its start.
        stop: the boundary at its end.
        splits: the offset ranges that the tasks read.
        sink: the identity of the sink.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        plan = windrow.preview_window(pipeline, window)
        for split in plan.splits:
            print(split.topic, split.partition, "from", split.start, "to", split.stop)
    """

    window: Window
    start: Boundary
    stop: Boundary
    splits: tuple[Split, ...]
    sink: str

    @property
    def digest(self) -> str:
        """SHA-256 of the window, its cluster, its offset ranges and its sink.

        Code and schema aren't part of it. After a refusal the usual fix is another schema,
        and the plan then stays valid.
        """
        ids = {t.topic: t.topic_id for t in self.stop.topics}
        ranges = [(ids.get(s.topic), s.topic, s.partition, s.start, s.stop) for s in self.splits]
        cuts = [
            [(m.topic, m.partition, m.offset) for m in boundary.marks]
            for boundary in (self.start, self.stop)
        ]
        # the fields are listed, so that a field of a later version doesn't change the digest
        content = [self.window, self.stop.cluster_id, ranges, cuts, self.sink]
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


class Covered(msgspec.Struct, frozen=True, order=True):
    """A committed offset range. It has the topic's id instead of the topic's name."""

    topic_id: str
    partition: int
    start: int
    stop: int

    def overlaps(self, other_range: Covered) -> bool:
        """Returns whether both ranges contain an offset of the same topic-partition."""
        same = (self.topic_id, self.partition) == (other_range.topic_id, other_range.partition)
        return same and self.start < other_range.stop and other_range.start < self.stop


def covered_ranges(plan: Plan) -> tuple[Covered, ...]:
    """Returns the offset ranges of a plan's splits, with topic ids."""
    ids = {t.topic: t.topic_id for t in plan.stop.topics}
    return tuple(Covered(ids[s.topic], s.partition, s.start, s.stop) for s in plan.splits)
