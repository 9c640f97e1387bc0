"""Confluent's wire formats as formats of specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.json.kind import JsonOptions
from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, RowSection
from windrow.ingest.formats.options import FinerOptions
from windrow.ingest.schema.load import ModelReference
from windrow.ingest.schema.part import Part
from windrow.ingest.settings.document import Place
from windrow.ingest.settings.values import LeftOut, Section, Text, Values, names_in, section_of

if TYPE_CHECKING:
    from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Payloads
    from windrow.ingest.registry.client import Subjects


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

    def subjects(self, part: Literal["key", "value"]) -> Subjects:
        """Under which subjects the registry has the schemas."""
        from windrow.ingest.registry.client import Subjects

        return Subjects(self.subject_name_strategy, self.records, part)

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


class AskingSection(RecordOptions, RowSection):
    """Values whose schemas the registry is asked for."""

    def payloads(self) -> Payloads:
        """What lies behind the frames."""
        raise NotImplementedError

    def decoder(self, folder: Path) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder

        return ConfluentDecoder(
            ModelReference(self.schema_, folder),
            self.payloads(),
            self.subjects("value"),
            self.on_null,
            self.unknown_id,
            self.part,
            self.records,
            self.other_records,
            tuple(self.written_with.items()),
        )


class AskingKeySection(RegistryOptions, KeySection):
    """Keys whose schemas the registry is asked for."""

    def payloads(self) -> Payloads:
        """What lies behind the frames."""
        raise NotImplementedError

    def decoder(self, model: ModelReference) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder

        return ConfluentDecoder(
            model,
            self.payloads(),
            self.subjects("key"),
            unknown_id=self.unknown_id,
            part=self.part,
            records=self.records,
        )


class AvroPayloadOptions(Section):
    """Of payloads in Avro."""

    def payloads(self) -> Payloads:
        from windrow.ingest.formats.confluent.payloads import AvroPayloads

        return AvroPayloads()


class ProtobufPayloadOptions(Section):
    """Of payloads in Protobuf."""

    def payloads(self) -> Payloads:
        from windrow.ingest.formats.confluent.payloads import ProtobufPayloads

        return ProtobufPayloads()


class AvroConfluentSection(AvroPayloadOptions, AskingSection):
    """Records in Avro's binary encoding, each behind the id of its schema in a registry."""

    format: Literal["avro-confluent"] = Field(default="avro-confluent", description=VALUES)


class AvroConfluentKeySection(AvroPayloadOptions, AskingKeySection):
    """The same as keys."""

    format: Literal["avro-confluent"] = Field(default="avro-confluent", description=KEYS)


class ProtobufConfluentSection(ProtobufPayloadOptions, AskingSection):
    """Protobuf, each message behind the id of its schema in a registry, and which of
    the schema's messages it is.
    """

    format: Literal["protobuf-confluent"] = Field(default="protobuf-confluent", description=VALUES)


class ProtobufConfluentKeySection(ProtobufPayloadOptions, AskingKeySection):
    """The same as keys."""

    format: Literal["protobuf-confluent"] = Field(default="protobuf-confluent", description=KEYS)


class JsonSchemaConfluentSection(JsonOptions, RowSection):
    """JSON documents, each behind the id of its schema in a registry, which isn't
    asked: the pandera model judges them.
    """

    format: Literal["json-schema-confluent"] = Field(
        default="json-schema-confluent", description=VALUES
    )

    def decoder(self, folder: Path) -> ConfluentDecoder:
        model = ModelReference(self.schema_, folder)
        return replace(_of_json(self, model, "value", self.part), on_null=self.on_null)


class JsonSchemaConfluentKeySection(JsonOptions, KeySection):
    """The same as keys."""

    format: Literal["json-schema-confluent"] = Field(
        default="json-schema-confluent", description=KEYS
    )

    def decoder(self, model: ModelReference) -> ConfluentDecoder:
        return _of_json(self, model, "key", self.part)


def _of_json(
    options: JsonOptions, model: ModelReference, part: Literal["key", "value"], columns: Part
) -> ConfluentDecoder:
    from windrow.ingest.formats.confluent.decoder import ConfluentDecoder
    from windrow.ingest.formats.confluent.payloads import JsonPayloads
    from windrow.ingest.registry.client import Subjects

    payloads = JsonPayloads(options.encoding(model.folder, "decode"))
    return ConfluentDecoder(model, payloads, Subjects(part=part), part=columns)
