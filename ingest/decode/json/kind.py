"""JSON as a format of specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ingest.decode.kind import FormatKind, FormatSection, SchemaReference

if TYPE_CHECKING:
    from ingest.ports.decoder import Decoder


class JsonSection(FormatSection):
    """`on_null`: what becomes of a message without a value; `unknown`: of one with fields that the schema doesn't name."""

    format: Literal["json"] = "json"
    schema_: SchemaReference = Field(alias="schema")
    on_null: Literal["dead", "drop"] = "dead"
    unknown: Literal["ignore", "dead"] = "ignore"


class _Json:
    section = JsonSection

    def decoder(self, section: JsonSection, folder: Path) -> Decoder:
        from ingest.decode.json.decoder import JsonDecoder

        return JsonDecoder(section.schema_, folder, on_null=section.on_null, unknown=section.unknown)


JSON: FormatKind[JsonSection] = _Json()
