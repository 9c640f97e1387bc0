"""A run keeps columns that changes leave unchanged, from the messages to the table."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import DeadLetterLimitError, SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import pass_over_refused, run, run_windows
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader

START, HOUR = datetime(2026, 1, 5, tzinfo=UTC), timedelta(hours=1)
TP = TopicPartition("shop.public.notes", 0)
MODEL = """
import pandera.polars as pa, polars as pl

class Note(pa.DataFrameModel):
    id: pl.Int64
    title: pl.String
    body: pl.String = pa.Field(nullable=True)
"""


def spec(folder: Path, sink: dict[str, Any], **decode: Any) -> Any:
    """Returns a spec of Debezium's events in hourly windows."""
    (folder / "notes.py").write_text(MODEL)
    return parse_spec(
        {
            "id": "notes",
            "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TP.topic},
            "state": str(folder / "state.db"),
            "window": {"grid": "hourly", "start": START.isoformat()},
            "decode": {"format": "debezium-json", "schema": "notes.py:Note", **decode},
            "sink": sink if "kind" in sink else {"path": str(folder / "table"), **sink},
        },
        folder,
    )


UPSERT = {"mode": "upsert", "primary_key": ["id"]}


def test_a_large_value_stays_where_an_update_leaves_it_alone(tmp_path: Path) -> None:
    """A large value that PostgreSQL doesn't send in updates stays in its row, also two windows
    later, without a setting.
    """
    broker = MemoryBroker()
    broker.create_topic(TP.topic, partitions=1)
    mark, source = "__debezium_unavailable_value", {"table": "notes", "schema": "public"}
    for hour, (op, title, body) in enumerate(
        [("c", "a", "long"), ("u", "b", mark), ("u", "c", mark)]
    ):
        event = {
            "op": op,
            "before": None,
            "after": {"id": 1, "title": title, "body": body},
            "source": source,
        }
        broker.produce(TP, json.dumps(event).encode(), timestamp=START + hour * HOUR)
    for hour in range(3):
        pipeline = assemble(spec(tmp_path, UPSERT), LocalEngine())
        pipeline = replace(
            pipeline, broker=broker, reader=partial(MemoryReader, broker, rows_max=3)
        )
        run(
            pipeline,
            Window("notes", START + hour * HOUR, START + (hour + 1) * HOUR),
            Request(f"r{hour}"),
        )
    rows = (
        DeltaTable(str(tmp_path / "table"))
        .to_pyarrow_table()
        .select(["id", "title", "body"])
        .to_pylist()
    )
    assert rows == [{"id": 1, "title": "c", "body": "long"}]


def test_a_refused_window_holds_back_what_it_could_not_come_behind(tmp_path: Path) -> None:
    """A refused window stops later windows that need it to be committed before them.

    1. W0 writes a value, and is refused.
    2. W1 leaves the value unchanged. If it were committed, W0 could never be, so it isn't
       tried.
    3. The error names W1.
    """
    broker = MemoryBroker()
    broker.create_topic(TP.topic, partitions=1)
    for hour, values in enumerate([[b"poison"] * 5, [b"{}"]]):
        for value in values:
            broker.produce(TP, value, timestamp=START + hour * HOUR)
    pipeline = replace(
        assemble(spec(tmp_path, UPSERT), LocalEngine()),
        broker=broker,
        reader=partial(MemoryReader, broker, rows_max=3),
    )
    windows = [Window("notes", START + hour * HOUR, START + (hour + 1) * HOUR) for hour in range(2)]
    with pytest.raises(DeadLetterLimitError, match=f"Not tried: {windows[1].key}"):
        list(run_windows(pipeline, windows, Request("r"), pass_over=pass_over_refused(pipeline)))


@pytest.mark.parametrize(
    ("sink", "decode", "in_order"),
    [
        (UPSERT, {}, True),
        (UPSERT, {"unavailable": "dead"}, False),
        ({}, {}, False),
        (UPSERT, {"format": "json"}, False),
        (
            {"kind": "kafka", "topic": "t", "staging": "s", "atomic_window": True, **UPSERT},
            {"format": "json"},
            True,
        ),
    ],
)
def test_which_windows_wait_for_those_before_them(
    tmp_path: Path, sink: dict[str, Any], decode: dict[str, Any], in_order: bool
) -> None:
    """Windows run in order for tables that keep unchanged columns, and for topics in which
    messages replace each other.
    """
    assert spec(tmp_path, sink, **decode).in_order == in_order


@pytest.mark.parametrize("sink", [{}, {**UPSERT, "version": "id2"}], ids=["append", "version"])
def test_a_table_that_cannot_keep_says_so(tmp_path: Path, sink: dict[str, Any]) -> None:
    """`keep` is refused before anything is read if the table can't keep values.

    By default such changes are dead letters.
    """
    with pytest.raises(SpecError, match="keep needs a table whose rows can keep"):
        _ = assemble(spec(tmp_path, sink, unavailable="keep"), LocalEngine()).decoder().columns
