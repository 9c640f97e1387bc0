"""Resolves start positions (Flink's OffsetsInitializer) to offsets that the log holds.

No question to Kafka answers both where a log ends and where it reaches an instant, and
messages arrive between two questions. So ends are asked first, once, by the caller. A
position that has no other answer is such an end: what arrives later lies behind it, and is
read.
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
    """An answer for each topic-partition, or None, and what to do without an answer.

    `option` is the setting in the position for that, `reset` its value, and `nothing`
    describes the missing answer.
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
    """Resolves a position in each topic-partition: between log start and stable end.

    Args:
        broker: the cluster.
        initializer: any position but `AtLabel`, which needs a label.
        ends: the stable ends of the topic-partitions, asked before this.
        setting: the setting that says the position, for messages.

    Raises:
        SpecError: there is no answer, or a given offset never existed, and the position
            doesn't say what to do then.
        DataLossError: a given offset lies below the log start.
        OpenTransactionError: a given or committed offset lies behind a transaction that
            is still open.
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
    """The position at which topic-partitions begin that join the pipeline now.

    It is the source's `start`; but `latest` is the log's end at the time of the first
    window, so for those that join later it is the log's start, as in Flink.

    Args:
        source: the source's settings.
        window: the position at which the window begins in which they join.
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
    """The marks of a boundary at these positions."""
    return [
        Mark(tp.topic, tp.partition, p.offset, "position", p.leader_epoch)
        for tp, p in offsets.items()
    ]


def add_witness(offset: int, end: OffsetAndEpoch) -> OffsetAndEpoch:
    """An offset with its witness (`Mark`): the leader epoch of an end of the log.

    None if the offset lies beyond that end.
    """
    return OffsetAndEpoch(offset, end.leader_epoch if offset <= end.offset else None)


def _at_time(broker: Broker, start: AtTime, ends: Positions, setting: str) -> Positions:
    """Resolves an instant by Kafka's own answer.

    If that is a message that isn't decided yet, or arrived after the stable end was asked,
    the position is the stable end, so that no message is left out.
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
    """Resolves a group's offsets; one outside of the log counts as no answer."""
    committed = broker.committed(start.group, list(ends))
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
    """The ends, asked again for logs in which an offset is wanted that lies beyond its end.

    The log may have reached it since. Such an end only says that the log holds the offset;
    it is no position.

    Raises:
        OpenTransactionError: an offset is in the log, and behind the stable end.
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
    """The answers, with log starts or stable ends in the place of missing ones."""
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
