"""Resolves start positions (Flink's OffsetsInitializer) to offsets that the log holds.

Kafka has no request that returns both the end of a log and the offset of an instant, and
messages arrive between two requests. So:

1. The caller asks for the ends, once.
2. The other answers are asked for.
3. A position without another answer becomes the end of step 1. Messages that have arrived
   since are after it, so they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from windrow.ingest.errors import DataLossError, OpenTransactionError, SpecError
from windrow.ingest.model.boundary import Mark, TopicPartition, instant
from windrow.ingest.model.source import (
    AtLabel,
    AtTime,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Latest,
    Reset,
    Source,
)
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch

Positions = dict[TopicPartition, OffsetAndEpoch]


@dataclass(frozen=True)
class _PositionAnswers:
    """The answers for each topic-partition, and the rule for missing answers.

    Attributes:
        answers: the position, or None, of each topic-partition.
        option: the setting that says what a missing answer becomes.
        reset: the value of that setting.
        nothing: describes a missing answer.
    """

    answers: Mapping[TopicPartition, OffsetAndEpoch | None]
    option: str
    reset: Reset
    nothing: Callable[[TopicPartition], str]


def positions(
    broker: Broker,
    initializer: Initializer,
    ends: Positions,
    setting: str = "source.start",
) -> Positions:
    """Resolves a position in each topic-partition, between its log start and stable end.

    Args:
        broker: the cluster.
        initializer: any position but `AtLabel`, which needs a label.
        ends: the stable ends of the topic-partitions, asked before this call.
        setting: the name of the setting that gives the position, for messages.

    Raises:
        SpecError: there is no answer, or a given offset never existed, and the position
            doesn't say what to do then.
        DataLossError: a given offset lies below the log start.
        OpenTransactionError: a given or committed offset lies after the begin of a
            transaction that is still open.
    """
    if not ends:
        return {}
    match initializer:
        case Earliest():
            starts = broker.log_starts(list(ends))
            return {tp: add_witness(offset, ends[tp]) for tp, offset in starts.items()}
        case Latest():
            return ends
        case AtTime():
            return _at_time(broker, initializer, ends, setting)
        case GroupOffsets():
            return _committed_positions(broker, initializer, ends, setting)
        case Given():
            return _given_positions(broker, initializer, ends, setting)
        case AtLabel():
            msg = "only a label says where it cuts the log"
            raise AssertionError(msg)


def joining_start(source: Source, window: Initializer) -> Initializer:
    """Returns the position at which topic-partitions begin that join the pipeline now.

    This is the source's `start`. But `latest` means the log's end at the time of the first
    window. For topic-partitions that join later it becomes the log's start, as in Flink.

    Args:
        source: the source's settings.
        window: the start position of the window in which they join.
    """
    if source.joining == "window":
        return window
    match source.start:
        case Latest():
            return Earliest()
        case GroupOffsets(reset="latest"):
            return msgspec.structs.replace(source.start, reset="earliest")
        case Given(others="latest"):
            return msgspec.structs.replace(source.start, others="earliest")
        case Given(others=GroupOffsets(reset="latest") as group):
            others = msgspec.structs.replace(group, reset="earliest")
            return msgspec.structs.replace(source.start, others=others)
    return source.start


def position_marks(offsets: Mapping[TopicPartition, OffsetAndEpoch]) -> list[Mark]:
    """Makes the marks of a boundary at these positions."""
    return [
        Mark(tp.topic, tp.partition, p.offset, "position", p.leader_epoch)
        for tp, p in offsets.items()
    ]


def add_witness(offset: int, end: OffsetAndEpoch) -> OffsetAndEpoch:
    """Adds the witness of an offset (`Mark`): the leader epoch of an end of the log.

    The witness is None if the offset lies beyond that end.
    """
    return OffsetAndEpoch(offset, end.leader_epoch if offset <= end.offset else None)


def _at_time(broker: Broker, start: AtTime, ends: Positions, setting: str) -> Positions:
    """Resolves an instant by Kafka's own answer.

    The answer may lie beyond the stable end: it is in an open transaction, or it arrived
    after the stable end was asked. Then the position is the stable end, so that no message
    is left out.
    """
    hits = broker.first_at_or_after(list(ends), start.moment)
    answers = {
        tp: ends[tp] if hit is not None and hit.offset > ends[tp].offset else hit
        for tp, hit in hits.items()
    }
    nothing = f"No message is stamped {instant(start.moment)} or later"
    request = _PositionAnswers(answers, f"{setting}.no_match", start.no_match, lambda _: nothing)
    return _fill_missing(broker, request, ends)


def _committed_positions(
    broker: Broker, start: GroupOffsets, ends: Positions, setting: str
) -> Positions:
    """Resolves a group's committed offsets; an offset outside of the log counts as missing."""
    committed = broker.committed_offsets(start.group, list(ends))
    starts = broker.log_starts(list(ends))
    committed_offsets = {tp: offset for tp, offset in committed.items() if offset is not None}
    reached = _ask_again_beyond(broker, committed_offsets, ends, setting)
    inside = {
        tp: add_witness(offset, reached[tp])
        if offset is not None and starts[tp] <= offset <= reached[tp].offset
        else None
        for tp, offset in committed.items()
    }

    def nothing(tp: TopicPartition) -> str:
        range_of_log = f", and the log holds {starts[tp]} to {reached[tp].offset}"
        return (
            f"Group {start.group} has committed"
            f" {'nothing' if committed[tp] is None else f'offset {committed[tp]}{range_of_log}'}"
        )

    return _fill_missing(
        broker, _PositionAnswers(inside, f"{setting}.reset", start.reset, nothing), ends
    )


def _given_positions(broker: Broker, start: Given, ends: Positions, setting: str) -> Positions:
    given_offsets = {tp: offset for tp, offset in start.offsets if tp in ends}
    if isinstance(start.others, GroupOffsets):
        others = {tp: end for tp, end in ends.items() if tp not in given_offsets}
        listed = {tp: ends[tp] for tp in given_offsets}
        return positions(broker, start.others, others, setting) | _given_positions(
            broker, Given(start.offsets), listed, setting
        )
    starts, reached = (
        broker.log_starts(list(given_offsets)),
        _ask_again_beyond(broker, given_offsets, ends, setting),
    )
    for tp, offset in given_offsets.items():
        message = (
            f"Offset {offset} is given as the start, and the log holds {starts[tp]} to"
            f" {reached[tp].offset}"
        )
        if offset < starts[tp]:
            raise DataLossError(
                message,
                "plan",
                f"Retention has removed earlier messages: give {starts[tp]}, or start: earliest.",
                tp.topic,
                tp.partition,
                offset,
            )
        if offset > reached[tp].offset:
            raise SpecError(
                message,
                "plan",
                "Give an offset that the log holds, or start: latest.",
                tp.topic,
                tp.partition,
                offset,
            )
    answers = {
        tp: add_witness(given_offsets[tp], end) if tp in given_offsets else None
        for tp, end in reached.items()
    }
    request = _PositionAnswers(
        answers, f"{setting}.others", start.others, "No offset is given for {}".format
    )
    return _fill_missing(broker, request, ends)


def _ask_again_beyond(
    broker: Broker, offsets: Mapping[TopicPartition, int], ends: Positions, setting: str
) -> Positions:
    """Asks again for the ends of logs that end below a wanted offset.

    The log may have reached the offset since. Such a later end only shows that the log
    holds the offset; it never becomes a position.

    Raises:
        OpenTransactionError: an offset is in the log, but above the stable end.
    """
    beyond = sorted(tp for tp, offset in offsets.items() if offset > ends[tp].offset)
    if not beyond:
        return ends
    highs, reached = broker.ends(beyond), broker.stable_ends(beyond)
    for tp in beyond:
        if reached[tp].offset < offsets[tp] <= highs[tp]:
            raise OpenTransactionError(
                f"The {setting.rpartition('.')[2]}, offset {offsets[tp]}, lies behind a transaction"
                f" that is open since offset {reached[tp].offset}",
                "plan",
                "Run it again when the transaction has ended.",
                tp.topic,
                tp.partition,
                reached[tp].offset,
            )
    return ends | reached


def _fill_missing(broker: Broker, request: _PositionAnswers, ends: Positions) -> Positions:
    """Returns the answers; log starts or stable ends replace missing answers."""
    unanswered = [tp for tp, position in request.answers.items() if position is None]
    if unanswered and request.reset == "fail":
        raise SpecError(
            request.nothing(unanswered[0]),
            "plan",
            "Write ?earliest or ?latest behind a position on the command line; of a spec's set"
            f" {request.option} to earliest or latest. Or name another position.",
            unanswered[0].topic,
            unanswered[0].partition,
        )
    reset = Earliest() if request.reset == "earliest" else Latest()
    filled = positions(broker, reset, {tp: ends[tp] for tp in unanswered})
    return {
        tp: filled[tp] if position is None else position for tp, position in request.answers.items()
    }
