"""Resolves a label to a boundary: the offset at which it cuts each topic-partition.

This module asks the broker and freezes nothing.

Kafka can return "the first offset at or after an instant". Its answer may be a transaction
marker, which has the broker's clock, or a single message stamped in the future. So the
answer only gives the offset at which the scan begins; `find_cuts` decides where the scan
ends. In a healthy topic-partition the scan is one short read.

If timestamps are far out of order (historic messages written in transactions today, a
message stamped 2099), Kafka's answer is far off and the scan is long. Then all labels
between the lower frozen neighbour and the wanted label are resolved in the same pass, so
that the windows of a backfill read the log once.

A log may begin with messages without a timestamp. They belong to the pipeline's first
window, so the first label cuts the log before them.

A log start above 0 proves nothing about the messages before it. A message right before the
log start, stamped at or after the label, might have been the label's cut
(`cut_may_precede`). Then the mark's origin is `log_start`: the log can't show that the
label cuts there. There is an exception: the lower frozen neighbour cuts at or above the
log start and is no `log_start` itself. Then all messages between the two cuts are still in
the log, and the cut counts as shown.

A topic-partition that the lower neighbour doesn't know joins the pipeline. It begins where
it would have begun at the pipeline's first label: where that label cuts it, or at the
source's `start`. With `joining` "window" it begins where the label before the resolved one
cuts it. Every resolved boundary has such start marks. When the boundary is frozen, it keeps
a start mark only if the neighbour below it doesn't know the topic-partition at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from windrow.ingest.errors import OpenTransactionError, SpecError
from windrow.ingest.model.boundary import Boundary, How, Mark, TopicPartition, instant
from windrow.ingest.model.grid import label_before, labels_between
from windrow.ingest.model.source import AtLabel, Partitions, Source
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch
from windrow.ingest.source.enumerator.cutoff import refuse_cut_off
from windrow.ingest.source.enumerator.label_cut import AHEAD, cut_may_precede
from windrow.ingest.source.enumerator.positions import (
    add_witness,
    joining_start,
    position_marks,
    positions,
)
from windrow.ingest.source.enumerator.timestamp_search import (
    MOST_SCANNED,
    UNSTAMPED,
    UNSTAMPED_WAY_OUT,
    Look,
    ScanBudgetError,
    ScanRange,
    without_timestamps,
)
from windrow.ingest.source.enumerator.topics import Discovered, discover, refuse_other_topics

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Log(msgspec.Struct, frozen=True):
    """A topic-partition's log for all questions of one resolution.

    Attributes:
        tp: the topic-partition.
        log_start: the first offset of the log.
        end: the stable end.
        lower: the lower neighbour's mark, or the mark at which the topic-partition begins.
        upper: the upper neighbour's mark.
        open: True if a transaction is open at the end.
        floor: the lowest offset of a cut.
        limit: the highest offset of a cut.
    """

    tp: TopicPartition
    log_start: int
    end: OffsetAndEpoch
    lower: Mark | None
    upper: Mark | None
    open: bool

    @property
    def floor(self) -> int:
        return max(self.log_start, 0 if self.lower is None else self.lower.offset)

    @property
    def limit(self) -> int:
        return self.end.offset if self.upper is None else min(self.end.offset, self.upper.offset)

    @property
    def proven(self) -> bool:
        """True if the lower neighbour's cut is right and the log holds all messages after it."""
        return (
            self.lower is not None
            and self.lower.origin != "log_start"
            and self.lower.offset >= self.log_start
        )


_Columns = dict[TopicPartition, list[Mark]]
"""Marks of ascending labels, for each topic-partition."""


def resolve(
    broker: Broker,
    source: Source,
    label: datetime,
    grid: str,
    first: datetime,
    lower: Boundary | None,
    upper: Boundary | None,
    progress: Callable[[int], None],
    *,
    wait_for_open: bool,
    replaced_topics: Collection[str] = (),
    also: Sequence[datetime] = (),
) -> list[Boundary]:
    """Resolves the boundary of a label.

    The scan may answer earlier labels too: their boundaries come first in the result, and
    all boundaries of the result are to be frozen. The answer depends on the log alone.
    Neighbours only shorten the scan, and the order in which labels are resolved doesn't
    matter.

    Args:
        broker: the cluster.
        source: the source's selection and settings.
        label: a label of the grid whose delay is over.
        grid: the pipeline's grid.
        first: the pipeline's first label; no label before it is resolved along with the
            wanted one.
        lower: the nearest frozen boundary below, if any.
        upper: the nearest frozen boundary above, if any. No cut is looked for beyond
            it, and topic-partitions that it doesn't know are not read yet.
        progress: called with the number of messages that the scan has read so far.
        wait_for_open: raise an error if an open transaction may still bring messages
            from before the label.
        replaced_topics: topics that are left out, because a rebase has replaced them.
        also: earlier labels that are wanted too, ascending; none of them has a frozen
            boundary between it and the label.

    Raises:
        IdentityError: a neighbour was frozen for another cluster, or for another topic with
            the same name.
        DataLossError: a topic that the lower neighbour reads is not in the cluster any
            more.
        CutOffError: a log ends below the lower neighbour, and `source.on_loss` isn't "skip".
        SpecError: a topic doesn't exist, `start` has no answer for a new topic, or no
            message of a topic-partition has a timestamp.
        OpenTransactionError: the label would cut at a stable end at which a transaction is
            open.
        UnreachableError: the cluster doesn't answer.
    """
    discovered = discover(broker, source.selection, lower, source.on_removed).drop_topics(
        replaced_topics
    )
    refuse_other_topics(discovered, lower, upper)
    below, above = _cuts_of(lower, discovered.tps), _cuts_of(upper, discovered.tps)
    tps = discovered.tps if upper is None else [tp for tp in discovered.tps if tp in above]
    joining = [tp for tp in tps if tp not in below] if lower is not None else []
    look, labels = Look(broker, progress), [*also, label]
    start_marks = _start_marks(broker, source, grid, first, labels[0], joining, progress)
    logs = _logs(broker, tps, below, above, start_marks)
    if lower is not None:
        refuse_cut_off(
            broker,
            source,
            lower.label,
            [below[p.tp] for p in logs if p.tp in below and p.end.offset < below[p.tp].offset],
        )
    ask = _through if _is_dense(broker, logs, labels) else _near
    try:
        columns = ask(broker, look)(logs, labels)
    except ScanBudgetError:
        labels = sorted({*also, *_labels_to_pass(grid, first, lower, label)})
        columns = _through(broker, look)(logs, labels)
    if wait_for_open:
        _refuse_open(logs, columns, label)
    for tp in without_timestamps(
        broker, {p.tp: p.end for p in logs if columns[p.tp][-1].offset == p.end.offset}
    ):
        raise SpecError(
            f"{tp}: {UNSTAMPED}",
            "plan",
            UNSTAMPED_WAY_OUT,
            tp.topic,
            tp.partition,
        )
    if lower is None and labels[0] == first:
        for log in logs:
            mark = columns[log.tp][0]
            if mark.origin != "end" and look.is_unstamped(log.tp, log.log_start, mark.offset):
                begin = min(mark.offset, log.log_start)
                columns[log.tp][0] = msgspec.structs.replace(mark, offset=begin)
    return _boundaries(discovered, labels, columns, start_marks)


def _cuts_of(
    neighbour: Boundary | None, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, Mark]:
    return {} if neighbour is None else neighbour.cuts(tps)


def _start_marks(
    broker: Broker,
    source: Source,
    grid: str,
    first: datetime,
    label: datetime,
    joining: Sequence[TopicPartition],
    progress: Callable[[int], None],
) -> dict[TopicPartition, Mark]:
    """Finds the start marks of topic-partitions that the lower neighbour doesn't know.

    Messages that retention removed before a topic-partition joined were never the
    pipeline's to read. So a start mark at the log start is doubted only if messages of the
    window in which the topic-partition joins may be gone. That window ends at the label.
    """
    start = joining_start(source, AtLabel())
    if not joining or not isinstance(start, AtLabel):
        ends = broker.stable_ends(joining) if joining else {}
        return {mark.tp: mark for mark in position_marks(positions(broker, start, ends))}
    opens = label_before(grid, label)
    begin = opens if source.joining == "window" else min(first, opens)
    cuts = {
        boundary.label: boundary.by_tp()
        for boundary in resolve(
            broker,
            msgspec.structs.replace(source, selection=Partitions(tuple(joining))),
            opens,
            grid,
            begin,
            None,
            None,
            progress,
            wait_for_open=False,
            also=[begin] if begin < opens else [],
        )
    }
    return {
        tp: msgspec.structs.replace(mark, origin="position")
        if mark.origin == "log_start" and cuts[opens][tp].origin != "log_start"
        else mark
        for tp, mark in cuts[begin].items()
    }


def _logs(
    broker: Broker,
    tps: Sequence[TopicPartition],
    below: Mapping[TopicPartition, Mark],
    above: Mapping[TopicPartition, Mark],
    start_marks: Mapping[TopicPartition, Mark],
) -> list[_Log]:
    """Asks for log starts, then high watermarks, then stable ends.

    The order matters. Each start is at or below its end. And only an open transaction can
    hold a stable end below the high watermark, because the high watermark was asked first.
    Kafka's answers for instants are asked after all of them.
    """
    starts, highs, ends = broker.log_starts(tps), broker.ends(tps), broker.stable_ends(tps)
    return [
        _Log(
            tp,
            starts[tp],
            ends[tp],
            start_marks.get(tp) or below.get(tp),
            above.get(tp),
            open=highs[tp] > ends[tp].offset,
        )
        for tp in tps
    ]


def _labels_to_pass(
    grid: str, first: datetime, lower: Boundary | None, label: datetime
) -> list[datetime]:
    """Returns the grid's labels above the lower boundary, up to the wanted label.

    Without a lower boundary they begin at the pipeline's first label.
    """
    below = None if lower is None else lower.label
    last_passed = below if isinstance(below, datetime) else first - timedelta(microseconds=1)
    return labels_between(grid, last_passed, label) or [label]


_Ask = Callable[[Sequence[_Log], Sequence[datetime]], _Columns]


def _is_dense(broker: Broker, logs: Sequence[_Log], labels: Sequence[datetime]) -> bool:
    """Returns whether one pass over the logs reads less than a scan for each label would.

    Kafka's answers for the first and the last label show how far apart they are.
    """
    if len(labels) == 1:
        return False
    low, high = (
        sum(piece.begin for _, piece in _pieces(broker, logs, label))
        for label in (labels[0], labels[-1])
    )
    return high - low <= MOST_SCANNED * len(logs) * (len(labels) - 1)


def _near(broker: Broker, look: Look) -> _Ask:
    """Returns a function that scans for one label after the other.

    Raises:
        ScanBudgetError: in some topic-partition the scan would be long.
    """

    def ask(logs: Sequence[_Log], labels: Sequence[datetime]) -> _Columns:
        columns: _Columns = {log.tp: [] for log in logs}
        for label in labels:
            millis = _millis(label)
            for log, piece in _pieces(broker, logs, label):
                columns[log.tp] += _marks(look, log, [millis], look.near(piece, millis))
        return columns

    return ask


def _through(broker: Broker, look: Look) -> _Ask:
    """Returns a function that finds ascending labels in one pass over each log."""

    def ask(logs: Sequence[_Log], labels: Sequence[datetime]) -> _Columns:
        pieces, label_millis = (
            _pieces(broker, logs, labels[0]),
            [_millis(label) for label in labels],
        )
        return {
            log.tp: _marks(look, log, label_millis, look.through(piece, label_millis))
            for log, piece in pieces
        }

    return ask


def _pieces(broker: Broker, logs: Sequence[_Log], label: datetime) -> list[tuple[_Log, ScanRange]]:
    """Returns the part of each log in which to look for a label.

    All visible messages before Kafka's own answer are before the label.
    """
    hits = broker.first_at_or_after([p.tp for p in logs], label)

    def piece(log: _Log, hit: OffsetAndEpoch | None) -> ScanRange:
        begin = log.end.offset if hit is None else max(log.floor, hit.offset)
        return ScanRange(log.tp, begin, log.end.offset, log.limit)

    return [(log, piece(log, hits[log.tp])) for log in logs]


def _marks(
    look: Look, log: _Log, labels: Sequence[int], cuts: Sequence[OffsetAndEpoch]
) -> list[Mark]:
    """Makes the marks of ascending labels (epoch milliseconds); the first `len(cuts)` have cuts."""
    head = None
    if log.log_start > 0 and not log.proven and log.limit > 0:
        head = look.first_stamps(log.tp, log.log_start, log.end.offset, AHEAD - 1)
    marks = []
    for i, label in enumerate(labels):
        position, origin = _cut(log, cuts[i] if i < len(cuts) else None)
        if position.leader_epoch is None:  # a message of an old format, or an older version's mark
            position = add_witness(position.offset, log.end)
        if head is not None and cut_may_precede(head, label):
            origin = "log_start"
        marks.append(
            Mark(log.tp.topic, log.tp.partition, position.offset, origin, position.leader_epoch)
        )
    return marks


def _cut(log: _Log, settled: OffsetAndEpoch | None) -> tuple[OffsetAndEpoch, How]:
    if settled is not None and settled.offset <= log.limit:
        return settled, "settled"
    if log.upper is not None and log.upper.offset <= log.end.offset:
        return OffsetAndEpoch(log.upper.offset, log.upper.leader_epoch), "clamped"
    return log.end, "open" if log.open else "end"


def _boundaries(
    discovered: Discovered,
    labels: Sequence[datetime],
    columns: _Columns,
    start_marks: Mapping[TopicPartition, Mark],
) -> list[Boundary]:
    boundaries = []
    for i, label in enumerate(labels):
        marks = [column[i] for column in columns.values()]
        # Never above the mark: an upper neighbour may have moved the mark down.
        firsts = [
            min(mark, columns[tp][i], key=lambda m: m.offset) for tp, mark in start_marks.items()
        ]
        boundaries.append(
            Boundary.of(label, discovered.cluster_id, discovered.boundary_topics, marks, firsts)
        )
    return boundaries


def _refuse_open(logs: Sequence[_Log], columns: _Columns, label: datetime) -> None:
    for log in logs:
        mark = columns[log.tp][-1]
        if log.open and mark.origin != "clamped" and mark.offset == log.end.offset:
            raise OpenTransactionError(
                f"A transaction is open since offset {mark.offset}, and may still bring messages"
                f" from before {instant(label)}",
                "plan",
                "Run the window again when the transaction has ended; once window.max_wait is over,"
                " it goes on without waiting, and what the transaction brings belongs to a later"
                " window.",
                mark.topic,
                mark.partition,
                mark.offset,
            )


def _millis(label: datetime) -> int:
    """Returns epoch milliseconds, rounded up, as the least timestamp at or after the label."""
    return -((_EPOCH - label) // timedelta(milliseconds=1))
