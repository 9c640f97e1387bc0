"""What a source can be told: which topics, where to begin, what to do about loss.

Values only, the words of Flink's Kafka source.

An `Initializer` is Flink's OffsetsInitializer (`earliest()`, `latest()`, `timestamp()`,
`committedOffsets()`, `offsets()`), with what Flink leaves to chance made explicit: no
message at or after an instant, no committed offset, a partition that no offset is given
for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.instants import parse_instant

Isolation = Literal["read_committed", "read_uncommitted"]
OnLoss = Literal["fail", "skip"]
OnRemoved = Literal["fail", "drop"]
Reset = Literal["fail", "earliest", "latest"]
"""Where there is no answer: an error, the log's start, or its (stable) end."""

# --------------------------------------------------------------------------------------------------


class Topics(msgspec.Struct, frozen=True, tag="topics"):
    """These topics with all their partitions, also those that are added later.

    Each must be there.
    """

    names: tuple[str, ...]


class Pattern(msgspec.Struct, frozen=True, tag="pattern"):
    """Every topic whose whole name matches the regular expression, also one that is
    made later; never Kafka's internal ones.
    """

    expression: str

    def matches(self, topic: str) -> bool:
        """Whether the topic is among them."""
        return re.fullmatch(self.expression, topic) is not None


class Partitions(msgspec.Struct, frozen=True, tag="partitions"):
    """Exactly these topic-partitions."""

    tps: tuple[TopicPartition, ...]


Selection = Topics | Pattern | Partitions


def selects(selection: Selection, tp: TopicPartition) -> bool:
    """Whether a topic-partition is selected."""
    if isinstance(selection, Partitions):
        return tp in selection.tps
    return (
        selection.matches(tp.topic)
        if isinstance(selection, Pattern)
        else tp.topic in selection.names
    )


def selection_text(selection: Selection) -> str:
    """The selection in words, for people."""
    if isinstance(selection, Pattern):
        return f"topics matching {selection.expression}"
    return (
        ", ".join(selection.names)
        if isinstance(selection, Topics)
        else ", ".join(map(str, selection.tps))
    )


# --------------------------------------------------------------------------------------------------


class AtLabel(msgspec.Struct, frozen=True, tag="label"):
    """Where the label itself cuts the log (the settled rule): what belongs to the first
    window by its time, and nothing before.
    """


class Earliest(msgspec.Struct, frozen=True, tag="earliest"):
    """The log's start."""


class Latest(msgspec.Struct, frozen=True, tag="latest"):
    """The log's end: the last stable offset, under read_uncommitted the high watermark."""


class AtTime(msgspec.Struct, frozen=True, tag="timestamp"):
    """Kafka's own answer: the first offset at or after the instant; `no_match`: what if
    there is none.
    """

    moment: datetime
    no_match: Reset = "latest"


class GroupOffsets(msgspec.Struct, frozen=True, tag="committed"):
    """What a consumer group has committed; `reset`: what if it has not, for some partition."""

    group: str
    reset: Reset = "fail"


class Given(msgspec.Struct, frozen=True, tag="offsets"):
    """These offsets; `others`: what of a topic-partition that isn't among them."""

    offsets: tuple[tuple[TopicPartition, int], ...]
    others: Reset = "fail"


Initializer = AtLabel | Earliest | Latest | AtTime | GroupOffsets | Given

_PAIR = re.compile(r"partition:(\d{1,19}),offset:(\d{1,19})")


def flink_offsets(text: str) -> dict[int, int]:
    """Flink's grammar of specific offsets,
    `partition:0,offset:42;partition:1,offset:300`: offsets by partition.

    Raises:
        ValueError: says what is wrong.
    """
    found: dict[int, int] = {}
    for number, part in enumerate(text.strip().rstrip(";").split(";"), start=1):
        match = _PAIR.fullmatch(re.sub(r"\s", "", part))
        if match is None:
            raise ValueError(f"part {number} is not of the form partition:0,offset:42")
        if int(match[1]) in found:
            raise ValueError(f"partition {int(match[1])} stands there twice")
        found[int(match[1])] = int(match[2])
    return found


def parse_initializer(text: str, topics: Iterable[str]) -> Initializer:
    """A position as it is written on a command line.

    `earliest`, `latest`, `timestamp:2026-01-02T03:00:00Z` or `timestamp:1767322800000`
    (epoch milliseconds), `committed:GROUP`, or Flink's
    `partition:0,offset:42;partition:1,offset:300`. After a `?` what to do where there
    is no answer: `timestamp:...?fail`, `committed:GROUP?earliest`,
    `partition:0,offset:42?latest`.

    Args:
        text: the position.
        topics: those that are read; specific offsets need exactly one.

    Raises:
        SpecError: it is none of these.
    """
    whole, _, reset = text.strip().partition("?")
    kind, _, value = whole.partition(":")
    if reset and (reset not in {"fail", "earliest", "latest"} or kind in {"earliest", "latest"}):
        raise _wrong(
            text,
            "after the ? comes fail, earliest or latest, and not after earliest or latest"
            " themselves",
        )
    more = {} if not reset else {_RESETS.get(kind, "others"): reset}
    try:
        if whole in {"earliest", "latest"}:
            return Earliest() if whole == "earliest" else Latest()
        if kind == "timestamp":
            return msgspec.convert({"moment": moment(value), **more}, AtTime)
        if kind == "committed" and value:
            return msgspec.convert({"group": value, **more}, GroupOffsets)
        if kind == "partition":
            return msgspec.structs.replace(given(flink_offsets(whole), topics), **more)
    except ValueError as error:
        raise _wrong(text, str(error)) from None
    raise _wrong(
        text,
        "it is none of earliest, latest, timestamp:INSTANT, committed:GROUP,"
        " partition:0,offset:42;...",
    )


_RESETS = {"timestamp": "no_match", "committed": "reset"}


def given(offsets: dict[int, int], topics: Iterable[str]) -> Given:
    """Offsets by partition, of the one topic that is read.

    Raises:
        ValueError: not exactly one topic is read.
    """
    names = list(topics)
    if len(names) != 1:
        raise ValueError("offsets by partition alone need exactly one topic: write them by topic")
    return Given(tuple(sorted((TopicPartition(names[0], p), o) for p, o in offsets.items())))


def moment(text: str) -> datetime:
    """An ISO instant, or epoch milliseconds.

    Raises:
        ValueError: it is neither, or an instant without an offset.
    """
    if not text.strip().isdecimal():
        return parse_instant(text)
    try:
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError("epoch milliseconds of that size are no instant") from None


def _wrong(text: str, why: str) -> SpecError:
    return SpecError(
        f"{text!r} is not a position: {why}",
        "spec",
        "See windrow peek --help for what a position can be.",
    )


# --------------------------------------------------------------------------------------------------


class Source(msgspec.Struct, frozen=True):
    """What planning needs to know of where the messages come from."""

    selection: Selection
    start: Initializer = AtLabel()
    on_removed: OnRemoved = "fail"
    on_loss: OnLoss = "fail"
