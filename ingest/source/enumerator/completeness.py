"""Completeness of windows: watermarks from frozen boundaries, late messages from receipts.

Pure.

A topic-partition has passed a label if one of these is true:

- The boundary's mark under that label is `settled`.
- The window that begins at the label is committed, and at least half of the messages that
  it read there are stamped at the label or later. (In a log with few messages, these messages
  arrive after the boundary is frozen, so its mark isn't `settled`.)

A topic-partition's watermark is the highest label that it has passed. The pipeline's
watermark is the lowest one of its topic-partitions. It is never the highest: a
topic-partition that lags may still bring messages of hours that all others have passed.
(`linkedin/Hoptimator` took the newest timestamp and called windows complete too early.)

An idle topic-partition holds the pipeline's watermark back. It is exempt in three cases:

- Its topic is stamped by the broker (LogAppendTime), and its mark is the stable `end`. No
  message older than the label can come any more, because the boundary was frozen after
  the label. (`DataSQRL/flink-sql-runner` takes idle partitions as done on LogAppendTime
  only, too.)
- The user sets `idle: exempt` (Flink's `withIdleness` of a source), which declares idle
  topic-partitions as done.
- Its mark is `removed`: the topic isn't read any more.

Other marks prove nothing by themselves:

- `open`: a transaction may bring older messages, also on a topic that the broker stamps.
- `log_start` and `position`.
- `clamped`: a mark that was moved down to a settled upper neighbour needs no proof of its
  own, because the neighbour's higher label counts anyway. A mark that was moved up to its
  lower neighbour may have been the end of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from windrow.ingest.model.boundary import Boundary, Label, Mark, TopicPartition
from windrow.ingest.model.receipt import Receipt

State = Literal["open", "complete", "late"]
"""The state of a window.

- open: its hours may not be over in every topic-partition.
- complete: they are over.
- late: they are over, and later windows hold messages of these hours.
"""

Idle = Literal["wait", "exempt"]


class WindowState(msgspec.Struct, frozen=True):
    """The state of a committed window, as all boundaries and receipts show it now.

    Attributes:
        state: see `State`.
        watermark: the pipeline's watermark.
        late: the number of messages in this window with timestamps before its hours.
        early: the number of messages in this window with timestamps after its hours.
        late_elsewhere: the number of messages in later windows with timestamps in this
            window's hours. A receipt may count an old window together with all windows
            before it; then this number includes those.
    """

    state: State
    watermark: datetime | None
    late: int
    early: int
    late_elsewhere: int


class Completeness(msgspec.Struct, frozen=True):
    """The pipeline's watermark, and the states of its windows.

    Attributes:
        watermark: None if no label is proven.
        holding: the topic-partitions that have to pass the watermark before it rises;
            empty if the watermark is at the newest boundary.
        windows: the state of each committed window, by the window's key.
    """

    watermark: datetime | None
    holding: tuple[TopicPartition, ...]
    windows: dict[str, WindowState]


def assess(
    boundaries: Sequence[Boundary],
    receipts: Sequence[Receipt],
    append_time: frozenset[str],
    idle: Idle,
) -> Completeness:
    """Returns how complete each committed window is.

    Micro-batches have no hours and are left out. A complete window never becomes open
    again, whatever boundaries are frozen later. A topic-partition that is new in a boundary
    holds back only the windows after that boundary, because earlier windows hold none of
    its messages.

    Args:
        boundaries: the frozen boundaries, in ascending order of their labels.
        receipts: the newest receipt of each committed window, in any order.
        append_time: the topics whose messages the broker stamps
            (`TopicInfo.append_time`).
        idle: "wait" or "exempt", for a topic-partition that ends before the label.
    """
    watermark, holding = _watermark(boundaries, _settled_since(receipts), append_time, idle)
    elsewhere = _late_elsewhere(receipts)
    windows = {}
    for receipt in receipts:
        hours, key = receipt.window.span, receipt.window.key
        if hours is not None:
            complete = watermark is not None and watermark >= hours[1]
            state: State = "open" if not complete else "late" if elsewhere[key] else "complete"
            windows[key] = WindowState(
                state, watermark, receipt.counts.late, receipt.counts.early, elsewhere[key]
            )
    return Completeness(watermark, holding, windows)


def _settled_since(receipts: Iterable[Receipt]) -> set[tuple[TopicPartition, Label]]:
    """Returns the window starts that the windows' own messages settle, by topic-partition.

    A start is settled if at least half of the messages that the window read there are
    stamped at the start or later (the settled rule of `ingest.source.enumerator.label_cut`).
    """
    read, late = Counter[tuple[TopicPartition, Label]](), Counter[tuple[TopicPartition, Label]]()
    for receipt in receipts:
        for split in receipt.splits:
            window_start = TopicPartition(split.topic, split.partition), receipt.window.start
            read[window_start] += split.read
            late[window_start] += split.late
    return {
        window_start
        for window_start, count in read.items()
        if count and count >= 2 * late[window_start]
    }


def _watermark(
    boundaries: Iterable[Boundary],
    settled_since: set[tuple[TopicPartition, Label]],
    append_time: frozenset[str],
    idle: Idle,
) -> tuple[datetime | None, tuple[TopicPartition, ...]]:
    """Returns the pipeline's watermark, and the topic-partitions that hold it back.

    The watermark is the highest label that all topic-partitions of some boundary have
    passed. It is found in one pass over the boundaries.
    """
    passed: dict[TopicPartition, datetime] = {}
    watermark: datetime | None = None
    newest: dict[TopicPartition, datetime | None] = {}
    label: Label | None = None
    for boundary in boundaries:
        label = boundary.label
        if isinstance(label, datetime):
            passed |= {
                m.tp: label
                for m in boundary.marks
                if _passes(m, append_time, idle) or (m.tp, label) in settled_since
            }
            newest = {m.tp: passed.get(m.tp) for m in boundary.marks}
            least = least_passed(newest.values(), label)
            watermark = max(filter(None, (watermark, least)), default=None)
    if watermark == label:
        return watermark, ()
    return watermark, tuple(
        tp
        for tp, passed_label in newest.items()
        if passed_label is None or (watermark is not None and passed_label <= watermark)
    )


def least_passed(passed: Iterable[datetime | None], label: datetime) -> datetime | None:
    """Returns the lowest of the passed labels and the boundary's own label.

    It is None if a topic-partition has passed no label.
    """
    labels = [label, *passed]
    return None if None in labels else min(filter(None, labels))


def _passes(mark: Mark, append_time: frozenset[str], idle: Idle) -> bool:
    """Returns whether a mark proves that no message from before its label can still come."""
    return mark.origin in {"settled", "removed"} or (
        mark.origin == "end" and (idle == "exempt" or mark.topic in append_time)
    )


def _late_elsewhere(receipts: Iterable[Receipt]) -> Counter[str]:
    """Counts the late messages in later windows, by the key of the window of their hours."""
    late = Counter[str]()
    for receipt in receipts:
        for split in receipt.splits:
            late.update(dict(split.late_by))
    return late
