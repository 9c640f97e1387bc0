"""The command `windrow`, as a user types it, on real Kafka and real Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.integration.harness import millis, read_visible, table_version, verdict
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, delete_topic, produce
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.schema.messages import MESSAGES

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

HOURS = "2026-01-05T01:00:00Z/2026-01-05T04:00:00Z"


QUIET = "2026-01-05T04:00:00Z"
"""An hour after all messages, whose commit doesn't need Spark."""


def hours(*numbers: int) -> list[Put]:
    """Returns forty messages for each hour, alternating between two topic-partitions.

    The ids of the n-th hour begin at n * 100.
    """
    return [
        Put(json.dumps({"id": h * 100 + i, "name": None}).encode(), millis(h, i), i % 2)
        for h in numbers
        for i in range(40)
    ]


@pytest.fixture
def topic(kafka: str) -> str:
    """A topic with three hours of messages, from 1:00 to 4:00."""
    topic_name = create_topic(kafka, partitions=2)
    produce(kafka, topic_name, hours(1, 2, 3))
    return topic_name


def ids(user: User) -> list[int]:
    """Returns the ids in the table."""
    return sorted(
        DeltaTable(str(user.folder / "things")).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    )


def valid(document: Any) -> list[int]:
    """Returns how many rows each window of a document has."""
    return [w["committed"]["receipt"]["counts"]["valid"] for w in document["windows"]]


def expected(*numbers: int, leave: Iterable[int] = ()) -> list[int]:
    """Returns the ids of whole hours, without those of `leave`."""
    return sorted({h * 100 + i for h in numbers for i in range(40)} - set(leave))


@pytest.fixture
def user(kafka: str, tmp_path: Path) -> User:
    """A user with a spec, and three hours of messages with one malformed message."""
    topic = create_topic(kafka, partitions=2)
    puts = hours(1, 2, 3)
    produce(kafka, topic, [*puts[:60], Put(b"poison", millis(2, 30)), *puts[60:]])
    return User(kafka, topic, tmp_path)


def test_a_day_with_the_command(user: User) -> None:
    """A day of commands leaves each message in one place.

    The commands plan, run three hours, run again, show, list the dead letter, verify, replay an
    hour and verify.
    """
    planned = user.starts_and_ends("plan", "--window", HOURS)
    assert [p["frozen"] for p in planned["plans"]] == [[]] * 3
    assert not (user.folder / "things").exists(), "planning made a table"
    ran = user.starts_and_ends("run", "--window", HOURS)
    assert [w["recovered"] for w in ran["windows"]] == [False] * 3
    version_before = table_version(user.setup)
    rerun = user.types("run", "--window", HOURS)
    assert [w["recovered"] for w in rerun["windows"]] == [True] * 3
    assert table_version(user.setup) == version_before
    assert len(user.types("show")["windows"]) == 3
    dead = user.types("dead", "show")["dead"]
    assert [(d["reason"], d["window"]) for d in dead] == [("not_json", "2026-01-05T02:00:00Z")]
    assert "poison" not in json.dumps(dead)
    assert user.types("verify")["rows"] == 120
    replayed = user.types("replay", "--window", "2026-01-05T02:00:00Z")
    assert replayed["windows"][0]["committed"]["receipt"]["generation"] == 1
    user.types("verify")
    report = verdict(user.setup, read_visible(user.setup.bootstrap, user.setup.topic))
    assert report.ok, report


def test_doctor(user: User) -> None:
    """`doctor` finds no fault in a new pipeline."""
    checks = user.types("doctor")["checks"]
    assert {c["level"] for c in checks} <= {"ok", "warn"}, checks


def test_what_is_wrong_comes_with_its_exit_code(user: User) -> None:
    """An error has its exit code: 4 for an open window, 2 for a wrong window or spec.

    All mistakes of a spec are reported at once with their lines.
    """
    assert "or later" in json.dumps(user.types("run", "--window", "2126-01-05T01:00:00Z", code=4))
    user.types("run", "--window", "2026-01-05T01:30:00Z", code=2)
    spec = user.folder / "things.yaml"
    spec.write_text(spec.read_text().replace("hourly", "weekly").replace("topic:", "topik:"))
    output = json.dumps(user.types("run", "--window", "2026-01-05T01:00:00Z", code=2))
    assert "line 2" in output
    assert "line 3" in output


# -------------------------------------------------------------------------------------- kinds of wi


def test_hourly_from_the_earliest_offset(kafka: str, topic: str, tmp_path: Path) -> None:
    """With `start: earliest` the first hour begins at the log's start.

    It includes older messages.
    """
    user = User(
        kafka,
        topic,
        tmp_path,
        "start: earliest",
        "grid: hourly, start: 2026-01-05T02:00:00Z, delay: 1m",
    )
    ran = user.types("run", "--window", "2026-01-05T02:00:00Z/2026-01-05T04:00:00Z")
    assert valid(ran) == [80, 40]
    assert ids(user) == expected(1, 2, 3)
    assert user.types("verify")["findings"] == []


def test_daily_from_a_timestamp(kafka: str, topic: str, tmp_path: Path) -> None:
    """The first day begins at the first message from 2:00 on."""
    user = User(
        kafka,
        topic,
        tmp_path,
        "start: {timestamp: '2026-01-05T02:00:00Z'}",
        "grid: daily, start: 2026-01-05T00:00:00Z",
    )
    assert valid(user.types("run", "--window", "2026-01-05T00:00:00Z/2026-01-07T00:00:00Z")) == [
        80,
        0,
    ]
    assert ids(user) == expected(2, 3)
    assert user.types("verify")["findings"] == []


def test_cron_from_offsets(kafka: str, topic: str, tmp_path: Path) -> None:
    """Windows of a cron grid have two and ten hours, and begin at the given offsets."""
    window = "grid: '0 0,2,12 * * *', start: 2026-01-05T00:00:00Z"
    user = User(
        kafka,
        topic,
        tmp_path,
        "start: {offsets: 'partition:0,offset:5;partition:1,offset:10'}, split_records: 30",
        window,
    )
    (planned,) = user.types("plan", "--window", "2026-01-05T00:00:00Z")["plans"]
    assert [(p["start"], p["stop"], p["start_how"]) for p in planned["partitions"]] == [
        (5, 20, "position"),
        (10, 20, "position"),
    ]
    assert valid(user.types("run", "--window", "2026-01-05T00:00:00Z/2026-01-05T12:00:00Z")) == [
        25,
        80,
    ]
    assert ids(user) == expected(1, 2, 3, leave=[*range(100, 110, 2), *range(101, 121, 2)])
    assert user.types("verify")["findings"] == []


def test_micro_batches_from_what_a_group_has_committed(
    kafka: str, topic: str, tmp_path: Path
) -> None:
    """Micro-batches begin at the committed offsets of a group and read to the end.

    A replay by its number reads the same messages.
    """
    user = User(
        kafka, topic, tmp_path, "start: {committed: readers}", "grid: batch, max_records: 25"
    )
    broker = user.setup.pipeline().broker
    assert set(
        broker.alter_offsets(
            "readers", {TopicPartition(topic, 0): 45, TopicPartition(topic, 1): 30}
        ).values()
    ) == {None}
    (planned,) = user.types("plan")["plans"]
    assert sum(p["messages_at_most"] for p in planned["partitions"]) == 25
    drained = user.types("run", "--drain", "--request", "nightly")
    assert valid(drained) == [25, 20]
    committed_ids = ids(user)
    assert committed_ids == expected(
        2, 3, leave=[*range(200, 240, 2), *range(300, 310, 2), *range(201, 221, 2)]
    )
    assert [
        w["recovered"] for w in user.types("run", "--drain", "--request", "nightly")["windows"]
    ] == [True, True]
    assert user.types("run")["windows"] == []
    assert valid(user.types("replay", "--window", "0/2")) == [25, 20]
    assert ids(user) == committed_ids
    assert user.types("verify")["findings"] == []


def test_micro_batches_from_the_latest_offset(kafka: str, topic: str, tmp_path: Path) -> None:
    """With `start: latest` only messages after the first run are read."""
    user = User(kafka, topic, tmp_path, "start: latest", "grid: batch")
    assert user.types("run")["windows"] == []
    produce(kafka, topic, hours(5))
    assert valid(user.types("run")) == [40]
    assert ids(user) == expected(5)
    assert user.types("verify")["findings"] == []


# --------------------------------------------------------------------------------------------------


def test_peek_into_files(kafka: str, topic: str, tmp_path: Path) -> None:
    """`peek` writes the messages between two positions to both kinds of files, and nothing else."""
    user = User(kafka, topic, tmp_path)
    files_before = sorted(p.name for p in tmp_path.iterdir())
    positions = [
        "--start",
        "timestamp:2026-01-05T02:00:00Z",
        "--stop",
        "partition:0,offset:40;partition:1,offset:25",
    ]
    assert user.types("peek", *positions, "--out", "m.parquet")["messages"] == 25
    assert user.types("peek", *positions, "--out", "m.jsonl")["messages"] == 25
    table = pq.read_table(tmp_path / "m.parquet")
    assert table.schema.names == MESSAGES.names
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    where = [(p, o) for p, stop in ((0, 40), (1, 25)) for o in range(20, stop)]
    assert (
        list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)) == where
    )
    assert [(line["partition"], line["offset"]) for line in lines] == where
    assert json.loads(lines[0]["value"])["id"] == 200
    assert len(user.types("peek")["messages"]) == 20
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [*files_before, "m.parquet", "m.jsonl"]
    )


def test_lag_of_a_group(kafka: str, topic: str, tmp_path: Path) -> None:
    """`lag` counts the messages since the newest window.

    The group's offsets are altered by `lag --alter-offsets` and by each run.
    """
    user = User(kafka, topic, tmp_path, f"offsets_group: {topic}-lag")
    ran = user.types("run", "--window", QUIET)
    assert ran["windows"][0]["group_offsets"]["succeeded"] == 2
    produce(kafka, topic, hours(6))
    report = user.types("lag", "--alter-offsets")
    assert (
        report["lag"]["records"],
        report["group_offsets"]["succeeded"],
        report["group_offsets"]["failed"],
    ) == (40, 2, 0)
    tps = [TopicPartition(topic, p) for p in (0, 1)]
    assert user.setup.pipeline().broker.committed_offsets(f"{topic}-lag", tps) == dict.fromkeys(
        tps, 60
    )


def test_rebase_on_a_topic_made_anew(kafka: str, topic: str, tmp_path: Path) -> None:
    """`rebase` continues a pipeline on a recreated topic.

    1. The run is refused, and the error names `windrow rebase`.
    2. `rebase` proposes the change and then records it.
    3. The next window is read from the new topic, and the table verifies.
    """
    user = User(kafka, topic, tmp_path)
    user.types("run", "--window", QUIET)
    delete_topic(kafka, topic)
    create_topic(kafka, partitions=2, name=topic)
    produce(kafka, topic, hours(5))
    next_window = "2026-01-05T05:00:00Z"
    refused = user.types("run", "--window", next_window, code=1)["error"]
    assert (refused["kind"], "windrow rebase " in refused["message"]) == ("IdentityError", True)
    proposed = user.types("rebase")
    assert (proposed["recorded"], len(proposed["changes"])) == (False, 1)
    assert user.types("rebase", "--yes")["recorded"] is True
    assert valid(user.types("run", "--window", next_window)) == [40]
    assert ids(user) == expected(5)
    assert {f["level"] for f in user.types("verify")["findings"]} <= {"info"}
