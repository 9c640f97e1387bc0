"""Settings of the format `json`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, RowSection
from windrow.ingest.formats.options import ConnectOptions, ReadingOptions
from windrow.ingest.formats.shared.json_dialects import JSON, Reading, Unknown

if TYPE_CHECKING:
    from windrow.ingest.formats.json.decoder import JsonEncoding


class JsonOptions(ReadingOptions, ConnectOptions):
    """Options of both keys and values."""

    dialect = JSON

    unknown: Unknown = Field(
        default="ignore",
        description=(
            "What becomes of a message with fields that the schema doesn't name: they are passed"
            " over, or it is a dead letter."
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


class JsonSection(JsonOptions, RowSection):
    """JSON documents, one for each message."""

    format: Literal["json"] = Field(default="json", description=VALUES)


class JsonKeySection(JsonOptions, KeySection):
    """JSON documents as keys."""

    format: Literal["json"] = Field(default="json", description=KEYS)
