"""Text, and bytes as they are, as formats of specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windrow.ingest.formats.kind import KEYS, VALUES, FormatSection, KeySection, SchemaReference
from windrow.ingest.schema.load import ModelReference

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder


class PlainSection(FormatSection):
    """The one column of the schema; without one it is called `value`."""

    format: Literal["string", "raw"] = Field(description=VALUES)
    schema_: SchemaReference | None = Field(
        default=None,
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel with the one column that the value is; left out, the"
            " column is called `value`."
        ),
    )
    on_null: Literal["dead", "drop", "keep"] = Field(
        default="dead",
        description=(
            "What becomes of a message without a value (a tombstone): a dead letter, it is only"
            " counted, or a row whose column is null."
        ),
    )

    def decoder(self, folder: Path) -> Decoder:
        from windrow.ingest.formats.plain.decoder import PlainDecoder

        model = None if self.schema_ is None else ModelReference(self.schema_, folder)
        return PlainDecoder(self.format, model, self.on_null, self.part)


class StringSection(PlainSection):
    """A text, UTF-8, one a message: the one column of the schema; without one it is
    called `value`.
    """

    format: Literal["string"] = Field(default="string", description=VALUES)


class RawSection(PlainSection):
    """Bytes as they are: the one column of the schema; without one it is called `value`."""

    format: Literal["raw"] = Field(default="raw", description=VALUES)


class PlainKeySection(KeySection):
    """A key as one column."""

    format: Literal["string", "raw"] = Field(description=KEYS)

    def decoder(self, model: ModelReference) -> Decoder:
        from windrow.ingest.formats.plain.decoder import PlainDecoder

        return PlainDecoder(self.format, model, part=self.part)


class StringKeySection(PlainKeySection):
    """A text, UTF-8, as a key: one column."""

    format: Literal["string"] = Field(default="string", description=KEYS)


class RawKeySection(PlainKeySection):
    """A key's bytes as they are: one column."""

    format: Literal["raw"] = Field(default="raw", description=KEYS)
