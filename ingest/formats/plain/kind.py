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
    """Settings of both formats: the one column of the schema, or `value` without one."""

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
    """Text in UTF-8, one a message.

    It is the one column of the schema; without a schema the column is called `value`.
    """

    format: Literal["string"] = Field(default="string", description=VALUES)


class RawSection(PlainSection):
    """Bytes as they are, or a number as Kafka's serializers write it: big-endian.

    They are the one column of the schema; without a schema the column is called
    `value`.
    """

    format: Literal["raw"] = Field(default="raw", description=VALUES)


class PlainKeySection(KeySection):
    """Settings of keys that are one column."""

    format: Literal["string", "raw"] = Field(description=KEYS)

    def decoder(self, model: ModelReference) -> Decoder:
        from windrow.ingest.formats.plain.decoder import PlainDecoder

        return PlainDecoder(self.format, model, part=self.part)


class StringKeySection(PlainKeySection):
    """Keys that are texts in UTF-8: one column."""

    format: Literal["string"] = Field(default="string", description=KEYS)


class RawKeySection(PlainKeySection):
    """Keys whose bytes are kept as they are, or are a number in big-endian: one column."""

    format: Literal["raw"] = Field(default="raw", description=KEYS)
