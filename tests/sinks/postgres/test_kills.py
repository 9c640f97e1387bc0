"""kill -9 anywhere across the commit, of the client and of the server, then another
attempt: every message exactly once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sinks.postgres.world import pieces, sink_at
from tests.sinks.things import produced, staged_receipt, window
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.postgres import server
from windrow.ingest.testing.checker import Report, check

pytestmark = pytest.mark.slow  # some seconds of starting processes

HERE = Path(__file__).parent
KILLS = 8

ONE_RUN = """
import sys
sys.path.insert(0, sys.argv[2])
from windrow.ingest.sinks.postgres import server
from tests.sinks.postgres.sweeper import attempt
server.IDLE = "300ms"
print(attempt(sys.argv[1], 0, "first").__name__)
"""


def report(sink: Any, numbers: range) -> Report:
    """What the checker says of all windows."""
    receipts = [c.receipt for c in sink.receipts()]
    return check(
        produced(numbers),
        pieces(sink),
        [sink.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )


def rerun(sink: Any) -> object:
    """Another attempt at the first window."""
    made, staged = staged_receipt(sink, 0, 0, "retry")
    sink.commit_dead(made.plan, "retry", staged)
    return sink.commit(made, staged)


@pytest.fixture
def place(database: str) -> str:
    made = f"{database}#orders"
    sink_at(made).prepare()
    return made


@pytest.mark.long
@pytest.mark.sampled(1, of=4)
def test_kills_at_random_delays(part: int, dice: random.Random, place: str) -> None:
    """Commits killed at random delays, some before and some after they arrived; the
    retries leave each window there once.
    """
    seed = dice.randrange(2**32)
    ran = subprocess.run(
        [sys.executable, HERE / "sweeper.py", place, str(KILLS), str(seed)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    result = report(sink_at(place), range(KILLS + 2))
    assert result.ok, f"seed {seed}: {result}"
    assert json.loads(ran.stdout)["killed"] > KILLS // 4, ran.stdout


@pytest.mark.long
@pytest.mark.parametrize("point", ["write.middle", "write.after", "commit.before", "commit.after"])
def test_killed_at_a_crash_point(place: str, point: str) -> None:
    """Killed at a named point; another attempt finds the commit exactly if it had been
    sent, and every message is there once.
    """
    env = {**os.environ, "WINDROW_CRASH": f"{point}:kill"}
    ran = subprocess.run(
        [sys.executable, "-c", ONE_RUN, place, HERE.parents[2]],
        capture_output=True,
        env=env,
        timeout=120,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    sink = sink_at(place)
    assert isinstance(rerun(sink), AlreadyDone if point == "commit.after" else Done)
    assert report(sink, range(1)).ok, str(report(sink, range(1)))


def test_a_zombie_holds_nobody_up_and_changes_nothing(place: str) -> None:
    """A run that was stopped before its COMMIT holds the lock until the server ends its
    session; woken, it reports the retry's receipt.
    """
    env = {**os.environ, "WINDROW_CRASH": "commit.before:stop"}
    zombie = subprocess.Popen(
        [sys.executable, "-c", ONE_RUN, place, HERE.parents[2]],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _, status = os.waitpid(zombie.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        sink = sink_at(place)
        done = rerun(sink)
        assert isinstance(done, Done)
        os.kill(zombie.pid, signal.SIGCONT)
        said, _ = zombie.communicate(timeout=60)
    finally:
        zombie.kill()
        zombie.wait(60)
    assert said.strip() == "AlreadyDone"
    assert sink.look(window(0)) == done.committed
    assert report(sink, range(1)).ok


# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_backend_that_is_ended_is_followed_up(
    place: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its session is ended around its COMMIT: the same call looks again, and is done,
    with its own rows, once.
    """
    sink, commit = sink_at(place), server.commit

    def ended(connection: Any) -> None:
        monkeypatch.undo()
        if when == "after":
            commit(connection)
        with psycopg.connect(sink.place.url.text, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])
        commit(connection)

    made, staged = staged_receipt(sink, 0)
    sink.commit_dead(made.plan, "a1", staged)
    monkeypatch.setattr(server, "commit", ended)
    assert isinstance(sink.commit(made, staged), Done)
    assert report(sink, range(1)).ok, str(report(sink, range(1)))
    assert isinstance(rerun(sink), AlreadyDone)
