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

All of that is by the broker's timestamps, which cut the log. With `window.event_delay` windows
are complete by event time instead:

- A topic-partition's event watermark is the latest event time in its committed windows. An
  event time after the end of the window that holds it proves nothing.
- The pipeline's event watermark is the lowest one of its topic-partitions, as each window of a
  series without a gap raises it. With `idle: exempt` a topic-partition without an event time
  in a window counts as done up to that window's end.
- A window is complete once its series has an event watermark of its end + `event_delay`. It is
  late once windows after that one hold messages of its hours.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from windrow.ingest.model.boundary import Boundary, Label, Mark, TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt

State = Literal["open", "complete", "late"]
"""The state of a window.

- open: its hours may not be over in every topic-partition.
- complete: they are over.
- late: they are over, and later windows hold messages of these hours.
"""

Idle = Literal["wait", "exempt"]


class EventTime(msgspec.Struct, frozen=True):
    """How windows are complete by event time.

    Attributes:
        column: the column with the event times; receipts that count by another one, or by the
            broker's timestamps, prove nothing, and their late messages don't count.
        delay: how far event times must have passed a window's end.
    """

    column: str
    delay: timedelta


class WindowState(msgspec.Struct, frozen=True):
    """The state of a committed window, as all boundaries and receipts show it now.

    Attributes:
        state: see `State`.
        watermark: the pipeline's watermark.
        late: the number of messages in this window with times before its hours.
        early: the number of messages in this window with times after its hours.
        late_elsewhere: the number of messages in later windows with times in this window's
            hours. A receipt may count an old window together with all windows before it; then
            this number includes those. By event time, only windows after the one that
            completed this window are counted.
        event_watermark: the event watermark of the window's series.
    """

    state: State
    watermark: datetime | None
    late: int
    early: int
    late_elsewhere: int
    event_watermark: datetime | None = None


class Completeness(msgspec.Struct, frozen=True):
    """The pipeline's watermark, and the states of its windows.

    Attributes:
        watermark: None if no label is proven.
        holding: the topic-partitions that have to pass the watermark before it rises;
            empty if the watermark is at the newest boundary. By event time, those that have to
            pass the event watermark.
        windows: the state of each committed window, by the window's key.
        event_time: the column by which windows are complete; None: by the broker's timestamps.
        event_watermark: the event watermark of the newest window.
    """

    watermark: datetime | None
    holding: tuple[TopicPartition, ...]
    windows: dict[str, WindowState]
    event_time: str | None = None
    event_watermark: datetime | None = None


def assess(
    boundaries: Sequence[Boundary],
    receipts: Sequence[Receipt],
    append_time: frozenset[str],
    idle: Idle,
    event_time: EventTime | None = None,
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
        event_time: how windows are complete by event time; None: by the broker's timestamps.
    """
    watermark, holding = _watermark(boundaries, _settled_since(receipts), append_time, idle)
    if event_time is not None:
        return _assess_events(watermark, receipts, idle, event_time)
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
            late[window_start] += split.stamped_late
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


def _late_elsewhere(
    receipts: Iterable[Receipt], completed_by: Mapping[str, Window] | None = None
) -> Counter[str]:
    """Counts the late messages in later windows, by the key of the window of their hours.

    Args:
        receipts: the receipts of the later windows.
        completed_by: the window that completed each window; only messages in windows after it
            are counted. None counts all.
    """
    late = Counter[str]()
    for receipt in receipts:
        for split in receipt.splits:
            for key, count in split.late_by:
                if completed_by is None or (
                    key in completed_by and completed_by[key] < receipt.window
                ):
                    late[key] += count
    return late


def _assess_events(
    watermark: datetime | None, receipts: Iterable[Receipt], idle: Idle, event_time: EventTime
) -> Completeness:
    """Returns how complete each committed window is by event time."""
    in_time = [receipt for receipt in receipts if receipt.window.span is not None]
    ascending = sorted(in_time, key=lambda receipt: receipt.window)
    completed_by = dict[str, Window]()
    event_watermarks = dict[str, datetime | None]()
    event_watermark, holding = None, dict[TopicPartition, datetime | None]()
    for series in _without_gaps(ascending):
        reached, event_watermark = dict[TopicPartition, datetime](), None
        open_windows = deque[Window]()
        for receipt in series:
            holding = _reached_events(receipt, reached, idle, event_time.column)
            assert receipt.window.span is not None
            least = least_passed(holding.values(), receipt.window.span[1])
            event_watermark = max(filter(None, (event_watermark, least)), default=None)
            open_windows.append(receipt.window)
            while open_windows and _is_passed(open_windows[0], event_watermark, event_time.delay):
                completed_by[open_windows.popleft().key] = receipt.window
        event_watermarks |= dict.fromkeys((r.window.key for r in series), event_watermark)
    by_column = (receipt for receipt in ascending if receipt.event_time == event_time.column)
    late = _late_elsewhere(by_column, completed_by)
    windows = {}
    for receipt in ascending:
        key, counts = receipt.window.key, receipt.counts
        state: State = "open" if key not in completed_by else "late" if late[key] else "complete"
        windows[key] = WindowState(
            state, watermark, counts.late, counts.early, late[key], event_watermarks[key]
        )
    return Completeness(
        watermark,
        tuple(
            tp
            for tp, event in holding.items()
            if event is None or (event_watermark is not None and event <= event_watermark)
        ),
        windows,
        event_time.column,
        event_watermark,
    )


def _without_gaps(ascending: Iterable[Receipt]) -> list[list[Receipt]]:
    """Returns the series of windows of which each begins at the end of the one before."""
    all_series: list[list[Receipt]] = []
    for receipt in ascending:
        if not all_series or all_series[-1][-1].window.end != receipt.window.start:
            all_series.append([])
        all_series[-1].append(receipt)
    return all_series


def _reached_events(
    receipt: Receipt, reached: dict[TopicPartition, datetime], idle: Idle, column: str
) -> dict[TopicPartition, datetime | None]:
    """Adds a window's event times to those of the windows before it.

    Args:
        receipt: the window's receipt.
        reached: the latest event time of each topic-partition; it is changed.
        idle: see `assess`.
        column: the column of the event times.

    Returns:
        The latest event time of each topic-partition that isn't exempt.
    """
    events = dict[TopicPartition, datetime]()
    is_known = receipt.event_time == column
    for split in receipt.splits if is_known else ():
        if split.latest_event is not None:
            tp = TopicPartition(split.topic, split.partition)
            events[tp] = max(split.latest_event, events.get(tp, split.latest_event))
    reached |= {tp: max(event, reached.get(tp, event)) for tp, event in events.items()}
    return {
        mark.tp: reached.get(mark.tp)
        for mark in receipt.plan.stop.marks
        if mark.origin != "removed" and (mark.tp in events or idle == "wait" or not is_known)
    }


def _is_passed(window: Window, event_watermark: datetime | None, delay: timedelta) -> bool:
    return (
        event_watermark is not None
        and isinstance(window.end, datetime)
        and event_watermark >= window.end + delay
    )
