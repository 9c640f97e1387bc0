"""Settings of the format `json`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, NamedRowSection
from windrow.ingest.formats.options import ConnectOptions, ReadingOptions
from windrow.ingest.formats.shared.connect_types import PAYLOAD
from windrow.ingest.formats.shared.json_dialects import JSON, Reading, Unknown
from windrow.ingest.schema.message_fields import DocumentForm, FieldPath
from windrow.ingest.schema.message_part import Part
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.values import Default

if TYPE_CHECKING:
    from windrow.ingest.formats.json.decoder import JsonEncoding
    from windrow.ingest.ports.decoder import Decoder


UNKNOWN_IN_KEYS = (
    "What becomes of a message with fields that the schema doesn't name: they are passed over, or"
    " it is a dead letter."
)


class JsonOptions(ReadingOptions, ConnectOptions):
    """Options of both keys and values."""

    dialect = JSON

    unknown: Unknown = Field(
        default="ignore",
        description=(
            "What becomes of a message with fields that the schema doesn't name: they are passed"
            " over; the row has them in the column `_rest`, as a JSON object (`keep`); or it is a"
            " dead letter."
        ),
    )

    allow_non_numeric_numbers: bool = Field(
        default=False,
        description=(
            "Whether `NaN`, `Infinity` and `-Infinity`, bare or in quotes, are values of Float32"
            " and Float64 columns."
        ),
    )

    def encoding(self, _folder: Path, _setting: str) -> JsonEncoding:
        from windrow.ingest.formats.json.decoder import JsonEncoding

        return JsonEncoding(self.reading)

    @property
    def reading(self) -> Reading:
        odd = self.allow_non_numeric_numbers
        return replace(super().reading, unknown=self.unknown, non_numeric=odd)


class JsonDocumentOptions(JsonOptions):
    """Options of keys and values that are nothing but a document."""

    is_named: ClassVar[bool] = True

    schema_include: bool = Field(
        default=False,
        description=(
            "Whether each document has its own schema beside the row, `{schema: ..., payload:"
            " ...}`, as Connect's JsonConverter writes it with `schemas.enable`. What it says of"
            " dates, timestamps and decimals counts."
        ),
    )

    def encoding(self, _folder: Path, _setting: str) -> JsonEncoding:
        # Fields beside the row don't refuse a message; `Part.refuses_unknown` is for those in it.
        reading = self.reading
        if self.is_inside and self.unknown == "dead":
            reading = replace(reading, unknown="ignore")
        if self.schema_include:
            from windrow.ingest.formats.json.connect import ConnectEncoding

            return ConnectEncoding(reading)
        from windrow.ingest.formats.json.decoder import JsonEncoding

        return JsonEncoding(reading)

    @property
    def payload_path(self) -> FieldPath:
        """Path of what stands beside the schema; empty if there is no schema."""
        return (PAYLOAD,) if self.schema_include else ()

    @property
    def is_inside(self) -> bool:
        """Whether the row is inside another object."""
        return self.schema_include


class JsonSection(JsonDocumentOptions, NamedRowSection):
    """JSON documents, one for each message, or several."""

    format: Literal["json"] = Field(default="json", description=VALUES)
    rows: Annotated[DocumentForm | None, Default("a value is one document")] = Field(
        default=None,
        description=(
            "How a value holds several documents, each of which becomes a row: as the items of an"
            " `array`, or in `lines`. If one of them is refused, the whole message is."
        ),
    )

    def decoder(self, folder: Path) -> Decoder:
        from windrow.ingest.formats.row_decoder import RowDecoder

        model, encoding = ModelReference(self.schema_, folder), self.encoding(folder, "decode")
        return RowDecoder(model, encoding, self.on_null, self.part, self.rows)

    @property
    def part(self) -> Part:
        return replace(super().part, refuses_unknown=self.unknown == "dead")

    @property
    def root_path(self) -> FieldPath:
        return (*self.payload_path, *super().root_path)

    @property
    def is_inside(self) -> bool:
        return bool(self.root_path)


class JsonKeySection(JsonDocumentOptions, KeySection):
    """JSON documents as keys."""

    format: Literal["json"] = Field(default="json", description=KEYS)
    unknown: Literal["ignore", "dead"] = Field(default="ignore", description=UNKNOWN_IN_KEYS)

    @property
    def part(self) -> Part:
        return replace(super().part, root=self.payload_path, refuses_unknown=self.unknown == "dead")
