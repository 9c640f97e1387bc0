"""The rows of a pipeline as those of a DataFrame, without Kafka and Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Stage, hour, stage
from tests.sinks.routes.test_command import write_spec
from tests.sinks.routes.test_own_rows import BY_HEADER, SCHEMAS
from windrow.ingest.dataframes import source
from windrow.ingest.dataframes.options import read_options
from windrow.ingest.errors import SpecError
from windrow.ingest.formats.cdc.unavailable import MARK

__all__ = ["stage"]


@pytest.fixture(autouse=True)
def in_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads Kafka in memory."""
    monkeypatch.setattr(source, "assemble_to_look", stage.assemble_to_look)


def rows_of_hour(stage: Stage, number: int, **options: str) -> list[dict[str, Any]]:
    """Returns the rows of a window's DataFrame."""
    frame = source.pin(read_options({"spec": stage.spec, "window": hour(number), **options}))
    reader = source.SplitReader(frame, frame.shape.schema)
    splits = range(len(frame.splits))
    return [row for n in splits for batch in reader.read(n) for row in batch.to_pylist()]


def test_values_that_a_change_leaves_alone_are_named(stage: Stage) -> None:
    """A null that stands for a value which the change left alone is told from a value of null."""
    Path("schema.py").write_text(SCHEMAS)
    spec = Path(stage.spec)
    decode = '{format: debezium-json, schema: "schema.py:Thing", table_include: ".*"}'
    text = spec.read_text().replace('{schema: "schema.py:Thing"}', decode)
    spec.write_text(text)
    stage.sink("{path: lake/things, mode: upsert, primary_key: [id]}")
    source_of_row = {"table": "things"}
    events: list[dict[str, Any]] = [
        {"op": "c", "after": {"id": 1, "kind": None}},
        {"op": "c", "after": {"id": 2, "kind": "a"}},
        {"op": "u", "after": {"id": 1, "kind": MARK}},
        {"op": "d", "before": {"id": 2}},
    ]
    stage.produce(9, *(json.dumps({**event, "source": source_of_row}).encode() for event in events))
    rows = [
        (row["id"], row["kind"], row["_deleted"], row["_unavailable"] or [])
        for row in rows_of_hour(stage, 9)
    ]
    assert rows == [
        (1, None, False, []),
        (1, None, False, ["kind"]),
        (2, "a", False, []),
        (2, None, True, []),
    ]


def test_tables_with_rows_of_their_own_have_messages_alone(stage: Stage) -> None:
    """Rows with different columns are refused, and can be read as messages, as the error says."""
    Path("schema.py").write_text(SCHEMAS)
    write_spec(stage, BY_HEADER)
    stage.produce(9, b'{"id": 1}')
    with pytest.raises(SpecError, match="other columns") as refused:
        rows_of_hour(stage, 9)
    assert "Set columns=messages" in str(refused.value)
    (row,) = rows_of_hour(stage, 9, columns="messages")
    assert row["value"] == b'{"id": 1}'
