"""Options that several formats share, so that they have the same names and descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from windrow.ingest.formats.shared.json_dialects import (
    EXACT,
    DateForm,
    DecimalForm,
    Reading,
    TimestampForm,
)
from windrow.ingest.model.instants import is_zone
from windrow.ingest.settings.document import SettingPath
from windrow.ingest.settings.values import Default, Section, Text, Values, must

Zone = Annotated[
    Text | None,
    must(
        lambda name: name is None or is_zone(name),
        "be the name of a time zone, like Europe/Berlin",
    ),
    Values("the name of a time zone, as in `Europe/Berlin`"),
    Default("none"),
]


class FinerOptions(Section):
    """Option of formats whose timestamps may be finer than a column's."""

    finer: Literal["truncate", "dead"] = Field(
        default="truncate",
        description=(
            "What becomes of timestamps finer than a microsecond: they are cut to the microsecond"
            " before, and the receipt counts their messages as `truncated`; or such a message is a"
            " dead letter."
        ),
    )


class KeepOptions(Section):
    """Option of formats that pass over what the schema doesn't name, or keep it."""

    unknown: Literal["ignore", "keep"] = Field(
        default="ignore",
        description=(
            "What becomes of fields that the schema doesn't name: they are passed over, or the row"
            " has them in the column `_rest`, as a JSON object (`keep`)."
        ),
    )


class TimestampOptions(FinerOptions):
    """Options of formats whose timestamps are written as text or numbers."""

    dialect: ClassVar[Reading] = EXACT
    """How the format writes values; the options change it."""

    timestamps: TimestampForm = Field(
        default="iso-8601",
        description=(
            "How timestamps are written, where the schema's field doesn't say `epoch` or `zone`"
            " itself: as in ISO 8601 or RFC 3339 with an offset; the same, and in UTC where there"
            " is no offset (`sql`); or as seconds, milliseconds, microseconds or nanoseconds since"
            " 1970."
        ),
    )
    zone: Zone = Field(
        default=None,
        description=(
            "The time zone of timestamps that have no offset. One that the zone's clocks showed"
            " twice, or never, is a dead letter."
        ),
    )

    @property
    def reading(self) -> Reading:
        """Options in the form that a decoder takes."""
        return replace(self.dialect, timestamps=self.timestamps, zone=self.zone)

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Finds a `zone` for timestamps that are numbers, which have no zone."""
        yield from super().conflicts(written)
        if written.get("zone") is not None and str(written.get("timestamps")).startswith("epoch_"):
            yield ("zone",), "goes with timestamps that are text: numbers since 1970 have no zone"


class ReadingOptions(TimestampOptions):
    """Options of formats whose values may have a different type than their columns."""

    coerce: Literal["strict", "lenient"] = Field(
        default="strict",
        description=(
            "Whether a value of another kind will do where it says the very same: a number in a"
            " string, a whole number with a fraction of zeros, a number or a boolean for a String,"
            " `true` and `false` in strings for a Boolean."
        ),
    )

    @property
    def reading(self) -> Reading:
        return replace(super().reading, lenient=self.coerce == "lenient")


class ConnectOptions(TimestampOptions):
    """Options of formats that Kafka Connect writes: how it writes values in JSON."""

    dates: DateForm = Field(
        default="iso-8601",
        description=(
            "How dates are written: `2026-01-05`, or with a `Z` behind it, as with Debezium's"
            " `time.precision.mode: isostring`; or whole days since 1970."
        ),
    )
    decimal_format: DecimalForm = Field(
        default="numeric",
        description=(
            "How decimals are written: their digits as a number or a text (Debezium's"
            " `decimal.handling.mode` `double` or `string`, Connect's `decimal.format: NUMERIC`);"
            " or their bytes in base64 (`precise`, `BASE64`), then with the column's own scale,"
            " unless the message says another."
        ),
    )

    @property
    def reading(self) -> Reading:
        return replace(super().reading, dates=self.dates, decimals=self.decimal_format)
