"""Writer of one spec for all topics that match a pattern, and of a schema for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from windrow.ingest.config.for_each import FOR_EACH, NAME, ForEachSpec
from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.infer.new_pipeline import (
    Connect,
    Inferred,
    as_spec,
    draft,
    refuse_present,
    write_files,
)
from windrow.ingest.infer.pipeline_files import SPEC, class_name, flow
from windrow.ingest.infer.request import PipelineRequest
from windrow.ingest.settings.document import read_document
from windrow.ingest.source.enumerator.topics import discover

_HEAD = """\
# Pipelines of windrow: each topic becomes a table. `windrow help settings` lists every setting.
type: windrow.dagster.KafkaTable          # for Dagster; the command reads the attributes only
attributes:
"""


class InferredTopics(msgspec.Struct, frozen=True):
    """Written files of the pipelines of one spec.

    Attributes:
        spec: the path of the spec.
        topics: how well the sample of each topic fits its files.
        omitted: topics that are in no file, each with the reason.
    """

    spec: str
    topics: dict[str, Inferred]
    omitted: dict[str, str] = msgspec.field(name="left_out")

    @property
    def fit(self) -> bool:
        """Whether the sample of every topic fits."""
        return all(inferred.fit for inferred in self.topics.values())

    def describe(self) -> list[str]:
        """Returns lines for the user: the topics, and those that don't fit or are left out."""
        return [
            f"Wrote {self.spec} with {format_count(len(self.topics), 'topic')}, a schema for each.",
            *(
                line
                for topic, inferred in self.topics.items()
                for line in (
                    f"{topic}: {format_count(inferred.columns, 'column')} of format"
                    f" {inferred.format}, {inferred.fitting:,} of"
                    f" {format_count(inferred.sampled, 'message')} would fit."
                    + ("" if inferred.fit else " Don't run it yet: change its files."),
                    *(f"  {hint}" for hint in inferred.describe_unfit()),
                )
            ),
            *(f"Left out: {topic}: {reason}" for topic, reason in self.omitted.items()),
        ]


def infer_topics(
    folder: Path, request: PipelineRequest, max_messages: int, connect: Connect, now: datetime
) -> InferredTopics:
    """Writes a spec with `for_each` of all topics that match the request's pattern.

    The arguments are those of `infer.new_pipeline.infer`. A topic whose format or columns can't
    be inferred is left out.

    Raises:
        SpecError: one of the files exists, an option is wrong, or no topic can be inferred.
            Nothing is written then.
        UnreachableError: as for `infer`.
    """
    refuse_present(folder, SPEC)
    asking = as_spec(folder, "topics", request)
    topics = discover(connect(asking)[0], asking.source.selection(), None, "fail").topics
    for_each = ForEachSpec(topics=[*topics], topic_pattern=request.topic)  # type: ignore[arg-type]
    inferred, omitted = dict[str, Inferred](), dict[str, str]()
    settings, schemas = dict[str, dict[str, Any]](), dict[str, str]()
    for topic in topics:
        name = for_each.name_of(topic)
        try:
            alone, schema, spec = draft(
                folder,
                msgspec.structs.replace(request, topic=topic, id=name),
                max_messages,
                connect,
                now,
            )
        except SpecError as error:
            omitted[topic] = (
                f"{error.message}. {error.advice.removeprefix('Nothing was written. ')}"
            )
            continue
        inferred[topic] = msgspec.structs.replace(alone, schema=str(folder / f"{name}.py"))
        schemas[f"{name}.py"] = schema.replace(f"class {class_name(name)}(", "class Row(", 1)
        settings[topic] = _without_names(read_document(spec).attributes)
    if not settings:
        reasons = " ".join(f"{topic}: {reason}" for topic, reason in omitted.items())
        raise SpecError("No topic can be inferred", "spec", f"Nothing was written. {reasons}")
    write_files(folder, {**schemas, SPEC: _text(request.topic, settings)})
    return InferredTopics(str(folder / SPEC), inferred, omitted)


def _without_names(settings: Any) -> dict[str, Any]:
    """Returns the settings of an inferred pipeline, with `{name}` for what its name is part of."""
    source = {key: setting for key, setting in settings["source"].items() if key != "topic"}
    return {
        **settings,
        "id": NAME,
        "source": source,
        "decode": {**settings["decode"], "schema": f"{NAME}.py:Row"},
        "sink": {**settings["sink"], "path": f"./data/{NAME}"},
    }


def _text(pattern: str, settings_by_topic: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the text of the spec of a pattern's topics, each with all its settings."""
    common = _common([*settings_by_topic.values()])
    lines = [f"  {FOR_EACH}:", f"    topic_pattern: {flow(pattern)}", "    topics:"]
    for topic, settings in settings_by_topic.items():
        own = _difference(common, settings)
        lines.append(f"      {flow(topic)}: {flow(own) if own else ''}".rstrip())
    lines += [f"  {name}: {flow(setting)}" for name, setting in common.items()]
    return _HEAD + "\n".join([*lines, ""])


def _common(sections: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the settings that most sections have, with the value that most of them have."""
    common = dict[str, Any]()
    for name in dict.fromkeys(name for section in sections for name in section):
        having = [section[name] for section in sections if name in section]
        if 2 * len(having) <= len(sections):
            continue
        if all(isinstance(setting, Mapping) for setting in having):
            common[name] = _common(having)
        else:
            text, _ = Counter(map(flow, having)).most_common(1)[0]
            common[name] = next(setting for setting in having if flow(setting) == text)
    return common


def _difference(common: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `config.for_each.merged` lays over common settings to get some settings."""
    difference = dict[str, Any]()
    for name in {**common, **settings}:
        ours, own = common.get(name), settings.get(name)
        if isinstance(ours, Mapping) and isinstance(own, Mapping):
            if below := _difference(ours, own):
                difference[name] = below
        elif ours != own:
            difference[name] = own
    return difference
