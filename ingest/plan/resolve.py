"""A label becomes a boundary: per topic-partition the offset at which the label cuts the log. Asks the broker; freezes nothing.

Kafka's own answer to "the first offset at or after an instant" may be a transaction marker, stamped by the broker's clock, or one message
stamped in the future. So it only says where the look begins; `settle` says where it ends. In a healthy partition that is one short read.

In a sick one (historic messages written by transactions today, a message stamped 2099) Kafka's answer is far off, and the look is long.
Then all labels between the lower frozen neighbour and the wanted one are resolved in the same pass, so that the windows of a backfill read
the log once.

A log start above 0 proves nothing about what was there before. A mark is a `log_start` if what is left can't show that the label cuts it:
if a message at or after the label, right before the log start, would have been the cut (`would_settle_before`). It counts as shown if the
lower frozen neighbour cuts at or above the log start and is not a `log_start` itself: all that lies between the two cuts is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ingest.errors import IdentityError
from ingest.model import Boundary, How, Mark, TopicIdentity, TopicPartition, instant
from ingest.grid import labels_between
from ingest.plan.look import FarError, Look, Piece
from ingest.plan.settle import AHEAD, would_settle_before
from ingest.ports import Broker, Position

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class _Part:
    """One topic-partition as all questions of one resolution see it: cuts lie in [floor, limit], `end` is the last stable offset."""

    tp: TopicPartition
    log_start: int
    end: Position
    lower: Mark | None
    upper: Mark | None

    @property
    def floor(self) -> int:
        return max(self.log_start, 0 if self.lower is None else self.lower.offset)

    @property
    def limit(self) -> int:
        return self.end.offset if self.upper is None else min(self.end.offset, self.upper.offset)

    @property
    def proven(self) -> bool:
        """Whether the lower neighbour's cut is known to be right and all messages from it on are still there."""
        return self.lower is not None and self.lower.how != "log_start" and self.lower.offset >= self.log_start


def resolve(
    broker: Broker,
    topic: str,
    label: datetime,
    grid: str,
    first: datetime,
    lower: Boundary | None,
    upper: Boundary | None,
    progress: Callable[[int], None],
) -> list[Boundary]:
    """The boundary of a label, after those of earlier labels that the same look answered; all to be frozen.

    The answer depends on the log alone: not on neighbours (they only shorten the look), nor on the order in which labels are resolved.

    Args:
        broker: answers for committed messages only.
        topic: its name.
        label: lies on the grid, and its delay is over.
        grid: the pipeline's.
        first: the pipeline's first label; none before it is resolved beside the wanted one.
        lower: the nearest frozen boundary below, if any.
        upper: the nearest frozen boundary above, if any: no cut is looked for beyond it.
        progress: called with the number of messages looked at so far.

    Raises:
        IdentityError: a neighbour was frozen for another cluster or another topic of this name.
        SpecError: there is no such topic.
        UnreachableError: the cluster doesn't answer.
        DataLossError: messages vanished during the look.
    """
    cluster, info = broker.cluster_id(), broker.topic(topic)
    identity = TopicIdentity(topic, info.topic_id)
    for neighbour in (lower, upper):
        _refuse_other(neighbour, cluster, identity)
    parts = _parts(broker, [TopicPartition(topic, p) for p in range(info.partitions)], lower, upper)
    look = Look(broker, progress)
    try:
        columns = _one_label(broker, look, parts, label)
        labels = [label]
    except FarError:
        labels = _labels_to_pass(grid, first, lower, label)
        columns = _many_labels(broker, look, parts, labels)
    return [Boundary.of(at, cluster, [identity], [column[i] for column in columns]) for i, at in enumerate(labels)]


def _refuse_other(neighbour: Boundary | None, cluster: str, identity: TopicIdentity) -> None:
    if neighbour is None or (neighbour.cluster_id == cluster and identity in neighbour.topics):
        return
    raise IdentityError(
        f"The boundary frozen under {instant(neighbour.label)} is of cluster {neighbour.cluster_id} and "
        f"topic id {', '.join(t.topic_id for t in neighbour.topics)}; now there are cluster {cluster} and topic id {identity.topic_id}",
        "plan",
        "The topic was made anew or the cluster replaced: begin a new pipeline id for it.",
        identity.topic,
    )


def _parts(broker: Broker, tps: Sequence[TopicPartition], lower: Boundary | None, upper: Boundary | None) -> list[_Part]:
    """Log starts, then last stable offsets: the order keeps each start at or below its end. Hits are asked after both."""
    starts, ends = broker.log_starts(tps), broker.stable_ends(tps)
    below, above = _cuts_of(lower, tps), _cuts_of(upper, tps)
    return [_Part(tp, starts[tp], ends[tp], below.get(tp), above.get(tp)) for tp in tps]


def _cuts_of(neighbour: Boundary | None, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Mark]:
    """Where a neighbour cuts each of these: at 0 what it doesn't list."""
    if neighbour is None:
        return {}
    return {tp: Mark(tp.topic, tp.partition, 0, "clamped") for tp in tps} | neighbour.by_tp()


def _labels_to_pass(grid: str, first: datetime, lower: Boundary | None, label: datetime) -> list[datetime]:
    """The grid's labels above the lower boundary, else from the pipeline's first, up to the wanted one."""
    after = first - timedelta(microseconds=1) if lower is None else lower.label
    return labels_between(grid, after, label) or [label]


def _one_label(broker: Broker, look: Look, parts: Sequence[_Part], label: datetime) -> list[list[Mark]]:
    """Per partition the mark of one label.

    Raises:
        FarError: in some partition the look would go far.
    """
    pieces = _pieces(broker, parts, label)
    return [_marks(look, part, [label], look.near(piece, _millis(label))) for part, piece in zip(parts, pieces, strict=True)]


def _many_labels(broker: Broker, look: Look, parts: Sequence[_Part], labels: Sequence[datetime]) -> list[list[Mark]]:
    """Per partition the marks of ascending labels, in one pass over its log."""
    pieces, wanted = _pieces(broker, parts, labels[0]), [_millis(label) for label in labels]
    return [_marks(look, part, labels, look.through(piece, wanted)) for part, piece in zip(parts, pieces, strict=True)]


def _pieces(broker: Broker, parts: Sequence[_Part], label: datetime) -> list[Piece]:
    """Where to look for a label: no visible message before Kafka's own answer is at or after it."""
    hits = broker.first_at_or_after([p.tp for p in parts], label)
    begins = [p.end.offset if (hit := hits[p.tp]) is None else max(p.floor, hit.offset) for p in parts]
    return [Piece(p.tp, begin, p.end.offset, p.limit) for p, begin in zip(parts, begins, strict=True)]


def _marks(look: Look, part: _Part, labels: Sequence[datetime], cuts: Sequence[Position]) -> list[Mark]:
    """The marks of ascending labels, of which the first `len(cuts)` were found."""
    head = None
    if part.log_start > 0 and not part.proven and part.limit > 0:
        head = look.first_stamps(part.tp, part.log_start, part.end.offset, AHEAD - 1)
    marks = []
    for i, label in enumerate(labels):
        position, how = _cut(part, cuts[i] if i < len(cuts) else None)
        if head is not None and would_settle_before(head, _millis(label)):
            how = "log_start"
        marks.append(Mark(part.tp.topic, part.tp.partition, position.offset, how, position.leader_epoch))
    return marks


def _cut(part: _Part, found: Position | None) -> tuple[Position, How]:
    if found is not None and found.offset <= part.limit:
        return found, "settled"
    if part.upper is not None and part.upper.offset <= part.end.offset:
        return Position(part.upper.offset, part.upper.leader_epoch), "clamped"
    return part.end, "end"


def _millis(label: datetime) -> int:
    """Epoch milliseconds, rounded up: a message at or after the label has at least these."""
    return -((_EPOCH - label) // timedelta(milliseconds=1))
