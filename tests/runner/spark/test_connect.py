"""A Spark Connect server as the engine of tasks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from tests.contracts.engine_contract import LIMIT, ONE, SPLITS, EngineContract
from tests.integration.harness import PipelineSetup, millis
from tests.integration.test_exactly_once import thing_value
from tests.kafka.produce import Put, create_topic, produce
from tests.runner.spark.servers import COMMAND, ROOT, serving
from tests.runner.spark.tasks import Dies, EndsItself, Loaded, Name, Raises, Says, WaitsForEver
from windrow.ingest.assemble import assemble
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.runner.spark import connect
from windrow.ingest.runner.spark.connect import TOKEN, ConnectedSpark
from windrow.ingest.runner.spark.engine import SparkEngine, parallelism
from windrow.ingest.runner.spark.server import spark_server as spark_server_of

pytestmark = pytest.mark.spark

LIBRARIES = {"windrow", "confluent_kafka", "deltalake", "polars", "pyarrow"}
"""The packages that a task loads. A user's schema may need others."""

SECRET = "t0ken-C4nary"  # a secret of this test


class TestConnect(EngineContract):
    """The contract of engines, on a session of a server."""

    dies = Dies

    @pytest.fixture
    def engine(self, spark_server: str) -> Iterator[SparkEngine]:
        with closing(ConnectedSpark(spark_server)) as spark:
            yield SparkEngine(spark.session)


@pytest.fixture
def closing_all() -> Iterator[list[ConnectedSpark]]:
    """Clients that are closed at the end of the test."""
    clients: list[ConnectedSpark] = []
    yield clients
    for client in clients:
        client.close()


def wait_for(folder: Path) -> None:
    """Waits until a task has left a file in a folder."""
    deadline, pause = time.monotonic() + LIMIT, threading.Event()
    while not list(folder.iterdir()):
        assert time.monotonic() < deadline, "no task has begun"
        pause.wait(0.02)


def done(
    spark: ConnectedSpark, task: Callable[[Split], Staged], splits: list[Split]
) -> list[Staged]:
    """Returns a task's results for some splits, run by a client."""
    return list(SparkEngine(spark.session).run(task, splits))


def names(spark: ConnectedSpark) -> list[Split]:
    """Returns the splits in the order of their results."""
    return [result.split for result in done(spark, Name(), SPLITS)]


def test_an_empty_plan_never_reaches_the_server() -> None:
    """An empty plan asks no server, not even whether it is there."""
    assert list(SparkEngine(ConnectedSpark("sc://localhost:1").session).run(Name(), [])) == []


def test_what_a_worker_says_is_no_part_of_the_error(spark_server: str) -> None:
    """Spark tries an interrupted worker again.

    When it gives up, the error doesn't repeat the worker's text.
    """
    with (
        closing(ConnectedSpark(spark_server)) as spark,
        pytest.raises(UnreachableError, match="Spark could not finish") as caught,
    ):
        done(spark, Raises(EndsItself), ONE)
    assert "secret-payload" not in str(caught.value)


def test_a_server_says_how_many_tasks_it_runs_at_once(spark_server: str) -> None:
    """The number of parallel tasks is the server's, not this machine's."""
    with closing(ConnectedSpark(spark_server)) as spark:
        assert parallelism(spark.session()) == 2


def test_two_clients_run_beside_each_other(spark_server: str, tmp_path: Path) -> None:
    """Two clients of a server don't disturb each other.

    1. A task of the first client doesn't end.
    2. Tasks of the second client run and end.
    3. The second client cancels one of its tasks, and the first client's task goes on.
    """
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with (
        ThreadPoolExecutor(2) as pool,
        closing(ConnectedSpark(spark_server)) as first,
        closing(ConnectedSpark(spark_server)) as second,
    ):
        waiting = pool.submit(lambda: done(first, WaitsForEver(folders[0]), ONE))
        try:
            wait_for(folders[0])
            assert names(second) == SPLITS
            cancelled = pool.submit(lambda: done(second, WaitsForEver(folders[1]), ONE))
            wait_for(folders[1])
            assert second.session().interruptAll()
            with pytest.raises(UnreachableError, match="Nothing was committed"):
                cancelled.result(LIMIT)
            assert names(second) == SPLITS
            assert not waiting.done()
        finally:
            first.session().interruptAll()
        with pytest.raises(UnreachableError, match="Nothing was committed"):
            waiting.result(LIMIT)


def test_ctrl_c_ends_the_job_at_the_server(spark_server: str, tmp_path: Path) -> None:
    """Ctrl-C in a client ends its tasks on the server."""

    def interrupt() -> None:
        wait_for(tmp_path)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool, closing(ConnectedSpark(spark_server)) as spark:
        interrupted = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            done(spark, WaitsForEver(tmp_path), ONE)
        interrupted.result(LIMIT)
        assert spark.session().interruptAll() == []


def test_without_a_server_it_is_an_outage() -> None:
    """Without a server the error is UnreachableError with the address and the command."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"sc://localhost:{free.getsockname()[1]}"
    with (
        closing(ConnectedSpark(address)) as spark,
        pytest.raises(UnreachableError, match=f"No Spark Connect server answers at {address}"),
    ):
        names(spark)


def test_another_environment_is_refused(spark_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with another Python, Spark or windrow gets no task.

    The error names both environments.
    """
    ours = connect.environment()
    monkeypatch.setattr(connect, "environment", lambda: ours.replace("Python 3.", "Python 4."))
    with (
        closing(ConnectedSpark(spark_server)) as spark,
        pytest.raises(UnreachableError, match=re.escape(f"runs {ours}, and this client is ")),
    ):
        names(spark)


@pytest.mark.long
def test_a_server_that_was_started_again(closing_all: list[ConnectedSpark]) -> None:
    """A client goes on with a server that was started again.

    1. A client has a session.
    2. Its server is killed: UnreachableError.
    3. Another server starts at that address, and the client uses it.
    """
    with serving() as (address, command):
        spark = ConnectedSpark(address)
        closing_all.append(spark)
        assert names(spark) == SPLITS
        below = command.children(recursive=True)
        command.kill()
        ended, alive = psutil.wait_procs([command, *below], timeout=60)
        assert ended
        assert alive == [], "Java or a worker outlives the command that was killed"
    port = address.rpartition(":")[2]
    with pytest.raises(UnreachableError, match=rf"Start it \(windrow spark run --port {port}\)"):
        names(spark)
    with serving(port=int(port)):
        assert names(spark) == SPLITS


@pytest.mark.long
def test_java_is_killed_in_the_middle_of_a_job(
    tmp_path: Path, closing_all: list[ConnectedSpark]
) -> None:
    """If Java is killed in a job, its client gets UnreachableError, and the command ends with
    exit code 3.
    """
    with serving() as (address, command), ThreadPoolExecutor(1) as pool:
        spark = ConnectedSpark(address)
        closing_all.append(spark)
        waiting = pool.submit(lambda: done(spark, WaitsForEver(tmp_path), ONE))
        wait_for(tmp_path)
        (java,) = [child for child in command.children() if "java" in child.name()]
        java.kill()
        with pytest.raises(UnreachableError, match="Nothing was committed"):
            waiting.result(LIMIT)
        assert command.wait(60) == 3


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_cleanly(
    sign: signal.Signals, tmp_path: Path, closing_all: list[ConnectedSpark]
) -> None:
    """Ctrl-C or a supervisor's signal ends the server with its Java and its workers, also in a
    task.

    The client gets UnreachableError.
    """
    with serving() as (address, command), ThreadPoolExecutor(1) as pool:
        spark = ConnectedSpark(address)
        closing_all.append(spark)
        waiting = pool.submit(lambda: done(spark, WaitsForEver(tmp_path), ONE))
        wait_for(tmp_path)
        below = command.children(recursive=True)
        command.send_signal(sign)
        assert command.wait(60) == 0
        assert psutil.wait_procs(below, timeout=60)[1] == []
        with pytest.raises(UnreachableError, match="Nothing was committed"):
            waiting.result(LIMIT)


def test_a_port_that_is_taken(spark_server: str) -> None:
    """A second server on a port fails before Java starts."""
    port = spark_server.rpartition(":")[2]
    done = subprocess.run(
        [*COMMAND, "--port", port],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3
    assert f"No server can listen at 127.0.0.1:{port} (Address already in use)" in done.stderr


def test_other_machines_need_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that other machines can reach needs a token."""
    monkeypatch.delenv(TOKEN, raising=False)
    command = [*COMMAND, "--host", "0.0.0.0"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "no token is set" in done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "spark.connect.authenticate.token",
        "spark.plugins",
        "spark.connect.grpc.binding.port",
        "spark.master",
    ],
)
def test_properties_that_are_told_otherwise(name: str) -> None:
    """A property that the server sets itself, or a secret one, is refused, not ignored.

    The command line is visible to all users of the machine.
    """
    with (
        pytest.raises(SpecError, match=f"{name} is no property to set") as caught,
        spark_server_of("127.0.0.1", 0, {name: SECRET}),
    ):
        pass
    assert SECRET not in str(caught.value)


@pytest.mark.long
def test_the_first_client_finds_workers_ready(
    closing_all: list[ConnectedSpark], kafka: str, tmp_path: Path
) -> None:
    """The command reports that it is up once a worker has loaded all that a window needs,
    except the window's own schema.
    """
    setup = PipelineSetup(kafka, create_topic(kafka), tmp_path)
    produce(kafka, setup.topic, [Put(thing_value(1), millis(0)), Put(thing_value(2), millis(1))])
    with serving("--master", "local[1]") as (address, _):
        closing_all.append(ConnectedSpark(address))
        engine = SparkEngine(closing_all[0].session)

        def loaded() -> set[str]:
            (staged_split,) = engine.run(Loaded(), ONE)
            return set(staged_split.rows[0].splitlines())

        loaded_before = loaded()
        run(assemble(setup.spec(), engine), setup.window(0), Request("test"))
        added = loaded() - loaded_before
    assert {name for name in added if name.partition(".")[0] in LIBRARIES} == set()


def test_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without the server's token, or with another one, is refused.

    No other process can see the token.
    """
    with serving(environment={TOKEN: SECRET}) as (address, command):
        monkeypatch.delenv(TOKEN, raising=False)
        for token in (None, "another"):
            if token is not None:
                monkeypatch.setenv(TOKEN, token)
            with (
                closing(ConnectedSpark(address)) as spark,
                pytest.raises(UnreachableError, match="doesn't take the token") as caught,
            ):
                names(spark)
            assert SECRET not in f"{caught.value} {spark!r} {caught.value.__cause__!r}"
        monkeypatch.setenv(TOKEN, SECRET)
        for server_address in (address, address.replace("127.0.0.1", "localhost")):
            with closing(ConnectedSpark(server_address)) as spark:
                assert names(spark) == SPLITS
        for process in (command, *command.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # a worker that has ended
                assert SECRET not in " ".join(process.cmdline())


@pytest.mark.parametrize(
    "address",
    [
        "localhost:15002",
        "sc://",
        "sc://localhost:0",
        "sc://localhost:99999",
        f"sc://localhost;token={SECRET}",
        f"sc://me:{SECRET}@localhost",
    ],
)
def test_what_is_no_address(address: str) -> None:
    """An address with more than a place is refused, and the error doesn't repeat it, because it
    may contain a secret.
    """
    with pytest.raises(SpecError, match="and this is none") as caught:
        ConnectedSpark(address)
    assert SECRET not in str(caught.value)


def test_secrets_do_not_travel_in_the_clear() -> None:
    """A server on another machine needs TLS."""
    with pytest.raises(SpecError, match="would travel in the clear"):
        ConnectedSpark("sc://spark.example:15002")
    assert ConnectedSpark("sc://spark.example:15002/;use_ssl=true").address


def test_a_worker_does_not_run_what_was_changed(spark_server: str, tmp_path: Path) -> None:
    """A task gets a module's new code after the file was changed, although workers live on
    between clients.
    """
    module = tmp_path / f"word_{os.getpid()}.py"
    module.write_text("WORD = 'before'\n")
    task = Says(tmp_path, module.stem)

    def read_words() -> set[str]:
        with closing(ConnectedSpark(spark_server)) as spark:
            return {result.rows[0].partition(" ")[0] for result in done(spark, task, SPLITS)}

    assert read_words() == {"before"}
    module.write_text("WORD = 'after, and longer'\n")
    assert read_words() == {"after,"}
