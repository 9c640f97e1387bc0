"""A Spark Connect server, its workers and its clients that die, stop and come back, on real
Kafka: exactly once, by the checker.

`integration/test_spark_task.py` tests kills while data is written. This module tests later
kills, and several at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.integration.harness import PipelineSetup
from tests.integration.test_exactly_once import one_hour, setup
from tests.integration.test_spark_task import has_halted_worker, status_of, until
from tests.runner.spark.drivers import Answer, Driver
from tests.runner.spark.servers import serving
from tests.runner.spark.test_cluster_faults import (
    assert_exactly_once_beside_garbage,
    in_table,
    list_finished,
    list_staged,
)

__all__ = ["one_hour", "setup"]  # the fixtures
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.long]


@dataclass
class Ground:
    """A server, a trap for its workers, and clients.

    Attributes:
        folder: folder of the trap and the logs.
        stack: ends all processes.
        address: the server's address.
        server: the server's process.
    """

    folder: Path
    stack: ExitStack
    address: str = ""
    server: psutil.Process = field(init=False)
    _clients: list[Driver] = field(default_factory=list)

    @property
    def trap(self) -> Path:
        """A file that arms the trap while it doesn't exist.

        The next Python worker that has staged a batch makes it, and stops itself.
        """
        return self.folder / "trap"

    def serve(self) -> None:
        """Starts the server, again at the same port."""
        port = int(self.address.rpartition(":")[2] or 0)
        crash = {"WINDROW_CRASH": f"write.middle:stop:{self.trap}"}
        self.address, self.server = self.stack.enter_context(
            serving("--master", "local[2,4]", port=port, environment=crash)
        )

    def clients(self, count: int) -> list[Driver]:
        """Returns `count` living clients; dead ones are replaced."""
        self._clients = [client for client in self._clients if not client.ended]
        while len(self._clients) < count:
            client = Driver(self.address, {}, self.folder)
            self.stack.callback(client.close)
            self._clients.append(client)
        return self._clients[:count]

    def stopped(self) -> psutil.Process:
        """Waits until the trap has stopped a Python worker, and returns it."""
        until(
            lambda: has_halted_worker(self.server),
            "no worker reached its crash point",
            lambda: status_of(self.server) is None,
        )
        [worker] = [
            process
            for process in self.server.children(recursive=True)
            if status_of(process) == psutil.STATUS_STOPPED
        ]
        return worker


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A server that runs two tasks at once."""
    with ExitStack() as stack:
        new_ground = Ground(tmp_path_factory.mktemp("ground"), stack)
        new_ground.trap.touch()
        new_ground.serve()
        yield new_ground


@pytest.fixture(autouse=True)
def shut_trap(ground: Ground) -> None:
    """A disarmed trap. A test that needs it removes the file."""
    ground.trap.touch()


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_killed_client_is_followed_at_once(
    ground: Ground, setup: PipelineSetup, point: str
) -> None:
    """A second client goes on at once after a killed one.

    1. A client dies by SIGKILL right before or after its commit.
    2. Another client runs the window, and says whether it was committed already.
    """
    first, second = ground.clients(2)
    first.begin(setup, crash=f"{point}:kill")
    first.dies()
    assert second.runs(setup) == Answer(recovered=point == "commit.after")
    assert_exactly_once_beside_garbage(setup, 2 if point == "commit.before" else 0)


def test_two_clients_run_one_window_at_once(ground: Ground, setup: PipelineSetup) -> None:
    """Of two clients that run one window at once, one commits.

    1. Both have staged the whole window, and stop before its commit.
    2. Both wake. One commits, and the other reports that commit.
    """
    clients = ground.clients(2)
    for client in clients:
        client.begin(setup, crash="commit.before:stop")
    for client in clients:
        until(
            lambda process=client.process: status_of(process) == psutil.STATUS_STOPPED,
            "a client didn't come to its commit",
        )  # type: ignore[misc]
    for client in clients:
        client.process.resume()
    answers = [client.answer() for client in clients]
    assert sorted(answers, key=lambda reply: bool(reply.recovered)) == [
        Answer(recovered=False),
        Answer(recovered=True),
    ]
    assert_exactly_once_beside_garbage(setup, 2)


def test_a_worker_that_wakes_behind_its_retry_changes_nothing(
    ground: Ground, setup: PipelineSetup
) -> None:
    """A worker that wakes after the window was retried changes nothing.

    1. A worker stops while it writes, and its client is killed.
    2. Another client commits the window.
    3. The worker wakes, and stages its file, which no commit names.
    4. A rerun reports the same commit.
    """
    first, second = ground.clients(2)
    ground.trap.unlink()
    first.begin(setup)
    late = ground.stopped()
    try:
        first.close()
        assert second.runs(setup) == Answer(recovered=False)
        finished_files, committed = list_finished(setup), in_table(setup)
        assert status_of(late) == psutil.STATUS_STOPPED, "the worker was not waited for"
    finally:
        late.resume()
    until(lambda: list_finished(setup) > finished_files, "the worker staged nothing after it woke")
    assert in_table(setup) == committed
    assert second.runs(setup) == Answer(recovered=True)
    assert_exactly_once_beside_garbage(setup, 1, 2)


def test_a_server_is_killed_in_the_middle_of_a_job_and_started_again(
    ground: Ground, setup: PipelineSetup
) -> None:
    """A client goes on after its server was killed in a job and started again.

    1. A worker has staged a batch, and stops.
    2. The server is killed with SIGKILL, with all its children: UnreachableError in the client.
    3. A server starts at the same address.
    4. The same client runs the window again, beside the staged files.
    """
    [client] = ground.clients(1)
    ground.trap.unlink()
    client.begin(setup)
    ground.stopped()
    below = [ground.server, *ground.server.children(recursive=True)]
    for process in below:
        process.kill()
    psutil.wait_procs(below, 60)
    failed = client.answer()
    assert failed.code == 3
    assert "Nothing was committed" in failed.text
    staged_files = list_staged(setup)
    assert staged_files, "nothing was staged before the kill"
    assert in_table(setup) == set()
    ground.serve()
    assert client.runs(setup) == Answer(recovered=False)
    assert not staged_files & in_table(setup)
    assert_exactly_once_beside_garbage(setup, len(staged_files))
