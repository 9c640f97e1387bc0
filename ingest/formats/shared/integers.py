"""Rules for integers of a message that become values of a column.

A table's dates and timestamps are in the years 1 to 9999. `MIN_DAYS` to `MAX_MICROS` are the
bounds of these years, as days and as microseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

import pyarrow as pa

EPOCH = datetime(1970, 1, 1)  # arithmetic on UTC without the cost of zones  # noqa: DTZ001
MIN_MICROS = (datetime(1, 1, 1) - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001
MAX_MICROS = (datetime.max - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ901
MIN_DAYS, MAX_DAYS = (
    day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max)
)


@dataclass(frozen=True)
class IntegerRule:
    """Range of the integers that a column takes, and their conversion.

    A number from `low` to `high` becomes `number * factor // divisor`. If the division has
    a remainder, the number is finer than the column, and the setting `finer` decides. A
    float column also takes numbers outside the range if it holds them exactly.

    Attributes:
        low: the smallest integer.
        high: the largest integer.
        factor: the factor.
        divisor: the divisor.
    """

    low: int
    high: int
    factor: int = 1
    divisor: int = 1

    def narrow(self, low: int, high: int) -> IntegerRule:
        """Returns the rule for integers of a type that has only `low` to `high`."""
        return IntegerRule(max(low, self.low), min(high, self.high), self.factor, self.divisor)


def column_rule(column: pa.DataType, unit: tuple[int, int] | None = None) -> IntegerRule | None:
    """Returns the rule of a column; None if integers can't become its values.

    Args:
        column: the column's type.
        unit: the factor and the divisor that convert an integer to microseconds. Only a
            timestamp column uses it; without it, such a column takes no integers.
    """
    if pa.types.is_timestamp(column):
        if unit is None:
            return None
        factor, divisor = unit
        low, high = -(-MIN_MICROS * divisor // factor), MAX_MICROS * divisor // factor
        return IntegerRule(low, high, factor, divisor)
    if pa.types.is_integer(column):
        half = 1 << column.bit_width - 1
        return IntegerRule(-half, half - 1)
    if pa.types.is_floating(column):
        largest = 1 << (53 if column.bit_width == 64 else 24)
        return IntegerRule(-largest, largest)
    if pa.types.is_decimal(column) and column.scale == 0:
        largest = 10**column.precision - 1
        return IntegerRule(-largest, largest)
    return None
