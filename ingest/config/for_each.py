"""The section `for_each`: a file with one pipeline for each of its topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from windrow.ingest.config.source import TopicPattern, topic_names
from windrow.ingest.settings.values import Section, TopicName, Values, refuse

FOR_EACH = "for_each"
"""The section's name."""

NAME = "{name}"
"""What stands for a topic's name in the settings of a file with several pipelines."""


def _by_name(written: object) -> object:
    """Converts a list of topics to a mapping of them, without settings of their own."""
    if isinstance(written, Mapping):
        return {topic: {} if own is None else own for topic, own in written.items()}
    return {topic: {} for topic in topic_names(written)}


_JSON = {
    "anyOf": [
        {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
        {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
    ]
}


class ForEachSpec(Section):
    """The topics that have a pipeline each, with the settings in which one differs."""

    topics: Annotated[
        Mapping[TopicName, Mapping[str, Any]],
        BeforeValidator(_by_name),
        Field(min_length=1),
        WithJsonSchema(_JSON),
        Values("a list of names, or `{TOPIC: {SETTINGS}}`"),
    ] = Field(
        description=(
            "The topics. In a mapping, a topic has the settings in which its pipeline differs from"
            " the others, such as `{window: {grid: daily}}`: a section is merged setting by"
            " setting, any other value is replaced, and `null` takes a setting out."
        )
    )
    topic_pattern: TopicPattern | None = Field(
        default=None,
        description=(
            "What the whole name of each topic matches. `{name}` is what the first group matches;"
            " the whole name if the pattern has no group, or if there is no pattern. A topic of the"
            " cluster that matches and isn't among `topics` is a warning of `windrow doctor` and of"
            " a check in Dagster."
        ),
    )

    @model_validator(mode="after")
    def _names_match(self) -> Self:
        """Refuses topics that don't match the pattern, or of which its group matches nothing."""
        refuse_unlike = [
            (("topics", topic), f"doesn't match for_each.topic_pattern {self.topic_pattern!r}")
            for topic in self.topics
            if not self.name_of(topic)
        ]
        if refuse_unlike:
            refuse(refuse_unlike)
        return self

    def name_of(self, topic: str) -> str:
        """Returns what stands for a topic in its settings; "" if it doesn't match the pattern."""
        if self.topic_pattern is None:
            return topic
        match = re.fullmatch(self.topic_pattern, topic)
        return "" if match is None else (match[1] if match.re.groups else match[0]) or ""

    def settings_of(self, topic: str, common: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the settings of a topic's pipeline.

        Args:
            topic: the topic.
            common: what the file has beside `for_each`.
        """
        settings: Mapping[str, Any] = _filled(
            merged(common, self.topics[topic]), self.name_of(topic)
        )
        source = settings.get("source")
        return (
            {**settings, "source": {**source, "topic": topic}}
            if isinstance(source, Mapping)
            else settings
        )


def merged(settings: object, patch: object) -> Any:
    """Returns settings with others laid over them, as a JSON Merge Patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    both = dict(settings) if isinstance(settings, Mapping) else {}
    for name, setting in patch.items():
        if setting is None:
            both.pop(name, None)
        else:
            both[name] = merged(both.get(name), setting)
    return both


def _filled(settings: Any, name: str) -> Any:
    if isinstance(settings, Mapping):
        return {key: _filled(setting, name) for key, setting in settings.items()}
    if isinstance(settings, list):
        return [_filled(setting, name) for setting in settings]
    return settings.replace(NAME, name) if isinstance(settings, str) else settings
