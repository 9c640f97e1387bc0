"""Tables of one topic with schemas, steps and keys of their own, by the command."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.cli.conftest import START, Stage, hour, stage
from tests.sinks.routes.test_command import ids, write_spec
from windrow.ingest.model.boundary import TopicPartition

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # Delta tables on disk

SCHEMAS = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64
    kind: pl.String = pa.Field(nullable=True)


class Order(pa.DataFrameModel):
    id: pl.Int64
    total: pl.Int64 = pa.Field(ge=0)


class Visit(pa.DataFrameModel):
    id: pl.String
    page: pl.String = pa.Field(nullable=True)
"""
BY_HEADER = """\
sink:
  kind: routes
  by: header
  name: type
  unrouted: dead
  tables:
    - values: [order]
      decode: {schema: "schema.py:Order"}
      transform:
        steps: [{sql: "SELECT id, total, total * 2 AS twice FROM rows WHERE total < 100"}]
      sink: {path: lake/orders}
    - values: [visit]
      decode: {schema: "schema.py:Visit"}
      sink: {kind: sqlite, path: visits.sqlite, table: visits}
  other: {path: lake/things}
"""
MESSAGES = (
    (b"order", b'{"id": 1, "total": 7}'),
    (b"visit", b'{"id": "a", "page": "/"}'),
    (b"order", b'{"id": 2, "total": 100}'),
    (b"order", b'{"id": 3, "total": -1}'),
    (b"visit", b'{"id": 4}'),
    (b"refund", b'{"id": 5}'),
    (None, b'{"id": 6}'),
    (b"visit", b'{"id": "b"}'),
)
"""Types and values. Orders 2 and 3 are filtered and refused; visit 4 has no text."""


def produce(
    stage: Stage, number: int, messages: Sequence[tuple[bytes | None, bytes | None]]
) -> None:
    """Writes messages of an hour, each with its type in a header."""
    for second, (kind, value) in enumerate(messages):
        stage.broker.produce(
            TopicPartition("shop.things", second % 2),
            value,
            timestamp=START + timedelta(hours=number, seconds=second),
            headers=() if kind is None else (("type", kind),),
        )


def rows_of(stage: Stage, table: str) -> list[dict[str, Any]]:
    """Returns the rows of a Delta table, without metadata columns, in the order of their ids."""
    table_rows = DeltaTable(str(stage.folder / "lake" / table)).to_pyarrow_table()
    names = [name for name in table_rows.column_names if name[0] != "_"]
    rows: list[dict[str, Any]] = table_rows.select(names).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def visits_of(stage: Stage) -> list[tuple[Any, ...]]:
    """Returns the rows of the table in SQLite."""
    with closing(sqlite3.connect(stage.folder / "visits.sqlite")) as database:
        return database.execute("SELECT id, page FROM visits ORDER BY id").fetchall()


@pytest.fixture
def typed(stage: Stage) -> Stage:
    """A pipeline of two types, and a window with messages of both, and of others."""
    (stage.folder / "schema.py").write_text(SCHEMAS)
    write_spec(stage, BY_HEADER)
    produce(stage, 9, MESSAGES)
    return stage


def test_each_type_has_a_schema_and_steps_of_its_own(typed: Stage) -> None:
    """A message becomes a row by the schema, the rules and the steps of its type alone, also
    where fields of one name have other types. The receipt counts each table, and all is verified.
    """
    typed.json("run", typed.spec, "--window", hour(9))
    assert rows_of(typed, "orders") == [{"id": 1, "total": 7, "twice": 14}]
    assert visits_of(typed) == [("a", "/"), ("b", None)]
    letters = typed.json("dead", "show", typed.spec)["dead"]
    assert sorted((letter["stage"], letter["reason"]) for letter in letters) == [
        ("rules", "check:total:greater_than_or_equal_to"),
        ("schema", "unrouted"),
        ("schema", "unrouted"),
        ("schema", "wrong_type"),
    ]
    (shown,) = [w["receipt"] for w in typed.json("show", typed.spec)["windows"] if w["receipt"]]
    assert [entry["rows"] for entry in shown["routed"]] == [1, 2]
    assert (shown["counts"]["rows"], shown["counts"]["filtered"]) == (3, 1)
    assert typed.json("verify", typed.spec, "--deep")["findings"] == []


def test_a_replay_and_the_dead_letters_go_the_same_ways(typed: Stage) -> None:
    """A replay brings the same rows; dead letters become rows once a table takes their type."""
    typed.json("run", typed.spec, "--window", hour(9))
    before = rows_of(typed, "orders"), visits_of(typed)
    typed.json("replay", typed.spec, "--window", hour(9))
    assert (rows_of(typed, "orders"), visits_of(typed)) == before
    write_spec(typed, BY_HEADER.replace("unrouted: dead", ""))
    typed.json("dead", "replay", typed.spec, "--reason", "unrouted")
    assert ids(typed, "things") == [5, 6]
    assert (rows_of(typed, "orders"), visits_of(typed)) == before
    assert typed.json("verify", typed.spec, "--deep")["findings"] == []


def test_a_column_leads_to_tables_of_their_own(stage: Stage) -> None:
    """A field of the value leads to a table, whose schema decodes the value; the others are rows
    by the pipeline's.
    """
    (stage.folder / "schema.py").write_text(SCHEMAS)
    by_column = BY_HEADER.replace("by: header", "by: column").replace("name: type", "name: kind")
    write_spec(stage, by_column.replace("unrouted: dead", ""))
    stage.produce(
        9,
        b'{"kind": "order", "id": 1, "total": 7}',
        b'{"kind": "refund", "id": 2}',
        b'{"kind": "visit", "id": 3}',
        b'{"id": 4}',
        b'{"kind": "order", "id": "x"}',
    )
    stage.json("run", stage.spec, "--window", hour(9))
    assert rows_of(stage, "orders") == [{"id": 1, "total": 7, "twice": 14}]
    assert ids(stage, "things") == [2, 4]
    letters = stage.json("dead", "show", stage.spec)["dead"]
    assert [letter["reason"] for letter in letters] == ["wrong_type"] * 2
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []


KEYED = BY_HEADER.replace(
    "sink: {path: lake/orders}",
    "sink: {path: lake/orders, mode: upsert, primary_key: [id], buckets: 2}",
).replace(
    'decode: {schema: "schema.py:Order"}',
    'decode: {schema: "schema.py:Order", key: {format: json, fields: [id]}}',
)


def test_a_type_has_a_key_of_its_own(typed: Stage) -> None:
    """Rows of one type replace each other by their key, and a null value of the type deletes; the
    rows of the other type stay. Receipts, also of deletes, are verified, after a replay, too.
    """
    write_spec(typed, KEYED)
    key = {"key": b'{"id": 1}'}
    for number, (kind, value) in enumerate(
        [(b"order", b'{"id": 1, "total": 8}'), (b"visit", b'{"id": "c"}'), (b"order", None)]
    ):
        typed.broker.produce(
            TopicPartition("shop.things", 0),
            value,
            timestamp=START + timedelta(hours=10 + number),
            headers=(("type", kind),),
            **key,
        )
    typed.json("run", typed.spec, "--window", hour(10))
    assert rows_of(typed, "orders") == [{"id": 1, "total": 8, "twice": 16}]
    typed.json("run", typed.spec, "--window", hour(11))
    typed.json("run", typed.spec, "--window", hour(12))
    assert rows_of(typed, "orders") == []
    assert visits_of(typed) == [("c", None)]
    assert typed.json("verify", typed.spec, "--deep")["findings"] == []
    typed.json("replay", typed.spec, "--window", hour(10))
    assert rows_of(typed, "orders") == []
    assert typed.json("verify", typed.spec, "--deep")["findings"] == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("by: header", "by: column", "by a column: a row whose value changes would stay"),
        ("other: {path: lake/things}", "other: {path: t, mode: upsert, primary_key: [id]}", "keys"),
        ("  name: type\n", "", "which header leads to a table"),
        ("by: header\n  name: type", "by: record", "that doesn't know it"),
        ("by: header\n  name: type", "by: schema_id", "that doesn't know it"),
        ("Visit", "Vist", "Vist"),
        ('decode: {schema: "schema.py:Visit"}', "decode: {schem: x}", "tables.1.decode.schem"),
        ("[{sql:", "[{sqll:", "tables.0.transform.steps.0"),
    ],
)
def test_mistakes_are_told(stage: Stage, old: str, new: str, says: str) -> None:
    """A mistake in the sections of one table is refused with its place in the spec."""
    (stage.folder / "schema.py").write_text(SCHEMAS)
    assert old in KEYED
    write_spec(stage, KEYED.replace(old, new))
    assert says in stage.json("run", stage.spec, "--window", hour(0), code=2)["error"]["message"]
    assert not Path("lake/things").exists()
