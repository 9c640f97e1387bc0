"""Columns for a registry's schemas, and counts of the schemas that messages name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import msgspec
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.cdc.change_metadata import is_called_after
from windrow.ingest.formats.confluent.frame import Frame, frames_of
from windrow.ingest.formats.confluent.payloads import message_at
from windrow.ingest.infer.avro import avro_candidates, roots_of, row_of_envelope
from windrow.ingest.infer.candidates import Candidate, TypeGuess, free_name, over_versions
from windrow.ingest.infer.change_events import OTHER_TABLES, changes_of_schema, is_flattened
from windrow.ingest.infer.json_documents import parse_document
from windrow.ingest.infer.json_schema import json_candidates
from windrow.ingest.infer.proposal import Proposal, Setting, with_key, with_keys, without_key
from windrow.ingest.infer.protobuf import protobuf_candidates
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.schema_registry import SchemaRegistry
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.messages import MESSAGES

VERSIONS = 20
"""Number of a subject's newest schemas that decide whether a column is nullable."""

FORMATS = {
    "AVRO": "avro-confluent",
    "PROTOBUF": "protobuf-confluent",
    "JSON": "json-schema-confluent",
}
"""Format of messages, by the kind of their schema."""

EVENTS = "debezium-avro-confluent"
"""Format of messages whose schema in Avro is Debezium's envelope."""

Part = Literal["key", "value"]
_VALUE = MESSAGES.get_field_index("value")
_FIRST = (0,)
"""Path of the first message type of a Protobuf schema."""


class Framed(msgspec.Struct, frozen=True):
    """Keys or values of messages without their frames, and counts of the frames.

    Attributes:
        values: the keys or values, without frames.
        others: the number of keys or values that aren't null and name no schema.
        frames: the number of messages with each frame.
    """

    values: list[bytes | None]
    others: int
    frames: Counter[Frame]

    @property
    def named(self) -> int:
        """Number of keys or values that name a schema."""
        return self.frames.total()

    @property
    def is_mostly_framed(self) -> bool:
        """Whether more keys or values name a schema than don't."""
        return self.named > self.others

    @property
    def id(self) -> str:
        """Id of the schema that is named most often."""
        ids = Counter[str]()
        for frame, count in self.frames.items():
            ids[frame.id] += count
        return ids.most_common(1)[0][0]


def read_frames(messages: pa.Table, part: Part, *, paths: bool = False) -> Framed:
    """Reads the frames of messages' keys or values.

    Args:
        messages: the messages.
        part: whether keys or values are read.
        paths: whether a frame has a path, which is so for Protobuf.
    """
    values, others, frames = list[bytes | None](), 0, Counter[Frame]()
    for message_batch in messages.combine_chunks().to_batches():
        batch = message_batch.set_column(_VALUE, MESSAGES.field(_VALUE), message_batch.column(part))
        batch_frames = frames_of(batch, Subjects(part=part).header, paths=paths)
        numbers = batch_frames.numbers.tolist()
        for number, value in zip(numbers, batch.column("value").to_pylist(), strict=True):
            if number >= 0:
                frames[batch_frames.frames[number]] += 1
                values.append(value[batch_frames.frames[number].skip :])
            else:
                others += value is not None
                values.append(value)
    return Framed(values, others, frames)


def propose_by_registry(registry: SchemaRegistry, topic: str, messages: pa.Table) -> Proposal:
    """Proposes the columns of the subject's newest schema, or of the messages' schema.

    Raises:
        SpecError: the registry has no schema for the topic, or the schema can't be used.
    """
    schema, candidates, by_subject = _candidates(registry, topic, messages, "value")
    if schema is None:
        raise _unknown_schema_error(topic, read_frames(messages, "value"))
    decode = {"format": Setting(FORMATS[schema.kind]), **_records(schema, messages, "value")}
    if len(decode["records"].value if "records" in decode else ()) > 1:
        kind = free_name("kind", candidates)
        decode["written_with"] = Setting({kind: "record"}, "which record a row is of")
        candidates.append(Candidate(kind, TypeGuess(pa.string(), "the name of the record"), False))
    schema_origin = (
        f"the newest schema of subject {topic}-value"
        if by_subject
        else "the schema of the registry"
    )
    proposal = Proposal(tuple(candidates), f"from {schema_origin}, id {schema.id}", decode)
    flattened = is_flattened(candidate.name for candidate in candidates)
    if schema.kind == "AVRO" and (flattened or row_of_envelope(schema) is not None):
        table = {} if flattened else _table(schema, topic)
        proposal = replace(proposal, decode={"format": Setting(EVENTS), **table})
        of_key = _key_candidates(registry, topic, messages)
        return changes_of_schema(proposal, of_key, flattened=flattened)
    return _with_key(registry, topic, messages, proposal)


def _table(schema: WriterSchema, topic: str) -> dict[str, Setting]:
    """Returns the setting that selects the table, if the topic isn't named after it."""
    *_, table, _ = ("", *roots_of(schema, None)[0].root.split("."))
    if not table or is_called_after(topic, table):
        return {}
    return {"table_include": Setting(re.escape(table), OTHER_TABLES)}


def _key_candidates(
    registry: SchemaRegistry, topic: str, messages: pa.Table
) -> Sequence[Candidate]:
    """Returns the fields of the keys by their schema; none if keys have no schema.

    Debezium's truncate has no key.
    """
    framing = read_frames(messages, "key")
    if framing.others or (messages.num_rows and not framing.named):
        return ()
    with suppress(SpecError):
        return _candidates(registry, topic, messages, "key")[1]
    return ()


def _records(schema: WriterSchema, messages: pa.Table, part: Part) -> dict[str, Setting]:
    """Returns the setting `records`, with the records that have the columns."""
    if schema.kind == "JSON":
        return {}
    if schema.kind == "AVRO":
        names = [record.root for record in roots_of(schema, part)]
    else:
        kind = message_at(schema, path_in(messages, part), f"schema id {schema.id}")
        names = [kind.full_name]
    return {"records": Setting(names, "others are dead letters")} if all(names) else {}


def _unknown_schema_error(topic: str, framing: Framed) -> SpecError:
    if framing.named:
        return SpecError(
            f"The schema registry doesn't know schema id {framing.id}, which most messages of topic"
            f" {topic} name",
            "spec",
            "Nothing was written. Name the registry that their producer uses.",
        )
    return SpecError(
        f"Topic {topic} is empty, and the schema registry has no subject {topic}-value",
        "spec",
        "Nothing was written. Produce a message first, or begin with a template: windrow init"
        " --topic TOPIC.",
    )


def _candidates(
    registry: SchemaRegistry, topic: str, messages: pa.Table, part: Part
) -> tuple[WriterSchema | None, list[Candidate], bool]:
    """Returns the schema to use, and its fields.

    It is the newest schema of the topic's subject, or the schema of most messages if the
    registry doesn't have the subject.

    Returns:
        The schema, or None if there is none; its fields; and whether it is the newest schema
        of the subject.
    """
    framing = read_frames(messages, part)
    (subject,) = Subjects(part=part).of(topic)
    versions = registry.of_subject(subject, VERSIONS)

    def fields(schema: WriterSchema) -> list[Candidate]:
        candidates = candidates_of_schema(schema, messages, part)
        row = row_of_envelope(schema) if schema.kind == "AVRO" else None
        return candidates if row is None else candidates_of_schema(row, messages, part)

    if not versions:
        named_schema = registry.schema(framing.id) if framing.named else None
        return (
            named_schema,
            [] if named_schema is None else fields(named_schema),
            False,
        )
    newest, *older = versions
    known_ids = {schema.id for schema in versions}
    older += [
        schema
        for id_ in {frame.id for frame in framing.frames} - known_ids
        if (schema := registry.schema(id_)) is not None and schema.kind == newest.kind
    ]
    others = []
    for schema in older:
        with suppress(SpecError):  # An older schema that can't be read doesn't count.
            others.append(fields(schema))
    return newest, over_versions(fields(newest), others), True


def candidates_of_schema(schema: WriterSchema, messages: pa.Table, part: Part) -> list[Candidate]:
    """Returns the fields of a schema.

    Args:
        schema: the schema.
        messages: the sampled messages. They give the message type of a Protobuf schema, and
            the values for a JSON Schema.
        part: whether the schema is for keys or values.

    Raises:
        SpecError: the schema can't be read.
    """
    if schema.kind == "AVRO":
        return avro_candidates(schema, part)
    if schema.kind == "JSON":
        documents = map(parse_document, filter(None, read_frames(messages, part).values))
        return json_candidates(schema, [parsed for parsed in documents if parsed is not None])
    return protobuf_candidates(schema, path_in(messages, part))


def path_in(messages: pa.Table, part: Part) -> Sequence[int]:
    """Returns the path of the message type of most messages; without messages, the first path."""
    frames = read_frames(messages, part, paths=True).frames
    return frames.most_common(1)[0][0].path if frames else _FIRST


def _with_key(
    registry: SchemaRegistry, topic: str, messages: pa.Table, proposal: Proposal
) -> Proposal:
    """Adds the columns of the key, by the registry's schema if every key names a schema."""
    framing, keys = read_frames(messages, "key"), messages.column("key").to_pylist()
    if framing.others or None in keys:
        return with_keys(proposal, keys)
    try:
        schema, of_key, _ = _candidates(registry, topic, messages, "key")
    except SpecError:  # a schema without fields, such as a JSON Schema of texts
        return without_key(proposal)
    if schema is None or not of_key:
        return with_keys(proposal, keys) if schema is None else without_key(proposal)
    return with_key(proposal, of_key, FORMATS[schema.kind], _records(schema, messages, "key"))
