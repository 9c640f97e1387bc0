"""Settings of the formats of change data: Debezium's, Canal's, Maxwell's and AWS DMS's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.avro.kind import SchemaSetting
from windrow.ingest.formats.cdc.envelope import (
    CANAL,
    DEBEZIUM,
    DMS,
    FLATTENED,
    MAXWELL,
    Envelope,
)
from windrow.ingest.formats.confluent.kind import FramedOptions, RegistryOptions
from windrow.ingest.formats.kind import VALUES, PathText, RowSection, columns_filled_twice
from windrow.ingest.formats.options import (
    ConnectOptions,
    FinerOptions,
    KeepOptions,
    ReadingOptions,
    TimestampOptions,
)
from windrow.ingest.formats.shared import json_dialects
from windrow.ingest.formats.shared.connect_types import PAYLOAD
from windrow.ingest.formats.shared.json_dialects import DateForm, Reading, TimestampForm
from windrow.ingest.schema.message_fields import FieldPath
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import Default, Section, Text, Values, section_of

if TYPE_CHECKING:
    from windrow.ingest.formats.avro.decoder import AvroEncoding
    from windrow.ingest.formats.cdc.by_registry import RegistryAvro, RegistryChangeDecoder
    from windrow.ingest.formats.cdc.change_metadata import Included
    from windrow.ingest.formats.cdc.decoder import ChangeDecoder, EventEncoding
    from windrow.ingest.formats.json.decoder import JsonEncoding
    from windrow.ingest.ports.decoder import Decoder


Pattern = Annotated[Text | None, Values("a regular expression")]


class TableOptions(Section):
    """Options for topics that may have rows of several tables."""

    database_include: Pattern = Field(
        default=None,
        description="Only rows of databases whose whole name matches; others are filtered.",
    )
    table_include: Pattern = Field(
        default=None,
        description="Only rows of tables whose whole name matches; others are filtered.",
    )

    @property
    def included(self) -> Included:
        """Options in the form that a decoder takes."""
        # loads Arrow, which only decoding needs
        from windrow.ingest.formats.cdc.change_metadata import Included

        return Included(self.database_include, self.table_include)


class ChangeSection(TableOptions, RowSection):
    """Settings of `decode` that every format of change data has."""

    envelope: Annotated[
        Mapping[Text, PathText],
        Values("`{COLUMN: FIELD}`"),
        Default("none"),
    ] = Field(
        default={},
        description=(
            "Columns of the schema that the changed row doesn't have, but the envelope around it:"
            " `op`, `ts_ms`, `source.lsn`."
        ),
    )
    on_null: Literal["drop", "dead"] = Field(
        default="drop",
        description=(
            "What becomes of a message without a value (a tombstone, which follows a deletion): it"
            " is counted, or a dead letter."
        ),
    )

    @property
    def tool(self) -> Envelope:
        """Envelope around the rows."""
        raise NotImplementedError

    @property
    def root(self) -> FieldPath:
        """Path of the envelope in the message."""
        return ()

    def encoding(self, folder: Path, setting: str) -> EventEncoding:
        raise NotImplementedError

    def decoder(self, folder: Path) -> Decoder:
        return self.change_decoder(folder)

    def change_decoder(self, folder: Path) -> ChangeDecoder:
        """Makes the decoder of the events; the argument is that of `decoder`."""
        from windrow.ingest.formats.cdc.decoder import ChangeDecoder

        return ChangeDecoder(
            ModelReference(self.schema_, folder),
            self.encoding(folder, "decode"),
            self.tool,
            self.root,
            self.on_null,
            self.part,
            tuple((column, tuple(path.split("."))) for column, path in self.envelope.items()),
            included=self.included,
            unavailable=getattr(self, "unavailable", None),
        )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds columns that are filled twice, and fields that fill two columns."""
        yield from super().conflicts(written)
        yield from columns_filled_twice(written, "envelope")
        fields = section_of(written, "envelope").values()
        paths = sorted(path.split(".") for path in fields if isinstance(path, str))
        for path, next_path in pairwise(paths):
            if next_path[: len(path)] == path:
                yield (
                    ("envelope",),
                    (
                        f"{'.'.join(path)} and {'.'.join(next_path)}: a field becomes one column,"
                        " whole or in parts"
                    ),
                )


class DebeziumTableOptions(TableOptions):
    """Options of Debezium for topics that may have rows of several tables.

    Debezium's events also name a schema. By default Debezium writes the rows of a single
    table to a topic.
    """

    table_include: Annotated[
        Pattern, Default("the table that the topic is named after, and others are dead letters")
    ] = Field(
        default=None,
        description=(
            "Only rows of tables whose whole name matches, alone or with its schema's before it"
            " (`public.orders`); others are filtered."
        ),
    )


class DebeziumOptions(KeepOptions, DebeziumTableOptions, ChangeSection):
    """Settings of Debezium's events in any encoding."""

    flattened: bool = Field(
        default=False,
        description=(
            "Whether Debezium's ExtractNewRecordState has taken the rows out of their envelopes. A"
            ' row with `__deleted: "true"` or `__op: d` is a deletion.'
        ),
    )
    unavailable: Annotated[
        Literal["keep", "dead", "null"] | None,
        Default("`keep` where the table can, which is one with a primary key, else `dead`"),
    ] = Field(
        default=None,
        description=(
            "What becomes of a change with `__debezium_unavailable_value`, which stands for a large"
            " value that it left alone: the row of its key keeps what it has (`keep`), the change"
            " is a dead letter (`dead`), or the value is null (`null`)."
        ),
    )

    @property
    def tool(self) -> Envelope:
        return FLATTENED if self.flattened else DEBEZIUM


class DebeziumJsonOptions(ConnectOptions, DebeziumOptions):
    """Settings of Debezium's events in JSON."""

    dialect = json_dialects.DEBEZIUM

    dates: DateForm = Field(
        default=json_dialects.DEBEZIUM.dates,
        description=str(ConnectOptions.model_fields["dates"].description),
    )

    @property
    def reading(self) -> Reading:
        return replace(super().reading, unknown=self.unknown)

    def encoding(self, _folder: Path, _setting: str) -> JsonEncoding:
        from windrow.ingest.formats.json.decoder import JsonEncoding

        return JsonEncoding(self.reading)


class DebeziumJsonSection(DebeziumJsonOptions):
    """Debezium's change events as JSON, one for each message."""

    format: Literal["debezium-json"] = Field(default="debezium-json", description=VALUES)
    schema_include: bool = Field(
        default=False,
        description=(
            "Whether each message has its own schema beside the event, `{schema: ..., payload:"
            " ...}`, as Connect's JsonConverter writes it with `schemas.enable`. What it says of"
            " dates, timestamps and decimals counts."
        ),
    )

    @property
    def root(self) -> FieldPath:
        return (PAYLOAD,) if self.schema_include else ()

    def encoding(self, folder: Path, setting: str) -> JsonEncoding:
        from windrow.ingest.formats.json.connect import ConnectEncoding

        return (
            ConnectEncoding(self.reading)
            if self.schema_include
            else super().encoding(folder, setting)
        )


class DebeziumJsonSchemaConfluentSection(FramedOptions, DebeziumJsonOptions):
    """A schema id and one of Debezium's change events as JSON.

    The registry isn't asked for the schemas.
    """

    format: Literal["debezium-json-schema-confluent"] = Field(
        default="debezium-json-schema-confluent", description=VALUES
    )

    def decoder(self, folder: Path) -> RegistryChangeDecoder:
        from windrow.ingest.formats.cdc.by_registry import registry_decoder

        return registry_decoder(self.change_decoder(folder), self.subjects("value"))


class DebeziumAvroConfluentSection(RegistryOptions, DebeziumOptions):
    """A schema id and one of Debezium's change events in Avro's binary encoding."""

    by_schema: ClassVar[bool] = False
    payloads_class = "AvroPayloads"

    format: Literal["debezium-avro-confluent"] = Field(
        default="debezium-avro-confluent", description=VALUES
    )
    records: Annotated[tuple[Text, ...], Values("a list of names"), Default("each record")] = Field(
        default=(),
        description=(
            "The names of the records that are events: `shop.public.orders.Envelope`. Messages of"
            " other records are dead letters. Only strategies other than `topic` need them."
        ),
    )

    def encoding(self, _folder: Path, _setting: str) -> RegistryAvro:
        from windrow.ingest.formats.cdc.by_registry import RegistryAvro

        return RegistryAvro(keeps_unknown=self.keeps_unknown)

    def decoder(self, folder: Path) -> RegistryChangeDecoder:
        from windrow.ingest.formats.cdc.by_registry import registry_decoder

        change, subjects = self.change_decoder(folder), self.subjects("value")
        return replace(
            registry_decoder(change, subjects), unknown_id=self.unknown_id, records=self.records
        )


class DebeziumAvroSection(FinerOptions, DebeziumOptions):
    """Debezium's change events in Avro's binary encoding, one for each message.

    The events have no header of an Avro file.
    """

    format: Literal["debezium-avro"] = Field(default="debezium-avro", description=VALUES)
    writer_schema: SchemaSetting = Field(
        description=(
            "The Avro schema of the whole event, which is called `Envelope`; a file is relative to"
            " the spec."
        )
    )

    def encoding(self, folder: Path, setting: str) -> AvroEncoding:
        from windrow.ingest.formats.avro.decoder import AvroEncoding
        from windrow.ingest.formats.avro.given import GivenSchema

        schema = GivenSchema(self.writer_schema, folder, f"{setting}.writer_schema")
        return AvroEncoding(schema, self.keeps_unknown)


class PlainJsonSection(ReadingOptions, ChangeSection):
    """Settings of tools whose JSON needs no options of Kafka Connect."""

    def encoding(self, _folder: Path, _setting: str) -> JsonEncoding:
        from windrow.ingest.formats.json.decoder import JsonEncoding

        return JsonEncoding(self.reading)


class CanalJsonSection(PlainJsonSection):
    """Canal's messages as JSON, each with one row or several."""

    dialect = json_dialects.CANAL

    format: Literal["canal-json"] = Field(default="canal-json", description=VALUES)
    timestamps: TimestampForm = Field(
        default=json_dialects.CANAL.timestamps,
        description=str(TimestampOptions.model_fields["timestamps"].description),
    )
    coerce: Literal["strict", "lenient"] = Field(
        default="lenient", description=str(ReadingOptions.model_fields["coerce"].description)
    )

    @property
    def tool(self) -> Envelope:
        return CANAL


class MaxwellJsonSection(PlainJsonSection):
    """Maxwell's messages as JSON, each with one row."""

    dialect = json_dialects.MAXWELL

    format: Literal["maxwell-json"] = Field(default="maxwell-json", description=VALUES)
    timestamps: TimestampForm = Field(
        default=json_dialects.MAXWELL.timestamps,
        description=str(TimestampOptions.model_fields["timestamps"].description),
    )

    @property
    def tool(self) -> Envelope:
        return MAXWELL


class DmsJsonSection(PlainJsonSection):
    """Messages of AWS DMS as JSON, each with one row."""

    format: Literal["dms-json"] = Field(default="dms-json", description=VALUES)

    @property
    def tool(self) -> Envelope:
        return DMS
