"""A label becomes a boundary: per topic-partition the offset at which the label cuts the log.

Asks the broker; freezes nothing.

Kafka's own answer to "the first offset at or after an instant" may be a transaction
marker, stamped by the broker's clock, or one message stamped in the future. So it only
says where the look begins; `settle` says where it ends. In a healthy partition that is
one short read.

In a sick one (historic messages written by transactions today, a message stamped 2099)
Kafka's answer is far off, and the look is long. Then all labels between the lower
frozen neighbour and the wanted one are resolved in the same pass, so that the windows
of a backfill read the log once.

A log start above 0 proves nothing about what was there before. A mark is a `log_start`
if what is left can't show that the label cuts it: if a message at or after the label,
right before the log start, would have been the cut (`would_settle_before`). It counts
as shown if the lower frozen neighbour cuts at or above the log start and is not a
`log_start` itself: all that lies between the two cuts is still there.

A topic-partition that the lower neighbour doesn't know begins where the label right
before cuts it, or where the source's `start` says. Every boundary that is resolved says
so: whichever of them finds such a neighbour below it when it is frozen keeps it, the
others drop it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from windrow.ingest.errors import OpenTransactionError
from windrow.ingest.model.boundary import Boundary, How, Mark, TopicPartition
from windrow.ingest.model.label import instant
from windrow.ingest.model.source import AtLabel, Source
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch
from windrow.ingest.source.enumerator.cutoff import refuse_cut_off
from windrow.ingest.source.enumerator.grid import before, labels_between
from windrow.ingest.source.enumerator.look import FAR, Look, ScanBudgetError, ScanRange
from windrow.ingest.source.enumerator.positions import position_marks, positions, witnessed
from windrow.ingest.source.enumerator.settled_rule import AHEAD, would_settle_before
from windrow.ingest.source.enumerator.topics import Discovered, discover, refuse_other_topics

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Part:
    """One topic-partition as all questions of one resolution see it: cuts lie in
    [floor, limit], `end` is the stable end.

    `lower` is the lower neighbour's mark, or the position at which the topic-partition
    begins. `fresh`: where it begins is the cut of the label before. `open`: behind the
    end a transaction is open.
    """

    tp: TopicPartition
    log_start: int
    end: OffsetAndEpoch
    lower: Mark | None
    upper: Mark | None
    fresh: bool
    open: bool

    @property
    def floor(self) -> int:
        return max(self.log_start, 0 if self.lower is None else self.lower.offset)

    @property
    def limit(self) -> int:
        return self.end.offset if self.upper is None else min(self.end.offset, self.upper.offset)

    @property
    def proven(self) -> bool:
        """Whether the lower neighbour's cut is known to be right and all messages from
        it on are still there.
        """
        return (
            self.lower is not None
            and self.lower.how != "log_start"
            and self.lower.offset >= self.log_start
        )


_Columns = dict[TopicPartition, list[Mark]]
"""Per topic-partition the marks of ascending labels."""


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
    left_out: Collection[str] = (),
    also: Sequence[datetime] = (),
) -> list[Boundary]:
    """The boundary of a label, after those of earlier labels that the same look
    answered; all to be frozen.

    The answer depends on the log alone: not on neighbours (they only shorten the look),
    nor on the order in which labels are resolved.

    Args:
        broker: the cluster.
        source: what is read, and from where on.
        label: lies on the grid, and its delay is over.
        grid: the pipeline's.
        first: the pipeline's first label; none before it is resolved beside the wanted
            one.
        lower: the nearest frozen boundary below, if any.
        upper: the nearest frozen boundary above, if any: no cut is looked for beyond
            it, and what it doesn't know is not read yet.
        progress: called with the number of messages looked at so far.
        wait_for_open: whether an open transaction that may still bring messages from
            before the label is an error.
        left_out: topics that are not asked for, because what was there by then is gone:
            a rebase has put others in their place.
        also: earlier labels that are wanted too, ascending; none has a frozen boundary
            between it and the label.

    Raises:
        IdentityError: a neighbour was frozen for another cluster or another topic of
            the same name.
        DataLossError: a topic that the lower neighbour reads is not in the cluster any
            more.
        CutOffError: a log ends below the lower neighbour, and the source doesn't say to
            go on.
        SpecError: a topic is not there, or `start` has no answer for a new one.
        OpenTransactionError: the label would cut at a stable end behind which a
            transaction is open.
        UnreachableError: the cluster doesn't answer.
    """
    discovered = discover(broker, source.selection, lower, source.on_removed).without(left_out)
    refuse_other_topics(discovered, lower, upper)
    below, above = _cuts_of(lower, discovered.tps), _cuts_of(upper, discovered.tps)
    tps = discovered.tps if upper is None else [tp for tp in discovered.tps if tp in above]
    begins = _begins(broker, source, lower, [tp for tp in tps if tp not in below])
    parts = _parts(broker, tps, below, above, begins)
    if lower is not None:
        refuse_cut_off(
            broker,
            source,
            lower.label,
            [below[p.tp] for p in parts if p.tp in below and p.end.offset < below[p.tp].offset],
        )
    look, labels = Look(broker, progress), [*also, label]
    ask = _through if _is_dense(broker, parts, labels) else _near
    try:
        columns = _columns(ask(broker, look), parts, labels, grid)
    except ScanBudgetError:
        labels = sorted({*also, *_labels_to_pass(grid, first, lower, label)})
        columns = _columns(_through(broker, look), parts, labels, grid)
    if wait_for_open:
        _refuse_open(parts, columns, label)
    return _boundaries(discovered, labels, columns, begins)


def _cuts_of(
    neighbour: Boundary | None, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, Mark]:
    return {} if neighbour is None else neighbour.cuts(tps)


def _begins(
    broker: Broker, source: Source, lower: Boundary | None, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, Mark | None]:
    """Where each topic-partition that a lower neighbour doesn't know begins: None if
    the label before says it.
    """
    if lower is None or not tps:
        return {}
    if isinstance(source.start, AtLabel):
        return dict.fromkeys(tps)
    return {mark.tp: mark for mark in position_marks(positions(broker, source.start, tps))}


def _parts(
    broker: Broker,
    tps: Sequence[TopicPartition],
    below: Mapping[TopicPartition, Mark],
    above: Mapping[TopicPartition, Mark],
    begins: Mapping[TopicPartition, Mark | None],
) -> list[_Part]:
    """Log starts, then high watermarks, then stable ends.

    The order keeps each start at or below its end, and lets only an open transaction
    hold a stable end below the high watermark that was there before it. Hits are asked
    after all of them.
    """
    starts, highs, ends = broker.log_starts(tps), broker.ends(tps), broker.stable_ends(tps)
    return [
        _Part(
            tp,
            starts[tp],
            ends[tp],
            begins.get(tp) or below.get(tp),
            above.get(tp),
            fresh=tp in begins and begins[tp] is None,
            open=highs[tp] > ends[tp].offset,
        )
        for tp in tps
    ]


def _labels_to_pass(
    grid: str, first: datetime, lower: Boundary | None, label: datetime
) -> list[datetime]:
    """The grid's labels above the lower boundary, else from the pipeline's first, up to
    the wanted one.
    """
    below = None if lower is None else lower.label
    after = below if isinstance(below, datetime) else first - timedelta(microseconds=1)
    return labels_between(grid, after, label) or [label]


_Ask = Callable[[Sequence[_Part], Sequence[datetime]], _Columns]


def _is_dense(broker: Broker, parts: Sequence[_Part], labels: Sequence[datetime]) -> bool:
    """Whether one pass over the logs reads less than a look for each label would:
    judged by Kafka's answers for the first and the last.
    """
    if len(labels) == 1:
        return False
    low, high = (
        sum(piece.begin for _, piece in _pieces(broker, parts, label))
        for label in (labels[0], labels[-1])
    )
    return high - low <= FAR * len(parts) * (len(labels) - 1)


def _columns(ask: _Ask, parts: Sequence[_Part], labels: Sequence[datetime], grid: str) -> _Columns:
    """The marks of the labels; of fresh parts one more before them, for where they begin."""
    fresh = [part for part in parts if part.fresh]
    if not fresh:
        return ask(parts, labels)
    known = [part for part in parts if not part.fresh]
    return ask(known, labels) | ask(fresh, [before(grid, labels[0]), *labels])


def _near(broker: Broker, look: Look) -> _Ask:
    """Answers label by label.

    Raises:
        ScanBudgetError: in some partition the look would go far.
    """

    def ask(parts: Sequence[_Part], labels: Sequence[datetime]) -> _Columns:
        columns: _Columns = {part.tp: [] for part in parts}
        for label in labels:
            wanted = _millis(label)
            for part, piece in _pieces(broker, parts, label):
                columns[part.tp] += _marks(look, part, [wanted], look.near(piece, wanted))
        return columns

    return ask


def _through(broker: Broker, look: Look) -> _Ask:
    """Answers ascending labels in one pass over each log."""

    def ask(parts: Sequence[_Part], labels: Sequence[datetime]) -> _Columns:
        pieces, wanted = _pieces(broker, parts, labels[0]), [_millis(label) for label in labels]
        return {
            part.tp: _marks(look, part, wanted, look.through(piece, wanted))
            for part, piece in pieces
        }

    return ask


def _pieces(
    broker: Broker, parts: Sequence[_Part], label: datetime
) -> list[tuple[_Part, ScanRange]]:
    """Where to look for a label in each: no visible message before Kafka's own answer
    is at or after it.
    """
    hits = broker.first_at_or_after([p.tp for p in parts], label)

    def piece(part: _Part, hit: OffsetAndEpoch | None) -> ScanRange:
        begin = part.end.offset if hit is None else max(part.floor, hit.offset)
        return ScanRange(part.tp, begin, part.end.offset, part.limit)

    return [(part, piece(part, hits[part.tp])) for part in parts]


def _marks(
    look: Look, part: _Part, labels: Sequence[int], cuts: Sequence[OffsetAndEpoch]
) -> list[Mark]:
    """The marks of ascending labels (epoch milliseconds), of which the first
    `len(cuts)` were found.
    """
    head = None
    if part.log_start > 0 and not part.proven and part.limit > 0:
        head = look.first_stamps(part.tp, part.log_start, part.end.offset, AHEAD - 1)
    marks = []
    for i, label in enumerate(labels):
        position, how = _cut(part, cuts[i] if i < len(cuts) else None)
        if position.leader_epoch is None:  # a message of an old format, or an older version's mark
            position = witnessed(position.offset, part.end)
        if head is not None and would_settle_before(head, label):
            how = "log_start"
        marks.append(
            Mark(part.tp.topic, part.tp.partition, position.offset, how, position.leader_epoch)
        )
    return marks


def _cut(part: _Part, settled: OffsetAndEpoch | None) -> tuple[OffsetAndEpoch, How]:
    if settled is not None and settled.offset <= part.limit:
        return settled, "settled"
    if part.upper is not None and part.upper.offset <= part.end.offset:
        return OffsetAndEpoch(part.upper.offset, part.upper.leader_epoch), "clamped"
    return part.end, "open" if part.open else "end"


def _boundaries(
    discovered: Discovered,
    labels: Sequence[datetime],
    columns: _Columns,
    begins: Mapping[TopicPartition, Mark | None],
) -> list[Boundary]:
    """One boundary per label. A fresh column's mark before the label's own is where it begins."""
    boundaries = []
    for i, label in enumerate(labels, -len(labels)):
        marks = [column[i] for column in columns.values()]
        firsts = [
            _begin(columns[tp][i], begin or columns[tp][i - 1]) for tp, begin in begins.items()
        ]
        boundaries.append(Boundary.of(label, discovered.cluster_id, discovered.seen, marks, firsts))
    return boundaries


def _begin(mark: Mark, begin: Mark) -> Mark:
    """Never above its mark: an upper neighbour may have moved that down."""
    return begin if begin.offset <= mark.offset else mark


def _refuse_open(parts: Sequence[_Part], columns: _Columns, label: datetime) -> None:
    for part in parts:
        mark = columns[part.tp][-1]
        if part.open and mark.how != "clamped" and mark.offset == part.end.offset:
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
    """Epoch milliseconds, rounded up: a message at or after the label has at least these."""
    return -((_EPOCH - label) // timedelta(milliseconds=1))
