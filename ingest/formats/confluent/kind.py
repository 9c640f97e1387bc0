"""Confluent's wire formats as formats of specs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field

from windrow.ingest.formats.json.kind import JsonOptions, reading_of
from windrow.ingest.formats.keys import KeyKind, KeySection
from windrow.ingest.formats.kind import FormatKind, FormatSection, SchemaReference
from windrow.ingest.formats.options import FinerOptions
from windrow.ingest.schema.load import ModelReference
from windrow.ingest.settings.document import Place
from windrow.ingest.settings.values import LeftOut, Text, Values, names_in, section_of

if TYPE_CHECKING:
    from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Payloads

_SCHEMA = "The pandera.polars DataFrameModel whose columns, types and rules the table's rows have."
_ON_NULL = (
    "What becomes of a message without a value (a tombstone): a dead letter, or it is only counted."
)
_VALUES = "What the messages are; the other settings of `decode` are the format's."
_KEYS = "What the keys are; the other settings of `decode.key` are the format's."


class RegistryOptions(FinerOptions):
    """What keys and values may say alike whose schemas are a registry's."""

    by_schema: ClassVar[bool] = True

    unknown_id: Literal["dead", "fail"] = Field(
        default="dead",
        description=(
            "What becomes of a schema id that the registry says it doesn't know: each message that"
            " names it is a dead letter, or the window is refused."
        ),
    )
    subject_name_strategy: Literal["topic", "record", "topic_record"] = Field(
        default="topic",
        description=(
            "Under which subjects the schemas are, whose newest versions are asked for when a"
            " window is planned: TOPIC-value (of keys TOPIC-key), RECORD, or TOPIC-RECORD. Others"
            " are asked for when a message names them."
        ),
    )
    records: Annotated[tuple[Text, ...], Values("a list of names")] = Field(
        default=(),
        description=(
            "The names of the records (of Protobuf: messages) that are rows: `shop.Order`, or"
            " `Order` in any namespace. Without it, the one that all versions under the topic's"
            " subject are of."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """Subjects that are named after records need their names."""
        yield from super().conflicts(written)
        if written.get("subject_name_strategy") in {"record", "topic_record"} and not written.get(
            "records"
        ):
            yield (
                ("records",),
                "is missing: the strategy's subjects are named after records, by their full names",
            )


class RecordOptions(RegistryOptions):
    """What values may say besides."""

    other_records: Literal["dead", "filter"] = Field(
        default="dead",
        description=(
            "What becomes of messages of other records than `records`: each is a dead letter, or it"
            " is only counted."
        ),
    )

    written_with: Annotated[
        Mapping[Text, Literal["schema_id", "record"]],
        Values("`{COLUMN: schema_id}`, `{COLUMN: record}`"),
        LeftOut("none"),
    ] = Field(
        default={},
        description=(
            "String columns of the schema that say of each row which schema its message was written"
            " with: the schema's id, or the full name of its record."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """Nothing is filtered by a guess, and each column comes from one place."""
        yield from super().conflicts(written)
        elsewhere = {
            *names_in(section_of(written, "key").get("fields")),
            *section_of(written, "headers"),
        }
        twice = [name for name in section_of(written, "written_with") if name in elsewhere]
        if twice:
            yield (
                ("written_with",),
                (
                    f"{', '.join(twice)}: comes from the key or a header already: take it out of"
                    " one of them"
                ),
            )
        if written.get("other_records") == "filter" and not written.get("records"):
            yield (
                ("records",),
                "is missing: other_records: filter needs the names of those that aren't filtered",
            )


class AvroConfluentSection(RecordOptions, FormatSection):
    """Records in Avro's binary encoding, each behind the id of its schema in a registry."""

    format: Literal["avro-confluent"] = Field(default="avro-confluent", description=_VALUES)
    schema_: SchemaReference = Field(alias="schema", description=_SCHEMA)
    on_null: Literal["dead", "drop"] = Field(default="dead", description=_ON_NULL)


class AvroConfluentKeySection(RegistryOptions, KeySection):
    """The same as keys."""

    format: Literal["avro-confluent"] = Field(default="avro-confluent", description=_KEYS)


class ProtobufConfluentSection(RecordOptions, FormatSection):
    """Protobuf, each message behind the id of its schema in a registry, and which of
    the schema's messages it is.
    """

    format: Literal["protobuf-confluent"] = Field(default="protobuf-confluent", description=_VALUES)
    schema_: SchemaReference = Field(alias="schema", description=_SCHEMA)
    on_null: Literal["dead", "drop"] = Field(default="dead", description=_ON_NULL)


class ProtobufConfluentKeySection(RegistryOptions, KeySection):
    """The same as keys."""

    format: Literal["protobuf-confluent"] = Field(default="protobuf-confluent", description=_KEYS)


class JsonSchemaConfluentSection(JsonOptions, FormatSection):
    """JSON documents, each behind the id of its schema in a registry, which isn't
    asked: the pandera model judges them.
    """

    format: Literal["json-schema-confluent"] = Field(
        default="json-schema-confluent", description=_VALUES
    )
    schema_: SchemaReference = Field(alias="schema", description=_SCHEMA)
    on_null: Literal["dead", "drop"] = Field(default="dead", description=_ON_NULL)


class JsonSchemaConfluentKeySection(JsonOptions, KeySection):
    """The same as keys."""

    format: Literal["json-schema-confluent"] = Field(
        default="json-schema-confluent", description=_KEYS
    )


Value = TypeVar("Value", AvroConfluentSection, ProtobufConfluentSection)
Key = TypeVar("Key", AvroConfluentKeySection, ProtobufConfluentKeySection)


@dataclass(frozen=True)
class _Asking(Generic[Value]):
    """Values whose schemas the registry is asked for."""

    section: type[Value]
    payloads: Callable[[], Payloads]

    def decoder(self, section: Value, folder: Path) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
        from windrow.ingest.registry.subjects import Subjects

        subjects = Subjects(section.subject_name_strategy, section.records, "value")
        model = ModelReference(section.schema_, folder)
        return ConfluentDecoder(
            model,
            self.payloads(),
            subjects,
            section.on_null,
            section.unknown_id,
            section.part,
            section.records,
            section.other_records,
            tuple(section.written_with.items()),
        )


@dataclass(frozen=True)
class _AskingKey(Generic[Key]):
    """Keys whose schemas the registry is asked for."""

    section: type[Key]
    payloads: Callable[[], Payloads]

    def decoder(self, key: Key, model: ModelReference) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
        from windrow.ingest.registry.subjects import Subjects

        subjects = Subjects(key.subject_name_strategy, key.records, "key")
        return ConfluentDecoder(
            model,
            self.payloads(),
            subjects,
            unknown_id=key.unknown_id,
            part=key.part,
            records=key.records,
        )


class _JsonSchemaConfluent:
    section = JsonSchemaConfluentSection

    def decoder(self, section: JsonSchemaConfluentSection, folder: Path) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
        from windrow.ingest.formats.confluent.payloads import JsonPayloads
        from windrow.ingest.registry.subjects import Subjects

        model, payloads = (
            ModelReference(section.schema_, folder),
            JsonPayloads(section.unknown, reading_of(section)),
        )
        return ConfluentDecoder(model, payloads, Subjects(), section.on_null, part=section.part)


class _JsonSchemaConfluentKey:
    section = JsonSchemaConfluentKeySection

    def decoder(
        self, key: JsonSchemaConfluentKeySection, model: ModelReference
    ) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
        from windrow.ingest.formats.confluent.payloads import JsonPayloads
        from windrow.ingest.registry.subjects import Subjects

        return ConfluentDecoder(
            model, JsonPayloads(key.unknown, reading_of(key)), Subjects(part="key"), part=key.part
        )


def _avro() -> Payloads:
    from windrow.ingest.formats.confluent.payloads import AvroPayloads

    return AvroPayloads()


def _protobuf() -> Payloads:
    from windrow.ingest.formats.confluent.payloads import ProtobufPayloads

    return ProtobufPayloads()


AVRO_CONFLUENT: FormatKind[AvroConfluentSection] = _Asking(AvroConfluentSection, _avro)
AVRO_CONFLUENT_KEY: KeyKind[AvroConfluentKeySection] = _AskingKey(AvroConfluentKeySection, _avro)
PROTOBUF_CONFLUENT: FormatKind[ProtobufConfluentSection] = _Asking(
    ProtobufConfluentSection, _protobuf
)
PROTOBUF_CONFLUENT_KEY: KeyKind[ProtobufConfluentKeySection] = _AskingKey(
    ProtobufConfluentKeySection, _protobuf
)
JSON_SCHEMA_CONFLUENT: FormatKind[JsonSchemaConfluentSection] = _JsonSchemaConfluent()
JSON_SCHEMA_CONFLUENT_KEY: KeyKind[JsonSchemaConfluentKeySection] = _JsonSchemaConfluentKey()
