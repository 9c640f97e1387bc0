"""What a schema registry says of a topic's messages, and which of its schemas they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.confluent.frame import Frame, frames_of
from windrow.ingest.infer.avro import avro_offers, roots_of
from windrow.ingest.infer.documents import by_key, document, guess_type, offers_of
from windrow.ingest.infer.json_schema import json_offers
from windrow.ingest.infer.offer import Guess, Offer, over_versions
from windrow.ingest.infer.proposal import (
    KEEP_KEY,
    Document,
    Proposal,
    Setting,
    beside_key,
    same_key,
)
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.schemas import SchemaRegistry
from windrow.ingest.registry.subjects import Subjects
from windrow.ingest.schema.dtypes import TIMESTAMP
from windrow.ingest.schema.messages import MESSAGES

VERSIONS = 20
"""Of a subject: what isn't in each of so many of the newest may be null."""

FORMATS = {
    "AVRO": "avro-confluent",
    "PROTOBUF": "protobuf-confluent",
    "JSON": "json-schema-confluent",
}
"""The format of messages whose schemas are of a kind."""

Part = Literal["key", "value"]
_VALUE = MESSAGES.get_field_index("value")
_FIRST = (0,)
"""The path of a schema's first message."""


@dataclass(frozen=True)
class Framed:
    """How messages, or their keys, begin: `nulls` have no bytes, `others` name no
    schema, of the rest these frames, each so often.
    """

    nulls: int
    others: int
    frames: Counter[Frame]

    @property
    def named(self) -> int:
        """How many name a schema."""
        return self.frames.total()

    @property
    def most(self) -> bool:
        """Whether more name one than don't."""
        return self.named > self.others

    @property
    def id(self) -> str:
        """The schema that most of them name."""
        ids = Counter[str]()
        for frame, count in self.frames.items():
            ids[frame.id] += count
        return ids.most_common(1)[0][0]


def framed(messages: pa.Table, part: Part, *, paths: bool = False) -> Framed:
    """What some messages' values, or keys, begin with.

    `paths`: whether a path belongs to it, as Protobuf's have one.
    """
    nulls, others, frames = 0, 0, Counter[Frame]()
    for batch in messages.combine_chunks().to_batches():
        octets = batch.set_column(_VALUE, MESSAGES.field(_VALUE), batch.column(part))
        found = frames_of(octets, Subjects(part=part).header, paths=paths)
        named = found.numbers[found.numbers >= 0]
        nulls += octets.column("value").null_count
        others += len(found.numbers) - len(named) - octets.column("value").null_count
        frames.update({found.frames[i]: int((named == i).sum()) for i in range(len(found.frames))})
    return Framed(nulls, others, frames)


def behind_frames(messages: pa.Table) -> list[bytes | None]:
    """The values without what names their schema."""
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
    """By the newest schema of the topic's subject, or the one that the messages name.

    Raises:
        SpecError: the registry has none for them, or the one that it has can't be used.
    """
    found, offers, versions = _offers(registry, topic, messages, "value")
    if found is None:
        raise _unknown(topic, framed(messages, "value"))
    if found.kind == "JSON":
        offers = as_seen(
            offers,
            [
                seen
                for value in behind_frames(messages)
                if value is not None and (seen := document(value)) is not None
            ],
        )
    format_ = Setting("format", FORMATS[found.kind])
    keyed = _with_key(registry, topic, messages, offers)
    hints = list(keyed.hints)
    if {"before", "after", "op"} <= {offer.name for offer in offers}:
        hints.append(
            "these look like Debezium's events: each message becomes a row of its envelope"
        )
    of = (
        "the schema of the registry"
        if not versions
        else f"the newest schema of subject {topic}-value"
    )
    return replace(
        keyed,
        told_by=f"from {of}, id {found.id}",
        decode=(format_, *_records(found, messages, "value"), *keyed.decode),
        hints=tuple(hints),
    )


def as_seen(offers: Sequence[Offer], documents: Sequence[Document]) -> list[Offer]:
    """A JSON Schema's fields; an instant or a day whose values aren't all written as
    one is a text.
    """
    values = by_key(documents)

    def guess(offer: Offer) -> Guess:
        present = [value for value in values.get(offer.name, ()) if value is not None]
        if (
            offer.guess.type not in {TIMESTAMP, pa.date32()}
            or not present
            or guess_type(present).type == offer.guess.type
        ):
            return offer.guess
        return Guess(pa.string(), "not all of its values are written as its format says")

    return [replace(offer, guess=guess(offer)) for offer in offers]


def _records(schema: WriterSchema, messages: pa.Table, part: Part) -> list[Setting]:
    """What a spec says of the record that the columns are of, where the schema has one."""
    if schema.kind == "JSON":
        return []
    if schema.kind == "AVRO":
        names = [record.root for record in roots_of(schema, part)]
    else:
        from windrow.ingest.infer.protobuf import (
            message_of,
        )  # an extra, loaded where it is asked for

        names = [message_of(schema, path_in(messages, part)).full_name]
    return [Setting("records", names, "others are dead letters")] if all(names) else []


def _unknown(topic: str, seen: Framed) -> SpecError:
    if seen.named:
        what = (
            f"The schema registry doesn't know schema id {seen.id}, which most messages of topic"
            f" {topic} name"
        )
        return SpecError(
            what, "spec", "Nothing was written. Is it the registry that their producer uses?"
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


def _offers(
    registry: SchemaRegistry, topic: str, messages: pa.Table, part: Part
) -> tuple[WriterSchema | None, list[Offer], list[WriterSchema]]:
    """The schema that counts, its fields, and the subject's versions, if it is one of these."""
    seen = framed(messages, part)
    versions = newest_of(registry, topic, part)
    if not versions and seen.named:
        named = registry.schema(seen.id)
        return (
            (None, [], [])
            if named is None
            else (named, offers_of_schema(named, messages, part), [])
        )
    if not versions:
        return None, [], []
    newest, *older = versions
    others = [
        fields for schema in older if (fields := _if_readable(schema, messages, part)) is not None
    ]
    return newest, over_versions(offers_of_schema(newest, messages, part), others), versions


def _if_readable(schema: WriterSchema, messages: pa.Table, part: Part) -> list[Offer] | None:
    try:
        return offers_of_schema(schema, messages, part)
    except SpecError:
        return None


def offers_of_schema(schema: WriterSchema, messages: pa.Table, part: Part) -> list[Offer]:
    """The fields of a schema.

    `messages`: those that say which message type of a Protobuf schema is meant.

    Raises:
        SpecError: it can't be read.
    """
    if schema.kind == "AVRO":
        return avro_offers(schema, part)
    if schema.kind == "JSON":
        return json_offers(schema)
    from windrow.ingest.infer.protobuf import (
        protobuf_schema_offers,
    )  # an extra, loaded where it is asked for

    return protobuf_schema_offers(schema, path_in(messages, part))


def path_in(messages: pa.Table, part: Part) -> Sequence[int]:
    """Which message type of their schema most messages are; where there are none, the first one."""
    frames = framed(messages, part, paths=True).frames
    return frames.most_common(1)[0][0].path if frames else _FIRST


def _with_key(
    registry: SchemaRegistry, topic: str, messages: pa.Table, offers: list[Offer]
) -> Proposal:
    """The columns of the key, too, where all keys are of one format and have a field
    that the value hasn't.
    """
    seen = framed(messages, "key")
    if seen.nulls or (seen.others and seen.named):
        return Proposal(tuple(offers), "", hints=(KEEP_KEY,) if seen.others or seen.named else ())
    if seen.others:
        documents = [document(key) for key in messages.column("key").to_pylist()]
        found = [key for key in documents if key]
        return _beside(offers, offers_of(found) if len(found) == len(documents) else [], "json")
    try:
        schema, of_key, _ = _offers(registry, topic, messages, "key")
    except SpecError:  # of no fields, as a JSON Schema of texts
        return Proposal(tuple(offers), "", hints=(KEEP_KEY,))
    if schema is None:
        return Proposal(tuple(offers), "")
    return _beside(offers, of_key, FORMATS[schema.kind], _records(schema, messages, "key"))


def _beside(
    offers: list[Offer], of_key: list[Offer], key_format: str, told: Sequence[Setting] = ()
) -> Proposal:
    if not of_key:
        return Proposal(tuple(offers), "", hints=(KEEP_KEY,))
    names = {offer.name for offer in offers}
    if all(offer.name in names for offer in of_key):
        return Proposal(tuple(offers), "", hints=(same_key([offer.name for offer in of_key]),))
    return beside_key(offers, of_key, key_format, told)
