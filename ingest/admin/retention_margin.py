"""How long the topics still keep what is not in the table yet.

What decides is pure; `retention_margin` fetches.

Of windows in time it is the oldest open one that counts, by the hours it begins at; of
micro-batches the first unread message of each topic-partition, by its age.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from windrow.ingest.admin.lag import PartitionLag, lag
from windrow.ingest.config.window import TimeWindows
from windrow.ingest.errors import DataLossError
from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.label import instant, number_of
from windrow.ingest.model.window import Window
from windrow.ingest.ports.broker import TopicInfo
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.source.enumerator.grid import after, batch_at, is_closed, window_at
from windrow.ingest.source.enumerator.topics import discover

NEAR = 4
"""Retention is near when only a quarter of it is left, or, of windows in time, no more
than two windows' length.
"""

_FIX = "Run it soon, or raise the topics' retention.ms."
_FIX_START = (
    "Run it soon, raise the topics' retention.ms, or move window.start if its data isn't wanted."
)
_FEW = 10


class RetentionMargin(msgspec.Struct, frozen=True):
    """The judgement. fail: something is gone. warn: it will be soon.

    `left`: until the first unread message expires; None: never, or it is gone.
    """

    level: Literal["ok", "warn", "fail"]
    what: str
    do: str = ""
    left: timedelta | None = None


def retention_margin(pipeline: Pipeline) -> RetentionMargin:
    """How long a pipeline may still wait. Writes nothing.

    Raises:
        SpecError, RefusedError, UnreachableError: what was to be asked for gave no answer.
    """
    grid = pipeline.spec.window
    return _of_windows(pipeline, grid) if isinstance(grid, TimeWindows) else _of_batches(pipeline)


def next_window(pipeline: Pipeline, grid: TimeWindows) -> Window:
    """The first window in time that isn't committed; it may not be over yet."""
    committed = {
        c.receipt.window.span[0]
        for c in pipeline.sink.receipts()
        if c.receipt.window.span is not None
    }
    return msgspec.structs.replace(
        oldest_open(grid.start, grid.grid, committed), pipeline=pipeline.spec.id
    )


def _of_windows(pipeline: Pipeline, grid: TimeWindows) -> RetentionMargin:
    spec, now = pipeline.spec, pipeline.now()
    oldest = next_window(pipeline, grid)
    if not is_closed(oldest, timedelta(0), now):
        return RetentionMargin("ok", "every window that is over is committed")
    start = pipeline.ledger.start(spec.id, oldest.start)
    topics, gone = _held(pipeline, start)
    return of_window(oldest, topics, gone, now)


def _held(
    pipeline: Pipeline, start: Boundary | None
) -> tuple[Collection[TopicInfo], list[TopicPartition]]:
    """The topics that are read, and which topic-partitions have lost what comes after a
    boundary.
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
    spec = pipeline.spec
    unread = lag(
        pipeline.broker, spec.source.origin(spec.window.grid), _reached(pipeline), pipeline.now()
    )
    names = sorted({p.topic for p in unread.partitions})
    return of_unread(unread.partitions, pipeline.broker.topics(names))


def _reached(pipeline: Pipeline) -> Boundary | None:
    """Where the first batch begins that isn't committed; None before the first one was cut."""
    spec, ledger = pipeline.spec, pipeline.ledger
    newest = ledger.newest(spec.id)
    if not newest:
        return None
    number = number_of(newest[-1].label)
    if number > 0 and pipeline.sink.look(batch_at(spec.id, number - 1)) is None:
        number -= 1
    return ledger.start(spec.id, number)


def oldest_open(start: datetime, grid: str, committed: Iterable[datetime]) -> Window:
    """The first window from `start` on that is not among the committed starts; it may
    not be over yet.

    Pure.
    """
    wanted = start
    for begun in sorted(committed):
        if begun > wanted:
            break
        if begun == wanted:
            wanted = after(grid, wanted)
    return window_at("", grid, wanted)


def of_window(
    oldest: Window, topics: Iterable[TopicInfo], gone: Sequence[TopicPartition], now: datetime
) -> RetentionMargin:
    """Whether the topics still hold the oldest open window, and for how long. Pure.

    Args:
        oldest: a window in time that is over.
        topics: those that are read.
        gone: the topic-partitions whose log begins above the window's frozen start.
        now: the time.
    """
    assert oldest.span is not None
    start, end = oldest.span
    window = f"the oldest open window, {instant(start)},"
    if gone:
        return RetentionMargin(
            "fail", f"{window} has lost its beginning in {_named(gone)}", _FIX_START
        )
    expiring = {
        t.topic: timedelta(milliseconds=t.retention_ms)
        for t in topics
        if t.retention_ms is not None
    }
    if not expiring:
        return RetentionMargin("ok", f"{window} does not expire by time")
    topic = min(expiring, key=lambda name: (expiring[name], name))
    left = start + expiring[topic] - now
    if left < timedelta(0):
        return RetentionMargin(
            "warn",
            f"{window} is older than the retention of {topic}; messages may be gone",
            _FIX_START,
            left,
        )
    if left < max(2 * (end - start), expiring[topic] / NEAR):
        return RetentionMargin(
            "warn", f"{window} begins to expire in {topic} in {_hours(left)}", _FIX_START, left
        )
    return RetentionMargin("ok", f"{window} is there for {_hours(left)} more", left=left)


def of_unread(
    partitions: Iterable[PartitionLag], topics: Mapping[str, TopicInfo]
) -> RetentionMargin:
    """Whether the topics still hold what no micro-batch has read, and for how long. Pure.

    Args:
        partitions: the lag behind the last committed batch.
        topics: what the cluster says of them, by name.
    """
    parts = list(partitions)
    gone = [TopicPartition(p.topic, p.partition) for p in parts if p.lost]
    if gone:
        return RetentionMargin(
            "fail",
            f"unread offsets are gone from {_named(gone)}",
            "Set source.on_loss: skip to go on without them.",
        )
    waiting = [p for p in parts if p.records]
    if not waiting:
        return RetentionMargin("ok", "nothing is unread")
    lives = [(_life(p, topics[p.topic].retention_ms), p) for p in waiting if p.topic in topics]
    ends = [
        (left, share, p)
        for (left, share), p in ((life, p) for life, p in lives if life is not None)
    ]
    if not ends:
        return RetentionMargin("ok", "what is unread does not expire by time")
    left, share, first = min(ends, key=lambda e: e[0])
    place = f"the first unread message, in {first.topic}[{first.partition}]@{first.start},"
    if left < timedelta(0):
        return RetentionMargin("warn", f"{place} is older than its topic's retention", _FIX, left)
    if share * NEAR < 1:
        return RetentionMargin("warn", f"{place} expires in {_hours(left)}", _FIX, left)
    return RetentionMargin("ok", f"{place} is there for {_hours(left)} more", left=left)


def _life(part: PartitionLag, retention_ms: int | None) -> tuple[timedelta, float] | None:
    """How long the first unread message is still there, and which share of the
    retention that is.
    """
    if retention_ms is None:
        return None
    left = timedelta(milliseconds=retention_ms) - timedelta(seconds=part.seconds)
    return left, left / timedelta(milliseconds=max(retention_ms, 1))


def _named(tps: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, tps[:_FEW])) + (
        f" and {len(tps) - _FEW} more" if len(tps) > _FEW else ""
    )


def _hours(span: timedelta) -> str:
    return f"{span / timedelta(hours=1):.1f} h"
