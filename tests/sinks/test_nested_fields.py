"""Fields that a schema gets inside its columns: in structs, lists of structs and values of maps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.docs.test_pages import text
from tests.profiles import examples
from tests.sinks.delta.world import DeltaKeyedWorld, DeltaWorld
from tests.sinks.files.world import FilesWorld
from tests.sinks.iceberg.world import IcebergKeyedWorld, IcebergWorld, state_of
from tests.sinks.postgres.world import PostgresKeyedWorld, PostgresWorld
from tests.sinks.sqlite.world import SqliteWorld
from tests.sinks.values import COLUMNS
from tests.sinks.world import SinkWorld
from windrow.ingest.admin.verify_contents import compare_contents
from windrow.ingest.admin.verify_keyed import compare_merged
from windrow.ingest.errors import SchemaChangedError
from windrow.ingest.lookups.table.parquet import ParquetFiles
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.checksum import checksum
from windrow.ingest.sinks.delta.snapshots import DeltaSnapshots
from windrow.ingest.sinks.iceberg.snapshots import IcebergSnapshots
from windrow.ingest.sinks.kit.columns.schema_evolution import Evolution
from windrow.ingest.sinks.kit.columns.table_columns import describe_field, fit_columns
from windrow.ingest.testing.contracts.windows import plan, staged_rows

WORLDS: dict[str, SinkWorld] = {
    "delta": DeltaWorld(),
    "delta-keyed": DeltaKeyedWorld(),
    "iceberg": IcebergWorld(),
    "iceberg-keyed": IcebergKeyedWorld(),
    "parquet": FilesWorld(),
    "jsonl": FilesWorld("jsonl"),
    "sqlite": SqliteWorld(),
    "postgres": PostgresWorld(),
    "postgres-keyed": PostgresKeyedWorld(),
}


def schema_of(*names: str) -> pa.Schema:
    """Returns a schema whose nested columns have structs of these text fields inside."""
    struct = pa.struct([pa.field(name, pa.string()) for name in names])
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("in_struct", pa.struct([pa.field("deep", struct), *struct])),
            pa.field("in_list", pa.list_(struct)),
            pa.field("in_map", pa.map_(pa.string(), struct)),
        ]
    )


OLD, NEW = schema_of("a", "b"), schema_of("a", "new", "b")
"""The new field comes in the middle, as in a producer's next schema."""


def row_of(schema: pa.Schema, partition: int, offset: int) -> dict[str, Any]:
    """Returns a message's row; some values are null, at each depth."""
    names = [field.name for field in schema.field("in_list").type.value_type]
    inner = {n: None if offset % 3 == i else f"{n}{offset}" for i, n in enumerate(names)}
    whole = None if offset % 5 == 4 else inner
    return {
        "id": f"{partition}-{offset % 7}",
        "in_struct": None if offset % 7 == 6 else {"deep": whole, **inner},
        "in_list": [whole, None, inner],
        "in_map": [(f"k{offset}", whole), ("other", inner)],
    }


def stage_window(sink: Any, number: int, generation: int = 0) -> Any:
    def rows_of(split: Split) -> list[pa.RecordBatch]:
        offsets = range(split.start, split.stop)
        rows = [row_of(sink.schema, split.partition, offset) for offset in offsets]
        return [pa.RecordBatch.from_pylist(rows, sink.schema)]

    return staged_rows(sink, plan(sink, number), rows_of, generation, f"a{number}.{generation}")


def commit(sink: Any, number: int, generation: int = 0) -> None:
    sink.prepare()
    assert isinstance(sink.commit(*stage_window(sink, number, generation)), Done)


def mistakes(sink: Any) -> list[str]:
    """Returns what a verification finds that reads all windows back."""
    receipts, audit = [c.receipt for c in sink.receipts()], sink.audit()
    findings = compare_contents(receipts, audit, sink.dead_letters)
    if audit.keyed is not None:
        findings += compare_merged(receipts, audit, audit.keyed, deep=True, complete=True)
    return [finding.message for finding in findings]


@pytest.mark.slow
@pytest.mark.some(4)
@pytest.mark.parametrize("kind", WORLDS)
def test_a_field_inside_comes_with_its_first_rows(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A commit of rows with a new nested field adds it, whatever the order of fields, and all
    receipts still have their rows' checksums: of older windows, of one staged before, and of one
    that is replayed.
    """
    world = WORLDS[kind]
    server = request.getfixturevalue(world.server) if world.server else None
    location = world.new_location(tmp_path, server)
    old = world.sink_at(location, OLD)
    commit(old, 0)
    late = stage_window(old, 2)
    new = world.sink_at(location, NEW)
    if kind.startswith("delta"):  # the values of maps rewrite files there
        with pytest.raises(SchemaChangedError, match=r"in_map\{value\}.*evolve: widen the table"):
            new.prepare()
        new.store.evolve = old.store.evolve = "widen"
    assert sorted(change.partition(" ")[0] for change in new.columns_to_come()) == [
        "in_list[].new",
        "in_map{value}.new",
        "in_struct.deep.new",
        "in_struct.new",
    ]
    commit(new, 1)
    assert new.columns_to_come() == ()
    assert isinstance(old.commit(*late), Done)
    assert mistakes(new) == []
    if hasattr(new.store, "evolve"):
        lost = r"in_list\[\].new: string in the table, nothing"
        with pytest.raises(SchemaChangedError, match=lost):
            old.prepare()
    if not kind.endswith("keyed"):
        commit(new, 0, generation=1)
    assert mistakes(world.reopen(new)) == []
    rows = [row for batch in new.audit().contents(None) for row in batch.to_pylist()]
    assert len(rows) == (14 if kind.endswith("keyed") else 60)


@pytest.mark.some(1)
@settings(max_examples=examples(60))
@given(st.data(), st.lists(COLUMNS, min_size=2, max_size=4))
def test_a_null_inside_adds_nothing_to_a_checksum(
    data: st.DataObject, columns: list[tuple[pa.DataType, st.SearchStrategy[Any]]]
) -> None:
    """Rows keep their checksum in the columns of a table that got fields inside, and no change
    remains to be made.
    """
    fields = [pa.field(f"f{i}", kind) for i, (kind, _) in enumerate(columns)]
    kept = data.draw(st.lists(st.sampled_from(fields), unique=True, min_size=1))
    narrow, wide = pa.struct(kept), pa.struct(data.draw(st.permutations(fields)))
    values = {f"f{i}": st.none() | strategy for i, (_, strategy) in enumerate(columns)}
    structs = st.none() | st.fixed_dictionaries({f.name: values[f.name] for f in kept})
    schemas = [
        pa.schema([("s", kind), ("l", pa.list_(kind)), ("m", pa.map_(pa.string(), kind))])
        for kind in (narrow, wide)
    ]
    rows = [
        {"s": s, "l": [s, *members], "m": [(str(i), m) for i, m in enumerate(members)]}
        for s, members in data.draw(st.lists(st.tuples(structs, st.lists(structs, max_size=2))))
    ]
    old = pa.RecordBatch.from_pylist(rows, schemas[0])
    evolution = Evolution.compare_added(*schemas, "t")
    assert checksum(fit_columns(old, evolution.columns)) == checksum(old)
    assert not Evolution.compare_added(evolution.columns, schemas[1], "t").changes
    assert not evolution.differences


@pytest.mark.parametrize(
    ("table_type", "schema_type", "problem"),
    [
        (
            pa.struct([("a", pa.int64())]),
            pa.struct([("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)]),
            "x.b: nothing in the table, int64 not null in the schema",
        ),
        (
            pa.list_(pa.struct([("a", pa.int32())])),
            pa.list_(pa.struct([("a", pa.int64())])),
            "x[].a: int32 in the table, int64 in the schema",
        ),
        (
            pa.struct([("a", pa.int64()), ("b", pa.int64())]),
            pa.struct([("a", pa.int64())]),
            "x.b: int64 in the table, nothing in the schema",
        ),
        (
            pa.struct([("ab", pa.int64())]),
            pa.struct([("ab", pa.int64()), ("aB", pa.int64())]),
            "x.aB: nothing in the table, int64 in the schema",
        ),
    ],
)
def test_other_changes_inside_are_refused(
    table_type: pa.DataType, schema_type: pa.DataType, problem: str
) -> None:
    """A field that is never null, a wider one, one that is gone, or one that differs from another
    by case only is refused with its path.
    """
    table, incoming = (pa.schema([("x", kind)]) for kind in (table_type, schema_type))
    evolution = Evolution.compare(table, incoming, "add_columns", describe_field)
    (difference,) = evolution.differences
    assert problem in difference


def test_a_column_that_differs_by_case_only_is_refused() -> None:
    """Such a column beside another one can't be told apart by readers of most tables: a table of
    JSON lines couldn't be read any more.
    """
    table, incoming = (pa.schema([(name, pa.int64())]) for name in ("ab", "aB"))
    evolution = Evolution.compare(table, incoming, "add_columns", describe_field)
    assert evolution.problems == ("aB: new, and ab is there (case doesn't count)",)


# --------------------------------------------------------------------------------------- readers

Read = Callable[[], list[dict[str, Any]]]
INSERT = pl.ScanCastOptions(missing_struct_fields="insert")
KINDS = {"structs": "in_struct", "lists of structs": "in_list", "values of maps": "in_map"}


def columns_read(rows: list[dict[str, Any]], column: str) -> dict[tuple[int, int], Any]:
    """Returns a column's values by their messages. Readers have several forms of maps."""

    def plain(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            return dict(value)
        if isinstance(value, list) and value and "key" in (value[0] or {}):
            return {entry["key"]: entry["value"] for entry in value}
        return value

    return {(row["_partition"], row["_offset"]): plain(row[column]) for row in rows}


def state_files(sink: Any) -> Any:
    with sink.store.reading() as state:
        return state.row_files()


def expected_values(column: str) -> dict[tuple[int, int], Any]:
    """Returns the values of windows 0 and 1 with the new field, null in window 0."""

    def with_new(value: Any) -> Any:
        if isinstance(value, list):
            return [with_new(member) for member in value]
        if isinstance(value, dict) and "a" in value:
            named = {name: with_new(inner) for name, inner in value.items()}
            return {"new": None, **named}
        return value

    values = {}
    for partition, offset in product((0, 1), range(20)):
        value = row_of(OLD if offset < 10 else NEW, partition, offset)[column]
        if column == "in_map":
            value = {key: with_new(inner) for key, inner in value}
        values[partition, offset] = with_new(value)
    return values


def by_duckdb(files: list[str], column: str) -> list[dict[str, Any]]:
    query = f"SELECT _partition, _offset, {column} FROM read_parquet(?, union_by_name=true)"
    with duckdb.connect(config={"threads": 1}) as connection:
        cursor = connection.execute(query, [files])
        names = [name for name, *_ in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def by_spark(spark: SparkSession, files: list[str], column: str) -> list[dict[str, Any]]:
    rows = spark.read.option("mergeSchema", "true").parquet(*files)
    return [
        row.asDict(recursive=True) for row in rows.select("_partition", "_offset", column).collect()
    ]


def by_lookup(source: Any, column: str) -> list[dict[str, Any]]:
    names, schema = ["_partition", "_offset", column], source.schema()
    wanted = pa.schema([schema.field(name) for name in names])
    batches = source.read(source.newest(), names)
    return [row for batch in batches for row in fit_columns(batch, wanted).to_pylist()]


def readers(sinks: dict[str, Any], spark: SparkSession, column: str) -> dict[str, dict[str, Read]]:
    """Returns by kind of table who reads a column of it, and how."""
    delta, iceberg, files = sinks["Delta"], sinks["Iceberg"], sinks["Parquet files"]
    names = ["_partition", "_offset", column]
    folder = str(Path(files.uri))
    paths = [f"{folder}/{file.path}" for file in state_files(files)]
    table = DeltaTable(delta.uri)
    of_iceberg = state_of(iceberg).table
    return {
        "Delta": {
            "deltalake": lambda: table.to_pyarrow_table(columns=names).to_pylist(),
            "deltalake's SQL": lambda: pa.table(
                QueryBuilder()
                .register("t", table)
                .execute(f"SELECT {', '.join(names)} FROM t")
                .read_all()
            ).to_pylist(),
            "Polars": lambda: pl.scan_delta(delta.uri).select(names).collect().to_dicts(),
            "a windrow lookup": lambda: by_lookup(DeltaSnapshots(delta.uri), column),
        },
        "Iceberg": {
            "PyIceberg": lambda: (
                of_iceberg.scan(selected_fields=tuple(names)).to_arrow().to_pylist()
            ),
            "Polars": lambda: pl.scan_iceberg(of_iceberg).select(names).collect().to_dicts(),
            "a windrow lookup": lambda: by_lookup(IcebergSnapshots(iceberg.catalog_table), column),
        },
        "Parquet files": {
            "Spark, with `mergeSchema`": lambda: by_spark(spark, paths, column),
            "DuckDB, with `union_by_name`": lambda: by_duckdb(paths, column),
            "Polars": lambda: pl.scan_parquet(paths).select(names).collect().to_dicts(),
            'Polars, the newest file first, with `missing_struct_fields="insert"`': (
                lambda: (
                    pl.scan_parquet(paths[::-1], cast_options=INSERT)
                    .select(names)
                    .collect()
                    .to_dicts()
                )
            ),
            "a windrow lookup": lambda: by_lookup(ParquetFiles(folder), column),
        },
    }


def verdict(read: Read, column: str) -> str:
    try:
        rows = columns_read(read(), column)
    except Exception:  # noqa: BLE001
        return "fails"
    return "yes" if rows == expected_values(column) else "without the new field"


@pytest.mark.slow
@pytest.mark.long
def test_the_docs_tell_who_reads_old_and_new_files(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of readers in the docs says what each of them makes of files from before and
    after a new field.
    """
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # another one isn't installed
    sinks = {}
    for kind, name in (("delta", "Delta"), ("iceberg", "Iceberg"), ("parquet", "Parquet files")):
        location = WORLDS[kind].new_location(tmp_path / kind, None)
        for number, schema in ((0, OLD), (1, NEW)):
            sinks[name] = WORLDS[kind].sink_at(location, schema)
            if kind == "delta":
                sinks[name].store.evolve = "widen"
            commit(sinks[name], number)
    found: dict[tuple[str, str], list[str]] = {}
    for column in KINDS.values():
        for kind, by_reader in readers(sinks, spark, column).items():
            for reader, read in by_reader.items():
                found.setdefault((kind, reader), []).append(verdict(read, column))
    table = [
        f"| a table of | read by | {' | '.join(KINDS)} |",
        "| --- | --- |" + " --- |" * len(KINDS),
        *(
            f"| {kind} | {reader} | {' | '.join(cells)} |"
            for (kind, reader), cells in found.items()
        ),
    ]
    assert "\n".join(table) in text("docs/operations.md"), "\n".join(table)
