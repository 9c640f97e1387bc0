"""The settings of a source: which topics, where to start, what to do after a loss.

The names are those of Flink's Kafka source. An `Initializer` is Flink's OffsetsInitializer
(`earliest()`, `latest()`, `timestamp()`, `committedOffsets()`, `offsets()`). It also
decides the cases that Flink leaves open: no message at or after an instant, no committed
offset, no offset given for a partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.instants import parse_instant
from windrow.ingest.model.plan import Split

Isolation = Literal["read_committed", "read_uncommitted"]
OnLoss = Literal["fail", "skip"]
OnRemoved = Literal["fail", "drop"]
Joining = Literal["start", "window"]
Reset = Literal["fail", "earliest", "latest"]
"""The reaction if a position has no answer: an error, the log's start, or its stable end."""

# --------------------------------------------------------------------------------------------------


class Topics(msgspec.Struct, frozen=True, tag="topics"):
    """Topics by name, with all their partitions, including partitions that are added later.

    All topics must exist.
    """

    names: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True, tag="pattern"):
    """Every topic whose whole name matches the regular expression.

    Topics that are created later are included. Kafka's internal topics aren't.
    """

    expression: str

    def matches(self, topic: str) -> bool:
        """Returns whether the pattern selects the topic."""
        return re.fullmatch(self.expression, topic) is not None


class Partitions(msgspec.Struct, frozen=True, tag="partitions"):
    """Exactly these topic-partitions."""

    tps: tuple[TopicPartition, ...]


Selection = Topics | Pattern | Partitions


def selects(selection: Selection, tp: TopicPartition) -> bool:
    """Returns whether the selection contains a topic-partition."""
    if isinstance(selection, Partitions):
        return tp in selection.tps
    return (
        selection.matches(tp.topic)
        if isinstance(selection, Pattern)
        else tp.topic in selection.names
    )


def selection_text(selection: Selection) -> str:
    """Returns the selection in words, for people."""
    if isinstance(selection, Pattern):
        return f"topics matching {selection.expression}"
    return (
        ", ".join(selection.names)
        if isinstance(selection, Topics)
        else ", ".join(map(str, selection.tps))
    )


# --------------------------------------------------------------------------------------------------


class AtLabel(msgspec.Struct, frozen=True, tag="label"):
    """The position where the first window's label cuts the log, by the settled rule.

    The first window then has the messages that belong to it by time, and no earlier ones.
    """


class Earliest(msgspec.Struct, frozen=True, tag="earliest"):
    """The position at the log's first offset."""


class Latest(msgspec.Struct, frozen=True, tag="latest"):
    """The position at the log's end.

    The end is the last stable offset, or with read_uncommitted the high watermark.
    """


class AtTime(msgspec.Struct, frozen=True, tag="timestamp"):
    """The position at the first offset at or after an instant, as Kafka answers it.

    Attributes:
        moment: the instant.
        no_match: the reaction if the log has no such offset.
    """

    moment: datetime
    no_match: Reset = "latest"


class GroupOffsets(msgspec.Struct, frozen=True, tag="committed"):
    """The position at the offsets that a consumer group has committed.

    Attributes:
        group: the consumer group.
        reset: the reaction for a partition without a committed offset.
    """

    group: str
    reset: Reset = "fail"


class Given(msgspec.Struct, frozen=True, tag="offsets"):
    """Positions at given offsets.

    Attributes:
        offsets: the offset of each of some topic-partitions.
        others: the position in all other topic-partitions.
    """

    offsets: tuple[tuple[TopicPartition, int], ...]
    others: Reset | GroupOffsets = "fail"


Initializer = AtLabel | Earliest | Latest | AtTime | GroupOffsets | Given

_PAIR = re.compile(r"partition:(\d{1,19}),offset:(\d{1,19})")


def flink_offsets(text: str) -> dict[int, int]:
    """Reads offsets by partition in Flink's form: `partition:0,offset:42;partition:1,offset:300`.

    Raises:
        ValueError: the text has another form, or names a partition twice.
    """
    offsets: dict[int, int] = {}
    for number, part in enumerate(text.strip().rstrip(";").split(";"), start=1):
        match = _PAIR.fullmatch(re.sub(r"\s", "", part))
        if match is None:
            raise ValueError(f"part {number} is not of the form partition:0,offset:42")
        if int(match[1]) in offsets:
            raise ValueError(f"partition {int(match[1])} is given twice")
        offsets[int(match[1])] = int(match[2])
    return offsets


def parse_initializer(text: str, topics: Iterable[str]) -> Initializer:
    """Reads a position as it is written on a command line.

    These forms are accepted:

    - `earliest`
    - `latest`
    - `timestamp:2026-01-02T03:00:00Z`, or epoch milliseconds as in
      `timestamp:1767322800000`
    - `committed:GROUP`
    - Flink's `partition:0,offset:42;partition:1,offset:300`

    `?fail`, `?earliest` or `?latest` may follow the last three forms, as in
    `committed:GROUP?earliest`. It says what happens if the position has no answer.

    Args:
        text: the position.
        topics: the topics that are read. Offsets by partition need exactly one topic.

    Raises:
        SpecError: the text has none of these forms.
    """
    position, _, reset = text.strip().partition("?")
    kind, _, value = position.partition(":")
    if reset and (reset not in {"fail", "earliest", "latest"} or kind in {"earliest", "latest"}):
        raise _position_error(
            text,
            "write fail, earliest or latest after the ?, and no ? after earliest or latest"
            " themselves",
        )
    more = {} if not reset else {_RESETS.get(kind, "others"): reset}
    try:
        if position in {"earliest", "latest"}:
            return Earliest() if position == "earliest" else Latest()
        if kind == "timestamp":
            return msgspec.convert({"moment": moment(value), **more}, AtTime)
        if kind == "committed" and value:
            return msgspec.convert({"group": value, **more}, GroupOffsets)
        if kind == "partition":
            return msgspec.structs.replace(to_given(flink_offsets(position), topics), **more)
    except ValueError as error:
        raise _position_error(text, str(error)) from None
    raise _position_error(
        text,
        "it is none of earliest, latest, timestamp:INSTANT, committed:GROUP,"
        " partition:0,offset:42;...",
    )


_RESETS = {"timestamp": "no_match", "committed": "reset"}


def to_given(offsets: dict[int, int], topics: Iterable[str]) -> Given:
    """Converts offsets by partition to a position, for the only topic that is read.

    Raises:
        ValueError: there isn't exactly one topic.
    """
    names = list(topics)
    if len(names) != 1:
        raise ValueError("offsets by partition alone need exactly one topic: write them by topic")
    return Given(tuple(sorted((TopicPartition(names[0], p), o) for p, o in offsets.items())))


def moment(text: str) -> datetime:
    """Reads an ISO instant or epoch milliseconds.

    Raises:
        ValueError: the text is neither, or an instant without a time zone.
    """
    if not text.strip().isdecimal():
        return parse_instant(text)
    try:
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError("these epoch milliseconds lie outside the calendar") from None


def _position_error(text: str, reason: str) -> SpecError:
    return SpecError(
        f"{text!r} is not a position: {reason}",
        "spec",
        f"{f'Is timestamp:{text} meant? ' if text[:1].isdigit() else ''}windrow peek --help lists"
        " the forms of a position.",
    )


# --------------------------------------------------------------------------------------------------


class FrozenStop(msgspec.Struct, frozen=True):
    """The end of a pipeline's micro-batches.

    Attributes:
        position: `window.stop` of the spec.
        boundary: the offsets that the position was resolved to, exclusive. Its label is
            that of the micro-batch with which the end was frozen. A topic-partition without
            a mark here was created later, and isn't read.
    """

    position: Initializer
    boundary: Boundary

    def remaining_offsets(self, reached: Boundary) -> dict[TopicPartition, int]:
        """Returns the number of offsets between a boundary and the end, by topic-partition.

        Topic-partitions without such offsets are left out, and so are those that were
        removed.
        """
        marks = reached.cuts(mark.tp for mark in self.boundary.marks)
        return {
            end.tp: remaining
            for end in self.boundary.marks
            if (mark := marks.get(end.tp)) is None or mark.origin != "removed"
            if (remaining := end.offset - (0 if mark is None else mark.offset)) > 0
        }

    def covers(self, splits: Iterable[Split]) -> bool:
        """Returns whether all splits end before or at the frozen end."""
        ends = self.boundary.by_tp()
        return all(split.tp in ends and split.stop <= ends[split.tp].offset for split in splits)


class Source(msgspec.Struct, frozen=True):
    """The settings of the source that planning needs.

    Attributes:
        selection: the topics to read.
        start: where the first window starts.
        on_removed: the reaction to a topic that was deleted.
        on_loss: the reaction to messages that are gone before they were read.
        joining: where a topic-partition begins that joins later.
        stop: the frozen end of the micro-batches, if there is one.
    """

    selection: Selection
    start: Initializer = AtLabel()
    on_removed: OnRemoved = "fail"
    on_loss: OnLoss = "fail"
    joining: Joining = "start"
    stop: FrozenStop | None = None
