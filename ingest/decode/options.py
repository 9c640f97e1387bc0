"""Options that several formats have, so that they are written and described alike."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingest.config.values import Section
from ingest.decode.timestamps import TimestampForm


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
