"""Dates that are written as whole days since 1970, in a format that can't say so.

They are decoded as what they are written as, and become the column's values here, a column at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.decode.shared.calendar import MAX_DAYS, MIN_DAYS
from ingest.schema.columns import Column


@dataclass(frozen=True)
class Misfit:
    """Which values of a column (by position) are none of its type, with a short reason and what was expected."""

    positions: npt.NDArray[np.intp]
    reason: str
    what: str


@dataclass(frozen=True)
class Forms:
    """Whether dates are whole days."""

    in_days: bool = False

    def written(self, column: Column) -> Column:
        """The column as it is written."""
        return replace(column, type=pa.int32()) if self._days(column) else column

    def read(self, values: pa.Array, column: Column) -> tuple[pa.Array, list[Misfit]]:
        """The column's values; those that are none are null."""
        return _days(values) if self._days(column) else (values, [])

    def _days(self, column: Column) -> bool:
        return self.in_days and bool(pa.types.is_date(column.type))


AS_THEY_ARE = Forms()


def _days(values: pa.Int32Array) -> tuple[pa.Array, list[Misfit]]:
    """Whole days since 1970."""
    days = values.fill_null(0).to_numpy()
    wrong = np.flatnonzero((days < MIN_DAYS) | (days > MAX_DAYS))
    fitting = _without(values, wrong)
    return fitting.cast(pa.date32()), [Misfit(wrong, "out_of_range", "Expected a date that the calendar has")]


def _without(values: pa.Array, wrong: npt.NDArray[np.intp]) -> pa.Array:
    """The same with null where something is wrong."""
    if not len(wrong):
        return values
    mask = np.zeros(len(values), np.bool_)
    mask[wrong] = True
    return pa.compute.if_else(pa.array(mask), pa.scalar(None, values.type), values)
