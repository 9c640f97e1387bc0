"""Every sink, killed in every way at every point: the next run commits each message exactly
once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chaos import worker
from tests.chaos.verdict import unmerged, verdict, verdict_alone
from tests.chaos.worker import ALREADY, COMMITTED, CRASHED, DONE, Job
from tests.sinks.world import POINTS, SinkWorld
from tests.sinks.worlds import SINKS, world_of
from tests.warm import stops
from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.testing.contracts.windows import window

pytestmark = pytest.mark.slow


class Stage(NamedTuple):
    """A prepared sink and the job of its attempts.

    Attributes:
        kind: the kind of sink.
        job: an attempt on the sink.
        numbers: numbers of windows that no test has used.
    """

    kind: SinkWorld
    job: Job
    numbers: Iterator[int]


@pytest.fixture(scope="module", params=SINKS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A prepared sink of each kind, for all tests of the kind: its server may take long to
    start.
    """
    folder: Path = tmp_path_factory.mktemp("deaths")
    kind = world_of(request.param)
    with kind.serve_location(folder) as location:
        kind.sink_at(location).prepare()
        numbers = count()
        job = Job(request.param, location, str(folder), window=0, attempt="none")
        yield Stage(kind, job, numbers)
        fresh = kind.sink_at(location)
        report = verdict(kind, fresh, range(next(numbers)), job.rows)
        assert report.ok, f"over all tests: {report}"
        assert unmerged(fresh) == []


def short_parameters(parameters: Sequence[str], *kept_parameters: str) -> list[object]:
    """Returns the parameters; those not in `kept_parameters` get the mark `long`."""
    return [
        value if value in kept_parameters else pytest.param(value, marks=pytest.mark.long)
        for value in parameters
    ]


def ends(job: Job) -> int | None:
    """Runs an attempt in another process, and returns its exit code."""
    process = worker.start(job)
    process.join(120)
    return process.exitcode


def assert_holds(stage: Stage, number: int, first: str | None = None) -> None:
    """Asserts that each message of the window is there exactly once.

    Args:
        stage: the prepared sink.
        number: the window's number.
        first: the attempt whose receipt the table has; None: any attempt.
    """
    fresh = stage.kind.sink_at(stage.job.location)
    report = verdict_alone(stage.kind, fresh, number, stage.job.rows)
    assert report.ok, str(report)
    if first is not None:
        assert fresh.look(window(number)).receipt.attempt == first


@pytest.mark.parametrize("point", short_parameters(POINTS, "commit.before", "commit.after"))
@pytest.mark.parametrize("death", short_parameters(("kill", "raise"), "kill"))
def test_dead_at_a_point(stage: Stage, point: CrashPoint, death: str) -> None:
    """After a kill or an error at any point, the next attempt finds the commit exactly if it
    had been sent.

    Every message is there once.
    """
    job = stage.job.but(window=next(stage.numbers))
    assert ends(job.but(attempt="first", crash=f"{point}:{death}")) == (
        CRASHED if death == "raise" else -9
    )
    assert ends(job.but(attempt="retry")) == (ALREADY if point in stage.kind.arrived else DONE)
    assert_holds(stage, job.window, "first" if point in stage.kind.arrived else "retry")


def test_dead_at_a_point_of_its_own(stage: Stage) -> None:
    """After a kill at a point that only this kind has, between two of its commits, the next
    attempt goes on from there.
    """
    for point in stage.kind.points[len(POINTS) :]:
        job = stage.job.but(window=next(stage.numbers))
        assert ends(job.but(attempt="first", crash=f"{point}:kill")) == -9
        assert ends(job.but(attempt="retry")) == DONE
        assert_holds(stage, job.window, "retry")


@pytest.mark.parametrize("point", short_parameters(POINTS, "commit.before"))
def test_a_zombie(stage: Stage, point: CrashPoint) -> None:
    """A run that is stopped and wakes after its retry doubles nothing.

    One of the two commits, and the other one reports its receipt. The stopped run is the one
    that commits if its commit had arrived, or if it holds the sink's lock.
    """
    job = stage.job.but(window=next(stage.numbers))
    zombie = worker.start(job.but(attempt="zombie", crash=f"{point}:stop"))
    assert stops(zombie)
    first = (
        "zombie"
        if point in stage.kind.arrived or (stage.kind.locks and point == "commit.before")
        else "retry"
    )
    retry = worker.start(job.but(attempt="retry"))
    if first == "retry" or point in stage.kind.arrived:
        retry.join(120)
    worker.signalled(zombie, worker.WAKE)
    zombie.join(120)
    retry.join(120)
    assert (zombie.exitcode, retry.exitcode) == (
        (DONE, ALREADY) if first == "zombie" else (ALREADY, DONE)
    )
    assert_holds(stage, job.window, first)


@pytest.mark.some(2)
@pytest.mark.parametrize("point", POINTS)
def test_a_retry_dies_too(stage: Stage, point: CrashPoint) -> None:
    """After a kill, and a kill of the retry at the next point, the third attempt finishes the
    window.
    """
    job = stage.job.but(window=next(stage.numbers))
    following = POINTS[(POINTS.index(point) + 1) % len(POINTS)]
    assert ends(job.but(attempt="first", crash=f"{point}:kill")) == -9
    assert ends(job.but(attempt="second", crash=f"{following}:kill")) in {-9, ALREADY}
    assert ends(job.but(attempt="third")) in COMMITTED
    assert_holds(stage, job.window)


KILLS = 10


def meets(job: Job, delay: float | None) -> tuple[int | None, float]:
    """Runs an attempt that is killed `delay` seconds after its commits began, if it still runs.

    Returns the exit code, and the seconds that it took.
    """
    gate = time.monotonic() + 0.3
    process = worker.start(job.but(gate=gate))
    process.join(60 if delay is None else gate + delay - time.monotonic())
    process.kill()
    process.join(60)
    return process.exitcode, time.monotonic() - gate


@pytest.mark.some(1)
@pytest.mark.sampled(1, of=4)
def test_killed_at_any_moment(part: int, dice: random.Random, stage: Stage) -> None:
    """After commits killed in each tenth of their time, the retries leave each window there
    once.
    """
    took = sorted(meets(stage.job.but(window=next(stage.numbers)), None)[1] for _ in range(3))[1]
    codes = []
    for kill in range(KILLS):
        job = stage.job.but(window=next(stage.numbers))
        codes.append(meets(job.but(attempt="first"), took * (kill + dice.random()) / KILLS)[0])
        assert ends(job.but(attempt="retry")) in COMMITTED
        assert_holds(stage, job.window)
    assert -9 in codes, f"none was still alive to be killed: {codes}"
