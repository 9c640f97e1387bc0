"""Lag: how far the table is behind the topics, in messages and in time.

It counts offsets from the end of the newest committed window to the current stable end. As
in every tool that subtracts offsets, transaction markers and aborted messages count, too.

Earlier windows that aren't committed are counted separately (`find_uncommitted`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, pairwise
from typing import cast

import msgspec

from windrow.ingest.config.window import MicroBatches, TimeWindows
from windrow.ingest.errors import DataLossError, UnreachableError, WindrowError, format_count
from windrow.ingest.model.boundary import Boundary, Label, TopicPartition, instant
from windrow.ingest.model.grid import labels_between
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import AtLabel, AtTime, FrozenStop, Latest, Source
from windrow.ingest.model.tiling import offset_ranges, same_source
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch, Stamps
from windrow.ingest.ports.observer import Figure, Observer
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.observing import tell
from windrow.ingest.source.enumerator.positions import joining_start, positions
from windrow.ingest.source.enumerator.topics import (
    LogOffsets,
    OffsetSnapshot,
    snapshot_offsets,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FEW = 3
"""The maximum number of ranges of windows in a sentence."""


class PartitionLag(msgspec.Struct, frozen=True):
    """The lag of one topic-partition. Offsets after `window.stop` don't count.

    Attributes:
        topic: the topic.
        partition: its partition.
        start: the first unread offset that is still in the log.
        end: the end of the unread offsets, exclusive.
        records: the number of offsets from `start` to `end`.
        seconds: the age of the first visible unread message; 0 if there is none, or if it
            has no timestamp or one in the future.
        lost_offsets: the number of unread offsets that are gone from the log. They aren't
            among the records.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int
    seconds: float
    lost_offsets: int = msgspec.field(name="lost")


class Lag(msgspec.Struct, frozen=True):
    """The lag of all topic-partitions that are read.

    Attributes:
        records: the sum of the records.
        seconds: the maximum of the seconds.
        lost_offsets: the sum of the lost offsets.
        lagging_partitions: the number of topic-partitions with records.
        partitions: the lag of each topic-partition, in order.
        newer: topic-partitions that aren't read, because they were created after
            `window.stop` was frozen.
    """

    records: int
    seconds: float
    lost_offsets: int = msgspec.field(name="lost")
    lagging_partitions: int = msgspec.field(name="behind")
    partitions: tuple[PartitionLag, ...]
    newer: tuple[TopicPartition, ...] = ()


class Uncommitted(msgspec.Struct, frozen=True):
    """Consecutive windows that aren't committed, although a later one is.

    They were refused, or never run.

    Attributes:
        start: the start of the first of them.
        end: the end of the last of them.
        windows: their number.
        offsets: the number of their offsets; 0 if the source was replaced meanwhile. None
            if they are before the first committed window, so that no boundary says where
            they begin.
    """

    start: datetime
    end: datetime
    windows: int
    offsets: int | None

    @property
    def range(self) -> str:
        """The windows in the form that `--window` takes."""
        return f"{instant(self.start)}/{instant(self.end)}"


def uncommitted_between(pipeline: Pipeline, newest: int) -> list[Uncommitted]:
    """Returns the windows that were left out between the newest committed ones.

    A run may have died after its commit and before it recorded the receipt in the ledger.
    So the table is asked for windows that the ledger lacks.
    """
    spec, windows, sink = pipeline.spec, pipeline.spec.window, pipeline.sink
    copies = pipeline.ledger.recorded_receipts(spec.id, newest)
    gaps = find_uncommitted(windows, find_series(copies), since_start=False)
    lacking = [
        Window(spec.id, *pair)
        for gap in gaps
        for pair in pairwise([gap.start, *labels_between(windows.grid, gap.start, gap.end)])
    ]
    committed_windows = sorted(sink.committed(lacking)) if lacking else []
    if not committed_windows:
        return gaps
    receipts = (committed.receipt for committed in filter(None, sink.looks(committed_windows)))
    return find_uncommitted(windows, find_series([*copies, *receipts]), since_start=False)


def find_series(receipts: Iterable[Receipt]) -> list[tuple[Receipt, Receipt]]:
    """Returns the first and last receipt of each series of windows without a gap, in order. Pure.

    Receipts between the first and the last aren't kept, because there may be many. The
    receipts may come in any order.
    """
    firsts, lasts = dict[Label, Receipt](), dict[Label, Receipt]()
    for receipt in receipts:
        if lasts.pop(receipt.window.start, None) is None:
            firsts[receipt.window.start] = receipt
        if firsts.pop(receipt.window.end, None) is None:
            lasts[receipt.window.end] = receipt
    return list(
        zip(
            *(
                sorted(edges.values(), key=lambda receipt: receipt.window)
                for edges in (firsts, lasts)
            ),
            strict=True,
        )
    )


def find_uncommitted(
    windows: TimeWindows | MicroBatches,
    series: Sequence[tuple[Receipt, Receipt]],
    *,
    since_start: bool = True,
) -> list[Uncommitted]:
    """Returns the windows in time that were left out before a committed one. Pure.

    Micro-batches have none, because an uncommitted micro-batch blocks all later ones.

    Args:
        windows: the pipeline's windows.
        series: the series of committed windows (`find_series`).
        since_start: True if windows from `window.start` to the first committed one count,
            too.
    """
    first = series[0][0].window.start if series else None
    if not isinstance(windows, TimeWindows) or not isinstance(first, datetime):
        return []
    windows_before_first = (
        len(labels_between(windows.grid, windows.start, first)) if since_start else 0
    )
    return [
        *(
            [Uncommitted(windows.start, first, windows_before_first, None)]
            if windows_before_first
            else []
        ),
        *(
            Uncommitted(
                stop,
                start,
                len(labels_between(windows.grid, stop, start)),
                sum(
                    high.offset - low.offset
                    for low, high in offset_ranges(earlier.plan.stop, later.plan.start).values()
                )
                if same_source(earlier.plan.stop, later.plan.start)
                else 0,
            )
            for (_, earlier), (later, _) in pairwise(series)
            if isinstance(stop := earlier.window.end, datetime)
            and isinstance(start := later.window.start, datetime)
            and stop < start
        ),
    ]


def describe_uncommitted(gaps: Sequence[Uncommitted]) -> str:
    """Describes the windows that were left out, and what to do. There must be at least one."""
    count = sum(gap.windows for gap in gaps)
    more_ranges = f" and {format_count(len(gaps) - _FEW, 'more range')}" if len(gaps) > _FEW else ""
    unwanted = (
        " If the first ones aren't wanted, move window.start." if gaps[0].offsets is None else ""
    )
    return (
        f"{format_count(count, 'window')} not committed, though later"
        f" ones are: {', '.join(gap.range for gap in gaps[:_FEW])}{more_ranges}. They were"
        " refused, or"
        f" never run: windrow run SPEC --window {gaps[0].range} commits them, or says why not."
        f"{unwanted}"
    )


def tell_lag(observer: Observer | None, unread: Lag) -> None:
    """Passes the lag of each topic and topic-partition to an observer.

    The lag is 0, without a topic, if none is read any more.
    """
    if not unread.partitions:
        tell(observer, ("windrow_lag_records", 0, ""), ("windrow_lag_seconds", 0, ""), report=False)
    for topic, group in groupby(unread.partitions, lambda partition: partition.topic):
        lags = list(group)
        tell(
            observer,
            ("windrow_lag_records", sum(lag.records for lag in lags), topic),
            ("windrow_lag_seconds", max(lag.seconds for lag in lags), topic),
            *chain.from_iterable(map(_partition_figures, lags)),
            report=False,
        )
    tell(observer, report=True)


def _partition_figures(lag: PartitionLag) -> Iterator[Figure]:
    labels = lag.topic, str(lag.partition)
    yield "windrow_committed_offset", lag.start, *labels
    yield "windrow_end_offset", lag.end, *labels
    yield "windrow_partition_lag_records", lag.records, *labels


def measure_lag(
    broker: Broker,
    source: Source,
    committed: Boundary | None,
    now: datetime,
    snapshot: OffsetSnapshot | None = None,
) -> Lag:
    """Counts the unread messages of each topic-partition that the source selects.

    A topic-partition that the boundary doesn't have, or whose topic was recreated, counts
    from the source's start. If the source starts at a label, or its start can't be
    resolved, it counts from the log start.

    Args:
        broker: the cluster. Its isolation level decides what the stable end is.
        source: the topics that are read, their start, and their end, if it is frozen.
        committed: the end of the newest committed window; None if there is none.
        now: the time that ages are measured from.
        snapshot: the logs that are counted; None: all current logs of the source.

    Raises:
        SpecError: a named topic doesn't exist and never did.
        UnreachableError: the cluster doesn't answer.
    """
    if committed is not None and committed.cluster_id != broker.cluster_id():
        committed = None
    if snapshot is None:
        snapshot = snapshot_offsets(broker, source.selection, committed, "drop")
    logs = _until(source.stop, snapshot.logs)
    cuts = _cuts(snapshot, committed)
    unread = {tp: snapshot.logs[tp] for tp in logs if tp not in cuts}
    cuts |= _origins(broker, source, committed, unread)
    parts = [_partition(broker, tp, cuts[tp], log, now) for tp, log in logs.items()]
    return Lag(
        sum(p.records for p in parts),
        max((p.seconds for p in parts), default=0.0),
        sum(p.lost_offsets for p in parts),
        sum(p.records > 0 for p in parts),
        tuple(parts),
        tuple(tp for tp in snapshot.logs if tp not in logs),
    )


def _until(
    stop: FrozenStop | None, logs: Mapping[TopicPartition, LogOffsets]
) -> dict[TopicPartition, LogOffsets]:
    """Returns the logs up to a frozen end, without logs that were created after it was frozen."""
    if stop is None:
        return dict(logs)
    last = {mark.tp: mark.offset for mark in stop.boundary.marks}
    return {
        tp: LogOffsets(min(log.earliest, last[tp]), min(log.stable, last[tp]), log.latest)
        for tp, log in logs.items()
        if tp in last
    }


def _cuts(snapshot: OffsetSnapshot, committed: Boundary | None) -> dict[TopicPartition, int]:
    """Returns the boundary's offsets, without topics that were recreated since."""
    if committed is None:
        return {}
    committed_topics = committed.by_topic()
    same = [
        tp
        for tp in snapshot.logs
        if tp.topic in committed_topics
        and committed_topics[tp.topic].topic_id == snapshot.topics[tp.topic].topic_id
    ]
    return {tp: mark.offset for tp, mark in committed.cuts(same).items()}


def _origins(
    broker: Broker,
    source: Source,
    committed: Boundary | None,
    logs: Mapping[TopicPartition, LogOffsets],
) -> dict[TopicPartition, int]:
    """Returns the first offsets of topic-partitions that no message was read from.

    If a window is committed already, these are topic-partitions that join the pipeline.
    """
    start = (
        source.start
        if committed is None
        else joining_start(
            source,
            AtTime(committed.label) if isinstance(committed.label, datetime) else Latest(),
        )
    )
    if not isinstance(start, AtLabel):
        try:
            ends = {tp: OffsetAndEpoch(log.stable, None) for tp, log in logs.items()}
            start_positions = positions(broker, start, ends)
            return {tp: position.offset for tp, position in start_positions.items()}
        except UnreachableError:
            raise
        except WindrowError:
            pass  # the run of the first window reports the reason
    return {tp: log.earliest for tp, log in logs.items()}


def _partition(
    broker: Broker, tp: TopicPartition, cut: int, log: LogOffsets, now: datetime
) -> PartitionLag:
    start, end = max(cut, log.earliest), log.stable
    records = max(0, end - start)
    seconds = _age(broker, tp, start, end, now) if records else 0.0
    return PartitionLag(tp.topic, tp.partition, start, end, records, seconds, start - cut)


def _age(broker: Broker, tp: TopicPartition, start: int, end: int, now: datetime) -> float:
    """Returns the seconds since the first visible message of [start, end)."""
    try:
        with closing(cast("Generator[Stamps]", broker.stamps(tp, start, end))) as chunks:
            stamp = next((int(chunk.timestamps[0]) for chunk in chunks), -1)
    except DataLossError:
        return 0.0  # retention has just removed the message
    millis = (now - _EPOCH) // _MILLISECOND
    return (millis - stamp) / 1000 if 0 <= stamp <= millis else 0.0
