"""Bounds of a table's dates and timestamps: the years 1 to 9999.

As days and as microseconds since 1970.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta

EPOCH = datetime(1970, 1, 1)  # arithmetic on UTC without the cost of zones  # noqa: DTZ001
MIN_MICROS = (datetime(1, 1, 1) - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001
MAX_MICROS = (datetime.max - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ901
MIN_DAYS, MAX_DAYS = (
    each.toordinal() - date(1970, 1, 1).toordinal() for each in (date.min, date.max)
)
