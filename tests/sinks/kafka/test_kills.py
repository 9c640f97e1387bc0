"""Kafka publications with kill -9 at any point, zombies and twins: every message is there
exactly once, or the checker reports it.
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
from tests.sinks.kafka.world import create_location, pieces, report, sink_at
from tests.warm import stops
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.windows import produced_messages, staged_receipt

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
    """The location of a prepared table."""
    location = create_location(kafka, str(tmp_path / "staging"))
    sink_at(location).prepare()
    return location


@pytest.mark.long
@pytest.mark.parametrize("atomic", [False, True], ids=["split", "window"])
def test_killed_at_each_point(kafka: str, tmp_path: Path, atomic: bool) -> None:
    """The retry of a killed window finds a commit exactly if it was sent, and every message is
    there once.
    """
    location = create_location(kafka, str(tmp_path / "staging"), atomic_window=atomic)
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
    """A window that is published in part may become atomic.

    1. A run dies with splits published and no receipt.
    2. The pipeline gets `atomic_window`.
    3. The next run sends only the missing messages: every message is there once.
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
    """A run that was stopped before a commit, and wakes after its retry, finds its transaction
    ended.

    It reports the retry's commit.
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
    """After runs killed at random moments, each followed by a retry, every message is there
    once.
    """
    for number in range(KILLS):
        process = start_attempt(location, number, "first")
        process.join(0.3 + dice.random() * 1.2)
        process.kill()
        join_attempt(process)
        assert join_attempt(start_attempt(location, number, "retry")) in {DONE, ALREADY}
    assert report(location, range(KILLS)).ok, str(report(location, range(KILLS)))


def test_a_split_that_is_published_with_other_rows_refuses_the_window(location: str) -> None:
    """A split that was published with other rows refuses its window.

    The error names the attempt; with the old rows the window commits.

    1. A run dies halfway.
    2. The schema changes, and the window runs again.
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
    """Runs A, and at its hook B from beginning to end in another process.

    Returns the checker's report.
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
        produced_messages([0]),
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
    """The checker reports duplicates of a twin without records: a run dies after its commit,
    and its retry publishes again.
    """
    assert (
        join_attempt(start_attempt(location, 0, "first", "split.after:kill", "NoRecord"))
        == -signal.SIGKILL
    )
    assert join_attempt(start_attempt(location, 0, "retry", "", "NoRecord")) == DONE
    assert len(report(location, range(1)).duplicated) == 18


@pytest.mark.some(1)
@pytest.mark.parametrize("hook", [before_fence, behind_messages])
def test_the_real_sink_passes_the_same_races(location: str, hook: Any) -> None:
    """The real sink passes races at both points of the twins: between look and fence, and after
    all messages are written.
    """
    sink = sink_at(location)
    hook(sink, lambda: sink.meanwhile())  # noqa: PLW0108  # `run_race` sets it
    race_report = run_race(location, sink)
    assert race_report.ok, str(race_report)
