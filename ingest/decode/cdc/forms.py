"""Values that a tool writes as something else than the column holds: days as numbers, decimals as bytes.

They are decoded as what they are written as, and become the column's values here, a column at a time.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.decode.shared.calendar import MAX_DAYS, MIN_DAYS
from ingest.schema.columns import Column

DateForm = Literal["epoch_days", "iso-8601"]
DecimalForm = Literal["numeric", "base64"]

_DECIMAL_BYTES = 16


@dataclass(frozen=True)
class Misfit:
    """Which values of a column (by position) are none of its type, with a short reason and what was expected."""

    positions: npt.NDArray[np.intp]
    reason: str
    what: str


@dataclass(frozen=True)
class Forms:
    """How dates and decimals are written, where that isn't as in any other message."""

    dates: DateForm = "iso-8601"
    decimals: DecimalForm = "numeric"

    def written(self, column: Column) -> Column:
        """The column as it is written."""
        if self._in_days(column):
            return replace(column, type=pa.int32())
        return replace(column, type=pa.string()) if self._in_base64(column) else column

    def read(self, values: pa.Array, column: Column) -> tuple[pa.Array, list[Misfit]]:
        """The column's values; those that are none are null."""
        if self._in_days(column):
            return _days(values)
        return _decimals(values, column.type) if self._in_base64(column) else (values, [])

    def _in_days(self, column: Column) -> bool:
        return self.dates == "epoch_days" and bool(pa.types.is_date(column.type))

    def _in_base64(self, column: Column) -> bool:
        return self.decimals == "base64" and bool(pa.types.is_decimal(column.type))


AS_THEY_ARE = Forms()


def _days(values: pa.Int32Array) -> tuple[pa.Array, list[Misfit]]:
    """Whole days since 1970."""
    days = values.fill_null(0).to_numpy()
    wrong = np.flatnonzero((days < MIN_DAYS) | (days > MAX_DAYS))
    fitting = _without(values, wrong)
    return fitting.cast(pa.date32()), [Misfit(wrong, "out_of_range", "Expected a date that the calendar has")]


def _decimals(values: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, list[Misfit]]:
    """Connect's form: the digits without the point as a whole number, in two's complement, its bytes from the highest on, in base64."""
    bound, octets, there = 10**kind.precision, bytearray(_DECIMAL_BYTES * len(values)), np.zeros(len(values), np.bool_)
    malformed, large = [], []
    for i, text in enumerate(values.to_pylist()):
        if text is None:
            continue
        try:
            digits = binascii.a2b_base64(text, strict_mode=True)
        except ValueError:
            digits = b""
        number = int.from_bytes(digits, "big", signed=True)
        if not digits:
            malformed.append(i)
        elif abs(number) >= bound:
            large.append(i)
        else:
            octets[_DECIMAL_BYTES * i : _DECIMAL_BYTES * (i + 1)] = number.to_bytes(_DECIMAL_BYTES, "little", signed=True)
            there[i] = True
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    what = f"Expected a decimal of {kind.precision} digits, {kind.scale} of them after the point"
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(bytes(octets))]), [
        Misfit(np.array(malformed, np.intp), "wrong_format", "Expected the bytes of a decimal in base64"),
        Misfit(np.array(large, np.intp), "out_of_range", what),
    ]


def _without(values: pa.Array, wrong: npt.NDArray[np.intp]) -> pa.Array:
    """The same with null where something is wrong."""
    if not len(wrong):
        return values
    mask = np.zeros(len(values), np.bool_)
    mask[wrong] = True
    return pa.compute.if_else(pa.array(mask), pa.scalar(None, values.type), values)
