"""A Spark Connect server, its workers and its clients die, stop and come back, on real
Kafka: exactly once, by the checker's own look.

What is killed while it writes is in `integration/test_spark_task.py`; here is what
comes after that, and what is at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.integration.harness import Place
from tests.integration.test_exactly_once import one_hour, place
from tests.integration.test_spark_task import halted, status_of, until
from tests.runner.spark.drivers import Answer, Driver
from tests.runner.spark.servers import serving
from tests.runner.spark.test_cluster_faults import (
    assert_exactly_once_beside_garbage,
    in_table,
    list_finished,
    list_staged,
)

__all__ = ["one_hour", "place"]  # the fixtures
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.long]


@dataclass
class Ground:
    """A server, a trap for its workers, and clients. `stack`: ends all of it."""

    folder: Path
    stack: ExitStack
    address: str = ""
    server: psutil.Process = field(init=False)
    _clients: list[Driver] = field(default_factory=list)

    @property
    def trap(self) -> Path:
        """While this file isn't there, the next Python worker that has staged a batch
        makes it, and stops itself.
        """
        return self.folder / "trap"

    def serve(self) -> None:
        """Start the server; again at the same port."""
        port = int(self.address.rpartition(":")[2] or 0)
        crash = {"WINDROW_CRASH": f"write.middle:stop:{self.trap}"}
        self.address, self.server = self.stack.enter_context(
            serving("--master", "local[2,4]", port=port, environment=crash)
        )

    def clients(self, count: int) -> list[Driver]:
        """So many that live; new ones where others have died."""
        self._clients = [client for client in self._clients if not client.ended]
        while len(self._clients) < count:
            client = Driver(self.address, {}, self.folder)
            self.stack.callback(client.close)
            self._clients.append(client)
        return self._clients[:count]

    def stopped(self) -> psutil.Process:
        """The Python worker that the trap has caught, once it has."""
        until(
            lambda: halted(self.server),
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
    """A server for two tasks at once."""
    with ExitStack() as stack:
        new_ground = Ground(tmp_path_factory.mktemp("ground"), stack)
        new_ground.trap.touch()
        new_ground.serve()
        yield new_ground


@pytest.fixture(autouse=True)
def shut_trap(ground: Ground) -> None:
    """A test that wants somebody caught removes the file."""
    ground.trap.touch()


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_killed_client_is_followed_at_once(ground: Ground, place: Place, point: str) -> None:
    """1 A client dies by SIGKILL around its commit. 2 Another one goes on at once, and
    says whether the commit was in already.
    """
    first, second = ground.clients(2)
    first.begin(place, crash=f"{point}:kill")
    first.dies()
    assert second.runs(place) == Answer(recovered=point == "commit.after")
    assert_exactly_once_beside_garbage(place, 2 if point == "commit.before" else 0)


def test_two_clients_run_one_window_at_once(ground: Ground, place: Place) -> None:
    """1 Two clients have both staged all of a window, and stop before its commit. 2
    Both wake: one commits, the other one shows that.
    """
    clients = ground.clients(2)
    for client in clients:
        client.begin(place, crash="commit.before:stop")
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
    assert_exactly_once_beside_garbage(place, 2)


def test_a_worker_that_wakes_behind_its_retry_changes_nothing(ground: Ground, place: Place) -> None:
    """1 A worker stops while it writes, and its client is killed. 2 Another client
    commits the window. 3 The worker wakes, and goes on.

    It stages its file, which no commit names; the table stays as it is, and so says
    whoever runs the window again.
    """
    first, second = ground.clients(2)
    ground.trap.unlink()
    first.begin(place)
    late = ground.stopped()
    try:
        first.close()
        assert second.runs(place) == Answer(recovered=False)
        finished_files, committed = list_finished(place), in_table(place)
        assert status_of(late) == psutil.STATUS_STOPPED, "the worker was not waited for"
    finally:
        late.resume()
    until(lambda: list_finished(place) > finished_files, "the worker staged nothing after it woke")
    assert in_table(place) == committed
    assert second.runs(place) == Answer(recovered=True)
    assert_exactly_once_beside_garbage(place, 1, 2)


def test_a_server_is_killed_in_the_middle_of_a_job_and_started_again(
    ground: Ground, place: Place
) -> None:
    """1 A worker has staged and halts. 2 Its server is killed with SIGKILL, with all
    below it: an outage to its client.

    3 A server comes up at the same address. 4 The same client runs the window again on
    it, beside what was left.
    """
    [client] = ground.clients(1)
    ground.trap.unlink()
    client.begin(place)
    ground.stopped()
    below = [ground.server, *ground.server.children(recursive=True)]
    for process in below:
        process.kill()
    psutil.wait_procs(below, 60)
    failed = client.answer()
    assert failed.code == 3
    assert "Nothing was committed" in failed.text
    staged_files = list_staged(place)
    assert staged_files, "nothing was staged before the kill"
    assert in_table(place) == set()
    ground.serve()
    assert client.runs(place) == Answer(recovered=False)
    assert not staged_files & in_table(place)
    assert_exactly_once_beside_garbage(place, len(staged_files))
