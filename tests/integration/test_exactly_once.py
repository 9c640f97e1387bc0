"""Exactly once on real Kafka and a real Delta table, for runs that die, stop, race or wake."""

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
    PipelineSetup,
    millis,
    read_visible,
    result_of,
    start_run,
    table_version,
    verdict,
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


def thing_value(i: int) -> bytes:
    """Returns a message's value."""
    return json.dumps({"id": i, "name": f"thing {i}"}).encode()


def fill(bootstrap: str, topic: str, n_hour: int, first: int = 0) -> None:
    """Fills one hour of two topic-partitions.

    The messages are plain, committed, aborted, malformed, and one tombstone.
    """
    produce(
        bootstrap,
        topic,
        [
            Put(thing_value(first + i), millis(n_hour, i // 60, i % 60), i % 2, b"key")
            for i in range(300)
        ],
    )
    transaction(
        bootstrap,
        topic,
        [Put(thing_value(first + 300 + i), millis(n_hour, 10, i), i % 2) for i in range(20)],
        commit=True,
    )
    transaction(
        bootstrap,
        topic,
        [Put(thing_value(first + 9000 + i), millis(n_hour, 11, i), i % 2) for i in range(20)],
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
    """A topic whose messages are all in hour 1. It is never written to again."""
    topic = create_topic(kafka, partitions=2)
    fill(kafka, topic, 1)
    return topic


@pytest.fixture
def setup(kafka: str, one_hour: str, tmp_path: Path) -> PipelineSetup:
    """A pipeline on that topic, with a new table and ledger."""
    return PipelineSetup(kafka, one_hour, tmp_path)


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Path]:
    """The folder for the children's answers."""
    (tmp_path / "answers").mkdir()
    return tmp_path / "answers"


def test_the_undisturbed_run_passes_the_checker(setup: PipelineSetup) -> None:
    """A run makes each visible message a row or a dead letter, once.

    Aborted messages are counted.
    """
    result = setup.run(1)
    counts = result.committed.receipt.counts
    assert not result.recovered
    assert (counts.read, counts.valid, counts.dead, counts.aborted) == (328, 320, 8, 20)
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


@pytest.mark.some(2)
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_kill_at_every_crash_point(setup: PipelineSetup, answers: Path, point: CrashPoint) -> None:
    """A run that is killed with SIGKILL at any crash point, and then repeated, is exactly once.

    The second run reports `recovered` if the commit had succeeded.
    """
    killed = start_run(setup, 1, answers / "killed", f"{point}:kill")
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL
    version_before = table_version(setup) if point in AFTER_COMMIT else None
    result = setup.run(1)
    assert result.recovered == (point in AFTER_COMMIT)
    assert version_before is None or table_version(setup) == version_before
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


@pytest.mark.some(1)
@pytest.mark.parametrize("point", ["boundary.after", "plan.after", "write.after", "commit.before"])
def test_the_rerun_reads_the_frozen_offsets(
    kafka: str, tmp_path: Path, answers: Path, point: str
) -> None:
    """The rerun of a killed run reads the frozen offsets.

    New messages with timestamps inside the window don't change these offsets.
    """
    setup = PipelineSetup(kafka, create_topic(kafka, partitions=2), tmp_path)
    fill(kafka, setup.topic, 1)
    killed = start_run(setup, 1, answers / "killed", f"{point}:kill")
    killed.join(120)
    pipeline = setup.pipeline()
    frozen = (
        pipeline.ledger.boundary("things", setup.window(1).start),
        pipeline.ledger.plan(setup.window(1)),
    )
    assert frozen[0] is not None
    produce(
        kafka, setup.topic, [Put(thing_value(5000 + i), millis(1, 30, i), i % 2) for i in range(10)]
    )
    plan = setup.run(1).committed.receipt.plan
    assert plan.start == frozen[0]
    assert frozen[1] is None or plan == frozen[1]


def start_until_commit(setup: PipelineSetup) -> BaseProcess:
    """Starts a run in a process of its own, and waits until it stops after its last task."""
    setup.folder.mkdir()
    child = start_run(setup, 1, setup.folder / "answer", "dead.before:stop")
    wait_until_stopped(child)
    return child


def let_go(child: BaseProcess, seconds: float | None) -> float:
    """Wakes the child, and kills it after some time if it still runs.

    Args:
        child: the process.
        seconds: the time until the kill; None: the child is awaited.

    Returns:
        How long the child ran, in seconds.
    """
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
    """A run that is killed at a random time around its commit commits everything or nothing.

    A rerun then makes it exactly once. There are 10 kills, one at a random time in each tenth
    of the interval. The interval is 1.2 times the slowest of three undisturbed commits. If the
    machine was busy and all kills were on one side of the commit, up to 10 more are tried on
    the other side.
    """
    longest = 1.2 * max(
        let_go(start_until_commit(PipelineSetup(kafka, one_hour, tmp_path / f"calm {n}")), None)
        for n in range(3)
    )
    outcomes = set()
    expected = read_visible(kafka, one_hour)
    for turn in range(2 * KILLS):
        if turn >= KILLS and outcomes == {True, False}:
            break
        delay = (
            longest * (turn + dice.random()) / KILLS
            if turn < KILLS
            else (0.0 if outcomes == {True} else turn * longest)
        )
        setup = PipelineSetup(kafka, one_hour, tmp_path / str(turn))
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
    setup: PipelineSetup, answers: Path, point: str
) -> None:
    """A stopped run that wakes after its retry changes nothing.

    1. A stops before its commit.
    2. B runs the window and commits.
    3. A wakes and reports B's receipt, and the table doesn't change.
    """
    zombie = start_run(setup, 1, answers / "zombie", f"{point}:stop")
    wait_until_stopped(zombie)
    retry = setup.run(1)
    version_before = table_version(setup)
    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(120)
    woken = result_of(answers / "zombie")
    assert woken.recovered
    assert woken.committed.receipt == retry.committed.receipt
    assert table_version(setup) == version_before
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


@pytest.mark.long
def test_eight_runs_of_one_window(setup: PipelineSetup, answers: Path) -> None:
    """Of eight concurrent runs of a window one commits, and seven report the same receipt."""
    runs = [start_run(setup, 1, answers / str(i)) for i in range(8)]
    for run in runs:
        run.join(240)
    results = [result_of(answers / str(i)) for i in range(8)]
    assert sorted(r.recovered for r in results) == [False] + [True] * 7
    assert len({r.committed.receipt.attempt for r in results}) == 1
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


def test_two_stale_replaces_of_different_windows_both_arrive(
    kafka: str, tmp_path: Path, answers: Path
) -> None:
    """Two concurrent replaces of different windows both succeed.

    1. A and B stop right before they replace windows 1 and 2 of the same table version.
    2. Both wake, and both windows have generation 1.
    """
    setup = PipelineSetup(kafka, create_topic(kafka, partitions=2), tmp_path)
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
    report = verdict(setup, read_visible(kafka, setup.topic))
    assert report.ok, report


def test_a_retried_replace_replaces_once(setup: PipelineSetup, answers: Path) -> None:
    """A replace that is killed after its commit and retried with its request id replaces once.

    The retry reports generation 1.
    """
    setup.run(1)
    request = Request("one replay", replace=True)
    start_run(setup, 1, answers / "killed", "commit.after:kill", request).join(120)
    retry = setup.run(1, request)
    assert (retry.recovered, retry.committed.receipt.generation) == (True, 1)
    fresh = setup.run(1, Request("another replay", replace=True))
    assert (fresh.recovered, fresh.committed.receipt.generation) == (False, 2)
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


def test_a_stale_first_run_does_not_undo_a_replace(setup: PipelineSetup, answers: Path) -> None:
    """A first run that wakes after a replace doesn't undo it.

    1. A stops before it commits generation 0.
    2. B commits generation 0, and C replaces it.
    3. A wakes and reports generation 1.
    """
    zombie = start_run(setup, 1, answers / "zombie", "commit.before:stop")
    wait_until_stopped(zombie)
    setup.run(1)
    setup.run(1, Request("replay", replace=True))
    assert zombie.pid is not None
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(120)
    woken = result_of(answers / "zombie")
    assert (woken.recovered, woken.committed.receipt.generation) == (True, 1)
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


def test_a_second_run_writes_nothing(setup: PipelineSetup) -> None:
    """A run of a committed window reports it, and adds no version, file or receipt."""
    first = setup.run(1)
    files = {p for p in setup.folder.rglob("*") if p.is_file() and "state.db" not in p.name}
    second = setup.run(1)
    assert second.recovered
    assert second.committed == first.committed
    assert {p for p in setup.folder.rglob("*") if p.is_file() and "state.db" not in p.name} == files
