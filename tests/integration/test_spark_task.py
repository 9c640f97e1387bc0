"""Processes of Spark die while they write, on real Kafka: exactly once.

A worker, the driver or the server dies. The stager is the real one.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.integration.harness import millis, read_visible, verdict
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce
from tests.runner.spark.servers import serving

pytestmark = [pytest.mark.broker, pytest.mark.spark]

OVER = (None, psutil.STATUS_ZOMBIE)
RUN = ("run", "--window", "2026-01-05T01:00:00Z")


@pytest.fixture
def user(kafka: str, tmp_path: Path) -> User:
    """A user with a spec, and one hour in two topic-partitions.

    So there are two tasks. Each has a malformed message.
    """
    topic = create_topic(kafka, partitions=2)
    puts = [
        Put(json.dumps({"id": i, "name": None}).encode(), millis(1, i % 60), i % 2)
        for i in range(200)
    ]
    produce(
        kafka, topic, [*puts, Put(b"poison", millis(1, 59), 0), Put(b"poison", millis(1, 59), 1)]
    )
    return User(kafka, topic, tmp_path)


def staged_paths(user: User) -> set[str]:
    """Returns the data files in the table's folder, committed or not."""
    table = user.folder / "things"
    return {str(p.relative_to(table)) for p in (table / "data").rglob("*.parquet*")}


def in_table(user: User) -> set[str]:
    """Returns the data files that the table's last version names."""
    return {
        Path(uri).resolve().relative_to(user.folder / "things").as_posix()
        for uri in DeltaTable(str(user.folder / "things")).file_uris()
    }


def assert_exactly_once_beside_garbage(user: User, garbage: int) -> None:
    """Asserts that the checker finds no fault.

    It also asserts that `garbage` staged files aren't in the table.
    """
    report = verdict(user.setup, read_visible(user.setup.bootstrap, user.setup.topic))
    assert report.ok, report
    assert len(in_table(user)) == 2
    assert len(staged_paths(user) - in_table(user)) == garbage
    counts = [c.receipt.counts for c in user.setup.pipeline().sink.receipts()]
    assert [(c.read, c.valid, c.dead) for c in counts] == [(202, 200, 2)]


@pytest.mark.long
@pytest.mark.parametrize("point", ["write.middle", "write.after"])
def test_a_killed_worker_is_run_again(user: User, point: str) -> None:
    """A killed worker's task runs again.

    1. A worker has staged files and is killed with SIGKILL.
    2. Spark runs its task again.
    3. The window commits without the first files.
    """
    killed = user.folder / "killed"
    ran = user.starts_and_ends(*RUN, crash=f"{point}:kill:{killed}")
    assert killed.exists(), "no worker came by the crash point"
    assert [w["recovered"] for w in ran["windows"]] == [False]
    assert_exactly_once_beside_garbage(user, garbage=1)


def wait_until_a_worker_halts(driver: psutil.Process) -> None:
    """Waits until a process below the driver has stopped itself; fails if the driver ends."""
    until(
        lambda: any(status_of(p) == psutil.STATUS_STOPPED for p in driver.children(recursive=True)),
        "no worker reached its crash point",
        lambda: status_of(driver) in OVER,
    )


def until(
    true: Callable[[], bool], otherwise: str, hopeless: Callable[[], bool] = lambda: False
) -> None:
    """Polls until the condition is true. Only own children can be awaited instead.

    Args:
        true: the condition.
        otherwise: the message if it stays false.
        hopeless: whether it can never become true.
    """
    pause, deadline = threading.Event(), time.monotonic() + 240
    while not true():
        assert time.monotonic() < deadline, otherwise
        assert not hopeless(), otherwise
        pause.wait(0.02)


def status_of(process: psutil.Process) -> str | None:
    """Returns the status of the process; None if it is gone."""
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return None


def kill_with_all_below(command: subprocess.Popen[str]) -> None:
    """Kills the driver first, then the JVM and the workers that it leaves.

    None of them runs when the function returns.
    """
    below = (
        [] if command.poll() is not None else psutil.Process(command.pid).children(recursive=True)
    )
    command.kill()
    command.wait(60)
    for process in below:
        if process.is_running():  # This doesn't kill another process that has got the same id.
            process.kill()
    until(lambda: all(status_of(p) in OVER for p in below), "something of the run is still there")
    for pipe in (command.stdout, command.stderr):
        assert pipe is not None
        pipe.close()


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_killed_driver_is_run_again(user: User) -> None:
    """A rerun after a killed driver is exactly once.

    1. A worker has staged files and halts.
    2. The driver is killed with SIGKILL, then all processes below it.
    3. A rerun makes it exactly once.
    """
    command = user.starts(*RUN, crash=f"write.middle:stop:{user.folder / 'halted'}")
    try:
        wait_until_a_worker_halts(psutil.Process(command.pid))
    finally:
        kill_with_all_below(command)
    staged_files = staged_paths(user)
    assert staged_files, "nothing was staged before the kill"
    assert in_table(user) == set()
    assert [w["recovered"] for w in user.types(*RUN)["windows"]] == [False]
    assert not staged_files & in_table(user)
    assert_exactly_once_beside_garbage(user, garbage=len(staged_files))


def has_halted_worker(server: psutil.Process) -> bool:
    """Returns whether a worker has stopped itself at its crash point."""
    return any(status_of(p) == psutil.STATUS_STOPPED for p in server.children(recursive=True))


@contextmanager
def serve_with_halting_worker(user: User) -> Iterator[tuple[str, psutil.Process]]:
    """Starts a server in another folder than the run's. Its worker halts after it staged a file."""
    crash = {"WINDROW_CRASH": f"write.middle:stop:{user.folder / 'halted'}"}
    elsewhere = user.folder / "elsewhere"
    elsewhere.mkdir()
    with serving(environment=crash, folder=elsewhere) as (address, server):
        yield address, server


@pytest.mark.long
def test_a_killed_worker_of_a_server_is_run_again(user: User) -> None:
    """A killed worker's task runs again on a server.

    1. A worker of the server has staged files and is killed with SIGKILL.
    2. Spark runs its task again.
    3. The window commits, once.
    """
    killed, elsewhere = user.folder / "killed", user.folder / "elsewhere"
    elsewhere.mkdir()
    with serving(
        environment={"WINDROW_CRASH": f"write.middle:kill:{killed}"}, folder=elsewhere
    ) as (address, _):
        ran = user.types(*RUN, "--connect", address)
        assert killed.exists(), "no worker came by the crash point"
        assert [w["recovered"] for w in ran["windows"]] == [False]
        assert [w["recovered"] for w in user.types(*RUN, "--connect", address)["windows"]] == [True]
    assert_exactly_once_beside_garbage(user, garbage=1)
    assert list(elsewhere.iterdir()) == [], "something went to the server's folder"


@pytest.mark.long
def test_a_killed_server_is_an_outage(user: User) -> None:
    """A rerun after a killed server is exactly once.

    1. A worker has staged files and halts.
    2. The server is killed with SIGKILL, with all processes below it.
    3. A rerun makes it exactly once.
    """
    with serve_with_halting_worker(user) as (address, server):
        command = user.starts(*RUN, "--connect", address)
        try:
            until(
                lambda: has_halted_worker(server),
                "no worker reached its crash point",
                lambda: command.poll() is not None,
            )
            for process in (server, *server.children(recursive=True)):
                process.kill()
            out, err = command.communicate(timeout=120)
        finally:
            kill_with_all_below(command)
    assert command.returncode == 3, (out, err)
    assert "Nothing was committed. Run the window again" in err
    assert "Traceback" not in err
    staged_files = staged_paths(user)
    assert staged_files, "nothing was staged before the kill"
    assert in_table(user) == set()
    rerun_beside(user, staged_files)


@pytest.mark.long
def test_a_killed_client_is_run_again(user: User) -> None:
    """A rerun after a killed client is exactly once.

    1. A worker of the server has staged files and halts.
    2. The client is killed with SIGKILL.
    3. A rerun next to the staged files is exactly once.
    """
    with serve_with_halting_worker(user) as (address, server):
        command = user.starts(*RUN, "--connect", address)
        try:
            until(
                lambda: has_halted_worker(server),
                "no worker reached its crash point",
                lambda: command.poll() is not None,
            )
        finally:
            kill_with_all_below(command)
        staged_files = staged_paths(user)
        assert staged_files, "nothing was staged before the kill"
        assert in_table(user) == set()
        assert [w["recovered"] for w in user.types(*RUN, "--connect", address)["windows"]] == [
            False
        ]
        assert not staged_files & in_table(user)
        # The abandoned job runs on for a while.
        assert_exactly_once_beside_garbage(user, garbage=len(staged_paths(user) - in_table(user)))


def rerun_beside(user: User, staged_files: set[str]) -> None:
    """Asserts that a rerun on another server commits the window without the staged files."""
    with serving() as (address, _):
        assert [w["recovered"] for w in user.types(*RUN, "--connect", address)["windows"]] == [
            False
        ]
    assert not staged_files & in_table(user)
    assert_exactly_once_beside_garbage(user, garbage=len(staged_files))
