"""Changes of an Iceberg table's columns: they come in the commit of the first rows that need
them, and no checksum changes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import FloatType, ListType, LongType, NestedField, StructType

from tests.sinks.iceberg.world import TABLE, IcebergBoth, state_of
from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.errors import RefusedError, SchemaChangedError
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.commit import Prepared
from windrow.ingest.sinks.kind import Evolve
from windrow.ingest.testing.contracts.windows import plan, staged_rows, window

pytestmark = pytest.mark.slow

NARROW = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("price", pa.decimal128(5, 2)),
        pa.field("rate", pa.float32()),
    ]
)
WIDE = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("price", pa.decimal128(20, 2)),
        pa.field("rate", pa.float64()),
    ]
)
MORE = pa.schema(
    [
        *NARROW,
        pa.field("note", pa.string()),
        pa.field("tags", pa.list_(pa.struct([pa.field("k", pa.int64())]))),
    ]
)
OTHER = pa.schema([*NARROW, pa.field("colour", pa.string())])


def nested_schema(*names: str) -> pa.Schema:
    """Returns a schema with a list of structs of text fields."""
    member = pa.struct([pa.field(name, pa.string()) for name in names])
    return pa.schema([*NARROW, pa.field("tags", pa.list_(member))])


def sink_of(tmp_path: Path, schema: pa.Schema, evolve: Evolve = "add_columns") -> IcebergBoth:
    """Returns the sink of a process with this schema."""
    return IcebergBoth(CatalogTable.in_folder(str(tmp_path), TABLE), schema, evolve=evolve)


def stage_window(sink: IcebergBoth, number: int) -> Any:
    """Stages a window with rows of the sink's schema: all columns except `id` are null."""

    def rows_of(split: Split) -> list[pa.RecordBatch]:
        n = split.stop - split.start
        columns = [
            pa.array(range(n), f.type) if f.name == "id" else pa.nulls(n, f.type)
            for f in sink.schema
        ]
        return [pa.RecordBatch.from_arrays(columns, schema=sink.schema)]

    return staged_rows(sink, plan(sink, number), rows_of)


def names(sink: IcebergBoth) -> dict[str, str]:
    """Returns the types of the table's columns by name, without the metadata columns."""
    state = state_of(sink)
    return {
        f.name: str(f.field_type) for f in state.table.schema().fields if not f.name.startswith("_")
    }


def is_complete(sink: IcebergBoth, number: int) -> bool:
    """Returns whether a window's rows have the checksums of its receipt."""
    committed = sink.look(window(number))
    assert committed is not None
    back = sum_by_split(
        committed.receipt.splits, sink.audit().contents(window(number)), sink.metadata
    )
    return back.checksums == tuple(s.checksums.rows for s in committed.receipt.splits)


def test_new_columns_come_with_their_first_rows(tmp_path: Path) -> None:
    """Preparing and staging change nothing; the commit brings columns and rows at once.

    Older rows have nulls, and a sink with the older schema goes on.
    """
    old, new = sink_of(tmp_path, NARROW), sink_of(tmp_path, MORE)
    old.prepare()
    assert isinstance(old.commit(*stage_window(old, 0)), Done)
    new.prepare()
    assert new.columns_to_come() == ("note (string)", "tags (list<element: struct<k: int64>>)")
    ready = stage_window(new, 1)
    late = stage_window(old, 2)
    assert names(new).keys() == {"id", "price", "rate"}
    assert isinstance(new.commit(*ready), Done)
    assert names(new).keys() == {"id", "price", "rate", "note", "tags"}
    assert new.columns_to_come() == ()
    assert isinstance(old.commit(*late), Done)
    assert all(is_complete(new, n) for n in range(3))
    state = state_of(new)
    assert state.table.scan().to_arrow().num_rows == 60


def test_columns_become_wider_without_a_file_written_anew(tmp_path: Path) -> None:
    """The first wide rows widen numbers and make columns nullable; no file is rewritten.

    Narrow rows staged before are still accepted.
    """
    old, new = sink_of(tmp_path, NARROW), sink_of(tmp_path, WIDE, "widen")
    old.prepare()
    old.commit(*stage_window(old, 0))
    late = stage_window(old, 2)
    new.prepare()
    old_paths = {task.file.file_path for task in state_of(new).tasks()}
    assert isinstance(new.commit(*stage_window(new, 1)), Done)
    assert names(new) == {"id": "long", "price": "decimal(20, 2)", "rate": "double"}
    assert isinstance(sink_of(tmp_path, NARROW, "widen").commit(*late), Done)
    state = state_of(new)
    assert old_paths < {task.file.file_path for task in state.tasks()}
    assert all(is_complete(new, n) for n in range(3))
    assert sorted(state.table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()) == sorted(
        [*range(10)] * 6
    )


@pytest.mark.parametrize(
    ("schema", "evolve", "says"),
    [
        (
            MORE,
            "none",
            (
                "note: new .*sink.evolve is none.*With sink.evolve: add_columns the table would"
                " take it"
            ),
        ),
        (
            WIDE,
            "add_columns",
            "id: int32 not null in the table, int64 in the schema.*With sink.evolve: widen",
        ),
        (
            pa.schema([*NARROW, pa.field("x", pa.int64(), nullable=False)]),
            "widen",
            "x: new, but not nullable",
        ),
        (
            pa.schema([*NARROW, pa.field("PRICE", pa.int64())]),
            "widen",
            "the name is used twice|case doesn't count",
        ),
        (
            pa.schema([f for f in NARROW if f.name != "rate"]),
            "widen",
            r"rate: in the table \(float\), not in the schema",
        ),
        (
            pa.schema([f.with_nullable(f.name == "id") for f in NARROW]),
            "widen",
            "rate: float in the table, float not null in the schema, where it must be nullable",
        ),
        (
            pa.schema([pa.field("id", pa.string()), *list(NARROW)[1:]]),
            "widen",
            "id: int32 not null in the table, string in the schema",
        ),
        (
            pa.schema([NARROW.field(0), pa.field("price", pa.decimal128(9, 4)), NARROW.field(2)]),
            "widen",
            "price: decimal128",
        ),
    ],
)
def test_what_no_commit_may_make_good_is_told(
    tmp_path: Path, schema: pa.Schema, evolve: Evolve, says: str
) -> None:
    """A column difference that no commit may resolve is refused by `prepare`, column by column,
    with the advice.
    """
    sink_of(tmp_path, NARROW).prepare()
    with pytest.raises(Exception, match=says):
        sink_of(tmp_path, schema, evolve).prepare()


@pytest.mark.parametrize(
    ("table", "first", "second", "both", "name"),
    [
        (NARROW, MORE, OTHER, pa.schema([*MORE, *list(OTHER)[-1:]]), "colour"),
        (
            nested_schema("k"),
            nested_schema("k", "shape"),
            nested_schema("k", "colour"),
            nested_schema("k", "shape", "colour"),
            "tags.element.colour",
        ),
    ],
    ids=["columns", "nested"],
)
def test_of_two_that_bring_columns_the_second_stages_anew(
    tmp_path: Path,
    table: pa.Schema,
    first: pa.Schema,
    second: pa.Schema,
    both: pa.Schema,
    name: str,
) -> None:
    """Files staged with field ids that another commit has given to other columns are refused,
    so no value gets into another column.
    """
    sink_of(tmp_path, table).prepare()
    first_sink, second_sink = sink_of(tmp_path, first), sink_of(tmp_path, second)
    ready = stage_window(second_sink, 1)
    assert isinstance(first_sink.commit(*stage_window(first_sink, 0)), Done)
    with pytest.raises(
        SchemaChangedError, match=f"{name}: another commit brought other columns first"
    ):
        second_sink.commit(*ready)
    with_both = sink_of(tmp_path, both)
    assert isinstance(with_both.commit(*stage_window(with_both, 1)), Done)
    assert all(is_complete(with_both, n) for n in range(2))


def test_of_two_that_bring_the_same_columns_both_arrive(tmp_path: Path) -> None:
    """Two commits that bring the same columns both arrive: both staged with the same field ids."""
    sink_of(tmp_path, NARROW).prepare()
    first_sink, second_sink = sink_of(tmp_path, MORE), sink_of(tmp_path, MORE)
    first, second = stage_window(first_sink, 0), stage_window(second_sink, 1)
    assert isinstance(first_sink.commit(*first), Done)
    assert isinstance(second_sink.commit(*second), Done)
    assert all(is_complete(first_sink, n) for n in range(2))


def test_columns_that_others_change_meanwhile_are_seen(tmp_path: Path) -> None:
    """A commit notices columns that another program changed, although this makes no snapshot.

    1. A run looks.
    2. Another program drops and adds columns.
    3. The commit fails, and looks again.
    """
    sink = sink_of(tmp_path, NARROW)
    sink.prepare()
    ready = stage_window(sink, 0)
    tries: list[Prepared] = []

    def send_overtaken(prepared: Prepared) -> None:
        tries.append(prepared)
        if len(tries) == 1:
            about = state_of(sink).table
            with about.update_schema() as update:
                update.add_column("theirs", about.schema().find_field("id").field_type)
        prepared.send()

    sink.store.send = send_overtaken  # type: ignore[method-assign]
    assert isinstance(sink.commit(*ready), Done)
    assert len(tries) == 2
    assert is_complete(sink, 0)


@pytest.mark.parametrize(
    "change", [lambda u: u.delete_column("rate"), lambda u: u.rename_column("rate", "speed")]
)
def test_a_column_that_something_else_took_away_is_not_added_again(
    tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    """A column that another program dropped or renamed isn't added again.

    Iceberg knows fields by id: a new field of the same name would hide that older rows lost
    their values.
    """
    sink = sink_of(tmp_path, NARROW)
    sink.prepare()
    sink.commit(*stage_window(sink, 0))
    ready = stage_window(sink, 1)
    about = state_of(sink).table
    with about.update_schema() as update:
        change(update)
    with pytest.raises(
        SchemaChangedError,
        match=r"rate: another program (dropped this column|renamed this column to speed)",
    ):
        sink_of(tmp_path, NARROW).prepare()
    with pytest.raises(SchemaChangedError, match=r"another program (dropped|renamed)"):
        sink.commit(*ready)


def test_a_field_inside_that_something_else_took_away_is_not_added_again(tmp_path: Path) -> None:
    """A field that another program dropped inside a column isn't added again."""
    sink = sink_of(tmp_path, nested_schema("k", "colour"))
    sink.prepare()
    with state_of(sink).table.update_schema() as update:
        update.delete_column(("tags", "element", "colour"))
    with pytest.raises(SchemaChangedError, match=r"tags.element.colour: another program dropped"):
        sink_of(tmp_path, nested_schema("k", "colour")).prepare()


def test_values_of_a_column_that_was_dropped_are_missed(tmp_path: Path) -> None:
    """Verification reports values of a dropped column, also if a person has added the column
    again.

    The files still have the values, but no reader sees them.
    """
    sink = sink_of(tmp_path, MORE)
    sink.prepare()
    sink.commit(*stage_window(sink, 0))
    with state_of(sink).table.update_schema() as update:
        update.delete_column("tags").delete_column("rate")
    with state_of(sink).table.update_schema() as update:
        update.add_column("rate", FloatType()).add_column(
            "tags", ListType(1, StructType(NestedField(2, "k", LongType())), False)
        )
    fresh = sink_of(tmp_path, MORE)
    with pytest.raises(
        RefusedError,
        match=(
            r"no column any more for values in its file .*: rate, tags, tags\.element,"
            r" tags\.element\.k"
        ),
    ):
        is_complete(fresh, 0)
    fresh.prepare()
    assert isinstance(fresh.commit(*stage_window(fresh, 1)), Done)
    assert is_complete(fresh, 1)
