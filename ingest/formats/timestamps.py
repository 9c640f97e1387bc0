"""The forms in which a message may write its timestamps, dates and decimals."""

from __future__ import annotations

from typing import Literal

TimestampForm = Literal["iso-8601", "sql", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]
"""ISO 8601 with an offset; the same, in UTC where there is no offset; as numbers since 1970."""

DateForm = Literal["iso-8601", "epoch_days"]
"""As in ISO 8601; as whole days since 1970."""

DecimalForm = Literal["numeric", "base64"]
"""By their digits, as a number or a text; by the bytes of the whole number that these
are without the point, in base64.
"""
