"""Exactly once on real Kafka and a real Delta table, whatever dies, stops, races or comes back."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.integration.harness import (
    Place,
    millis,
    result_of,
    start_run,
    verdict,
    version,
    visible,
    wait_until_stopped,
    wake,
)
from tests.kafka.produce import Put, create_topic, produce, transaction
from windrow.ingest.crashpoints import CRASH_POINTS, CrashPoint
from windrow.ingest.runner.context import Request

pytestmark = pytest.mark.broker

KILLS = 10
AFTER_COMMIT = {"commit.after", "report.before"}
POISON = (b"", b"{", b'{"id":"seven"}', b'{"id":1.5}', b"\xff\xfe", b'{"id":1}{"id":2}', b"null")


def thing(i: int) -> bytes:
    """A message's value."""
    return json.dumps({"id": i, "name": f"thing {i}"}).encode()


def fill(bootstrap: str, topic: str, n_hour: int, first: int = 0) -> None:
    """One hour of two topic-partitions: plain, committed and aborted messages, poison
    and a tombstone.
    """
    produce(
        bootstrap,
        topic,
        [Put(thing(first + i), millis(n_hour, i // 60, i % 60), i % 2, b"key") for i in range(300)],
    )
    transaction(
        bootstrap,
        topic,
        [Put(thing(first + 300 + i), millis(n_hour, 10, i), i % 2) for i in range(20)],
        commit=True,
    )
    transaction(
        bootstrap,
        topic,
        [Put(thing(first + 9000 + i), millis(n_hour, 11, i), i % 2) for i in range(20)],
        commit=False,
    )
    produce(
        bootstrap,
        topic,
        [Put(value, millis(n_hour, 12), i % 2) for i, value in enumerate(POISON)]
        + [Put(None, millis(n_hour, 12), 0, b"gone")],
    )


@pytest.fixture(scope="module")
def one_hour(kafka: str) -> str:
    """A topic whose messages all lie in hour 1; never written to again."""
    topic = create_topic(kafka, partitions=2)
    fill(kafka, topic, 1)
    return topic


@pytest.fixture
def place(kafka: str, one_hour: str, tmp_path: Path) -> Place:
    """A fresh table and ledger over that topic."""
    return Place(kafka, one_hour, tmp_path)


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Path]:
    """Where children put their answers."""
    (tmp_path / "answers").mkdir()
    return tmp_path / "answers"


def test_the_undisturbed_run_passes_the_checker(place: Place) -> None:
    """One run: every visible message is a row or a dead letter, once; the aborted ones
    are counted as such.
    """
    result = place.run(1)
    counts = result.committed.receipt.counts
    assert not result.recovered
    assert (counts.read, counts.valid, counts.dead, counts.aborted) == (328, 320, 8, 20)
    report = verdict(place, visible(place.bootstrap, place.topic))
    assert report.ok, report


@pytest.mark.some(2)
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_kill_at_every_crash_point(place: Place, answers: Path, point: CrashPoint) -> None:
    """Killed with SIGKILL at any named point, the rerun makes it exactly once, and says
    so if the commit was in already.
    """
    killed = start_run(place, 1, answers / "killed", f"{point}:kill")
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL
    version_before = version(place) if point in AFTER_COMMIT else None
    result = place.run(1)
    assert result.recovered == (point in AFTER_COMMIT)
    assert version_before is None or version(place) == version_before
    report = verdict(place, visible(place.bootstrap, place.topic))
    assert report.ok, report


@pytest.mark.some(1)
@pytest.mark.parametrize("point", ["boundary.after", "plan.after", "write.after", "commit.before"])
def test_the_rerun_reads_the_frozen_offsets(
    kafka: str, tmp_path: Path, answers: Path, point: str
) -> None:
    """Messages that arrive between a killed run and its rerun, stamped inside the
    window, don't move what was frozen.
    """
    setup = Place(kafka, create_topic(kafka, partitions=2), tmp_path)
    fill(kafka, setup.topic, 1)
    killed = start_run(setup, 1, answers / "killed", f"{point}:kill")
    killed.join(120)
    pipeline = setup.pipeline()
    frozen = (
        pipeline.ledger.boundary("things", setup.window(1).start),
        pipeline.ledger.plan(setup.window(1)),
    )
    assert frozen[0] is not None
    produce(kafka, setup.topic, [Put(thing(5000 + i), millis(1, 30, i), i % 2) for i in range(10)])
    plan = setup.run(1).committed.receipt.plan
    assert plan.start == frozen[0]
    assert frozen[1] is None or plan == frozen[1]


def start_until_commit(setup: Place) -> BaseProcess:
    """A run in a process of its own that has stopped itself when its last task had returned."""
    setup.folder.mkdir()
    child = start_run(setup, 1, setup.folder / "answer", "dead.before:stop")
    wait_until_stopped(child)
    return child


def let_go(child: BaseProcess, seconds: float | None) -> float:
    """Let it run on, and kill it after so many seconds if it still runs then; how long it ran."""
    assert child.pid is not None
    began = time.monotonic()
    os.kill(child.pid, signal.SIGCONT)
    child.join(seconds)
    ran = time.monotonic() - began
    child.kill()
    child.join(60)
    return ran


@pytest.mark.long
@pytest.mark.sampled(1, of=5)
def test_kill_at_random_delays_across_the_commit(
    part: int, dice: random.Random, kafka: str, one_hour: str, tmp_path: Path
) -> None:
    """10 kills while a window is committed or just after: all of the window or nothing,
    and the rerun makes it exactly once.

    The delays, one at random in each tenth, reach from 0 to a fifth beyond the slowest
    of three commits that nobody disturbed. Where they were all on one side of the
    commit, because something else kept the machine busy, some more are tried on the
    other side.
    """
    longest = 1.2 * max(
        let_go(start_until_commit(Place(kafka, one_hour, tmp_path / f"calm {n}")), None)
        for n in range(3)
    )
    outcomes = set()
    expected = visible(kafka, one_hour)
    for turn in range(2 * KILLS):
        if turn >= KILLS and outcomes == {True, False}:
            break
        delay = (
            longest * (turn + dice.random()) / KILLS
            if turn < KILLS
            else (0.0 if outcomes == {True} else turn * longest)
        )
        setup = Place(kafka, one_hour, tmp_path / str(turn))
        let_go(start_until_commit(setup), delay)
        outcomes.add(setup.run(1).recovered)
        report = verdict(setup, expected)
        assert report.ok, (turn, report)
    assert outcomes == {
        True,
        False,
    }, f"the delays, up to {longest:.3f} s, never straddled the commit"


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "point", ["plan.after", "write.middle", "write.after", "dead.before", "commit.before"]
)
def test_a_stopped_run_that_wakes_after_its_retry_changes_nothing(
    place: Place, answers: Path, point: str
) -> None:
    """1 A stops before its commit. 2 B runs the window and commits. 3 A wakes: it
    reports B's receipt, and the table stays as it is.
    """
    zombie = start_run(place, 1, answers / "zombie", f"{point}:stop")
    wait_until_stopped(zombie)
    retry = place.run(1)
    version_before = version(place)
    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(120)
    woken = result_of(answers / "zombie")
    assert woken.recovered
    assert woken.committed.receipt == retry.committed.receipt
    assert version(place) == version_before
    report = verdict(place, visible(place.bootstrap, place.topic))
    assert report.ok, report


@pytest.mark.long
def test_eight_runs_of_one_window(place: Place, answers: Path) -> None:
    """Eight processes at once: one commits, seven report the same receipt."""
    runs = [start_run(place, 1, answers / str(i)) for i in range(8)]
    for run in runs:
        run.join(240)
    results = [result_of(answers / str(i)) for i in range(8)]
    assert sorted(r.recovered for r in results) == [False] + [True] * 7
    assert len({r.committed.receipt.attempt for r in results}) == 1
    report = verdict(place, visible(place.bootstrap, place.topic))
    assert report.ok, report


def test_two_stale_replaces_of_different_windows_both_arrive(
    kafka: str, tmp_path: Path, answers: Path
) -> None:
    """1 A and B stop right before replacing windows 1 and 2, on one table version. 2
    Both wake: both generations 1 are in.
    """
    setup = Place(kafka, create_topic(kafka, partitions=2), tmp_path)
    for n in (1, 2, 3):
        fill(kafka, setup.topic, n, first=n * 10_000)
    for n in (1, 2, 3):
        setup.run(n)
    runs = {
        n: start_run(
            setup, n, answers / str(n), "commit.before:stop", Request(f"replace {n}", replace=True)
        )
        for n in (1, 2)
    }
    for run in runs.values():
        wait_until_stopped(run)
    wake(runs.values())
    for n, run in runs.items():
        run.join(120)
        result = result_of(answers / str(n))
        assert (result.recovered, result.committed.receipt.generation) == (False, 1)
    report = verdict(setup, visible(kafka, setup.topic))
    assert report.ok, report


def test_a_retried_replace_replaces_once(place: Place, answers: Path) -> None:
    """A replace killed right after its commit, retried with the same request id,
    reports generation 1 and makes no generation 2.
    """
    place.run(1)
    request = Request("one replay", replace=True)
    start_run(place, 1, answers / "killed", "commit.after:kill", request).join(120)
    retry = place.run(1, request)
    assert (retry.recovered, retry.committed.receipt.generation) == (True, 1)
    fresh = place.run(1, Request("another replay", replace=True))
    assert (fresh.recovered, fresh.committed.receipt.generation) == (False, 2)
    report = verdict(place, visible(place.bootstrap, place.topic))
    assert report.ok, report


def test_a_stale_first_run_does_not_undo_a_replace(place: Place, answers: Path) -> None:
    """1 A stops before committing generation 0. 2 B commits it, C replaces it. 3 A
    wakes: it reports generation 1.
    """
    zombie = start_run(place, 1, answers / "zombie", "commit.before:stop")
    wait_until_stopped(zombie)
    place.run(1)
    place.run(1, Request("replay", replace=True))
    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(120)
    woken = result_of(answers / "zombie")
    assert (woken.recovered, woken.committed.receipt.generation) == (True, 1)
    report = verdict(place, visible(place.bootstrap, place.topic))
    assert report.ok, report


def test_a_second_run_writes_nothing(place: Place) -> None:
    """A committed window is reported, and no version, file or receipt is added."""
    first = place.run(1)
    files = {p for p in place.folder.rglob("*") if p.is_file() and "state.db" not in p.name}
    second = place.run(1)
    assert second.recovered
    assert second.committed == first.committed
    assert {p for p in place.folder.rglob("*") if p.is_file() and "state.db" not in p.name} == files
