"""Confluent's wire formats in a spec: their settings for values and for keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.json.kind import UNKNOWN_IN_KEYS, JsonOptions
from windrow.ingest.formats.kind import (
    KEYS,
    VALUES,
    KeySection,
    RowSection,
    columns_filled_twice,
)
from windrow.ingest.formats.options import FinerOptions, KeepOptions
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import Default, Section, Text, Values

if TYPE_CHECKING:
    from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Payloads
    from windrow.ingest.registry.client import Subjects


class FramedOptions(Section):
    """Settings that all sections of messages with a frame share."""

    payloads_class: ClassVar[str]
    """The name of the class in `payloads.py` for the payloads after the frames."""

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Refuses codecs, because the id of a schema stands before the payload."""
        yield from super().conflicts(written)
        if written.get("codecs"):
            yield ("codecs",), "goes with formats whose values don't begin with a schema's id"

    def payloads(self) -> Payloads:
        """Returns the kind of the payloads after the frames."""
        from windrow.ingest.formats.confluent import payloads  # loads all formats

        payload_kind: Payloads = getattr(payloads, self.payloads_class)()
        return payload_kind

    def subjects(self, part: Literal["key", "value"]) -> Subjects:
        """Returns the subjects under which the registry has the schemas."""
        from windrow.ingest.registry.client import Subjects

        return Subjects(part=part)


class RegistryOptions(FramedOptions, FinerOptions):
    """Settings that keys and values share if the registry is asked for their schemas."""

    by_schema: ClassVar[bool] = True

    unknown_id: Literal["dead", "fail"] = Field(
        default="dead",
        description=(
            "What happens if the registry says that it doesn't know a schema id: each message that"
            " names it is a dead letter, or the window is refused."
        ),
    )
    subject_name_strategy: Literal["topic", "record", "topic_record"] = Field(
        default="topic",
        description=(
            "The subjects of the schemas: TOPIC-value (for keys TOPIC-key), RECORD, or"
            " TOPIC-RECORD. When a window is planned, the registry is asked for their newest"
            " versions; it is asked for another schema when a message names it."
        ),
    )
    records: Annotated[tuple[Text, ...], Values("a list of names")] = Field(
        default=(),
        description=(
            "The names of the records (in Protobuf: messages) that are rows: `shop.Order`, or"
            " `Order` in any namespace. Without it, the record of all versions of the topic's"
            " subject."
        ),
    )

    def subjects(self, part: Literal["key", "value"]) -> Subjects:
        from windrow.ingest.registry.client import Subjects

        return Subjects(self.subject_name_strategy, self.records, part)

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Requires the records' names if subjects are named after records."""
        yield from super().conflicts(written)
        if written.get("subject_name_strategy") in {"record", "topic_record"} and not written.get(
            "records"
        ):
            yield (
                ("records",),
                "is missing: with this strategy subjects have the full names of records",
            )


class RecordOptions(RegistryOptions):
    """Settings that only values have."""

    other_records: Literal["dead", "filter"] = Field(
        default="dead",
        description=(
            "What happens to messages of records other than `records`: each is a dead letter, or"
            " it is only counted."
        ),
    )

    written_with: Annotated[
        Mapping[Text, Literal["schema_id", "record"]],
        Values("`{COLUMN: schema_id}`, `{COLUMN: record}`"),
        Default("none"),
    ] = Field(
        default={},
        description=(
            "String columns of the schema that say for each row which schema its message was"
            " written with: the schema's id, or the full name of its record."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds a column that is filled twice, and a filter without names of records."""
        yield from super().conflicts(written)
        yield from columns_filled_twice(written, "written_with")
        if written.get("other_records") == "filter" and not written.get("records"):
            yield (
                ("records",),
                "is missing: other_records: filter needs the names of the records to keep",
            )


class AskingSection(RecordOptions, RowSection):
    """Settings of values whose schemas come from the registry."""

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
    """Settings of keys whose schemas come from the registry."""

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


class AvroConfluentSection(KeepOptions, AskingSection):
    """Values that are a schema id and a record in Avro's binary encoding."""

    payloads_class = "AvroPayloads"
    format: Literal["avro-confluent"] = Field(default="avro-confluent", description=VALUES)

    def payloads(self) -> Payloads:
        from windrow.ingest.formats.confluent.payloads import AvroPayloads

        return AvroPayloads(self.keeps_unknown)


class AvroConfluentKeySection(AskingKeySection):
    """Keys that are a schema id and a record in Avro's binary encoding."""

    payloads_class = "AvroPayloads"
    format: Literal["avro-confluent"] = Field(default="avro-confluent", description=KEYS)


class ProtobufConfluentSection(AskingSection):
    """Values that are a schema id, the path to a message type in the schema, and a message."""

    payloads_class = "ProtobufPayloads"
    format: Literal["protobuf-confluent"] = Field(default="protobuf-confluent", description=VALUES)


class ProtobufConfluentKeySection(AskingKeySection):
    """Keys that are a schema id, the path to a message type in the schema, and a message."""

    payloads_class = "ProtobufPayloads"
    format: Literal["protobuf-confluent"] = Field(default="protobuf-confluent", description=KEYS)


class JsonPayloadOptions(JsonOptions, FramedOptions):
    """Settings of payloads in JSON. The registry isn't asked for their schemas."""

    def payloads(self) -> Payloads:
        from windrow.ingest.formats.confluent.payloads import JsonPayloads

        return JsonPayloads(self.encoding(Path(), ""))


class JsonSchemaConfluentSection(JsonPayloadOptions, RowSection):
    """Values that are a schema id and a JSON document.

    The pandera model has the rules. The registry isn't asked for the schemas.
    """

    format: Literal["json-schema-confluent"] = Field(
        default="json-schema-confluent", description=VALUES
    )
    written_with: Annotated[
        Mapping[Text, Literal["schema_id"]],
        Values("`{COLUMN: schema_id}`"),
        Default("none"),
    ] = Field(
        default={},
        description=(
            "String columns of the schema that say for each row the id of the schema that its"
            " message names."
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds a column that is filled twice."""
        yield from super().conflicts(written)
        yield from columns_filled_twice(written, "written_with")

    def decoder(self, folder: Path) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder

        model = ModelReference(self.schema_, folder)
        subjects = self.subjects("value")
        return ConfluentDecoder(
            model,
            self.payloads(),
            subjects,
            self.on_null,
            part=self.part,
            written_with=tuple(self.written_with.items()),
        )


class JsonSchemaConfluentKeySection(JsonPayloadOptions, KeySection):
    """Keys that are a schema id and a JSON document."""

    format: Literal["json-schema-confluent"] = Field(
        default="json-schema-confluent", description=KEYS
    )
    unknown: Literal["ignore", "dead"] = Field(default="ignore", description=UNKNOWN_IN_KEYS)

    def decoder(self, model: ModelReference) -> ConfluentDecoder:
        from windrow.ingest.formats.confluent.decoder import ConfluentDecoder

        return ConfluentDecoder(model, self.payloads(), self.subjects("key"), part=self.part)
