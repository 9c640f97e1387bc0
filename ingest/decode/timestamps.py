"""The forms in which a message may write its timestamps."""

from __future__ import annotations

from typing import Literal

TimestampForm = Literal["iso-8601", "sql", "epoch_s", "epoch_ms", "epoch_us"]
"""RFC 3339 with an offset; with a blank in between, and in UTC where there is no offset; as whole numbers since 1970."""
