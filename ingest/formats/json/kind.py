"""JSON as a format of specs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windrow.ingest.formats.keys import KeyKind, KeySection
from windrow.ingest.formats.kind import FormatKind, FormatSection, SchemaReference
from windrow.ingest.formats.options import ConnectOptions, ReadingOptions
from windrow.ingest.schema.load import ModelReference

if TYPE_CHECKING:
    from windrow.ingest.formats.json.values import Reading
    from windrow.ingest.ports.decoder import Decoder


class JsonOptions(ReadingOptions, ConnectOptions):
    """What keys and values may say alike."""

    unknown: Literal["ignore", "dead"] = Field(
        default="ignore",
        description=(
            "What becomes of a message with fields that the schema doesn't name: they are passed"
            " over, or it is a dead letter."
        ),
    )


class JsonSection(JsonOptions, FormatSection):
    """JSON documents, one a message."""

    format: Literal["json"] = Field(
        default="json",
        description="What the messages are; the other settings of `decode` are the format's.",
    )
    schema_: SchemaReference = Field(
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules the table's rows"
            " have."
        ),
    )
    on_null: Literal["dead", "drop"] = Field(
        default="dead",
        description=(
            "What becomes of a message without a value (a tombstone): a dead letter, or it is only"
            " counted."
        ),
    )


class JsonKeySection(JsonOptions, KeySection):
    """JSON documents as keys."""

    format: Literal["json"] = Field(
        default="json",
        description="What the keys are; the other settings of `decode.key` are the format's.",
    )


class _Json:
    section = JsonSection

    def decoder(self, section: JsonSection, folder: Path) -> Decoder:
        from windrow.ingest.formats.json.decoder import JsonDecoder

        model = ModelReference(section.schema_, folder)
        return JsonDecoder(
            model, section.on_null, section.unknown, section.part, reading_of(section)
        )


class _JsonKey:
    section = JsonKeySection

    def decoder(self, key: JsonKeySection, model: ModelReference) -> Decoder:
        from windrow.ingest.formats.json.decoder import JsonDecoder

        return JsonDecoder(model, unknown=key.unknown, part=key.part, reading=reading_of(key))


def reading_of(options: JsonOptions) -> Reading:
    """How values are read."""
    return replace(options.reading, dates=options.dates, decimals=options.decimal_format)


JSON: FormatKind[JsonSection] = _Json()
JSON_KEY: KeyKind[JsonKeySection] = _JsonKey()
