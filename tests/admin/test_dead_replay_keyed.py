"""Dead-letter replay into a table with a primary key.

A replayed row or delete takes effect in the order of offsets, although later windows are
committed already.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from windrow.ingest.admin.dead_replay import (
    DeadReplayRequest,
    DeadReplayResult,
    replay_dead_letters,
)
from windrow.ingest.admin.verify import verify
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader

START = datetime(2026, 1, 5, tzinfo=UTC)
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class User(pa.DataFrameModel):
    id: pl.Int64
    name: pl.String = pa.Field(str_length={"max_value": 5})


class Looser(pa.DataFrameModel):
    id: pl.Int64
    name: pl.String
"""
TP = TopicPartition("shop.users", 0)
HOURS: list[list[tuple[int, str | None]]] = [
    [
        (1, "refused"),
        (1, "b"),
        (2, "a"),
        (2, "refused"),
        (3, "refused"),
        (3, None),
        (4, None),
        (4, "refused"),
        (5, "refused"),
        (6, "refused"),
    ],
    [(5, "f"), (6, None), (7, "refused"), (8, "h")],
]
"""The id and name of each message, by hour; a message without a name deletes."""


def hour(n: int) -> Window:
    """Returns the n-th hour."""
    return Window("users", START + timedelta(hours=n), START + timedelta(hours=n + 1))


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker with the messages of `HOURS`."""
    new_broker = MemoryBroker()
    new_broker.create_topic(TP.topic, partitions=1, retention_ms=None)
    for n, messages in enumerate(HOURS):
        for i, (number, name) in enumerate(messages):
            value = None if name is None else b'{"name": "%s"}' % name.encode()
            new_broker.produce(
                TP,
                value,
                key=b'{"id": %d}' % number,
                timestamp=START + timedelta(hours=n, seconds=i),
                headers=[],
            )
    return new_broker


def pipeline(folder: Path, broker: MemoryBroker, model: str, mode: str = "upsert") -> Pipeline:
    """Returns a pipeline whose table has a user's id as primary key."""
    (folder / "schema.py").write_text(SCHEMA)
    spec = parse_spec(
        {
            "id": "users",
            "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TP.topic},
            "window": {"grid": "hourly", "start": START},
            "limits": {"max_dead_ratio": None},
            "state": str(folder / "state.db"),
            "decode": {
                "schema": f"schema.py:{model}",
                "key": {"fields": ["id"]},
                "fields_include": "except_key",
            },
            "sink": {"path": str(folder / "table"), "mode": mode, "primary_key": ["id"]},
        },
        folder,
    )
    return replace(
        assemble(spec),
        broker=broker,
        reader=lambda plan: MemoryReader(broker, plan),
        engine=LocalEngine(),
        sleep=lambda _: None,
        now=lambda: START + timedelta(days=30),
    )


def fold_hours() -> dict[int, str]:
    """Returns the names by id after all messages of the log."""
    table: dict[int, str] = {}
    for number, name in (message for messages in HOURS for message in messages):
        if name is None:
            table.pop(number, None)
        else:
            table[number] = name
    return table


def name_by_id(keyed_pipeline: Pipeline) -> dict[int, str]:
    """Returns the names by id in the table."""
    rows = [
        row for batch in keyed_pipeline.sink.audit().keyed.all_rows() for row in batch.to_pylist()
    ]
    return {row["id"]: row["name"] for row in rows if not row.get("_deleted")}


@pytest.mark.parametrize("mode", ["upsert", "delete-aware"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_replayed_rows_and_deletes_count_where_they_lie(
    tmp_path: Path, broker: MemoryBroker, mode: str, order: tuple[int, int]
) -> None:
    """After replays in any order of windows, the table is as if all messages were accepted.

    Each replay finds its window's dead letters open. Verification then finds nothing wrong, and no
    dead letter open.
    """
    for n in (0, 1):
        run(pipeline(tmp_path, broker, "User", mode), hour(n), Request(f"r{n}"))
    looser = pipeline(tmp_path, broker, "Looser", mode)
    done: list[DeadReplayResult] = [
        replay_dead_letters(looser, hour(n), DeadReplayRequest("dead_replay")) for n in order
    ]
    assert sorted((replay.open, replay.messages, replay.rows) for replay in done) == [
        (1, 1, 1),
        (6, 6, 6),
    ]
    assert name_by_id(looser) == fold_hours()
    verified = verify(
        "users", looser.sink, looser.dead_letters, looser.ledger, looser.broker, deep=True
    )
    assert [f for f in verified.findings if f.level == "wrong"] == []
    counts = done[order.index(0)].committed.receipt.counts
    assert (counts.read, counts.valid, counts.rows, counts.deletes, counts.dead) == (
        10,
        10,
        8,
        2,
        0,
    )


def test_a_replayed_message_may_be_a_delete(tmp_path: Path, broker: MemoryBroker) -> None:
    """An edit that removes a message's value deletes the key, unless a later message sets it.

    A window that is run later, with older messages, doesn't bring the row back.
    """
    user_pipeline = pipeline(tmp_path, broker, "User")
    run(user_pipeline, hour(1), Request("r1"))
    done = replay_dead_letters(
        user_pipeline,
        hour(1),
        DeadReplayRequest(
            "dead_replay", edit=lambda message: replace(message, key=b'{"id": 4}', value=None)
        ),
    )
    assert (done.messages, done.rows, done.edited, done.committed.receipt.counts.deletes) == (
        1,
        0,
        1,
        2,
    )
    run(pipeline(tmp_path, broker, "Looser"), hour(0), Request("r0"))
    assert name_by_id(user_pipeline) == {
        number: name for number, name in fold_hours().items() if number not in (4, 7)
    }
