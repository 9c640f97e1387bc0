"""Proposes columns by a registry's schemas, and counts the schemas that messages name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.frame import Frame, frames_of
from windrow.ingest.infer.avro import avro_candidates, roots_of
from windrow.ingest.infer.candidates import Candidate, TypeGuess, free_name, over_versions
from windrow.ingest.infer.documents import document
from windrow.ingest.infer.json_schema import json_candidates
from windrow.ingest.infer.proposal import (
    KEEP_KEY,
    Columns,
    Proposal,
    Setting,
    with_json_key,
    with_key,
)
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.schemas import SchemaRegistry
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.messages import MESSAGES

VERSIONS = 20
"""Number of a subject's newest schemas that decide whether a column is nullable."""

FORMATS = {
    "AVRO": "avro-confluent",
    "PROTOBUF": "protobuf-confluent",
    "JSON": "json-schema-confluent",
}
"""The format of messages, by the kind of their schema."""

Part = Literal["key", "value"]
_VALUE = MESSAGES.get_field_index("value")
_FIRST = (0,)
"""The path of the first message type of a Protobuf schema."""


@dataclass(frozen=True)
class FrameCounts:
    """The numbers of keys or values that are null, name no schema (`others`), or have a frame."""

    nulls: int
    others: int
    frames: Counter[Frame]

    @property
    def named(self) -> int:
        """The number of those that name a schema."""
        return self.frames.total()

    @property
    def most(self) -> bool:
        """Returns whether most name a schema."""
        return self.named > self.others

    @property
    def id(self) -> str:
        """The id of the schema that most of them name."""
        ids = Counter[str]()
        for frame, count in self.frames.items():
            ids[frame.id] += count
        return ids.most_common(1)[0][0]


def framed(messages: pa.Table, part: Part, *, paths: bool = False) -> FrameCounts:
    """Counts the frames of messages' keys or values.

    `paths`: whether a frame has a path, as Protobuf's have.
    """
    nulls, others, frames = 0, 0, Counter[Frame]()
    for batch in messages.combine_chunks().to_batches():
        octets = batch.set_column(_VALUE, MESSAGES.field(_VALUE), batch.column(part))
        found = frames_of(octets, Subjects(part=part).header, paths=paths)
        named = found.numbers[found.numbers >= 0]
        nulls += octets.column("value").null_count
        others += len(found.numbers) - len(named) - octets.column("value").null_count
        frames.update({found.frames[i]: int((named == i).sum()) for i in range(len(found.frames))})
    return FrameCounts(nulls, others, frames)


def behind_frames(messages: pa.Table, part: Part = "value") -> list[bytes | None]:
    """The values, or the keys, without their frames."""
    found: list[bytes | None] = []
    for whole in messages.combine_chunks().to_batches():
        batch = whole.set_column(_VALUE, MESSAGES.field(_VALUE), whole.column(part))
        frames = frames_of(batch, Subjects(part=part).header, paths=False)
        skips = [
            frames.frames[number].skip if number >= 0 else 0 for number in frames.numbers.tolist()
        ]
        values = batch.column("value").to_pylist()
        found += [
            None if value is None else value[skip:]
            for value, skip in zip(values, skips, strict=True)
        ]
    return found


def of_registry(registry: SchemaRegistry, topic: str, messages: pa.Table) -> Proposal:
    """Proposes the columns of the subject's newest schema, or of the messages' schema.

    Raises:
        SpecError: the registry has no schema, or it can't be used.
    """
    found, candidates, versions = _candidates(registry, topic, messages, "value")
    if found is None:
        raise _unknown(topic, framed(messages, "value"))
    records = _records(found, messages, "value")
    if len(records["records"].value if records else ()) > 1:
        kind = free_name("kind", candidates)
        records["written_with"] = Setting({kind: "record"}, "which record a row is of")
        candidates.append(Candidate(kind, TypeGuess(pa.string(), "the name of the record"), False))
    columns = _with_key(registry, topic, messages, candidates)
    hints = list(columns.hints)
    if {"before", "after", "op"} <= {candidate.name for candidate in candidates}:
        hints.append(
            "these look like Debezium's events: each row will be the envelope of a message"
        )
    of = (
        "the schema of the registry"
        if not versions
        else f"the newest schema of subject {topic}-value"
    )
    return Proposal(
        columns.candidates,
        f"from {of}, id {found.id}",
        {
            "format": Setting(FORMATS[found.kind]),
            **records,
            **columns.decode,
        },
        tuple(hints),
    )


def _records(schema: WriterSchema, messages: pa.Table, part: Part) -> dict[str, Setting]:
    """The setting `records` for the records that the columns are of."""
    if schema.kind == "JSON":
        return {}
    if schema.kind == "AVRO":
        names = [record.root for record in roots_of(schema, part)]
    else:
        from windrow.ingest.infer.protobuf import message_of  # needs an extra

        names = [message_of(schema, path_in(messages, part)).full_name]
    return {"records": Setting(names, "others are dead letters")} if all(names) else {}


def _unknown(topic: str, seen: FrameCounts) -> SpecError:
    if seen.named:
        what = (
            f"The schema registry doesn't know schema id {seen.id}, which most messages of topic"
            f" {topic} name"
        )
        return SpecError(
            what, "spec", "Nothing was written. Name the registry that their producer uses."
        )
    what = f"Topic {topic} is empty, and the schema registry has no subject {topic}-value"
    return SpecError(
        what,
        "spec",
        "Nothing was written. Produce a message first, or begin with a template: windrow init"
        " --topic TOPIC.",
    )


def newest_of(registry: SchemaRegistry, topic: str, part: Part) -> list[WriterSchema]:
    """The newest schemas of a topic's subject, newest first."""
    return [
        schema
        for subject in Subjects(part=part).of(topic)
        for schema in registry.of_subject(subject, VERSIONS)
    ]


def _candidates(
    registry: SchemaRegistry, topic: str, messages: pa.Table, part: Part
) -> tuple[WriterSchema | None, list[Candidate], list[WriterSchema]]:
    """The schema to use, its fields, and the subject's versions, if the subject has it."""
    seen = framed(messages, part)
    versions = newest_of(registry, topic, part)
    if not versions and seen.named:
        named = registry.schema(seen.id)
        return (
            (None, [], [])
            if named is None
            else (named, candidates_of_schema(named, messages, part), [])
        )
    if not versions:
        return None, [], []
    newest, *older = versions
    known = {schema.id for schema in versions}
    older += [
        schema
        for id_ in {frame.id for frame in seen.frames} - known
        if (schema := registry.schema(id_)) is not None and schema.kind == newest.kind
    ]
    others = [
        fields for schema in older if (fields := _if_readable(schema, messages, part)) is not None
    ]
    return newest, over_versions(candidates_of_schema(newest, messages, part), others), versions


def _if_readable(schema: WriterSchema, messages: pa.Table, part: Part) -> list[Candidate] | None:
    try:
        return candidates_of_schema(schema, messages, part)
    except SpecError:
        return None


def candidates_of_schema(schema: WriterSchema, messages: pa.Table, part: Part) -> list[Candidate]:
    """The fields of a schema.

    `messages`: tell the message type of a Protobuf schema.

    Raises:
        SpecError: the schema can't be read.
    """
    if schema.kind == "AVRO":
        return avro_candidates(schema, part)
    if schema.kind == "JSON":
        documents = map(document, filter(None, behind_frames(messages, part)))
        return json_candidates(schema, [found for found in documents if found is not None])
    from windrow.ingest.infer.protobuf import protobuf_schema_candidates  # needs an extra

    return protobuf_schema_candidates(schema, path_in(messages, part))


def path_in(messages: pa.Table, part: Part) -> Sequence[int]:
    """The path of the message type that most messages have; without messages, the first."""
    frames = framed(messages, part, paths=True).frames
    return frames.most_common(1)[0][0].path if frames else _FIRST


def _with_key(
    registry: SchemaRegistry, topic: str, messages: pa.Table, candidates: list[Candidate]
) -> Columns:
    """Adds the columns of the key, if all keys have the same format and any fields."""
    seen, no_columns = framed(messages, "key"), Columns(tuple(candidates), hints=(KEEP_KEY,))
    if seen.nulls or (seen.others and seen.named):
        return no_columns if seen.others or seen.named else Columns(tuple(candidates))
    if seen.others:
        return with_json_key(candidates, messages.column("key").to_pylist())
    try:
        schema, of_key, _ = _candidates(registry, topic, messages, "key")
    except SpecError:  # a schema without fields, as a JSON Schema of texts
        return no_columns
    if schema is None:
        return Columns(tuple(candidates))
    if not of_key:
        return no_columns
    return with_key(candidates, of_key, FORMATS[schema.kind], _records(schema, messages, "key"))
