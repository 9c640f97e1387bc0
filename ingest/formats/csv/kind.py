"""Settings of the format `csv`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from windrow.ingest.formats.kind import KEYS, VALUES, KeySection, RowSection
from windrow.ingest.formats.options import KeepOptions, TimestampOptions
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import Default, OrNone, TextOrEmpty, Values, must

if TYPE_CHECKING:
    from windrow.ingest.formats.csv.decoder import CsvEncoding


_character = must(
    lambda value: (
        value is None
        or (len(value) == 1 and value.isascii() and value not in "\r\n\0" and not value.isalnum())
    ),
    "be one character of ASCII, no letter, digit or line break",
)
_NONE = Values("a character, `none`")
Character = Annotated[TextOrEmpty | None, OrNone, _character, _NONE]


class CsvOptions(TimestampOptions):
    """Options of both keys and values."""

    delimiter: Annotated[TextOrEmpty, _character, Values("a character")] = Field(
        default=",", description='The character between fields; a tab is written `"\\t"`.'
    )
    quote: Character = Field(
        default='"',
        description=(
            "The character before and behind a field that contains delimiters or line breaks;"
            " doubled, it means itself. `none`: no character has this meaning."
        ),
    )
    escape: Character = Field(
        default=None,
        description=(
            "The character behind it means itself; but `t`, `n`, `r`, `0`, `b`, `f`, `v` and `Z`"
            " mean characters of control, as in lines of MySQL, `COPY` and Hive."
        ),
    )
    null_literal: Annotated[
        TextOrEmpty | None, OrNone, Values("a text, `none`"), Default("none: no field is null")
    ] = Field(
        default=None,
        description=('The field, without quotes, that means null; an empty one is written `""`.'),
    )

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds equal special characters."""
        yield from super().conflicts(written)
        setting_by_character: dict[str, str] = {}
        for name, default in (("delimiter", ","), ("quote", '"'), ("escape", "none")):
            value = written.get(name, default)
            if isinstance(value, str) and value != "none":
                first_setting = setting_by_character.setdefault(value, name)
                if first_setting != name:
                    yield (name,), f"is the same as {first_setting}: a character has one meaning"

    def encoding(self, _folder: Path, _setting: str) -> CsvEncoding:
        from windrow.ingest.formats.csv.decoder import CsvEncoding
        from windrow.ingest.formats.csv.lines import Dialect

        dialect = Dialect(self.delimiter, self.quote, self.escape, self.null_literal)
        return CsvEncoding(dialect, self.reading)


class CsvSection(KeepOptions, CsvOptions, RowSection):
    """Lines of fields, one for each message."""

    format: Literal["csv"] = Field(default="csv", description=VALUES)

    @property
    def reading(self) -> Reading:
        return replace(super().reading, unknown=self.unknown)


class CsvKeySection(CsvOptions, KeySection):
    """Lines of fields as keys."""

    format: Literal["csv"] = Field(default="csv", description=KEYS)
