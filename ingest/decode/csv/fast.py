"""The fast way: whole columns of plain lines at a time. What isn't certain is left to `strict.py`.

A line is taken if it is UTF-8, has no quote, no escape and no line break but one at its end, as many fields as there are columns, and each
of them is certainly a value of its column: by a pattern that is narrower than what Arrow converts, so that the conversion can't fail. Each
line is split by itself, and no pattern or conversion looks beyond a field, so none moves its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.csv.lines import Dialect
from ingest.decode.json.values import Reading
from ingest.decode.shared.machine import Taken
from ingest.decode.text import as_text
from ingest.schema.columns import Column, Columns
from ingest.schema.dtypes import EPOCH_UNITS

_WHOLE_DIGITS = {8: 2, 16: 4, 32: 9, 64: 18}
"""Any integer of so many digits fits into so many bits."""

_EPOCH_DIGITS = {"s": 11, "ms": 14, "us": 17}
"""Any number of so many digits is an instant of the years 1970 to 9999."""

_DATE = r"[1-8][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
"""Days that every calendar has; not the 29th of February, and far enough from the years 1 and 9999."""

_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"


class Sure(NamedTuple):
    """Which texts are certainly values of a column, None: all are; and what makes them such."""

    pattern: str | None
    made: Callable[[pa.StringArray], pa.Array]


class PlainLines:
    """What is certain of lines, for some columns."""

    def __init__(self, columns: Columns, dialect: Dialect, reading: Reading) -> None:
        self._schema = columns.arrow_schema
        self._sure = [sure_of(column, reading) for column in columns.columns]
        self._dialect = dialect
        special = "".join(re.escape(c) for c in (dialect.quote, dialect.escape) if c)
        self._doubtful = rf"[{special}\r\n]"

    def decode(self, messages: pa.BinaryArray) -> Taken:
        """What is certain of the messages. A null is not taken."""
        lines, places = self._plain(messages)
        fields = pc.split_pattern(lines, self._dialect.delimiter).flatten()
        width, columns, certain = len(self._sure), [], np.ones(len(lines), np.bool_)
        for n, sure in enumerate(self._sure):
            column = fields.take(pa.array(np.arange(n, len(fields), width)))
            nullable = self._schema.field(n).nullable
            nulls = self._nulls(column)
            if nulls is not None and nullable:
                column = pc.if_else(nulls, pa.scalar(None, pa.string()), column)
            elif nulls is not None:
                certain &= ~nulls.to_numpy(zero_copy_only=False)
            if sure.pattern is not None:
                fits = pc.fill_null(pc.match_substring_regex(column, sure.pattern), True)  # null is fine by now
                certain &= fits.to_numpy(zero_copy_only=False)
            columns.append(column)
        mask = np.zeros(len(messages), np.bool_)
        mask[places[certain]] = True
        kept = columns if certain.all() else [column.filter(pa.array(certain)) for column in columns]
        return Taken(mask, [sure.made(column) for sure, column in zip(self._sure, kept, strict=True)])

    def _plain(self, messages: pa.BinaryArray) -> tuple[pa.StringArray, np.ndarray]:
        """The lines that are nothing but fields and delimiters, as many as there are columns; and which messages they are."""
        texts, _ = as_text(messages)
        if pc.any(pc.match_substring(texts, "\n")).as_py():
            texts = pc.replace_substring_regex(texts, r"\r?\n\z", "")
        counted = pc.equal(pc.count_substring(texts, self._dialect.delimiter), len(self._sure) - 1)
        doubtful = pc.or_(pc.match_substring_regex(texts, self._doubtful), pc.starts_with(texts, "\ufeff"))
        plain = pc.fill_null(pc.and_not(counted, doubtful), False)  # Arrow's own word
        places = np.flatnonzero(plain.to_numpy(zero_copy_only=False))
        return (texts if len(places) == len(texts) else texts.filter(plain)), places

    def _nulls(self, column: pa.StringArray) -> pa.BooleanArray | None:
        """Where the null literal stands; None, if there is none in the column."""
        if self._dialect.null_literal is None:
            return None
        nulls = pc.equal(column, self._dialect.null_literal)
        return nulls if pc.any(nulls).as_py() else None


def sure_of(column: Column, reading: Reading) -> Sure:
    """What is certain of a column's fields."""
    kind, unit = column.type, reading.unit(column.epoch)
    if pa.types.is_timestamp(kind) and unit is not None:
        return Sure(rf"\A(?:0|[1-9][0-9]{{0,{_EPOCH_DIGITS[unit] - 1}}})\z", lambda texts: _instants(texts, EPOCH_UNITS[unit], kind))
    if pa.types.is_timestamp(kind) and reading.timestamps == "sql":
        return Sure(rf"\A{_DATE} {_CLOCK}\z", lambda texts: texts.cast(pa.timestamp("us")).cast(kind))
    if pa.types.is_timestamp(kind):
        return Sure(rf"\A{_DATE}T{_CLOCK}{_OFFSET}\z", lambda texts: texts.cast(kind))
    if pa.types.is_integer(kind):
        return Sure(rf"\A-?(?:0|[1-9][0-9]{{0,{_WHOLE_DIGITS[kind.bit_width] - 1}}})\z", lambda texts: texts.cast(kind))
    if pa.types.is_floating(kind):
        return _sure_of_a_float(kind)
    if pa.types.is_decimal(kind):
        whole = rf"(?:0|[1-9][0-9]{{0,{kind.precision - kind.scale - 1}}})" if kind.precision > kind.scale else "0"
        fraction = rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
        return Sure(rf"\A-?{whole}{fraction}\z", lambda texts: texts.cast(kind))
    if pa.types.is_boolean(kind):
        return Sure(r"\A(?:true|false)\z", lambda texts: pc.equal(texts, "true"))
    if pa.types.is_date(kind):
        return Sure(rf"\A{_DATE}\z", lambda texts: texts.cast(kind))
    return Sure(None, lambda texts: texts)


def _sure_of_a_float(kind: pa.DataType) -> Sure:
    """Integers that it holds, but for -0, which is the integer 0; and others, rounded once to a double as the strict way does."""
    digits, exponent = (15, 2) if kind.bit_width == 64 else (7, 1)
    power = rf"[eE][+-]?[0-9]{{1,{exponent}}}"
    fraction = rf"-?(?:0|[1-9][0-9]{{0,15}})(?:\.[0-9]{{1,17}}(?:{power})?|{power})"
    return Sure(rf"\A(?:0|-?[1-9][0-9]{{0,{digits - 1}}}|{fraction})\z", lambda texts: texts.cast(pa.float64()).cast(kind))


def _instants(texts: pa.StringArray, factor: int, kind: pa.DataType) -> pa.Array:
    return pc.multiply(texts.cast(pa.int64()), factor).cast(kind)
