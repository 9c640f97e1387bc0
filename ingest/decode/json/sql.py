"""The SQL of the fast way: what DuckDB makes of the columns, and when a value is certainly exactly of its type.

In the statements, `s` is json_transform's struct and `t` the list of JSON types at the pointers, which are numbered as they come up.
"""

from __future__ import annotations

import json
from itertools import count

import pyarrow as pa

from ingest.decode.json.values import MAX_MICROS, MIN_MICROS
from ingest.schema.columns import Column
from ingest.schema.dtypes import EPOCH_UNITS

_INSTANT = r"[12]\d{3}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_DAY = r"[12]\d{3}-\d\d-\d\d"
_VALID = "SELECT CASE WHEN json_valid(v) THEN v END AS d, * FROM messages"
_INTS = "('UBIGINT', 'BIGINT')"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _raw_type(kind: pa.DataType, epoch: str | None) -> object:
    """What json_transform makes of a value: never more than a cast, the rest is said in SQL."""
    if pa.types.is_struct(kind):
        return {f.name: _raw_type(f.type, None) for f in kind}
    if pa.types.is_integer(kind):
        return {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[kind.bit_width]
    if pa.types.is_floating(kind):
        return "DOUBLE"
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    return "BIGINT" if epoch else "VARCHAR"


class Statements:
    """The statements for some columns."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._pointers = [""]
        self._objects = [""]
        self._numbers = count(2)  # SQL counts from 1, which is the document itself
        self._values, conditions = [], ["t[1] = 'OBJECT'"]
        for column in columns:
            value, good = self._column(column)
            self._values.append(value)
            conditions.append(good)
        self._good = " AND ".join(conditions)

    def main(self) -> str:
        """Columns: the values, whether they are exact, how many of the schema's names were found, n."""
        spec = _literal(json.dumps({c.name: _raw_type(c.type, c.epoch) for c in self._columns}, ensure_ascii=False))
        pointers = ", ".join(map(_literal, self._pointers))
        found = "coalesce(list_count(t) - 1, -1)"
        values = ", ".join(f"{value} AS c{i}" for i, value in enumerate(self._values))
        typed = f"SELECT json_transform(d, {spec}) AS s, json_type(d, [{pointers}]) AS t, * FROM ({_VALID})"  # noqa: S608  # names, quoted
        return f"SELECT {values}, coalesce({self._good}, false) AS good, {found} AS found, n FROM ({typed})"  # noqa: S608  # the same

    def keys(self) -> str:
        """Columns: the keys of the document and of each object that the schema names, n."""
        lists = ", ".join(f"coalesce(json_keys(v, {_literal(p)}), []) AS k{i}" for i, p in enumerate(self._objects))
        return f"SELECT {lists}, n FROM messages"  # noqa: S608  # the same

    def _column(self, column: Column) -> tuple[str, str]:
        value, good, kind = self._value(column.type, f"s.{_name(column.name)}", _pointer("", column.name), column.epoch)
        return value, f"({_is_null(kind)} OR {good})" if column.nullable else f"({good})"

    def _value(self, kind: pa.DataType, raw: str, pointer: str, epoch: str | None) -> tuple[str, str, str]:
        """SQL for the value, for whether it is exact, and for its JSON type."""
        self._pointers.append(pointer)
        t = f"t[{next(self._numbers)}]"
        if pa.types.is_struct(kind):
            return self._struct(kind, raw, pointer, t)
        value, good = _scalar(kind, raw, t, epoch)
        return value, f"({good})", t

    def _struct(self, kind: pa.DataType, raw: str, pointer: str, t: str) -> tuple[str, str, str]:
        self._objects.append(pointer)
        values, conditions = [], [f"{t} = 'OBJECT'"]
        for field in kind:
            value, good, inner = self._value(field.type, f"{raw}.{_name(field.name)}", _pointer(pointer, field.name), None)
            values.append(f"{_name(field.name)} := {value}")
            conditions.append(f"({_is_null(inner)} OR {good})")
        return f"CASE WHEN {t} = 'OBJECT' THEN struct_pack({', '.join(values)}) END", " AND ".join(conditions), t


def _pointer(above: str, name: str) -> str:
    return f"{above}/{name.replace('~', '~0').replace('/', '~1')}"


def _is_null(t: str) -> str:
    return f"{t} IS NULL OR {t} = 'NULL'"


def _scalar(kind: pa.DataType, raw: str, t: str, epoch: str | None) -> tuple[str, str]:
    """SQL for the value and for whether it is exact."""
    if epoch:
        factor = EPOCH_UNITS[epoch]
        inside = f"{raw} BETWEEN {MIN_MICROS // factor + 1} AND {MAX_MICROS // factor - 1}"
        return f"CASE WHEN {inside} THEN {raw} * {factor} END", f"{t} IN {_INTS} AND {inside}"
    if pa.types.is_integer(kind):
        return raw, f"{t} IN {_INTS} AND {raw} IS NOT NULL"
    if pa.types.is_floating(kind):
        return _floating(kind, raw, t)
    if pa.types.is_decimal(kind):
        return _decimal(kind, raw, t)
    if pa.types.is_timestamp(kind):
        return _parsed(raw, t, _INSTANT, "TIMESTAMPTZ")
    if pa.types.is_date(kind):
        return _parsed(raw, t, _DAY, "DATE")
    return raw, f"{t} = '{'BOOLEAN' if pa.types.is_boolean(kind) else 'VARCHAR'}'"


def _floating(kind: pa.DataType, raw: str, t: str) -> tuple[str, str]:
    """An integer below the bound has not been rounded; at the bound it may have been. One of more than 64 bits is a double to DuckDB."""
    double = kind.bit_width == 64
    whole = 1 << (53 if double else 24)
    most = f"abs({raw}) < {float(1 << 63)!r}::DOUBLE"  # neither infinite nor NaN, which is above all
    value = raw if double else f"CASE WHEN {most} THEN {raw}::FLOAT END"
    return value, f"({t} = 'DOUBLE' AND {most}) OR ({t} IN {_INTS} AND abs({raw}) < {whole})"


def _decimal(kind: pa.DataType, raw: str, t: str) -> tuple[str, str]:
    cast = f"try_cast({raw} AS DECIMAL({kind.precision}, {kind.scale}))"
    fraction = rf"(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    plain = f"regexp_full_match({raw}, '-?(0|[1-9][0-9]*){fraction}') AND {cast} IS NOT NULL"
    return cast, f"({t} IN ('VARCHAR', 'UBIGINT', 'BIGINT') OR ({t} = 'DOUBLE' AND NOT long)) AND {plain}"


def _parsed(raw: str, t: str, pattern: str, sql_type: str) -> tuple[str, str]:
    cast = f"try_cast({raw} AS {sql_type})"
    return cast, f"{t} = 'VARCHAR' AND regexp_full_match({raw}, '{pattern}') AND {cast} IS NOT NULL"
