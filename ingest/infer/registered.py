"""Proposes columns by a registry's schemas, and counts the schemas that messages name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.frame import Frame, frames_of
from windrow.ingest.infer.avro import avro_candidates, roots_of
from windrow.ingest.infer.candidates import Candidate, TypeGuess, over_versions
from windrow.ingest.infer.documents import by_key, candidates_of, document, guess_type
from windrow.ingest.infer.json_schema import json_candidates
from windrow.ingest.infer.proposal import (
    KEEP_KEY,
    Columns,
    Document,
    Proposal,
    Setting,
    with_key,
)
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.schemas import SchemaRegistry
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.dtypes import TIMESTAMP
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


def behind_frames(messages: pa.Table) -> list[bytes | None]:
    """The values without their frames."""
    found: list[bytes | None] = []
    for batch in messages.combine_chunks().to_batches():
        frames = frames_of(batch, Subjects().header, paths=False)
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
    if found.kind == "JSON":
        candidates = as_seen(
            candidates,
            [
                seen
                for value in behind_frames(messages)
                if value is not None and (seen := document(value)) is not None
            ],
        )
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
            **_records(found, messages, "value"),
            **columns.decode,
        },
        tuple(hints),
    )


def as_seen(candidates: Sequence[Candidate], documents: Sequence[Document]) -> list[Candidate]:
    """The fields of a JSON Schema, compared with sampled values.

    A date or an instant becomes a text if the sampled values have another form.
    """
    values = by_key(documents)

    def guess(candidate: Candidate) -> TypeGuess:
        present = [value for value in values.get(candidate.name, ()) if value is not None]
        if (
            candidate.guess.type not in {TIMESTAMP, pa.date32()}
            or not present
            or guess_type(present).type == candidate.guess.type
        ):
            return candidate.guess
        return TypeGuess(pa.string(), "not all of its values have the form of its format")

    return [replace(candidate, guess=guess(candidate)) for candidate in candidates]


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
        return json_candidates(schema)
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
    kind, settings = "json", dict[str, Setting]()
    if seen.others:
        documents = [document(key) for key in messages.column("key").to_pylist()]
        parsed = [key for key in documents if key]
        of_key = candidates_of(parsed) if len(parsed) == len(documents) else []
    else:
        try:
            schema, of_key, _ = _candidates(registry, topic, messages, "key")
        except SpecError:  # a schema without fields, as a JSON Schema of texts
            return no_columns
        if schema is None:
            return Columns(tuple(candidates))
        kind, settings = FORMATS[schema.kind], _records(schema, messages, "key")
    if not of_key:
        return no_columns
    repeats = {candidate.name for candidate in of_key} <= {c.name for c in candidates}
    return with_key(candidates, of_key, kind, settings, repeats=repeats)
