"""JSON as a format of specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ingest.config.values import Section
from ingest.decode.keys import KeyKind, KeySection
from ingest.decode.kind import FormatKind, FormatSection, SchemaReference

if TYPE_CHECKING:
    from ingest.ports.decoder import Decoder


class JsonOptions(Section):
    """What keys and values may say alike."""

    unknown: Literal["ignore", "dead"] = Field(
        default="ignore",
        description="What becomes of a message with fields that the schema doesn't name: they are passed over, or it is a dead letter.",
    )


class JsonSection(JsonOptions, FormatSection):
    """JSON documents, one a message."""

    format: Literal["json"] = Field(default="json", description="What the messages are; the other settings of `decode` are the format's.")
    schema_: SchemaReference = Field(
        alias="schema", description="The pandera.polars DataFrameModel whose columns, types and rules the table's rows have."
    )
    on_null: Literal["dead", "drop"] = Field(
        default="dead", description="What becomes of a message without a value (a tombstone): a dead letter, or it is only counted."
    )


class JsonKeySection(JsonOptions, KeySection):
    """JSON documents as keys."""

    format: Literal["json"] = Field(default="json", description="What the keys are; the other settings of `decode.key` are the format's.")


class _Json:
    section = JsonSection

    def decoder(self, section: JsonSection, folder: Path) -> Decoder:
        from ingest.decode.json.decoder import JsonDecoder

        return JsonDecoder(section.schema_, folder, on_null=section.on_null, unknown=section.unknown, part=section.part)


class _JsonKey:
    section = JsonKeySection

    def decoder(self, key: JsonKeySection, reference: str, folder: Path) -> Decoder:
        from ingest.decode.json.decoder import JsonDecoder

        return JsonDecoder(reference, folder, unknown=key.unknown, part=key.part)


JSON: FormatKind[JsonSection] = _Json()
JSON_KEY: KeyKind[JsonKeySection] = _JsonKey()
