"""Avro as a format of specs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from windrow.ingest.formats.avro.given import GivenSchema
from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, RowSection
from windrow.ingest.formats.options import FinerOptions
from windrow.ingest.settings.values import Values

if TYPE_CHECKING:
    from windrow.ingest.formats.avro.decoder import AvroEncoding


def _text(value: object) -> object:
    """A schema in YAML is a mapping, kept as its JSON text; a name of a file stays."""
    if isinstance(value, dict | list):
        try:
            return json.dumps(_named(value))
        except (TypeError, ValueError):
            raise ValueError("must be a schema of texts, numbers, lists and mappings") from None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be the name of an .avsc file, or the schema itself")
    return value


def _named(value: Any) -> Any:
    """The same where the type null, which YAML reads as nothing, is its name."""
    if isinstance(value, dict):
        return {
            key: "null" if key in {"type", "items", "values"} and of is None else _named(of)
            for key, of in value.items()
        }
    return (
        ["null" if of is None else _named(of) for of in value] if isinstance(value, list) else value
    )


WriterSchema = Annotated[
    str,
    BeforeValidator(_text),
    Values("the name of an `.avsc` file, or the schema itself as a mapping or as its JSON text"),
    WithJsonSchema({"type": ["string", "object", "array"]}),
]


class AvroOptions(FinerOptions):
    """What keys and values say alike."""

    by_schema: ClassVar[bool] = True

    writer_schema: WriterSchema = Field(
        description=(
            "The Avro schema that they were written with, a record whose fields the columns are"
            " named after; a file is relative to the spec."
        )
    )

    def encoding(self, folder: Path, setting: str) -> AvroEncoding:
        from windrow.ingest.formats.avro.decoder import AvroEncoding

        return AvroEncoding(GivenSchema(self.writer_schema, folder, f"{setting}.writer_schema"))


class AvroSection(AvroOptions, RowSection):
    """Records in Avro's binary encoding, one a message, without a file's header."""

    format: Literal["avro"] = Field(default="avro", description=VALUES)


class AvroKeySection(AvroOptions, KeySection):
    """Records in Avro's binary encoding as keys."""

    format: Literal["avro"] = Field(default="avro", description=KEYS)
