"""Resolves start positions (Flink's OffsetsInitializer) to offsets that the log holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from windrow.ingest.errors import DataLossError, OpenTransactionError, SpecError
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.label import instant
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
class _Wanted:
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
    tps: Sequence[TopicPartition],
    setting: str = "source.start",
) -> Positions:
    """Resolves a position in each topic-partition: between log start and stable end.

    Args:
        broker: the cluster; its isolation level decides which offset is the stable end.
        initializer: any position but `AtLabel`, which needs a label.
        tps: the topic-partitions.
        setting: the setting that says the position, for messages.

    Raises:
        SpecError: there is no answer, or a given offset never existed, and the position
            doesn't say what to do then.
        DataLossError: a given offset lies below the log start.
        OpenTransactionError: a given or committed offset lies behind a transaction that
            is still open.
    """
    if not tps:
        return {}
    match initializer:
        case Earliest():
            return _earliest(broker, tps)
        case Latest():
            return broker.stable_ends(tps)
        case AtTime():
            return _at_time(broker, initializer, tps, setting)
        case GroupOffsets():
            return _committed(broker, initializer, tps, setting)
        case Given():
            return _given(broker, initializer, tps, setting)
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


def witnessed(offset: int, end: OffsetAndEpoch) -> OffsetAndEpoch:
    """An offset with its witness (`Mark`): the leader epoch of an end of the log.

    None if the offset lies beyond that end.
    """
    return OffsetAndEpoch(offset, end.leader_epoch if offset <= end.offset else None)


def _earliest(broker: Broker, tps: Sequence[TopicPartition]) -> Positions:
    starts = broker.log_starts(tps)
    ends = broker.stable_ends(tps)
    return {tp: witnessed(offset, ends[tp]) for tp, offset in starts.items()}


def _at_time(
    broker: Broker, start: AtTime, tps: Sequence[TopicPartition], setting: str
) -> Positions:
    """Resolves an instant by Kafka's own answer.

    If that is a message that isn't decided yet, the position is the stable end, so that
    no message is left out.
    """
    hits = broker.first_at_or_after(tps, start.moment)
    ends = broker.stable_ends(tps)
    answers = {
        tp: ends[tp] if hit is not None and hit.offset > ends[tp].offset else hit
        for tp, hit in hits.items()
    }
    nothing = f"No message is stamped {instant(start.moment)} or later"
    wanted = _Wanted(answers, f"{setting}.no_match", start.no_match, lambda _: nothing)
    return _filled(broker, wanted)


def _committed(
    broker: Broker, start: GroupOffsets, tps: Sequence[TopicPartition], setting: str
) -> Positions:
    """Resolves a group's offsets; one outside of the log counts as no answer."""
    committed = broker.committed(start.group, tps)
    starts, ends = broker.log_starts(tps), broker.stable_ends(tps)
    _refuse_undecided(
        broker, {tp: o for tp, o in committed.items() if o is not None}, ends, setting
    )
    inside = {
        tp: None if o is None or not starts[tp] <= o <= ends[tp].offset else witnessed(o, ends[tp])
        for tp, o in committed.items()
    }

    def nothing(tp: TopicPartition) -> str:
        range_of_log = f", and the log holds {starts[tp]} to {ends[tp].offset}"
        return (
            f"Group {start.group} has committed"
            f" {'nothing' if committed[tp] is None else f'offset {committed[tp]}{range_of_log}'}"
        )

    return _filled(broker, _Wanted(inside, f"{setting}.reset", start.reset, nothing))


def _given(broker: Broker, start: Given, tps: Sequence[TopicPartition], setting: str) -> Positions:
    asked = set(tps)
    given = {tp: offset for tp, offset in start.offsets if tp in asked}
    if isinstance(start.others, GroupOffsets):
        others = [tp for tp in tps if tp not in given]
        found = _committed(broker, start.others, others, setting) if others else {}
        return found | _given(broker, Given(start.offsets), list(given), setting)
    starts, ends = broker.log_starts(list(given)), broker.stable_ends(list(given))
    _refuse_undecided(broker, given, ends, setting)
    for tp, offset in given.items():
        what = (
            f"Offset {offset} is given as the start, and the log holds {starts[tp]} to"
            f" {ends[tp].offset}"
        )
        if offset < starts[tp]:
            do = f"Retention has removed earlier messages: give {starts[tp]}, or start: earliest."
            raise DataLossError(what, "plan", do, tp.topic, tp.partition, offset)
        if offset > ends[tp].offset:
            raise SpecError(
                what,
                "plan",
                "Give an offset that the log holds, or start: latest.",
                tp.topic,
                tp.partition,
                offset,
            )
    answers = {tp: witnessed(given[tp], ends[tp]) if tp in given else None for tp in tps}
    return _filled(
        broker,
        _Wanted(answers, f"{setting}.others", start.others, "No offset is given for {}".format),
    )


def _refuse_undecided(
    broker: Broker,
    wanted: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, OffsetAndEpoch],
    setting: str,
) -> None:
    """Refuses an offset between the stable end and the log's end: it is too early for it."""
    behind = sorted(tp for tp, offset in wanted.items() if offset > ends[tp].offset)
    for tp, end in (broker.ends(behind) if behind else {}).items():
        if wanted[tp] <= end:
            raise OpenTransactionError(
                f"The {setting.rpartition('.')[2]}, offset {wanted[tp]}, lies behind a transaction"
                f" that is open since offset {ends[tp].offset}",
                "plan",
                "Run it again when the transaction has ended.",
                tp.topic,
                tp.partition,
                ends[tp].offset,
            )


def _filled(broker: Broker, wanted: _Wanted) -> Positions:
    """The answers, with log starts or stable ends in the place of missing ones."""
    without = [tp for tp, answer in wanted.answers.items() if answer is None]
    if without and wanted.reset == "fail":
        do = (
            "Write ?earliest or ?latest behind a position on the command line; of a spec's set"
            f" {wanted.option} to earliest or latest. Or name another position."
        )
        raise SpecError(
            wanted.nothing(without[0]), "plan", do, without[0].topic, without[0].partition
        )
    filled = positions(broker, Earliest() if wanted.reset == "earliest" else Latest(), without)
    return {tp: filled[tp] if answer is None else answer for tp, answer in wanted.answers.items()}
