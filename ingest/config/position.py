"""Positions in the log, in the forms of `source.start` and `window.stop`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, PlainValidator, Tag, WithJsonSchema

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import (
    AtLabel,
    AtTime,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Latest,
    Reset,
    flink_offsets,
    moment,
)
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import (
    PARTITION_MAX,
    Section,
    Text,
    Values,
    as_instant,
    refuse,
    sentence,
    topic_name,
)

_OFFSET_MAX = 2**63 - 1
_FORMS = {"timestamp": "no_match", "committed": "reset", "offsets": "others"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(value: object) -> datetime:
    """Validates an ISO instant, or epoch milliseconds.

    Instants before 1970 are refused, because negative timestamps have a special meaning for
    Kafka: -1 is the log's end, -2 its start.
    """
    if isinstance(value, bool):
        raise sentence(
            "is not an instant: write it like 2026-01-02T03:00:00Z, or in epoch milliseconds", value
        )
    timestamp = moment(str(value)) if isinstance(value, int | str) else as_instant(value)
    if timestamp < _EPOCH:
        raise ValueError("must not lie before 1970, where Kafka's timestamps begin")
    return timestamp


ByTopic = Mapping[str | None, Mapping[int, int]]
"""Offsets by topic and partition; None: the only topic that is read."""


def _offsets(value: object) -> ByTopic:
    """Validates `{TOPIC: {0: 42}}`, `{0: 42}`, or Flink's `partition:0,offset:42;...`."""
    if isinstance(value, str):
        try:
            return {None: _in_range(flink_offsets(value))}
        except ValueError as error:
            raise sentence(str(error), value) from None
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            "must be offsets by topic and partition, by partition, or a text like"
            " partition:0,offset:42;partition:1,offset:300"
        )
    nested = [isinstance(offsets, Mapping) for offsets in value.values()]
    if not any(nested):
        return {None: _numbers(value)}
    mistakes: list[tuple[SettingPath, str]] = []
    offsets_by_topic: dict[str | None, Mapping[int, int]] = {}
    for topic, offsets in value.items():
        try:
            offsets_by_topic[topic_name(str(topic))] = _numbers(offsets)
        except ValueError as error:
            mistakes.append(((str(topic),), str(error)))
    if mistakes:
        refuse(mistakes)
    return offsets_by_topic


def _numbers(value: object) -> dict[int, int]:
    """Validates offsets by partition. Both may be texts, as keys in YAML are."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError("must be offsets by partition, like {0: 42}")
    pairs = [(str(p).strip(), str(o).strip()) for p, o in value.items()]
    if not all(p.isdecimal() and o.isdecimal() and len(p) < 20 and len(o) < 20 for p, o in pairs):
        raise ValueError("must be offsets by partition, like {0: 42}: whole numbers, 0 or more")
    offset_by_partition = {int(p): int(o) for p, o in pairs}
    if len(offset_by_partition) < len(pairs):
        raise ValueError("names a partition twice")
    return _in_range(offset_by_partition)


def _in_range(offsets: dict[int, int]) -> dict[int, int]:
    if max(offsets) > PARTITION_MAX or max(offsets.values()) > _OFFSET_MAX:
        raise ValueError("no partition or offset is that large")
    return offsets


_BY_PARTITION = {
    "type": "object",
    "additionalProperties": {"type": ["integer", "string"], "minimum": 0},
}
_OFFSETS_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        _BY_PARTITION,
        {"type": "object", "additionalProperties": _BY_PARTITION},
    ]
}


class PositionSpec(Section):
    """A position to look up: exactly one of `timestamp`, `committed` and `offsets`.

    Each has a fallback for topic-partitions without an answer. The fallback of `offsets`
    may be a group's offsets; `committed` then names the group.
    """

    timestamp: (
        Annotated[
            datetime,
            PlainValidator(_moment),
            WithJsonSchema({"type": ["string", "integer"]}),
            Values("an instant with its time zone, or epoch milliseconds"),
        ]
        | None
    ) = Field(default=None, description="The first offset at or after this instant.")
    no_match: Reset = Field(
        default="latest",
        description="The position if there is no message at or after `timestamp`.",
    )
    committed: Annotated[Text | None, Values("a consumer group")] = Field(
        default=None, description="The next offsets that this group has committed."
    )
    reset: Reset = Field(
        default="fail",
        description="The position if the group has committed nothing for a topic-partition.",
    )
    offsets: (
        Annotated[
            ByTopic,
            PlainValidator(_offsets),
            WithJsonSchema(_OFFSETS_SCHEMA),
            Values(
                '`{TOPIC: {0: 42}}`; of one topic also `{0: 42}` or `"partition:0,offset:42;..."`'
            ),
        ]
        | None
    ) = Field(default=None, description="These offsets, by topic and partition.")
    others: Reset | Literal["committed"] = Field(
        default="fail",
        description=(
            "The position in a topic-partition that isn't among `offsets`; `committed`: that of the"
            " group in `committed`."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Refuses no position, several positions, and a fallback without its position."""
        forms = [form for form in _FORMS if written.get(form) is not None]
        if not forms:
            yield (
                (),
                f"says no position: write one of {', '.join(_FORMS)}, or a word alone, as latest",
            )
        of_others = written.get("others") == "committed"
        if of_others and "committed" not in forms:
            yield ("others",), "needs the group whose offsets count: name it in committed"
        for form in forms[1:]:
            if not (of_others and {form, forms[0]} == {"committed", "offsets"}):
                yield (form,), f"it is one position, and {forms[0]} is there already"
        for form, companion in _FORMS.items():
            if companion in written and form not in written:
                yield (companion,), f"belongs to {form}, which isn't there"

    def initializer(self, topics: tuple[str, ...]) -> Initializer:
        """Returns the position in the form that planning needs.

        Args:
            topics: the topics that the source names.
        """
        if self.timestamp is not None:
            return AtTime(self.timestamp, self.no_match)
        group = GroupOffsets(self.committed or "", self.reset)
        if self.offsets is None:
            return group
        offset_pairs = (
            (TopicPartition(t or topics[0], p), o)
            for t, offsets in self.offsets.items()
            for p, o in offsets.items()
        )
        return Given(
            tuple(sorted(offset_pairs)), group if self.others == "committed" else self.others
        )


WORDS: Mapping[str, Initializer] = {"label": AtLabel(), "earliest": Earliest(), "latest": Latest()}


_FLINK = {
    "earliest-offset": "earliest",
    "latest-offset": "latest",
    "group-offsets": "{committed: GROUP}",
    "specific-offsets": "{offsets: {0: 42}}",
}
"""The form in `source.start` and `window.stop` for each of Flink's words."""


def _one_of(*words: str) -> BeforeValidator:
    """Refuses a word that isn't a position; the message also names the sections."""

    def check(value: object) -> object:
        if value in list(words):
            return value
        quoted = " or ".join(", ".join(map(repr, words)).rsplit(", ", 1))
        meant = (
            f"{{timestamp: {value}}}" if str(value)[:1].isdigit() else _FLINK.get(str(value), "")
        )
        hint = f", not {str(value)!r}: is {meant} meant?" if meant in words or "{" in meant else ""
        raise sentence(
            f"must be {quoted}, or a section with {', '.join(_FORMS)}{hint}",
            None if hint else value,
        )

    return BeforeValidator(check)


_FORM = Discriminator(
    lambda value: "~position" if isinstance(value, Mapping | PositionSpec) else "~word"
)
_Section = Annotated[PositionSpec, Tag("~position")]
Start = Annotated[
    Annotated[
        Literal["label", "earliest", "latest"],
        _one_of("label", "earliest", "latest"),
        Tag("~word"),
    ]
    | _Section,
    _FORM,
]
Stop = Annotated[Annotated[Literal["latest"], _one_of("latest"), Tag("~word")] | _Section, _FORM]


def position_of(written: str | PositionSpec, topics: tuple[str, ...]) -> Initializer:
    """Returns a position in the form that planning needs.

    Args:
        written: the position as it is written in the spec.
        topics: the topics that the source names.
    """
    return WORDS[written] if isinstance(written, str) else written.initializer(topics)
