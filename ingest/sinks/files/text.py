"""Converts rows to lines of text and back with DuckDB, whole columns at a time.

Values have these texts in JSON and in CSV:

    timestamp    2026-01-02T03:04:05.000006Z; without the Z if the column has no time zone
    date         2026-01-02
    decimal      its digits, quoted, so that no reader takes it for a float
    bytes        base64
    map          a list of `key` and `value`
    NaN ...      in JSON the texts "NaN", "Infinity" and "-Infinity", as in Protobuf's JSON
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import duckdb
import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.sinks.kit import quote_identifier

Way = Literal["json", "csv"]

_SQL = (
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INTEGER"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_string, "VARCHAR"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_date32, "DATE"),
)


class ValueTexts:
    """Converts rows of one schema, in a DuckDB database in memory that holds one batch."""

    def __init__(self, schema: pa.Schema, text_format: Way) -> None:
        self._schema = schema
        plain = self._plain = pa.schema([pa.field(f.name, _without_maps(f.type)) for f in schema])
        texts = {f.name: _to_text(quote_identifier(f.name), f.type, text_format) for f in plain}
        rows = {f.name: _from_text(quote_identifier(f.name), f.type) for f in plain}
        shape = _text(msgspec.json.encode({f.name: _shape(f.type) for f in plain}).decode())
        self._to_text_sql = _select(
            {"line": f"to_json({_struct(texts)})::VARCHAR"} if text_format == "json" else texts,
            "rows",
        )
        source = (
            _select({}, "rows", f"unnest(json_transform(line, {shape}))")
            if text_format == "json"
            else "rows"
        )
        self._from_text_sql = _select(rows, f"({source})" if text_format == "json" else source)
        self._database = duckdb.connect(config={"threads": "1"})
        self._database.execute("SET enable_progress_bar = false")

    def text(self, rows: pa.Table) -> pa.Table:
        """Converts rows to text: for JSON to one column `line`, for CSV to plain columns."""
        plain = rows.cast(self._plain)
        if any(pa.types.is_nested(kind) for kind in self._plain.types):
            # DuckDB refuses nested structs in a slice of an Arrow table, so the rows are copied.
            plain = plain.take(pa.array(np.arange(plain.num_rows)))
        return self._run_query(self._to_text_sql, plain)

    def rows(self, lines: pa.Table) -> pa.Table:
        """Converts text back to rows: JSON from a column `line`, CSV from columns of text.

        Raises:
            duckdb.Error, pyarrow.ArrowInvalid: `text` didn't write this line. The error may
                quote the line.
        """
        table = self._run_query(self._from_text_sql, lines).combine_chunks()
        columns = [
            (
                _with_maps(table[f.name], f.type)
                if pa.types.is_nested(f.type)
                else table[f.name].cast(f.type)
            )
            for f in self._schema
        ]
        return pa.table(columns, schema=self._schema)

    def _run_query(self, query: str, rows: pa.Table) -> pa.Table:
        self._database.register("rows", rows)
        try:
            return self._database.sql(query).to_arrow_table()
        finally:
            self._database.unregister("rows")


def _without_maps(kind: pa.DataType) -> pa.DataType:
    """Returns the type with lists of pairs instead of maps. DuckDB's maps refuse duplicate keys."""
    if pa.types.is_map(kind):
        pair = [
            pa.field("key", _without_maps(kind.key_type)),
            pa.field("value", _without_maps(kind.item_type)),
        ]
        return pa.list_(pa.struct(pair))
    if pa.types.is_list(kind):
        return pa.list_(_without_maps(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                pa.field(kind.field(i).name, _without_maps(kind.field(i).type))
                for i in range(kind.num_fields)
            ]
        )
    return kind


def _with_maps(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Converts lists of pairs back to maps, at any depth; Arrow's cast doesn't."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_map(kind):
        pairs = array.values
        keys, items = (
            _with_maps(pairs.field("key"), kind.key_type),
            _with_maps(pairs.field("value"), kind.item_type),
        )
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null()).cast(kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            array.offsets, _with_maps(array.values, kind.value_type), mask=array.is_null()
        ).cast(kind)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(
            [_with_maps(array.field(f.name), f.type) for f in fields],
            fields=fields,
            mask=array.is_null(),
        )
    return array.cast(kind)


def _to_text(expression: str, kind: pa.DataType, text_format: Way, depth: int = 0) -> str:
    """Returns SQL that converts a value to text."""
    if pa.types.is_timestamp(kind):
        return f"strftime(make_timestamp(epoch_us({expression})), {_stamp(kind)})"
    if pa.types.is_binary(kind):
        return f"to_base64({expression})"
    if pa.types.is_date32(kind) or pa.types.is_decimal(kind):
        return f"{expression}::VARCHAR"
    if pa.types.is_floating(kind):
        return _float(expression) if text_format == "json" else expression
    return _for_each_value(
        expression,
        kind,
        depth,
        lambda inner_expression, inner: _to_text(inner_expression, inner, text_format, depth + 1),
    )


def _float(expression: str) -> str:
    """Returns SQL that converts a float to JSON. Infinity and NaN become texts."""
    odd = (
        f"CASE WHEN isnan({expression}) THEN 'NaN' WHEN {expression} > 0 THEN 'Infinity' ELSE"
        " '-Infinity' END"
    )
    return (
        f"CASE WHEN {expression} IS NULL THEN NULL WHEN isfinite({expression}) THEN"
        f" to_json({expression}) ELSE to_json({odd}) END"
    )


def _from_text(expression: str, kind: pa.DataType, depth: int = 0) -> str:
    """Returns SQL that converts a text back to its value."""
    if pa.types.is_timestamp(kind):
        return f"strptime({expression}, {_stamp(kind)})"
    if pa.types.is_binary(kind):
        return f"from_base64({expression})"
    if pa.types.is_decimal(kind):
        return f"{expression}::DECIMAL({kind.precision}, {kind.scale})"
    sql = next((sql for test, sql in _SQL if test(kind)), None)
    return (
        _for_each_value(
            expression,
            kind,
            depth,
            lambda inner_expression, inner: _from_text(inner_expression, inner, depth + 1),
        )
        if sql is None
        else f"{expression}::{sql}"
    )


def _for_each_value(
    expression: str, kind: pa.DataType, depth: int, inner: Callable[[str, pa.DataType], str]
) -> str:
    """Returns SQL that converts each value in a list or a struct. Other values stay unchanged."""
    if pa.types.is_list(kind):
        return (
            f"list_transform({expression}, lambda e{depth}: {inner(f'e{depth}', kind.value_type)})"
        )
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        struct = _struct(
            {
                f.name: inner(f"struct_extract({expression}, {_text(f.name)})", f.type)
                for f in fields
            }
        )
        return f"CASE WHEN {expression} IS NULL THEN NULL ELSE {struct} END"
    return expression


def _shape(kind: pa.DataType) -> Any:
    """Returns the structure of a type's JSON for DuckDB: lists and objects of texts.

    The texts are converted later.
    """
    if pa.types.is_list(kind):
        return [_shape(kind.value_type)]
    if pa.types.is_struct(kind):
        return {kind.field(i).name: _shape(kind.field(i).type) for i in range(kind.num_fields)}
    return "VARCHAR"


def _stamp(kind: pa.DataType) -> str:
    return _text("%Y-%m-%dT%H:%M:%S.%f" + ("Z" if kind.tz else ""))


def _struct(parts: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_text(name)}: {sql}" for name, sql in parts.items()) + "}"


def _select(columns: Mapping[str, str], source: str, *more: str) -> str:
    """Makes a query. All names in it are quoted, and it has no literal values."""
    parts = ", ".join(
        [*(f"{sql} AS {quote_identifier(name)}" for name, sql in columns.items()), *more]
    )
    return f"SELECT {parts} FROM {source}"  # noqa: S608


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
