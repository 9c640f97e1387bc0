"""The replay of dead letters on real Kafka: killed at each point, and racing with other replays."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.integration.harness import millis, read_visible, verdict
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce
from windrow.ingest.crashpoints import CRASH_POINTS

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

ONE = "2026-01-05T01:00:00Z"
DEAD_REPLAY = ("dead", "replay", "--window", ONE)
EDIT = """\
from dataclasses import replace


def edit(message):
    edited = replace(message, value=b'{"id": %d, "name": "edited"}' % message.offset)
    return edited if message.stage == "value" else message
"""


@pytest.fixture
def user(kafka: str, tmp_path: Path) -> User:
    """A user with a committed hour in two topic-partitions.

    Some messages are no JSON, and some break a rule of the model.
    """
    topic = create_topic(kafka, partitions=2)
    bad = {
        7: b"poison",
        20: b'{"id": -1, "name": null}',
        31: b'{"id": -2, "name": null}',
        44: b"poison",
    }
    values = [bad.get(i) or json.dumps({"id": i, "name": None}).encode() for i in range(60)]
    produce(
        kafka,
        topic,
        [Put(value, millis(1, i / 2), i % 2) for i, value in enumerate(values)]
        + [Put(values[0], millis(3, 1), 0)],
    )
    new_user = User(kafka, topic, tmp_path)
    (tmp_path / "fix.py").write_text(EDIT)
    new_user.types("run", "--window", ONE)
    return new_user


def loosen(user: User) -> None:
    """Changes the spec to a model that accepts negative ids."""
    spec = user.folder / "things.yaml"
    spec.write_text(spec.read_text().replace("things.py:Thing", "things.py:Looser"))


def assert_sound(user: User, *, recorded: bool = True) -> None:
    """Asserts that each message is a row or an open dead letter, once.

    `verify` finds nothing, except that the ledger's copy is older if it wasn't `recorded`.
    """
    produced = {
        tp: {o: i for o, i in offsets.items() if o < 30}
        for tp, offsets in read_visible(user.setup.bootstrap, user.setup.topic).items()
    }
    report = verdict(user.setup, produced)
    assert report.ok, str(report)
    findings = user.types("verify", "--deep")["findings"]
    assert [f["what"] for f in findings] == (
        [] if recorded else ["the ledger's copy of the receipt is missing or older"]
    )


def rows(user: User) -> list[Any]:
    """Returns the replayed rows in order: partition, offset, id and window."""
    table = DeltaTable(str(user.folder / "things")).to_pyarrow_table()
    table_rows = table.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).to_pylist()
    return [
        (r["_partition"], r["_offset"], r["id"], r["_window"])
        for r in table_rows
        if r["id"] < 0 or r["name"] == "edited"
    ]


ALL = [(0, 10, -1, ONE), (0, 22, 22, ONE), (1, 3, 3, ONE), (1, 15, -2, ONE)]


def test_replayed_by_the_command(user: User) -> None:
    """A replayed message becomes a row with its own window and offset.

    It is no dead letter any more. It is replayed after a change of the model, and then with a
    script.
    """
    loosen(user)
    (looser,) = user.types(*DEAD_REPLAY, "--dry-run")["windows"]
    assert looser["messages"] == 2
    assert rows(user) == []
    (looser,) = user.types(*DEAD_REPLAY)["windows"]
    assert (looser["messages"], looser["edited"]) == (2, 0)
    assert rows(user) == [row for row in ALL if row[2] < 0]
    assert_sound(user)
    (edited,) = user.types("dead", "replay", "--reason", "not_json", "--edit", "fix.py")["windows"]
    assert (edited["messages"], edited["edited"]) == (2, 2)
    assert rows(user) == ALL
    assert user.types("dead", "show")["dead"] == []
    assert_sound(user)
    user.types("replay", "--window", ONE, code=1)
    user.types("replay", "--window", ONE, "--accept-fewer")
    assert rows(user) == [row for row in ALL if row[2] < 0]
    assert_sound(user)


@pytest.mark.some(1)
@pytest.mark.parametrize("point", CRASH_POINTS[CRASH_POINTS.index("write.middle") :])
def test_killed(user: User, point: str) -> None:
    """A replay that is killed with SIGKILL and repeated loses and duplicates nothing."""
    loosen(user)
    with user.starts(*DEAD_REPLAY, "--edit", "fix.py", crash=f"{point}:kill") as command:
        try:
            command.communicate(timeout=120)
        finally:
            command.kill()
    assert command.returncode == -signal.SIGKILL
    is_committed = point in ("commit.after", "report.before")
    assert rows(user) == (ALL if is_committed else [])
    assert len(user.types("dead", "show")["dead"]) == (0 if is_committed else 4)
    assert_sound(user, recorded=point != "commit.after")
    user.types(*DEAD_REPLAY, "--edit", "fix.py")
    assert rows(user) == ALL
    assert_sound(user)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "other_command",
    [(*DEAD_REPLAY, "--edit", "fix.py"), ("replay", "--window", ONE)],
    ids=["dead_replay", "replay"],
)
def test_a_sleeper_changes_nothing(user: User, other_command: tuple[str, ...]) -> None:
    """A dead-letter replay that wakes after another replay changes nothing.

    1. It stops right before its commit.
    2. Another dead-letter replay, or a replay of the window, finishes.
    3. It wakes, and each row is there once.
    """
    loosen(user)
    with user.starts(*DEAD_REPLAY, "--edit", "fix.py", crash="commit.before:stop") as sleeper:
        try:
            _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            user.types(*other_command)
            os.kill(sleeper.pid, signal.SIGCONT)
            out, err = sleeper.communicate(timeout=120)
        finally:
            sleeper.kill()
    assert sleeper.returncode == 0, (out, err)
    assert rows(user) == ALL
    assert_sound(user)
