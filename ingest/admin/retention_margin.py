"""The time until topics lose messages that the table still needs.

`margin_of_window` and `margin_of_unread` are pure; `retention_margin` fetches their
arguments. For windows in time, the start of the oldest open window counts. For
micro-batches, the age of the first unread message of each topic-partition counts.

A compacted topic can lose deletes even if its other messages never expire. A message
without a value may be removed `delete.retention.ms` after compaction has found it. A window
that is run later then leaves the deleted row in the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal

import msgspec

from windrow.ingest.admin.lag import PartitionLag, measure_lag
from windrow.ingest.config.window import TimeWindows
from windrow.ingest.errors import DataLossError, join_first_few, see_runbook
from windrow.ingest.model.boundary import Boundary, TopicPartition, instant, number_of
from windrow.ingest.model.grid import batch_at, label_after, labels_between
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.broker import TopicInfo
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.frozen_stop import bounded_source
from windrow.ingest.source.enumerator.topics import discover

NEAR = 4
"""Retention is near when only 1/NEAR of it is left.

For windows in time it is also near when only the length of two windows is left.
"""

_FIRST_RANGE = timedelta(days=7)
"""The time span of the first windows that the table is asked for."""

_FIX = "Run it soon, or raise the topic's {}."
_FIX_START = "Run it soon, raise the topic's {}, or move window.start if its data isn't wanted."
_FIX_GRID = "Raise the topic's {}, or begin a pipeline with a finer grid."
_LOST = {
    "retention.ms": "messages may be gone",
    "delete.retention.ms": "deletes may be gone, and their rows stay in the table",
}
_FEW = 10
_EVER_MS = 100 * 365 * 86_400_000
"""A retention of this many milliseconds or more means for ever.

Kafka's maximum would exceed any date.
"""


class RetentionMargin(msgspec.Struct, frozen=True):
    """The time until messages are lost.

    Attributes:
        level: "fail": messages are gone; "warn": they will be gone soon, or may be gone.
        message: what expires, and when.
        advice: what to do.
        remaining_time: the time until the first unread message expires. None: it never
            expires, or it is gone.
    """

    level: Literal["ok", "warn", "fail"]
    message: str
    advice: str = ""
    remaining_time: timedelta | None = None


def retention_margin(pipeline: Pipeline) -> RetentionMargin:
    """Returns how long a pipeline's next run may still wait. Writes nothing.

    Raises:
        SpecError: the ledger, the table or the cluster can't be used as the spec says.
        RefusedError: the ledger, the table or the cluster isn't the pipeline's.
        UnreachableError: the ledger, the table or the cluster doesn't answer.
    """
    grid = pipeline.spec.window
    return _of_windows(pipeline, grid) if isinstance(grid, TimeWindows) else _of_batches(pipeline)


def next_window(pipeline: Pipeline, grid: TimeWindows) -> Window:
    """Returns the first window in time that isn't committed. It may not be over yet.

    The table is asked for longer and longer ranges of windows. So an early gap is found
    quickly on a fine grid that began long ago.
    """
    start, span, now = grid.start, _FIRST_RANGE, pipeline.now()
    while True:
        starts = [start, *labels_between(grid.grid, start, min(start + span, now))]
        start, span = label_after(grid.grid, starts[-1]), 2 * span
        windows = [Window(pipeline.spec.id, *pair) for pair in pairwise([*starts, start])]
        committed = pipeline.sink.committed(windows)
        for window in windows:
            if window not in committed:
                return window


def find_oldest_open_window(pipeline: Pipeline) -> Window | None:
    """Returns the first window that isn't committed; None if all micro-batches are."""
    grid = pipeline.spec.window
    if isinstance(grid, TimeWindows):
        return next_window(pipeline, grid)
    newest = pipeline.ledger.newest(pipeline.spec.id)
    batch = batch_at(pipeline.spec.id, max(number_of(newest[-1].label) - 1, 0)) if newest else None
    return None if batch is None or pipeline.sink.look(batch) is not None else batch


def _of_windows(pipeline: Pipeline, grid: TimeWindows) -> RetentionMargin:
    spec, now = pipeline.spec, pipeline.now()
    oldest = next_window(pipeline, grid)
    start = pipeline.ledger.start(spec.id, oldest.start)
    topics, lost_partitions = _topics_and_losses(pipeline, start)
    return margin_of_window(oldest, topics, lost_partitions, now, deletes=_deletes(pipeline))


def _topics_and_losses(
    pipeline: Pipeline, start: Boundary | None
) -> tuple[Collection[TopicInfo], list[TopicPartition]]:
    """Returns the topics that are read, and the topic-partitions that have lost messages.

    A topic-partition has lost messages if its log starts above the boundary.
    """
    source = pipeline.spec.source
    try:
        discovered = discover(pipeline.broker, source.selection(), start, source.on_removed)
    except DataLossError as error:
        return (), [
            TopicPartition(error.topic or "", m.partition)
            for m in (() if start is None else start.marks)
            if m.topic == error.topic
        ]
    if start is None:
        return discovered.topics.values(), []
    cuts, log_starts = start.cuts(discovered.tps), pipeline.broker.log_starts(discovered.tps)
    return discovered.topics.values(), [
        tp for tp, mark in cuts.items() if mark.offset < log_starts[tp]
    ]


def _of_batches(pipeline: Pipeline) -> RetentionMargin:
    unread = measure_lag(
        pipeline.broker,
        bounded_source(pipeline.spec, pipeline.ledger),
        _first_open_start(pipeline),
        pipeline.now(),
    )
    names = sorted({p.topic for p in unread.partitions})
    topics = pipeline.broker.topics(names)
    return margin_of_unread(unread.partitions, topics, deletes=_deletes(pipeline))


def _first_open_start(pipeline: Pipeline) -> Boundary | None:
    """Returns the start of the first micro-batch that isn't committed; None if none was cut."""
    spec, ledger = pipeline.spec, pipeline.ledger
    newest = ledger.newest(spec.id)
    if not newest:
        return None
    number = number_of(newest[-1].label)
    if number > 0 and pipeline.sink.look(batch_at(spec.id, number - 1)) is None:
        number -= 1
    return ledger.start(spec.id, number)


def margin_of_window(
    oldest: Window,
    topics: Iterable[TopicInfo],
    lost_partitions: Sequence[TopicPartition],
    now: datetime,
    *,
    deletes: bool,
) -> RetentionMargin:
    """Checks whether the topics still have the oldest open window, and for how long. Pure.

    Args:
        oldest: the oldest open window. If it isn't over yet, its messages only have to be
            kept until its end.
        topics: the topics that are read.
        lost_partitions: the topic-partitions whose log starts above the window's frozen
            start.
        now: the current time.
        deletes: whether the table needs the deletes of compacted topics.
    """
    assert oldest.span is not None
    start, end = oldest.span
    window = f"the oldest open window, {instant(start)},"
    if lost_partitions:
        return RetentionMargin(
            "fail",
            f"{window} has lost its beginning in {join_first_few(lost_partitions, _FEW)}",
            _FIX_START.format("retention.ms"),
        )
    expiring = [
        (*retention, t.topic)
        for t in topics
        if (retention := _retention_of(t, deletes=deletes)) is not None
    ]
    span, setting, topic = min(expiring, default=(None, "", ""))
    if now < end:
        if span is None or start + span > end:
            return RetentionMargin("ok", "every window that is over is committed")
        return RetentionMargin(
            "warn",
            f"the window {instant(start)} is over after the {setting} of {topic}; {_LOST[setting]}",
            _FIX_GRID.format(setting),
        )
    if span is None:
        return RetentionMargin("ok", f"{window} does not expire by time")
    near = max(2 * (end - start), span / NEAR)
    return _margin(window, topic, setting, start + span - now, near, _FIX_START)


def margin_of_unread(
    partitions: Iterable[PartitionLag], topics: Mapping[str, TopicInfo], *, deletes: bool
) -> RetentionMargin:
    """Checks whether the topics still have all unread messages, and for how long. Pure.

    Args:
        partitions: the lag after the last committed micro-batch.
        topics: the cluster's answer about the topics, by name.
        deletes: whether the table needs the deletes of compacted topics.
    """
    parts = list(partitions)
    lost_partitions = [TopicPartition(p.topic, p.partition) for p in parts if p.lost_offsets]
    if lost_partitions:
        return RetentionMargin(
            "fail",
            f"unread offsets are gone from {join_first_few(lost_partitions, _FEW)}",
            "Set source.on_loss: skip to go on without them.",
        )
    waiting = [p for p in parts if p.records]
    if not waiting:
        return RetentionMargin("ok", "nothing is unread")
    expiring = [
        (retention[0] - timedelta(seconds=p.seconds), retention, p)
        for p in waiting
        if p.topic in topics
        and (retention := _retention_of(topics[p.topic], deletes=deletes)) is not None
    ]
    if not expiring:
        return RetentionMargin("ok", "the unread messages do not expire by time")
    remaining_time, (span, setting), first = min(expiring, key=lambda e: e[0])
    subject = f"the first unread message, in {first.topic}[{first.partition}]@{first.start},"
    near = max(span, timedelta(milliseconds=1)) / NEAR
    return _margin(subject, first.topic, setting, remaining_time, near, _FIX)


def _margin(
    message: str, topic: str, setting: str, remaining_time: timedelta, near: timedelta, fix: str
) -> RetentionMargin:
    """Returns a warning if the time until a topic expires is over or nearly over, else "ok"."""
    if remaining_time < timedelta(0):
        message = f"{message} is older than the {setting} of {topic}; {_LOST[setting]}"
    elif remaining_time < near:
        message = f"{message} begins to expire in {topic} in {_hours(remaining_time)} ({setting})"
    else:
        return RetentionMargin(
            "ok",
            f"{message} is kept for {_hours(remaining_time)} more",
            remaining_time=remaining_time,
        )
    return RetentionMargin(
        "warn", message, fix.format(setting) + see_runbook("retention"), remaining_time
    )


def _retention_of(topic: TopicInfo, *, deletes: bool) -> tuple[timedelta, str] | None:
    """Returns how long a topic keeps needed messages, and by which setting; None: for ever."""
    times = [
        (topic.retention_ms, "retention.ms"),
        (topic.delete_retention_ms if deletes else None, "delete.retention.ms"),
    ]
    return min(
        (
            (timedelta(milliseconds=ms), setting)
            for ms, setting in times
            if ms is not None and ms < _EVER_MS
        ),
        default=None,
    )


def _deletes(pipeline: Pipeline) -> bool:
    """Returns whether a message without a value removes a row from the table."""
    specs = (pipeline.spec, *pipeline.spec.route_specs.values())
    return any(spec.sink.key is not None and spec.sink.key.deletes for spec in specs)


def _hours(span: timedelta) -> str:
    return f"{span / timedelta(hours=1):.1f} h"
