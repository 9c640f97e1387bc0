"""Values of every column type: staging refuses none, and a table of any kind gives them back
unchanged.

A decoder gives exactly the columns' types (`tests/contracts/decoder_contract.py`), so there are
no dead letters after the rules. A value that can't be staged is a bug in a format or a
transform, and refuses its window.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from tests.sinks.delta.world import DeltaWorld
from tests.sinks.files.world import FilesWorld
from tests.sinks.iceberg.world import IcebergWorld
from tests.sinks.postgres.world import PostgresBoth, PostgresWorld
from tests.sinks.sqlite.world import SqliteWorld
from tests.sinks.values import COLUMNS, VALUES, array
from tests.sinks.world import SinkWorld
from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.testing.contracts.windows import commit_rows

pytestmark = pytest.mark.slow

WORLDS: dict[str, SinkWorld] = {
    "delta": DeltaWorld(),
    "parquet": FilesWorld(),
    "jsonl": FilesWorld("jsonl"),
    "csv": FilesWorld("csv"),
    "iceberg": IcebergWorld(),
    "sqlite": SqliteWorld(),
    "postgres": PostgresWorld(),
}
ODD = "we\"i'rd {x}, $1 select; 日本\\"
"""A name that every kind accepts except Delta, because Spark can't read it."""


def comes_back(sink: Any, rows: pa.RecordBatch) -> None:
    """Commits rows, and asserts that they are read back unchanged, with their checksums."""
    receipt = commit_rows(sink, rows)
    contents = sum_by_split(receipt.splits, sink.audit().contents(receipt.window), sink.metadata)
    assert (contents.checksums, contents.outside) == (
        tuple(s.checksums.rows for s in receipt.splits),
        0,
    )
    batches = list(sink.audit().contents(receipt.window))
    for field in rows.schema:
        if isinstance(sink, PostgresBoth) and pa.types.is_nested(field.type):
            continue  # jsonb doesn't keep the order of keys nor -0.0, and checksums ignore both
        read = [repr(value) for batch in batches for value in batch[field.name].to_pylist()]
        expected = [repr(value) for value in rows[field.name].to_pylist()] * len(receipt.splits)
        assert sorted(read) == sorted(expected), field.name


@pytest.mark.parametrize("kind", WORLDS)
def test_every_value_comes_back(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """Values of all types in one table come back: extremes, nulls, NaN and -0.0; in CSV without
    nested types.
    """
    world = WORLDS[kind]
    longest = max(len(values) for _, values in VALUES.values())
    arrays = {
        name: array(values + [values[0]] * (longest - len(values)), column)
        for name, (column, values) in VALUES.items()
        if kind != "csv" or not pa.types.is_nested(column)
    }
    if kind != "delta":
        arrays[ODD] = pa.array([str(n) for n in range(longest)])
    if kind not in {"delta", "csv"}:
        arrays["deep"] = pa.array([{ODD: None}] * longest, pa.struct([(ODD, pa.int64())]))
    server = request.getfixturevalue(world.server) if world.server else None
    rows = pa.RecordBatch.from_pydict(arrays)
    comes_back(world.sink_at(world.new_location(tmp_path, server), rows.schema), rows)


@pytest.mark.some(2)
@pytest.mark.parametrize("kind", [name for name in WORLDS if name not in {"csv", "postgres"}])
@settings(max_examples=examples(40))
@given(st.data(), st.lists(COLUMNS, min_size=1, max_size=4))
def test_whatever_a_column_can_hold_comes_back(
    kind: str, data: st.DataObject, columns: list[tuple[pa.DataType, st.SearchStrategy[Any]]]
) -> None:
    """Any values come back, and an extreme value doesn't change the rows beside it."""
    schema = pa.schema([pa.field(f"c{i}", data_type) for i, (data_type, _) in enumerate(columns)])
    count = data.draw(st.integers(1, 6))
    values = [
        data.draw(st.lists(st.none() | strategy, min_size=count, max_size=count))
        for _, strategy in columns
    ]
    arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    with tempfile.TemporaryDirectory() as folder:
        location = WORLDS[kind].new_location(Path(folder), None)
        comes_back(WORLDS[kind].sink_at(location, schema), rows)
