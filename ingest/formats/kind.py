"""What a format is: the options that a spec's `decode` section has for it, and the
decoder that they make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import AfterValidator, Field

from windrow.ingest.formats.keys import OptionalKey
from windrow.ingest.schema.part import Part
from windrow.ingest.settings.document import Place
from windrow.ingest.settings.values import (
    CODE_REFERENCE,
    LeftOut,
    Section,
    Text,
    Values,
    Written,
    names_in,
    section_of,
)

if TYPE_CHECKING:
    from windrow.ingest.ports.decoder import Decoder


def _schema(value: str) -> str:
    if not CODE_REFERENCE.fullmatch(value):
        raise ValueError("must be FILE.py:Class or package.module:Class")
    return value


SchemaReference = Annotated[
    Written, AfterValidator(_schema), Values("`FILE.py:Class`, `package.module:Class`")
]


class FormatSection(Section):
    """What the `decode` section of every format has; each format says its own name, as
    a `Literal`, and its own options.

    `schema` is relative to the spec. A format that needs one to decode requires it; one
    that knows its columns by itself may do without.
    """

    by_schema: ClassVar[bool] = False
    """See `Part.by_schema`."""

    format: str = Field(
        description="What the messages are; the other settings of `decode` are the format's."
    )
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
    headers: Annotated[Mapping[Text, Text], Values("`{COLUMN: HEADER}`"), LeftOut("none")] = Field(
        default={},
        description=(
            "Columns of the schema that come from headers, each with its header's name: UTF-8 where"
            " the column is a String, bytes where it is Binary. Of several headers of one name the"
            " last counts; a message without it has null."
        ),
    )

    @property
    def part(self) -> Part:
        """The columns of the schema that come from the value."""
        of_key = (
            self.key.fields if self.key is not None and self.fields_include == "except_key" else ()
        )
        without = tuple(dict.fromkeys((*of_key, *self.headers)))
        return Part(
            without=without, finer=getattr(self, "finer", "truncate"), by_schema=self.by_schema
        )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """Key, value and headers are columns of one schema, and each column comes from
        one place, or from key and value alike.
        """
        key, headers = section_of(written, "key"), section_of(written, "headers")
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


S_contra = TypeVar("S_contra", bound=FormatSection, contravariant=True)


class FormatKind(Protocol[S_contra]):
    """One format. Described without loading what decodes it."""

    @property
    def section(self) -> type[Any]:
        """The model of its `decode` section, a `FormatSection`."""

    def decoder(self, section: S_contra, folder: Path) -> Decoder:
        """The decoder that a section asks for. `folder`: what its files are relative to.

        Raises:
            SpecError: no decoder can be made of it.
        """
