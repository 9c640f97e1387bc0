"""The `sql` step compared with the same SELECT over the whole table in DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.profiles import examples
from tests.transform.small_verdicts import columns_of, decoded
from windrow.ingest.errors import SpecError
from windrow.ingest.schema.dtypes import TIMESTAMP
from windrow.ingest.testing.contracts.transform import messages_for
from windrow.ingest.transform.sql.step import Sql

SCHEMA = pa.schema(
    {
        "a": pa.int64(),
        "b": pa.int32(),
        "d": pa.decimal128(9, 2),
        "f": pa.float64(),
        "t": pa.string(),
        "j": pa.string(),
        "l": pa.list_(pa.int64()),
        "s": pa.struct([("x", pa.int64()), ("y", pa.string())]),
        "m": pa.map_(pa.string(), pa.int64()),
        "at_": TIMESTAMP,
        "day": pa.date32(),
        "flag": pa.bool_(),
    }
)
WORDS = ["", "1", "22", "-3", "x", "a b c", "é😀", "2026-01-05", "1e3", '{"k": 1}', "null", "nan"]
JSON = ['{"k": 1}', '{"k": "7", "l": [1, null]}', "[1, 2]", "{", "null", '{"k": {"z": "é"}}']
INTS = st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31)]))
VALUES: dict[str, SearchStrategy[Any]] = {
    "a": st.one_of(INTS, st.sampled_from([2**63 - 1, -(2**63), 2**40])),
    "b": INTS,
    "d": st.decimals("-9999999.99", "9999999.99", places=2),
    "f": st.sampled_from([0.0, -0.0, 1.5, 1e300, float("inf"), float("nan")]),
    "t": st.sampled_from(WORDS),
    "j": st.sampled_from(JSON),
    "l": st.lists(st.one_of(st.none(), INTS), max_size=3),
    "s": st.fixed_dictionaries({"x": st.one_of(st.none(), INTS), "y": st.sampled_from(WORDS)}),
    "m": st.dictionaries(st.sampled_from("kz"), INTS).map(lambda entries: list(entries.items())),
    "at_": st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(  # noqa: DTZ001
        lambda moment: moment.replace(tzinfo=dt.UTC)
    ),
    "day": st.dates(dt.date(1, 1, 1)),
    "flag": st.booleans(),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), kind) for name, kind in VALUES.items()}),
    max_size=12,
)

KINDS: dict[str, list[str]] = {
    "int": [
        "a", "b", "s.x", "m['k']", "l[1]", "1", "0", "-7", "({int} + {int})", "({int} * {int})",
        "({int} // {int})", "({int} % {int})", "abs({int})", "CAST({text} AS BIGINT)",
        "TRY_CAST({text} AS INT)", "CAST({int} AS INT)", "length({text})",
        "CASE WHEN {bool} THEN {int} ELSE {int} END", "coalesce({int}, {int})", "len({list})",
        "CAST({json}->>'$.k' AS BIGINT)", "CAST(json_array_length({json}) AS INT)", "year({day})",
        "TRY({int} // {int})", "CAST({double} AS BIGINT)", "NULLIF({int}, {int})",
    ],
    "text": [
        "t", "j", "s.y", "'x'", "'1'", "({text} || {text})", "upper({text})", "trim({text})",
        "substr({text}, CAST({int} AS BIGINT), 2)", "replace({text}, 'x', {text})",
        "CAST({int} AS VARCHAR)", "({json}->>'$.k')", "json_extract_string({json}, '$.l[0]')",
        "CAST({json}->'$.k' AS VARCHAR)", "regexp_replace({text}, '[0-9]', '#', 'g')",
        "regexp_extract({text}, '([a-z])', 1)",
        "CASE {int} WHEN 1 THEN {text} WHEN {int} THEN 'two' END", "coalesce({text}, {text})",
        "strftime({at}, '%Y-%m')", "list_aggregate({texts}, 'string_agg', ',')",
        "split_part({text}, ' ', 2)", "CAST({list} AS VARCHAR)", "CAST({struct} AS VARCHAR)",
        "to_json({struct})::VARCHAR",
    ],
    "json": [
        "j", "{text}", "to_json({list})",
    ],
    "bool": [
        "flag", "({int} < {int})", "({text} = {text})", "({text} IS NULL)", "({bool} AND {bool})",
        "({bool} OR {bool})", "NOT {bool}", "({text} LIKE {text})", "({text} IN ('1', {text}))",
        "json_valid({text})", "list_contains({list}, {int})", "({int} BETWEEN {int} AND {int})",
        "({int} IS DISTINCT FROM {int})", "starts_with({text}, {text})", "({at} < {at})",
        "CAST({text} AS BOOLEAN)", "map_contains(m, {text})",
    ],
    "double": [
        "f", "({int} / {int})", "CAST({text} AS DOUBLE)", "round({double}, 1)", "sqrt({double})",
        "({double} * {double})", "CAST({decimal} AS DOUBLE)",
    ],
    "decimal": [
        "d", "({decimal} * 2)", "CAST({text} AS DECIMAL(9, 2))", "(d + d)",
    ],
    "list": [
        "l", "[{int}, {int}]", "list_transform({list}, lambda x: x + {int})",
        "list_filter({list}, lambda x: x > {int})", "list_sort({list})", "list_distinct([b, b])",
        "map_values(m)", "list_slice({list}, 1, {int})",
    ],
    "texts": [
        "string_split({text}, ' ')", "[{text}]", "map_keys(m)",
    ],
    "struct": [
        "s", "{{'x': {int}, 'y': {text}}}", "struct_insert(s, z := {int})",
    ],
    "at": [
        "at_", "({at} + INTERVAL 1 DAY)", "date_trunc('hour', {at})", "make_timestamptz({int})",
        "make_timestamptz(a)", "CAST({text} AS TIMESTAMPTZ)",
        "({day}::TIMESTAMP AT TIME ZONE 'UTC')",
    ],
    "nested": [
        "[{at}]", "{{'x': [{day}]}}", "MAP {{'k': {at}}}",
    ],
    "day": [
        "day", "CAST({text} AS DATE)", "CAST({at} AS DATE)", "make_date({int}, 1, 1)",
    ],
}  # fmt: skip
"""Expressions of each type. A name in braces stands for any expression of that type."""

UNNEST = "unnest("
COLUMNS = [kind for kind in KINDS if kind != "json"]


@st.composite
def expressions(draw: st.DrawFn, kind: str, deep: int = 3) -> str:
    forms = [form for form in KINDS[kind] if deep or "{" not in form.replace("{{", "")]
    form = draw(st.sampled_from(forms or KINDS[kind][:1]))
    parts_by_kind = {
        name: [draw(expressions(name, max(deep - 1, 0))) for _ in range(form.count(f"{{{name}}}"))]
        for name in KINDS
    }
    for name, inner in parts_by_kind.items():
        for part in inner:
            form = form.replace(f"{{{name}}}", part.replace("{", "{{").replace("}", "}}"), 1)
    return form.replace("{{", "{").replace("}}", "}")


@st.composite
def selects(draw: st.DrawFn) -> tuple[str, str]:
    """Draws a list of columns (passed on, computed or unnested), and a condition."""
    star = draw(st.sampled_from([[], ["*"], ["* EXCLUDE (t) RENAME (a AS z)"], ["b", "j AS z"]]))
    kinds = draw(st.lists(st.sampled_from(COLUMNS), min_size=0 if star else 1, max_size=4))
    columns = [f"{draw(expressions(kind))} AS c{n}" for n, kind in enumerate(kinds)]
    lists = draw(st.sampled_from([[], [], [], ["list"], ["texts", "list"]]))
    columns += [f"{UNNEST}{draw(expressions(kind, 1))}) AS {kind}_" for kind in lists]
    return ", ".join([*star, *columns]), draw(st.one_of(st.just("TRUE"), expressions("bool")))


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)


def by_duckdb(
    con: duckdb.DuckDBPyConnection, query: str, rows: Sequence[dict[str, Any]]
) -> pa.Table | None:
    """Returns DuckDB's result for the rows; None if they fail."""
    con.register("rows", pa.Table.from_batches([batch(rows)]))
    try:
        table = con.sql(query).to_arrow_table()
        table.to_pylist()  # Python has the same years as tables.
    except (duckdb.Error, OverflowError, ValueError):
        return None
    return table


@settings(max_examples=examples(120, short=10))
@given(rows=ROWS, select=selects(), size=st.integers(1, 5))
def test_batches_are_the_whole_table(
    rows: list[dict[str, Any]], select: tuple[str, str], size: int
) -> None:
    """The rows in any batches have the same result as the SELECT over all rows at once.

    The dead letters are the rows that fail alone. The types are the same.
    """
    columns, where = select
    sql = Sql(f"SELECT {columns} FROM rows" + (f" WHERE {where}" if where != "TRUE" else ""))
    note(sql.query)
    # CASE, because DuckDB may evaluate the sides of an AND in any order.
    query = f"SELECT {columns} FROM rows WHERE CASE WHEN {where} THEN TRUE ELSE FALSE END"
    flat_query = query.replace(UNNEST, "(")
    with duckdb.connect(":memory:", config={"threads": 1}) as con:
        con.execute("SET TimeZone = 'UTC'")
        try:
            schema = sql.columns(columns_of(batch([]))).arrow_schema
        except SpecError:  # It fails without a row, because nothing is optimized away.
            con.execute("SET disabled_optimizers = 'common_subexpressions'")
            case = f"CASE WHEN {where} THEN TRUE ELSE FALSE END"
            query = f"SELECT {columns.replace(UNNEST, '(')}, {case} FROM rows"
            assert by_duckdb(con, query, []) is None
            return
        failing = [
            index for index, row in enumerate(rows) if by_duckdb(con, flat_query, [row]) is None
        ]
        good = [row for index, row in enumerate(rows) if index not in failing]
        expected = by_duckdb(con, query, good)
        if expected is None:  # DuckDB skips an argument only if all rows are alike.
            expected = pa.concat_tables(by_duckdb(con, query, [row]) for row in good)
    step, dead, batches = sql.open(), [], []
    for start in range(0, len(rows), size):
        input_batch = decoded(batch(rows[start : start + size]))
        output = step(input_batch, messages_for(input_batch))
        assert output.rows.schema.equals(schema)
        batches.append(output.rows)
        dead += [start + index for index in output.dead_index.to_pylist()]
    assert dead == failing
    output_table = pa.Table.from_batches(batches, schema)
    assert repr(output_table.to_pylist()) == repr(expected.to_pylist())
    assert expected.schema.names == schema.names
    assert [(f.name, f.type) for f in expected.schema if f.type != schema.field(f.name).type] == []
