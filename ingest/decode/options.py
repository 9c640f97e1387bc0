"""Options that several formats have, so that they are written and described alike."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingest.config.values import Section
from ingest.decode.timestamps import DateForm, DecimalForm, TimestampForm


class TimestampOptions(Section):
    """Of formats whose timestamps are written as text or numbers."""

    timestamps: TimestampForm = Field(
        default="iso-8601",
        description="How timestamps are written, where the schema's field doesn't say `epoch` itself: RFC 3339 with an offset; "
        "`2026-01-05 09:00:00.5`, in UTC unless an offset stands behind it; or whole seconds, milliseconds or microseconds since 1970.",
    )


class ReadingOptions(TimestampOptions):
    """Of formats whose values may be of another kind than their columns."""

    coerce: Literal["strict", "lenient"] = Field(
        default="strict",
        description="Whether a value of another kind will do where it says the very same: a number in a string, a whole number with a "
        "fraction of zeros, a number or a boolean for a String, `true` and `false` in strings for a Boolean.",
    )


class ConnectOptions(Section):
    """Of formats that Kafka Connect writes: how its values look in JSON."""

    dates: DateForm = Field(
        default="iso-8601",
        description="How dates are written: `2026-01-05`, or with a `Z` behind it, as with Debezium's `time.precision.mode: isostring`; or "
        "whole days since 1970.",
    )
    decimal_format: DecimalForm = Field(
        default="numeric",
        description="How decimals are written: their digits as a number or a text (Debezium's `decimal.handling.mode` `double` or "
        "`string`, Connect's `decimal.format: NUMERIC`); or their bytes in base64 (`precise`, `BASE64`), then with the column's own scale, "
        "unless the message says another.",
    )
