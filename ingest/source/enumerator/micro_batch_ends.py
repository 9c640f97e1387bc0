"""Boundaries without an instant: the first one, the ends of micro-batches, and the last one.

The first boundary is at the source's `start`, the last one at `window.stop`. This module
asks the broker and freezes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from datetime import datetime
from itertools import chain, islice
from math import inf

from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import Boundary, Label, Mark, TopicPartition
from windrow.ingest.model.source import Earliest, FrozenStop, Given, Initializer, Latest, Source
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch
from windrow.ingest.source.enumerator.cutoff import refuse_cut_off
from windrow.ingest.source.enumerator.positions import (
    add_witness,
    joining_start,
    position_marks,
    positions,
)
from windrow.ingest.source.enumerator.topics import discover, refuse_other_topics


def first_boundary(broker: Broker, source: Source, label: Label) -> Boundary:
    """Resolves the source's `start` under the pipeline's first label.

    `AtLabel` is not allowed: `resolve` answers it.

    Raises:
        SpecError: a topic doesn't exist, an offset is given for a topic-partition that
            isn't read, or `start` has no answer for a topic-partition.
        DataLossError, OpenTransactionError: see `positions`.
    """
    discovered = discover(broker, source.selection, None, source.on_removed)
    if isinstance(source.start, Given):
        _refuse_unread("source.start", source.start, discovered.tps)
    return Boundary.of(
        label,
        discovered.cluster_id,
        discovered.boundary_topics,
        position_marks(positions(broker, source.start, broker.stable_ends(discovered.tps))),
    )


def last_boundary(broker: Broker, source: Source, stop: Initializer, lower: Boundary) -> FrozenStop:
    """Resolves `window.stop`, in all topic-partitions that are read now.

    A given offset may lie beyond the log's end. The pipeline waits for such an offset.

    Args:
        broker: the cluster.
        source: the source's selection and settings.
        stop: the position to resolve.
        lower: the newest frozen boundary; after a rebase, the boundary of the rebase.

    Raises:
        SpecError: an offset is given for a topic-partition that isn't read, or `stop` has
            no answer for a topic-partition.
        IdentityError, DataLossError, OpenTransactionError: see `discover`, `positions`.
    """
    discovered = discover(broker, source.selection, lower, source.on_removed)
    refuse_other_topics(discovered, lower)
    given_offsets, rest = dict[TopicPartition, int](), stop
    if isinstance(stop, Given):
        _refuse_unread("window.stop", stop, discovered.tps)
        given_offsets, rest = dict(stop.offsets), Given((), stop.others)
    others = [tp for tp in discovered.tps if tp not in given_offsets]
    marks = [
        *position_marks(positions(broker, rest, broker.stable_ends(others), "window.stop")),
        *(Mark(tp.topic, tp.partition, offset, "position") for tp, offset in given_offsets.items()),
    ]
    boundary = Boundary.of(lower.label, discovered.cluster_id, discovered.boundary_topics, marks)
    return FrozenStop(stop, boundary)


def _refuse_unread(setting: str, position: Given, tps: list[TopicPartition]) -> None:
    for tp, _ in position.offsets:
        if tp not in tps:
            raise SpecError(
                f"{setting} gives an offset for a topic-partition that is not read",
                "plan",
                f"Remove it from {setting}, or read it.",
                tp.topic,
                tp.partition,
            )


def next_batch(
    broker: Broker,
    source: Source,
    lower: Boundary,
    label: int,
    max_records: int | None,
    min_records: int,
    overdue_before: datetime | None = None,
) -> Boundary | None:
    """Returns the end of the micro-batch that begins at the newest boundary.

    The micro-batch takes the messages below the stable ends, or a fair share of them. It
    never passes the source's end.

    Args:
        broker: the cluster.
        source: the source's selection and settings, and its end.
        lower: the newest frozen boundary; after a rebase, the boundary of the rebase.
        label: the sequence number of the new boundary. It also decides which
            topic-partitions come first if there are fewer offsets than topic-partitions.
        max_records: the most offsets of the micro-batch; None for no limit.
        min_records: the fewest new offsets of a micro-batch, but at least 1. The last
            micro-batch before the source's end may have fewer.
        overdue_before: a micro-batch may also have fewer if a topic-partition's first waiting
            message is stamped before this instant. None: it may not.

    Returns:
        None if there are too few offsets. A new topic-partition is worth a boundary by
            itself, unless it begins at the log's start and the source has no end.

    Raises:
        IdentityError: the newest boundary is of another cluster, or of another topic with
            the same name.
        DataLossError: a topic that the newest boundary reads is not in the cluster any more.
        CutOffError: a log ends below the newest boundary, and `source.on_loss` isn't "skip".
        SpecError: `start` has no answer for a new topic-partition.
        OpenTransactionError: `start` has no answer yet for a new topic-partition.
    """
    discovered = discover(broker, source.selection, lower, source.on_removed).limit_to(source.stop)
    refuse_other_topics(discovered, lower)
    below = lower.cuts(discovered.tps)
    start, ends = joining_start(source, Latest()), broker.stable_ends(discovered.tps)
    joining = {tp: end for tp, end in ends.items() if tp not in below}
    start_marks = position_marks(positions(broker, start, joining))
    below |= {mark.tp: mark for mark in start_marks}
    refuse_cut_off(
        broker,
        source,
        lower.label,
        [below[tp] for tp, end in ends.items() if end.offset < below[tp].offset],
    )
    waiting = {tp: max(0, end.offset - below[tp].offset) for tp, end in ends.items()}
    least, stop = max(1, min_records), source.stop
    if stop is not None:
        remaining_offsets = {
            m.tp: max(0, m.offset - below[m.tp].offset)
            for m in stop.boundary.marks
            if m.tp in below
        }
        waiting = {tp: min(offsets, remaining_offsets[tp]) for tp, offsets in waiting.items()}
        least = max(1, min(least, sum(remaining_offsets.values())))
    # The start marks are frozen at once, because `latest` is another offset later.
    # If the source has an end, they are frozen so that the end is known to be reached.
    worth_it = start_marks and (stop is not None or not isinstance(start, Earliest))
    if (
        sum(waiting.values()) < least
        and not worth_it
        and not _is_overdue(broker, below, waiting, overdue_before)
    ):
        return None
    shares = fair(waiting, max_records, label)
    marks = [_cut(below[tp], shares[tp], end) for tp, end in ends.items()]
    return Boundary.of(label, discovered.cluster_id, discovered.boundary_topics, marks, start_marks)


def _is_overdue(
    broker: Broker,
    below: Mapping[TopicPartition, Mark],
    waiting: Mapping[TopicPartition, int],
    moment: datetime | None,
) -> bool:
    """Returns whether a topic-partition's first waiting message is stamped before an instant.

    A message without a timestamp counts as older than any instant.
    """
    ranges = {
        tp: (below[tp].offset, below[tp].offset + offsets)
        for tp, offsets in waiting.items()
        if offsets
    }
    if moment is None or not ranges:
        return False
    log_starts = broker.log_starts(list(ranges))

    def timestamps(tp: TopicPartition) -> Generator[int]:
        start, stop = ranges[tp]
        for chunk in broker.stamps(tp, max(start, log_starts[tp]), stop):
            yield from chunk.timestamps

    for tp in ranges:
        with closing(timestamps(tp)) as stamps:
            if next(stamps, inf) < moment.timestamp() * 1000:
                return True
    return False


def _cut(below: Mark, share: int, end: OffsetAndEpoch) -> Mark:
    """Makes the mark at the end of a share.

    The stable end's leader epoch is a witness of every offset up to it. If the share is
    empty, the lower boundary's witness is kept, because it proves more.
    """
    position = add_witness(below.offset + share, end)
    keeps_epoch = share == 0 and below.leader_epoch is not None
    return Mark(
        below.topic,
        below.partition,
        position.offset,
        "batch",
        below.leader_epoch if keeps_epoch else position.leader_epoch,
    )


def fair(
    available: Mapping[TopicPartition, int], limit: int | None, turn: int = 0
) -> dict[TopicPartition, int]:
    """Returns the offsets that a micro-batch takes from each topic-partition. Pure.

    The shares are max-min fair: no topic-partition gets more than an equal share while
    others want more. The remainder is given to topic-partitions that want more, one offset
    each. It begins at a pointer that moves on by `limit` each turn. So even with fewer
    offsets than topic-partitions, each topic-partition is served within as many turns as
    there are topic-partitions.

    Args:
        available: the offsets that wait in each topic-partition, not negative.
        limit: the most offsets in all; None for no limit.
        turn: the micro-batch's number.
    """
    total = sum(available.values())
    if limit is None or total <= limit:
        return dict(available)
    level = _level(sorted(available.values(), reverse=True), limit)
    shares = {tp: min(waiting, level) for tp, waiting in available.items()}
    rest = limit - sum(shares.values())
    order = sorted(available)
    begin = turn * limit % len(order)
    wanting = (tp for tp in chain(order[begin:], order[:begin]) if available[tp] > level)
    return shares | dict.fromkeys(islice(wanting, rest), level + 1)


def _level(descending: list[int], limit: int) -> int:
    """Returns the highest equal share, if all together want more than the limit.

    A topic-partition that wants no more than an equal share gets all that it wants. The
    rest of its share is divided among the others.

    Args:
        descending: the wanted offsets in descending order; changed.
        limit: the most offsets in all.
    """
    rest = limit
    while descending[-1] <= rest // len(descending):
        rest -= descending.pop()
    return rest // len(descending)
