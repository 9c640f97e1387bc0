"""Text, and bytes as they are, as formats of specs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from windrow.ingest.formats.keys import KeyKind, KeySection
from windrow.ingest.formats.kind import FormatKind, FormatSection, SchemaReference
from windrow.ingest.schema.load import ModelReference

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder

_VALUES = "What the messages are; the other settings of `decode` are the format's."
_KEYS = "What the keys are; the other settings of `decode.key` are the format's."
_SCHEMA = (
    "The pandera.polars DataFrameModel with the one column that the value is; left out, the column"
    " is called `value`."
)
_ON_NULL = (
    "What becomes of a message without a value (a tombstone): a dead letter, it is only counted, or"
    " a row whose column is null."
)


class StringSection(FormatSection):
    """A text, UTF-8, one a message: the one column of the schema; without one it is
    called `value`.
    """

    format: Literal["string"] = Field(default="string", description=_VALUES)
    schema_: SchemaReference | None = Field(default=None, alias="schema", description=_SCHEMA)
    on_null: Literal["dead", "drop", "keep"] = Field(default="dead", description=_ON_NULL)


class RawSection(FormatSection):
    """Bytes as they are: the one column of the schema; without one it is called `value`."""

    format: Literal["raw"] = Field(default="raw", description=_VALUES)
    schema_: SchemaReference | None = Field(default=None, alias="schema", description=_SCHEMA)
    on_null: Literal["dead", "drop", "keep"] = Field(default="dead", description=_ON_NULL)


class StringKeySection(KeySection):
    """A text, UTF-8, as a key: one column."""

    format: Literal["string"] = Field(default="string", description=_KEYS)


class RawKeySection(KeySection):
    """A key's bytes as they are: one column."""

    format: Literal["raw"] = Field(default="raw", description=_KEYS)


class _Plain:
    def __init__(self, section: type[StringSection | RawSection]) -> None:
        self.section = section

    def decoder(self, section: StringSection | RawSection, folder: Path) -> Decoder:
        from windrow.ingest.formats.plain.decoder import PlainDecoder

        model = None if section.schema_ is None else ModelReference(section.schema_, folder)
        return PlainDecoder(section.format, model, section.on_null, section.part)


class _PlainKey:
    def __init__(self, section: type[StringKeySection | RawKeySection]) -> None:
        self.section = section

    def decoder(self, key: StringKeySection | RawKeySection, model: ModelReference) -> Decoder:
        from windrow.ingest.formats.plain.decoder import PlainDecoder

        return PlainDecoder(key.format, model, part=key.part)


STRING: FormatKind[StringSection] = _Plain(StringSection)
RAW: FormatKind[RawSection] = _Plain(RawSection)
STRING_KEY: KeyKind[StringKeySection] = _PlainKey(StringKeySection)
RAW_KEY: KeyKind[RawKeySection] = _PlainKey(RawKeySection)
