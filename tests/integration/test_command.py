"""The command `windrow`, as a user types it, on real Kafka and real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.produce import Put, create_topic, produce
from tests.integration.harness import judge, millis, version, visible
from tests.integration.user import User

pytestmark = [pytest.mark.broker, pytest.mark.spark]

HOURS = "2026-01-05T01:00:00Z/2026-01-05T04:00:00Z"


@pytest.fixture
def user(kafka: str, tmp_path: Path) -> User:
    """Three hours of messages with one poison, and a spec beside them."""
    topic = create_topic(kafka, partitions=2)
    puts = [Put(json.dumps({"id": h * 100 + i, "name": None}).encode(), millis(h, i), i % 2) for h in (1, 2, 3) for i in range(40)]
    produce(kafka, topic, [*puts[:60], Put(b"poison", millis(2, 30)), *puts[60:]])
    return User(kafka, topic, tmp_path)


def test_a_day_with_the_command(user: User) -> None:
    """Plan, run three hours, again, show, look at the dead letter, verify, replay one, verify: each message ends in one place."""
    planned = user.types("plan", "--window", HOURS)
    assert [p["frozen"] for p in planned["plans"]] == [[]] * 3
    assert not (user.folder / "things").exists(), "planning made a table"
    ran = user.types("run", "--window", HOURS)
    assert [w["recovered"] for w in ran["windows"]] == [False] * 3
    before = version(user.place)
    again = user.types("run", "--window", HOURS)
    assert [w["recovered"] for w in again["windows"]] == [True] * 3
    assert version(user.place) == before
    assert len(user.types("show")["windows"]) == 3
    dead = user.types("show", "--dead")["dead"]
    assert [(d["reason"], d["window"]) for d in dead] == [("not_json", "2026-01-05T02:00:00Z")]
    assert "poison" not in json.dumps(dead)
    assert user.types("verify")["rows"] == 120
    replayed = user.types("replay", "--window", "2026-01-05T02:00:00Z")
    assert replayed["windows"][0]["committed"]["receipt"]["generation"] == 1
    user.types("verify")
    report = judge(user.place, visible(user.place.bootstrap, user.place.topic))
    assert report.ok, report


def test_doctor(user: User) -> None:
    """Everything it looks at is well on a fresh pipeline."""
    checks = user.types("doctor")["checks"]
    assert {c["level"] for c in checks} <= {"ok", "warn"}, checks


def test_what_is_wrong_comes_with_its_exit_code(user: User) -> None:
    """4 for an open window, 2 for a window beside the grid and for a spec with mistakes, all of them at once with their lines."""
    assert "or later" in json.dumps(user.types("run", "--window", "2126-01-05T01:00:00Z", code=4))
    user.types("run", "--window", "2026-01-05T01:30:00Z", code=2)
    spec = user.folder / "things.yaml"
    spec.write_text(spec.read_text().replace("hourly", "weekly").replace("topic:", "topik:"))
    told = json.dumps(user.types("run", "--window", "2026-01-05T01:00:00Z", code=2))
    assert "line 2" in told
    assert "line 3" in told
