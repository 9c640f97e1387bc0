"""The `source` section: topics, start position, guarantees, tuning."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from windrow.ingest.config.cluster import TuningSpec
from windrow.ingest.config.position import ByTopic, PositionSpec, Start, position_of
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.grid import BATCH
from windrow.ingest.model.source import (
    Isolation,
    Joining,
    OnLoss,
    OnRemoved,
    Partitions,
    Pattern,
    Selection,
    Source,
    Topics,
)
from windrow.ingest.registry.settings import RegistrySpec
from windrow.ingest.settings.document import SettingPath, nearest
from windrow.ingest.settings.values import (
    PARTITION_MAX,
    ClientProperties,
    ClusterName,
    CountOrNone,
    Default,
    OrNone,
    Section,
    Servers,
    Text,
    TopicName,
    Values,
    refuse,
    sentence,
    topic_name,
)

_CLUSTER = ("cluster", "bootstrap_servers")
SELECTING = ("topic", "topic_pattern", "partitions")
_PATTERN_MAX = 1000


def _topics(value: object) -> str | tuple[str, ...]:
    """Validates a topic's name, or a list of names."""
    return topic_names(value) if isinstance(value, list | tuple) else _name(value)


def topic_names(value: object) -> tuple[str, ...]:
    """Validates a list of topics' names."""
    if not isinstance(value, list | tuple):
        raise sentence("must be a list of topics")
    names = tuple(_name(name) for name in value)
    if not names:
        raise sentence("must name at least one topic")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise sentence(f"names {', '.join(twice)} twice")
    return names


def _name(value: object) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise sentence("must be a topic name, or a list of them", value)
    if is_pattern(str(value)):
        raise sentence("is a pattern: set topic_pattern, a regular expression, in its place")
    try:
        return topic_name(str(value))
    except ValueError as error:
        raise sentence(str(error), value) from None


def is_pattern(topic: str) -> bool:
    """Returns whether a text is a regular expression, not the name of a topic."""
    return not {*topic}.isdisjoint("*?+|()[]^$")


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        reason = error.msg if isinstance(error, re.error) else "too large"
        raise ValueError(
            f"must be a regular expression, which the whole name has to match: {reason}"
        ) from None
    return value


def _partitions(value: tuple[int, ...]) -> tuple[int, ...]:
    if not value:
        raise sentence("must name at least one partition")
    twice = sorted({p for p in value if value.count(p) > 1})
    if twice:
        raise sentence(f"names partition {', '.join(map(str, twice))} twice")
    return tuple(sorted(value))


def _require_topics(value: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    if not value:
        raise sentence("must name at least one topic with its partitions")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool | float):
        raise sentence("must be a partition's number, 0 or more", value)
    return value


_A_NAME = {"type": ["string", "integer"]}
_TopicList = Annotated[
    str | tuple[str, ...],
    PlainValidator(_topics),
    WithJsonSchema(
        {
            "anyOf": [
                _A_NAME,
                {"type": "array", "items": _A_NAME, "minItems": 1, "uniqueItems": True},
            ]
        }
    ),
]
TopicPattern = Annotated[
    Text,
    Field(max_length=_PATTERN_MAX),
    AfterValidator(_pattern),
    Values("a regular expression"),
]
_Partition = Annotated[int, BeforeValidator(_number), Field(ge=0, le=PARTITION_MAX)]
_Partitions = Annotated[tuple[_Partition, ...], AfterValidator(_partitions)]
_ByTopic = Annotated[Mapping[TopicName, _Partitions], AfterValidator(_require_topics)]


class SourceSpec(Section):
    """The topics, and how to read them.

    `cluster` names a cluster of a windrow.yaml, instead of `bootstrap_servers`. `client`
    and `tuning` then override the settings of that cluster
    (`ingest.config.cluster.ClusterSpec.under`).
    """

    cluster: Annotated[ClusterName | None, Values("a name")] = Field(
        default=None,
        description=(
            "The cluster, by its name in a `windrow.yaml`; or it is given here, by"
            " `bootstrap_servers`."
        ),
    )
    bootstrap_servers: Servers | None = Field(
        default=None, description="The cluster's first addresses."
    )
    topic: Annotated[_TopicList | None, Values("a name, or a list of them")] = Field(
        default=None, description="Reads these topics, with partitions that are added later."
    )
    topic_pattern: TopicPattern | None = Field(
        default=None,
        description="Reads every topic whose whole name matches, also one that is made later.",
    )
    partitions: Annotated[_ByTopic | None, Values("`{TOPIC: [0, 1]}`")] = Field(
        default=None, description="Reads exactly these topic-partitions."
    )
    on_removed: OnRemoved = Field(
        default="fail",
        description="What to do about a topic that is gone: refuse, or go on without it.",
    )
    start: Annotated[Start | None, Default("`label`; micro-batches: `earliest`")] = Field(
        default=None,
        description=(
            "Where the first window begins in the log: where its time begins (`label`), or a"
            " position, which is exactly one of `timestamp`, `committed` and `offsets`, and what to"
            " do where it has no answer."
        ),
    )
    joining: Joining = Field(
        default="start",
        description=(
            "Where a topic begins that is read only later, as it is new to the pattern or to the"
            " list: where it would have begun in the first window (`start`; of `latest` it is the"
            " log's start), so that its past is read into the window in which it joins; or where"
            " that window begins (`window`), without its past."
        ),
    )
    isolation: Isolation = Field(
        default="read_committed",
        description="Whether messages of open and aborted transactions are read.",
    )
    on_loss: OnLoss = Field(
        default="fail",
        description=(
            "What to do about messages that retention, or a log that was cut off, removed before"
            " they were read: refuse, or go on and count them in the receipt."
        ),
    )
    split_records: CountOrNone = Field(
        default=None,
        description=(
            "The most offsets in one split, so that several tasks read one topic-partition. `none`:"
            " any number."
        ),
    )
    offsets_group: Annotated[Text | None, OrNone, Values("a consumer group, `none`")] = Field(
        default=None,
        description=(
            "The group that gets the offsets of committed windows, for tools that show lag; nothing"
            " is read from it."
        ),
    )
    tuning: TuningSpec = Field(
        default=TuningSpec(),
        description="How much a task decodes at once, and how long it waits.",
    )
    client: ClientProperties = Field(
        default_factory=dict,
        repr=False,
        description=(
            "Properties of librdkafka, out of an allow-list: security, connections, the rack, how"
            " much is fetched ahead."
        ),
    )
    registry: RegistrySpec | None = Field(
        default=None,
        description=(
            "The schema registry, where a format asks one and the cluster's isn't given in a"
            " `windrow.yaml`."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Refuses none or several settings for the cluster, or for the topics."""
        meant = {
            nearest(str(name), tuple(cls.model_fields))
            for name in written
            if name not in cls.model_fields
        }
        yield from _which_cluster(written, meant)
        chosen = [name for name in SELECTING if written.get(name) is not None]
        if not chosen and not meant & {*SELECTING}:
            yield (
                (),
                (
                    "Either 'topic', 'topic_pattern' or 'partitions' must be set: nothing says"
                    " which topics are read"
                ),
            )
        for name in chosen[1:]:
            yield (
                (name,),
                (
                    f"'{chosen[0]}' and '{name}' must not be set together: exactly one says which"
                    " topics are read"
                ),
            )

    @field_validator("start")
    @classmethod
    def _start_fits(
        cls, start: str | PositionSpec | None, info: ValidationInfo
    ) -> str | PositionSpec | None:
        """Refuses offsets of topics that are not read.

        `info.data` has those of the earlier fields that are valid.
        """
        chosen = {name: info.data[name] for name in SELECTING if info.data.get(name) is not None}
        if len(chosen) == 1 and (mistakes := list(unread(_selection(**chosen), start))):
            refuse(mistakes)
        return start

    def selection(self) -> Selection:
        """Returns the topic-partitions to read."""
        return _selection(self.topic, self.topic_pattern, self.partitions)

    def topic_names(self) -> tuple[str, ...]:
        """Returns the named topics; none for a pattern."""
        return _names(self.selection())

    def for_planning(self, grid: str) -> Source:
        """Returns the source in the form that planning needs.

        By default, windows in time begin where their first label cuts the log, and
        micro-batches begin at the log's start.
        """
        start = self.start or ("earliest" if grid == BATCH else "label")
        initializer = position_of(start, self.topic_names())
        return Source(self.selection(), initializer, self.on_removed, self.on_loss, self.joining)


def _which_cluster(
    written: Mapping[str, Any], meant: Collection[str | None]
) -> Iterator[tuple[SettingPath, str]]:
    named = [name for name in _CLUSTER if name in written]
    if not named and not {*meant} & {*_CLUSTER}:
        yield (
            ("bootstrap_servers",),
            "is missing, and so is cluster: one of them says which cluster is read",
        )
    if named and all(written[name] is None for name in named):
        yield (named[0],), "must not be empty"
    if all(written.get(name) is not None for name in _CLUSTER):
        yield (
            ("bootstrap_servers",),
            (
                "'cluster' and 'bootstrap_servers' must not be set together: exactly one says which"
                " cluster is read"
            ),
        )


def _selection(
    topic: str | tuple[str, ...] | None = None,
    topic_pattern: str | None = None,
    partitions: Mapping[str, tuple[int, ...]] | None = None,
) -> Selection:
    if topic_pattern is not None:
        return Pattern(topic_pattern)
    if partitions is not None:
        return Partitions(
            tuple(
                sorted(
                    TopicPartition(name, p) for name, numbers in partitions.items() for p in numbers
                )
            )
        )
    assert topic is not None
    return Topics((topic,) if isinstance(topic, str) else topic)


def _names(selection: Selection) -> tuple[str, ...]:
    if isinstance(selection, Pattern):
        return ()
    return (
        selection.names
        if isinstance(selection, Topics)
        else tuple(sorted({tp.topic for tp in selection.tps}))
    )


def unread(
    selection: Selection, position: str | PositionSpec | None
) -> Iterator[tuple[SettingPath, str]]:
    """Finds offsets in a position for topic-partitions that are not read, as mistakes."""
    if isinstance(position, PositionSpec) and position.offsets is not None:
        for path, message in _unread(selection, position.offsets):
            yield ("offsets", *path), message


def _unread(selection: Selection, offsets: ByTopic) -> Iterator[tuple[SettingPath, str]]:
    names = _names(selection)
    if None in offsets and len(names) != 1:
        yield (
            (),
            (
                "offsets by partition alone need exactly one topic: write them by topic, as in"
                " {TOPIC: {0: 42}}"
            ),
        )
        return
    for topic, numbers in ((t or names[0], numbers) for t, numbers in offsets.items()):
        path = () if None in offsets else (topic,)
        if not (selection.matches(topic) if isinstance(selection, Pattern) else topic in names):
            yield path, f"topic {topic} is not among those that are read"
        elif isinstance(selection, Partitions):
            unread = sorted(p for p in numbers if TopicPartition(topic, p) not in selection.tps)
            if unread:
                yield (
                    path,
                    (
                        f"partition {', '.join(map(str, unread))} of {topic} is not among those"
                        " that are read"
                    ),
                )
