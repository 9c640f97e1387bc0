"""Settings of a spec's `decode` section that every format has.

They say which columns come from the value, the key and headers. Each format adds its
own options, and makes its decoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from windrow.ingest.schema.message_fields import Codec, FieldPath
from windrow.ingest.schema.message_part import Part
from windrow.ingest.schema.user_code import ModelReference
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.kinds import OfItsKind
from windrow.ingest.settings.values import (
    Default,
    SchemaReference,
    Section,
    Text,
    Values,
    must,
    names_in,
    section_of,
)

if TYPE_CHECKING:
    from windrow.ingest.formats.row_decoder import Encoding
    from windrow.ingest.ports.decoder import Decoder

KEY_FORMATS = {
    "json": "windrow.ingest.formats.json.kind:JsonKeySection",
    "avro": "windrow.ingest.formats.avro.kind:AvroKeySection",
    "avro-confluent": "windrow.ingest.formats.confluent.kind:AvroConfluentKeySection",
    "protobuf": "windrow.ingest.formats.protobuf.kind:ProtobufKeySection",
    "protobuf-confluent": "windrow.ingest.formats.confluent.kind:ProtobufConfluentKeySection",
    "json-schema-confluent": "windrow.ingest.formats.confluent.kind:JsonSchemaConfluentKeySection",
    "csv": "windrow.ingest.formats.csv.kind:CsvKeySection",
    "string": "windrow.ingest.formats.plain.kind:StringKeySection",
    "raw": "windrow.ingest.formats.plain.kind:RawKeySection",
}


VALUES = "The format of the values; the other settings of `decode` are the format's."
KEYS = "The format of the keys; the other settings of `decode.key` are the format's."


class KeySection(Section):
    """Settings of `decode.key` that every format has.

    Each format gives its name, as a `Literal`, and its own options.
    """

    by_schema: ClassVar[bool] = False
    """Whether messages have a writer's schema; see `Part.by_schema`."""
    is_named: ClassVar[bool] = False
    """Whether fields have names; see `Part.is_named`."""

    format: str = Field(description=KEYS)
    fields: Annotated[tuple[Text, ...], Field(min_length=1), Values("a list of columns")] = Field(
        description=(
            "The columns of the schema that come from the key. A format without names has them in"
            " this order."
        )
    )
    fields_prefix: Annotated[Text | None, Values("a text")] = Field(
        default=None,
        description=(
            "A prefix that the names under `fields` have in the schema and not in the key, so that"
            " key and value may have a field of the same name. Goes with"
            " `fields_include: except_key`."
        ),
    )

    def encoding(self, folder: Path, setting: str) -> Encoding:
        """Returns the encoding of the keys; the arguments are those of `RowSection.encoding`."""
        raise NotImplementedError

    def decoder(self, model: ModelReference) -> Decoder:
        """Makes a decoder of the key's columns, for messages whose values are their keys.

        The decoder makes at most one row of each message.

        Args:
            model: the schema. Paths in `decode.key` are relative to its folder.

        Raises:
            SpecError: no decoder can be made.
        """
        from windrow.ingest.formats.row_decoder import RowDecoder  # loads Arrow

        return RowDecoder(model, self.encoding(model.folder, "decode.key"), part=self.part)

    @property
    def part(self) -> Part:
        """Columns of the schema that come from the key."""
        prefix, setting = self.fields_prefix or "", "decode.key.fields"
        return Part(
            only=self.fields,
            prefix=prefix,
            setting=setting,
            finer=getattr(self, "finer", "truncate"),
            by_schema=self.by_schema,
            is_named=self.is_named,
        )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds names that are twice under `fields`, and names without the prefix."""
        fields, prefix = names_in(written.get("fields")), written.get("fields_prefix")
        twice = [name for name, count in Counter(fields).items() if count > 1]
        if twice:
            yield ("fields",), f"names {', '.join(twice)} twice"
        if isinstance(prefix, str):
            without = [name for name in fields if not name.startswith(prefix) or name == prefix]
            if without:
                yield (
                    ("fields",),
                    (
                        f"{', '.join(without)}: every name must begin with fields_prefix, {prefix},"
                        " and go on behind it"
                    ),
                )


OptionalKey = Annotated[
    KeySection | None, OfItsKind(option="format", default="json", kinds=KEY_FORMATS)
]
"""A spec's `decode.key` section."""


class FormatSection(Section):
    """Settings of `decode` that every format has.

    Each format gives its name, as a `Literal`, and its own options.

    `schema` is relative to the spec. A format requires it if it needs a schema to
    decode. A format that knows its columns works without a schema.
    """

    by_schema: ClassVar[bool] = False
    """Whether messages have a writer's schema; see `Part.by_schema`."""
    is_named: ClassVar[bool] = False
    """Whether fields have names; see `Part.is_named`."""

    format: str = Field(description=VALUES)
    schema_: SchemaReference | None = Field(
        default=None,
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules the table's rows"
            " have."
        ),
    )
    key: OptionalKey = Field(
        default=None,
        description=(
            "How the key's bytes become columns; left out, a key is only a metadata column."
        ),
    )
    fields_include: Literal["all", "except_key"] = Field(
        default="all",
        description=(
            "Which columns of the schema the value holds: `all` of them, then key and value must"
            " agree on those of the key, or all `except_key`, those under `key.fields`."
        ),
    )
    headers: Annotated[Mapping[Text, Text], Values("`{COLUMN: HEADER}`"), Default("none")] = Field(
        default={},
        description=(
            "Columns of the schema that come from headers, each with its header's name: UTF-8 where"
            " the column is a String, bytes where it is Binary. Of several headers of one name the"
            " last counts; a message without it has null."
        ),
    )

    codecs: Annotated[tuple[Codec, ...], Values("a list of codecs"), Default("none")] = Field(
        default=(),
        description=(
            "What the values are wrapped in, the outermost first: `gzip`, `deflate` (of zlib),"
            " `deflate-raw`, `zstd`, `base64`, or `json`, a JSON string whose text is the value."
        ),
    )

    def decoder(self, folder: Path) -> Decoder:
        """Makes the decoder that the section describes.

        Args:
            folder: the folder that the section's paths are relative to.

        Raises:
            SpecError: no decoder can be made.
        """
        raise NotImplementedError

    @property
    def keeps_unknown(self) -> bool:
        """Whether the rows have what the schema doesn't name."""
        return getattr(self, "unknown", "ignore") == "keep"

    @property
    def part(self) -> Part:
        """Columns of the schema that come from the value."""
        of_key = (
            self.key.fields if self.key is not None and self.fields_include == "except_key" else ()
        )
        without = tuple(dict.fromkeys((*of_key, *self.headers)))
        return Part(
            without=without,
            finer=getattr(self, "finer", "truncate"),
            by_schema=self.by_schema,
            is_named=self.is_named,
            keeps_unknown=self.keeps_unknown,
        )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds settings of key, headers and schema that conflict.

        Key, value and headers fill columns of one schema. Each column comes from one of
        them, or from both key and value.
        """
        key, headers = section_of(written, "key"), section_of(written, "headers")
        if written.get("unknown") == "keep" and "unknown" not in cls.model_fields:
            yield (
                ("unknown",),
                (
                    "keep goes with the formats json, avro, csv and Debezium's, and with"
                    " json-schema-confluent and avro-confluent"
                ),
            )
        for part in ("key", "headers"):
            if written.get(part) and written.get("schema") is None:
                yield (part,), "goes with decode.schema, whose columns it fills"
        if "fields_include" in written and "key" not in written:
            yield (
                ("fields_include",),
                "goes with decode.key: without one all columns come from the value",
            )
        if key.get("fields_prefix") is not None and written.get("fields_include") != "except_key":
            yield (
                ("key", "fields_prefix"),
                (
                    "goes with fields_include: except_key: by names with a prefix the value doesn't"
                    " hold the key's"
                ),
            )
        twice = [name for name in names_in(key.get("fields")) if name in headers]
        if twice:
            yield (
                ("headers",),
                (
                    f"{', '.join(twice)}: comes from the key already, by decode.key.fields: take it"
                    " out of one of them"
                ),
            )


def columns_filled_twice(
    written: Mapping[str, Any], setting: str
) -> Iterator[tuple[SettingPath, str]]:
    """Finds columns of a setting that also come from the key or a header."""
    elsewhere = {
        *names_in(section_of(written, "key").get("fields")),
        *section_of(written, "headers"),
    }
    twice = [name for name in section_of(written, setting) if name in elsewhere]
    if twice:
        yield (
            (setting,),
            (
                f"{', '.join(twice)}: comes from the key or a header already: take it out of one of"
                " them"
            ),
        )


PathText = Annotated[
    Text,
    must(
        lambda value: all(value.split(".")),
        "be a field, or one inside another, like source.ts_ms",
    ),
]


class RowSection(FormatSection):
    """Settings of formats whose messages are one row each."""

    schema_: SchemaReference = Field(
        alias="schema",
        description=(
            "The pandera.polars DataFrameModel whose columns, types and rules the table's rows"
            " have."
        ),
    )
    on_null: Literal["dead", "drop"] = Field(
        default="dead",
        description=(
            "What becomes of a message without a value (a tombstone): a dead letter, or it is only"
            " counted."
        ),
    )

    def encoding(self, folder: Path, setting: str) -> Encoding:
        """Returns the encoding of the values.

        Args:
            folder: the folder that the section's paths are relative to.
            setting: the section's path in the spec, for errors.
        """
        raise NotImplementedError

    def decoder(self, folder: Path) -> Decoder:
        from windrow.ingest.formats.row_decoder import RowDecoder  # loads Arrow

        model = ModelReference(self.schema_, folder)
        return RowDecoder(model, self.encoding(folder, "decode"), self.on_null, self.part)


class NamedRowSection(RowSection):
    """Settings of formats whose fields have names, so that a row may be inside its message."""

    root: Annotated[PathText | None, Values("a field, or one inside another: `payload.after`")] = (
        Field(
            default=None,
            description=(
                "The object inside the message that has the columns, except for those with a"
                " `path` in the schema's metadata. A message without it is a dead letter."
            ),
        )
    )

    @property
    def part(self) -> Part:
        return replace(super().part, root=self.root_path)

    @property
    def root_path(self) -> FieldPath:
        """Path of the object that has the columns."""
        return () if self.root is None else tuple(self.root.split("."))
