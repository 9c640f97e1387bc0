"""Settings of the formats `string` and `raw`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windrow.ingest.formats.kind import KEYS, VALUES, FormatSection, KeySection
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.values import SchemaReference

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder


class PlainSection(FormatSection):
    """Settings of both formats.

    A message is the only column of the schema, or the column `value` without a schema.
    """

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
    """Texts in UTF-8, one for each message.

    The text is the only column of the schema, or the column `value` without a schema.
    """

    format: Literal["string"] = Field(default="string", description=VALUES)


class RawSection(PlainSection):
    """Bytes that are kept unchanged, or a number that Kafka's serializers wrote in big-endian.

    They are the only column of the schema, or the column `value` without a schema.
    """

    format: Literal["raw"] = Field(default="raw", description=VALUES)


class PlainKeySection(KeySection):
    """Settings of keys that are a single column."""

    format: Literal["string", "raw"] = Field(description=KEYS)

    def decoder(self, model: ModelReference) -> Decoder:
        from windrow.ingest.formats.plain.decoder import PlainDecoder

        return PlainDecoder(self.format, model, part=self.part)


class StringKeySection(PlainKeySection):
    """Keys that are texts in UTF-8, in a single column."""

    format: Literal["string"] = Field(default="string", description=KEYS)


class RawKeySection(PlainKeySection):
    """Keys in a single column: bytes that are kept unchanged, or a number in big-endian."""

    format: Literal["raw"] = Field(default="raw", description=KEYS)
