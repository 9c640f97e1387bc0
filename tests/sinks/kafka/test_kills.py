"""kill -9 anywhere across a publication, a zombie, a twin: every message exactly once,
or the checker says so.
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.kafka.attempts import ALREADY, DONE, join_attempt, start_attempt
from tests.sinks.kafka.hooks import before_fence, behind_messages
from tests.sinks.kafka.twins import TWINS
from tests.sinks.kafka.world import new_place, pieces, report, sink_at
from tests.warm import stops
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.windows import produced, staged_receipt

pytestmark = [pytest.mark.broker, pytest.mark.slow]

POINTS = [
    "write.middle",
    "write.after",
    "split.before",
    "split.after",
    "commit.before",
    "commit.after",
]
KILLS = 6


@pytest.fixture
def location(kafka: str, tmp_path: Path) -> str:
    """A prepared table."""
    location = new_place(kafka, str(tmp_path / "staging"))
    sink_at(location).prepare()
    return location


@pytest.mark.long
@pytest.mark.parametrize("atomic", [False, True], ids=["split", "window"])
def test_killed_at_each_point(kafka: str, tmp_path: Path, atomic: bool) -> None:
    """Whoever runs a killed window again finds the commit exactly if it was sent, and
    every message is there once.
    """
    location = new_place(kafka, str(tmp_path / "staging"), atomic_window=atomic)
    sink_at(location).prepare()
    points = [point for point in POINTS if not (atomic and point.startswith("split"))]
    for number, point in enumerate(points):
        assert (
            join_attempt(start_attempt(location, number, "first", f"{point}:kill"))
            == -signal.SIGKILL
        )
        assert join_attempt(start_attempt(location, number, "retry")) == (
            ALREADY if point == "commit.after" else DONE
        ), point
    assert report(location, range(len(points))).ok, str(report(location, range(len(points))))


def test_a_window_that_is_half_published_may_become_atomic(location: str) -> None:
    """1 A run dies with splits published and no receipt.  2 The pipeline gets `atomic_window`.
    3 The next run sends only what is missing: every message is there once.
    """
    assert (
        join_attempt(start_attempt(location, 0, "first", "commit.before:kill")) == -signal.SIGKILL
    )
    atomic = json.loads(location) | {"more": {"atomic_window": True}}
    assert join_attempt(start_attempt(json.dumps(atomic), 0, "retry")) == DONE
    assert report(location, range(1)).ok, str(report(location, range(1)))


@pytest.mark.some(1)
@pytest.mark.parametrize("point", ["split.before", "commit.before"])
def test_a_zombie_changes_nothing(location: str, point: str) -> None:
    """A run that was stopped before a commit wakes when its retry has finished: its
    transaction is over, and it reports the retry's.
    """
    zombie = start_attempt(location, 0, "zombie", f"{point}:stop")
    try:
        assert stops(zombie)
        assert join_attempt(start_attempt(location, 0, "retry")) == DONE
        os.kill(zombie.pid or 0, signal.SIGCONT)
        assert join_attempt(zombie) == ALREADY
    finally:
        zombie.kill()
    assert report(location, range(1)).ok, str(report(location, range(1)))


@pytest.mark.long
@pytest.mark.sampled(1, of=4)
def test_kills_at_random_delays(part: int, dice: random.Random, location: str) -> None:
    """After each run that is killed at any moment comes another: every message is there once."""
    for number in range(KILLS):
        process = start_attempt(location, number, "first")
        process.join(0.3 + dice.random() * 1.2)
        process.kill()
        join_attempt(process)
        assert join_attempt(start_attempt(location, number, "retry")) in {DONE, ALREADY}
    assert report(location, range(KILLS)).ok, str(report(location, range(KILLS)))


def test_a_split_that_is_published_with_other_rows_refuses_the_window(location: str) -> None:
    """A run dies halfway, the schema changes, and the window is run again: refused,
    naming the attempt; with the old rows it ends.
    """
    from windrow.ingest.errors import RefusedError

    assert join_attempt(start_attempt(location, 0, "first", "split.after:kill")) == -signal.SIGKILL
    sink = sink_at(location)
    receipt, staged = staged_receipt(sink, 0, 0, "other", dead=False)
    with pytest.raises(RefusedError, match=r"attempt first published a split .* with other rows"):
        sink.commit(receipt, staged)
    receipt, staged = staged_receipt(sink, 0, 0, "same")
    sink.commit_dead(receipt.plan, "same", staged)
    sink.commit(receipt, staged)
    assert report(location, range(1)).ok, str(report(location, range(1)))


def run_race(location: str, sink: Any) -> Report:
    """A is at work; where it says so, B runs from beginning to end in a process of its
    own; A goes on.
    """
    a, a_files = staged_receipt(sink, 0, 0, "A", dead=False)

    def run_other() -> None:
        sink.meanwhile = lambda: None
        assert join_attempt(start_attempt(location, 0, "B")) == DONE

    sink.meanwhile = run_other
    sink.commit(a, a_files)
    fresh = sink_at(location)
    receipts = [c.receipt for c in fresh.receipts()]
    return check(
        produced([0]),
        pieces(fresh),
        [fresh.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("twin", ["LookBeforeFence", "RandomId"])
def test_the_checker_catches_the_twin_in_a_race(location: str, twin: str) -> None:
    """The checker reports the messages of both runs."""
    assert len(run_race(location, TWINS[twin](location)).duplicated) >= 18


def test_the_checker_catches_a_publication_without_a_record(location: str) -> None:
    """A run is killed after its messages are visible; its retry publishes them again."""
    assert (
        join_attempt(start_attempt(location, 0, "first", "split.after:kill", "NoRecord"))
        == -signal.SIGKILL
    )
    assert join_attempt(start_attempt(location, 0, "retry", "", "NoRecord")) == DONE
    assert len(report(location, range(1)).duplicated) == 18


@pytest.mark.some(1)
@pytest.mark.parametrize("hook", [before_fence, behind_messages])
def test_the_real_sink_passes_the_same_races(location: str, hook: Any) -> None:
    """The other run has its turn where the twins have it: between the look and the
    fence, and when all messages are written.
    """
    sink = sink_at(location)
    hook(sink, lambda: sink.meanwhile())  # noqa: PLW0108  # `run_race` sets it
    race_report = run_race(location, sink)
    assert race_report.ok, str(race_report)
