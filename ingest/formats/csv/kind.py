"""CSV as a format of specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from windrow.ingest.formats.keys import KeyKind, KeySection
from windrow.ingest.formats.kind import FormatKind, FormatSection, SchemaReference
from windrow.ingest.formats.options import TimestampOptions
from windrow.ingest.schema.load import ModelReference
from windrow.ingest.settings.document import Place
from windrow.ingest.settings.values import LeftOut, OrNone, Values, Written

if TYPE_CHECKING:
    from windrow.ingest.formats.csv.decoder import CsvDecoder


def _character(value: str | None) -> str | None:
    if value is not None and (
        len(value) != 1 or not value.isascii() or value in "\r\n\0" or value.isalnum()
    ):
        raise ValueError("must be one character of ASCII, no letter, digit or line break")
    return value


_NONE = Values("a character, `none`")
Character = Annotated[Written | None, OrNone, AfterValidator(_character), _NONE]


class CsvOptions(TimestampOptions):
    """What keys and values may say alike."""

    delimiter: Annotated[Written, AfterValidator(_character), Values("a character")] = Field(
        default=",", description='What stands between fields; a tab is written `"\\t"`.'
    )
    quote: Character = Field(
        default='"',
        description=(
            "What a field begins and ends with that holds delimiters or line breaks; doubled it"
            " stands for itself. `none`: it is a character like any other."
        ),
    )
    escape: Character = Field(default=None, description="Behind it a character stands for itself.")
    null_literal: Annotated[
        Written | None, OrNone, Values("a text, `none`"), LeftOut("none: no field is null")
    ] = Field(
        default=None,
        description=(
            'The field, without quotes, that stands for null; an empty one is written `""`.'
        ),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
        """The characters differ."""
        yield from super().conflicts(written)
        seen: dict[str, str] = {}
        for name, default in (("delimiter", ","), ("quote", '"'), ("escape", "none")):
            value = written.get(name, default)
            if isinstance(value, str) and value != "none":
                other = seen.setdefault(value, name)
                if other != name:
                    yield (name,), f"is the same as {other}: a character has one meaning"
        null = written.get("null_literal")
        if isinstance(null, str) and (
            set(null) & {*"\r\n", *(c for c, name in seen.items() if name == "delimiter")}
        ):
            yield (
                ("null_literal",),
                "holds a delimiter or a line break, so no field would ever be that",
            )
        elif isinstance(null, str) and null[:1] in {
            c for c, name in seen.items() if name == "quote"
        } - {""}:
            yield ("null_literal",), "begins with a quote, and what stands in quotes is never null"


class CsvSection(CsvOptions, FormatSection):
    """Lines of fields, one a message."""

    format: Literal["csv"] = Field(
        default="csv",
        description="What the messages are; the other settings of `decode` are the format's.",
    )
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


class CsvKeySection(CsvOptions, KeySection):
    """Lines of fields as keys."""

    format: Literal["csv"] = Field(
        default="csv",
        description="What the keys are; the other settings of `decode.key` are the format's.",
    )


class _Csv:
    section = CsvSection

    def decoder(self, section: CsvSection, folder: Path) -> CsvDecoder:
        from windrow.ingest.formats.csv.decoder import CsvDecoder
        from windrow.ingest.formats.csv.lines import Dialect

        dialect = Dialect(section.delimiter, section.quote, section.escape, section.null_literal)
        return CsvDecoder(
            ModelReference(section.schema_, folder),
            section.on_null,
            section.part,
            dialect,
            section.reading,
        )


class _CsvKey:
    section = CsvKeySection

    def decoder(self, key: CsvKeySection, model: ModelReference) -> CsvDecoder:
        from windrow.ingest.formats.csv.decoder import CsvDecoder
        from windrow.ingest.formats.csv.lines import Dialect

        dialect = Dialect(key.delimiter, key.quote, key.escape, key.null_literal)
        return CsvDecoder(model, part=key.part, dialect=dialect, reading=key.reading)


CSV: FormatKind[CsvSection] = _Csv()
CSV_KEY: KeyKind[CsvKeySection] = _CsvKey()
