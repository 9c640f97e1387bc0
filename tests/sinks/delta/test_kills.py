"""kill -9 anywhere across the commit, then another attempt: every message exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest.operate.merged import compare_merged
from ingest.ports.sink import AlreadyDone, Done
from ingest.testing.checker import Report, check
from tests.sinks.beside import DeltaBoth, DeltaKeyedBoth
from tests.sinks.delta.sweeper import sink_at
from tests.sinks.delta.things import delta_pieces, produced, staged_receipt, window

pytestmark = pytest.mark.slow  # some seconds of starting processes

HERE = Path(__file__).parent
KILLS = 10

ONE_RUN = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.sinks.delta.sweeper import attempt
print(attempt(sys.argv[1], 0, "first", None).__name__)
"""


def report(sink: DeltaBoth, numbers: range) -> Report:
    """What the checker says of all windows."""
    receipts = [c.receipt for c in sink.receipts()]
    pieces = delta_pieces(sink.uri)
    if isinstance(sink, DeltaKeyedBoth):  # in which rows lie by their keys
        pieces = [pa.concat_tables(pieces).sort_by([("_partition", "ascending"), ("_offset", "ascending")])]
        audit = sink.audit()
        assert audit.keyed is not None
        assert compare_merged(receipts, audit, audit.keyed, deep=True, whole=True) == []
    return check(produced(numbers), pieces, [sink.read_dead(r.window) for r in receipts], receipts, content="id")


@pytest.fixture(params=["orders", "orders-keyed"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A prepared sink: of a table that rows are appended to, and of one with a primary key."""
    made = sink_at(str(tmp_path / request.param))
    made.prepare()
    return made


@pytest.mark.sampled(1, of=4)
def test_kills_at_random_delays(part: int, dice: random.Random, sink: DeltaBoth) -> None:
    """Ten commits killed at random delays, some before and some after they arrived; the retries leave each window there once."""
    seed = dice.randrange(2**32)
    ran = subprocess.run(
        [sys.executable, HERE / "sweeper.py", sink.uri, str(KILLS), str(seed)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert report(sink, range(KILLS + 2)).ok, f"seed {seed}: {report(sink, range(KILLS + 2))}"
    assert said["killed"] > KILLS // 4, f"too few were still alive to be killed: {said}"


@pytest.mark.parametrize("point", ["write.middle", "write.after", "commit.before", "commit.after"])
def test_killed_at_a_crash_point(sink: DeltaBoth, point: str) -> None:
    """Killed at a named point; another attempt finds the commit exactly if it had been sent, and every message is there once."""
    env = {**os.environ, "WINDROW_CRASH": f"{point}:kill"}
    ran = subprocess.run([sys.executable, "-c", ONE_RUN, sink.uri, HERE.parents[2]], capture_output=True, env=env, timeout=120, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    made, staged = staged_receipt(sink, 0, 0, "retry")
    sink.commit_dead(made.plan, "retry", staged)
    assert isinstance(sink.commit(made, staged), AlreadyDone if point == "commit.after" else Done)
    assert report(sink, range(1)).ok, str(report(sink, range(1)))


def test_a_zombie_changes_nothing(sink: DeltaBoth) -> None:
    """A run that was stopped before its commit wakes after its retry has finished: it reports the retry's receipt and writes nothing."""
    env = {**os.environ, "WINDROW_CRASH": "commit.before:stop"}
    zombie = subprocess.Popen([sys.executable, "-c", ONE_RUN, sink.uri, HERE.parents[2]], env=env, stdout=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(zombie.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        made, staged = staged_receipt(sink, 0, 0, "retry")
        sink.commit_dead(made.plan, "retry", staged)
        done = sink.commit(made, staged)
        assert isinstance(done, Done)
        # It stops a second time before it would write again, if it ever came to that.
        os.kill(zombie.pid, signal.SIGCONT)
        said, _ = zombie.communicate(timeout=60)
    finally:
        zombie.kill()
        zombie.wait(60)
    assert said.strip() == "AlreadyDone"
    assert sink.look(window(0)) == done.committed
    assert report(sink, range(1)).ok
