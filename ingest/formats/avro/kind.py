"""Settings of the format `avro`, for values and for keys."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, NamedRowSection
from windrow.ingest.formats.options import FinerOptions, KeepOptions
from windrow.ingest.settings.values import Values

if TYPE_CHECKING:
    from windrow.ingest.formats.avro.decoder import AvroEncoding


def _text(value: object) -> object:
    """Converts a schema that is a mapping in YAML to its JSON text; keeps a text unchanged."""
    if isinstance(value, dict | list):
        try:
            return json.dumps(_with_null_named(value))
        except (TypeError, ValueError):
            raise ValueError("must be a schema of texts, numbers, lists and mappings") from None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be the name of an .avsc file, or the schema itself")
    return value


def _with_null_named(value: Any) -> Any:
    """Writes the type null as "null", because YAML reads an unquoted `null` as no value."""
    if isinstance(value, dict):
        return {
            key: "null"
            if key in {"type", "items", "values"} and child is None
            else _with_null_named(child)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return ["null" if child is None else _with_null_named(child) for child in value]
    return value


SchemaSetting = Annotated[
    str,
    BeforeValidator(_text),
    Values("the name of an `.avsc` file, or the schema itself as a mapping or as its JSON text"),
    WithJsonSchema({"type": ["string", "object", "array"]}),
]


class AvroOptions(FinerOptions):
    """Settings that keys and values share."""

    by_schema: ClassVar[bool] = True
    is_named: ClassVar[bool] = True

    writer_schema: SchemaSetting = Field(
        description=(
            "The Avro schema that the messages were written with. It must be a record; a column"
            " is read from the field of the same name. A file is relative to the spec."
        )
    )

    def encoding(self, folder: Path, setting: str) -> AvroEncoding:
        from windrow.ingest.formats.avro.decoder import AvroEncoding

        return AvroEncoding(GivenSchema(self.writer_schema, folder, f"{setting}.writer_schema"))


class AvroSection(KeepOptions, AvroOptions, NamedRowSection):
    """Values that are one record in Avro's binary encoding each, without a file's header."""

    format: Literal["avro"] = Field(default="avro", description=VALUES)

    def encoding(self, folder: Path, setting: str) -> AvroEncoding:
        return replace(super().encoding(folder, setting), keeps_unknown=self.keeps_unknown)


class AvroKeySection(AvroOptions, KeySection):
    """Keys that are one record in Avro's binary encoding each."""

    format: Literal["avro"] = Field(default="avro", description=KEYS)
