"""What a spec's `decode.key` section is, and the formats that a key may have: one line
each, loaded when a spec names the format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import Field

from windrow.ingest.schema.load import ModelReference
from windrow.ingest.schema.part import Part
from windrow.ingest.settings.document import Place
from windrow.ingest.settings.kinds import OfItsKind
from windrow.ingest.settings.values import Section, Text, Values, names_in

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder

KEY_FORMATS = {
    "json": "windrow.ingest.formats.json.kind:JSON_KEY",
    "avro": "windrow.ingest.formats.avro.kind:AVRO_KEY",
    "avro-confluent": "windrow.ingest.formats.confluent.kind:AVRO_CONFLUENT_KEY",
    "protobuf": "windrow.ingest.formats.protobuf.kind:PROTOBUF_KEY",
    "protobuf-confluent": "windrow.ingest.formats.confluent.kind:PROTOBUF_CONFLUENT_KEY",
    "json-schema-confluent": "windrow.ingest.formats.confluent.kind:JSON_SCHEMA_CONFLUENT_KEY",
    "csv": "windrow.ingest.formats.csv.kind:CSV_KEY",
    "string": "windrow.ingest.formats.plain.kind:STRING_KEY",
    "raw": "windrow.ingest.formats.plain.kind:RAW_KEY",
}


class KeySection(Section):
    """What the `decode.key` section of every format has; each format says its own name,
    as a `Literal`, and its own options.
    """

    by_schema: ClassVar[bool] = False
    """See `Part.by_schema`."""

    format: str = Field(
        description="What the keys are; the other settings of `decode.key` are the format's."
    )
    fields: Annotated[tuple[Text, ...], Field(min_length=1), Values("a list of columns")] = Field(
        description=(
            "The columns of the schema that come from the key; in a format without names in this"
            " order."
        )
    )
    fields_prefix: Annotated[Text | None, Values("a text")] = Field(
        default=None,
        description=(
            "What the names under `fields` begin with in the schema and not in the key, so that key"
            " and value may have a field of one name. Goes with `fields_include: except_key`."
        ),
    )

    @property
    def part(self) -> Part:
        """The columns of the schema that come from the key."""
        prefix, place = self.fields_prefix or "", "decode.key.fields"
        return Part(
            only=self.fields,
            prefix=prefix,
            place=place,
            finer=getattr(self, "finer", "truncate"),
            by_schema=self.by_schema,
        )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """The names under `fields` differ, and all begin with the prefix."""
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


S_contra = TypeVar("S_contra", bound=KeySection, contravariant=True)


class KeyKind(Protocol[S_contra]):
    """One format of keys. Described without loading what decodes it."""

    @property
    def section(self) -> type[Any]:
        """The model of its `decode.key` section, a `KeySection`."""

    def decoder(self, key: S_contra, model: ModelReference) -> Decoder:
        """A decoder of the section's part of a schema, to be given messages whose
        values are their keys.

        It makes at most one row of each.

        Args:
            key: the section.
            model: the schema; files of the key's own are relative to its folder.

        Raises:
            SpecError: no decoder can be made of it.
        """


OptionalKey = Annotated[KeySection | None, OfItsKind("format", "json", KEY_FORMATS)]
"""A spec's `decode.key` section."""
