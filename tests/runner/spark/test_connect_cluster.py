"""A Spark Connect server on a cluster: clients' code is sent to the workers, and each message
is there once despite deaths.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from pyspark import cloudpickle

import windrow
from tests.contracts.engine_contract import ONE, EngineContract
from tests.dataframes.test_sink import Ground as Batch
from tests.dataframes.test_sink import each_once
from tests.integration.harness import PipelineSetup, read_visible, verdict
from tests.integration.test_exactly_once import one_hour, setup
from tests.integration.test_spark_task import OVER, status_of, until
from tests.kafka.produce import Put, create_topic, produce
from tests.runner.spark import tasks
from tests.runner.spark.drivers import Answer, Driver
from tests.runner.spark.servers import serving
from tests.runner.spark.standalone import Cluster, known_cluster
from tests.runner.spark.tasks import Dies, Name, Where
from tests.runner.spark.test_cluster_faults import in_table, stopped_worker
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.runner.spark import cluster, connect
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.engine import SparkEngine
from windrow.ingest.runner.spark.worker_bootstrap import Code

__all__ = ["one_hour", "setup"]  # the fixtures
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.long]


@dataclass(frozen=True)
class Ground:
    """A cluster, a server on it with another folder and version than the clients, and a trap
    for its Python workers.

    Attributes:
        cluster: the cluster.
        address: the server's address.
        code: folder of the server's code.
        trap: file that arms the trap while it doesn't exist.
    """

    cluster: Cluster
    address: str
    code: Path
    trap: Path

    def words(self) -> list[str]:
        """Returns the arguments of a server that uses half of the cluster."""
        return [
            "--master",
            self.cluster.master,
            "--conf",
            "spark.driver.host=127.0.0.1",
            "--conf",
            "spark.executor.memory=512m",
            "--conf",
            "spark.cores.max=2",
            "--conf",
            f"spark.executorEnv.WINDROW_CRASH=write.middle:stop:{self.trap}",
        ]

    def environment(self) -> dict[str, str]:
        """Returns the environment of a server: its own code, and a Python that plans DataFrames."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            "PYTHONPATH": str(self.code),
            "PATH": path,
            "XDG_CACHE_HOME": str(self.code.parent / "cache"),
        }


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two workers with room for two servers, and one running server."""
    folder = tmp_path_factory.mktemp("ground")
    code = folder / "server"
    shutil.copytree(
        Path(windrow.__file__).parent,
        code / "windrow",
        ignore=shutil.ignore_patterns("__pycache__", "assets", "resources"),
    )
    (code / "windrow" / "ingest" / "added.py").write_text('"""What the clients have not."""\n')
    with known_cluster(folder / "cluster", cores=2) as running_cluster:
        unserved_ground = Ground(running_cluster, "", code, folder / "trap")
        unserved_ground.trap.touch()
        with serving(
            *unserved_ground.words(), folder=code, environment=unserved_ground.environment()
        ) as (address, _):
            yield Ground(running_cluster, address, code, unserved_ground.trap)


@pytest.fixture(autouse=True)
def no_trap(ground: Ground) -> None:
    """A disarmed trap. A test that needs it arms it."""
    ground.trap.touch()


@pytest.fixture(scope="module", autouse=True)
def travelling_tasks() -> Iterator[None]:
    """Pickles the tests' tasks by value, because the workers can't import them."""
    cloudpickle.register_pickle_by_value(tasks)
    yield
    cloudpickle.unregister_pickle_by_value(tasks)


@pytest.fixture
def client(ground: Ground) -> Iterator[ConnectedSpark]:
    """A client of the server."""
    with closing(ConnectedSpark(ground.address)) as spark:
        yield spark


class TestConnectOnCluster(EngineContract):
    """The contract of engines, where neither the server nor the workers have the client's code."""

    dies = Dies

    @pytest.fixture
    def engine(self, client: ConnectedSpark) -> SparkEngine:
        return SparkEngine(client.session)


def places(spark: ConnectedSpark) -> set[str]:
    """Returns the files from which the workers import windrow."""
    return {result.rows[0] for result in SparkEngine(spark.session).run(Where(), ONE)}


def test_the_clients_code_runs_there(client: ConnectedSpark) -> None:
    """Workers import windrow from the folder with the client's code, named by its digest."""
    assert all(
        f"/home/.cache/windrow/code/{cluster.own_code().digest}/" in code_path
        for code_path in places(client)
    )


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A function that makes this process send its code under another digest, and require other
    versions: `sending(digest, package=version)`.
    """
    ours = cluster.own_code()

    def send(digest: str, **versions: str) -> str:
        for module in (cluster, connect):
            monkeypatch.setattr(
                module, "own_code", lambda: Code(ours.files, digest, {**ours.versions, **versions})
            )
        return digest

    return send


@pytest.mark.parametrize("apart", [True, False])
def test_clients_of_two_versions_share_a_server(
    ground: Ground, sending: Callable[..., str], monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    """Clients of two versions on one server each have their tasks run by their own code, in
    turn.

    This holds also where Spark can't tell their workers apart.
    """
    if not apart:
        monkeypatch.setattr(connect, "buffer_bytes", lambda _: 65_536)
    with (
        closing(ConnectedSpark(ground.address)) as first,
        closing(ConnectedSpark(ground.address)) as second,
    ):
        for spark, name in ((first, "a"), (second, "b"), (first, "a")):
            digest = sending(name * 32)
            assert all(f"/{digest}/" in code_path for code_path in places(spark))


def test_workers_that_differ_are_told_before_a_split(
    client: ConnectedSpark, sending: Callable[..., str]
) -> None:
    """Workers with another version of a package end the run with one sentence, which names
    machine, interpreter, package and versions.
    """
    sending("d" * 32, msgspec="0.0.1")
    with pytest.raises(
        UnreachableError,
        match=r"which runs \S+, is not as the driver is: msgspec is \d\S*, the driver's is 0\.0\.1",
    ):
        list(SparkEngine(client.session).run(Name(), ONE))


def test_another_spark_is_refused(client: ConnectedSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with another version of Spark gets no task. The error names both versions."""
    ours = connect.version("pyspark")
    monkeypatch.setattr(
        connect, "version", lambda name: "3.0.0" if name == "pyspark" else os.fspath(name)
    )
    with pytest.raises(UnreachableError, match=f"runs Spark {ours}, and this client has 3.0.0"):
        list(SparkEngine(client.session).run(Name(), ONE))


def test_dataframes_of_a_client(
    ground: Ground, client: ConnectedSpark, kafka: str, tmp_path: Path
) -> None:
    """A client's code reads exact ranges as a DataFrame, and writes a batch once.

    Its formats are planned by the server's Python.
    """
    session = client.session()
    session.dataSource.register(windrow.WindrowSource)
    topic = create_topic(kafka, partitions=2)
    produce(kafka, topic, [Put(b"%d" % n, None, n % 2) for n in range(40)])
    splits = [Split(topic, 0, 3, 12), Split(topic, 1, 0, 5)]
    reader = session.read.format("windrow").option("bootstrap_servers", kafka)
    rows = reader.option("splits", msgspec.json.encode(splits).decode()).load().collect()
    assert sorted((row.partition, row.offset) for row in rows) == [
        (s.partition, n) for s in splits for n in range(s.start, s.stop)
    ]
    batch = Batch(kafka, tmp_path)
    batch.write(session.range(50).repartition(2), 1)
    batch.write(session.range(70), 1)
    assert batch.ids() == each_once(range(50))
    assert {
        path.name for path in (ground.code.parent / "cache" / "windrow" / "code").iterdir()
    } == {cluster.own_code().digest}


@pytest.fixture(scope="module")
def drivers(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Driver]]:
    """Two clients in other processes."""
    clients = [Driver(ground.address, {}, tmp_path_factory.mktemp("client")) for _ in range(2)]
    yield clients
    for client in clients:
        client.close()


def assert_exactly_once(setup: PipelineSetup) -> None:
    """Asserts that the checker finds nothing wrong."""
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report


def test_two_clients_run_windows_beside_each_other(
    kafka: str, one_hour: str, drivers: list[Driver], tmp_path: Path
) -> None:
    """Two clients that run windows of two tables on one server at the same time both commit
    complete windows.

    One of the pipelines has an SQL step.
    """
    steps = {"transform": {"steps": [{"sql": "SELECT id, lower(name) AS name FROM rows"}]}}
    over_by_folder = {"one": {}, "other": steps}
    both = [
        PipelineSetup(kafka, one_hour, tmp_path / name, over)
        for name, over in over_by_folder.items()
    ]
    for pipeline_setup, driver in zip(both, drivers, strict=True):
        pipeline_setup.folder.mkdir()
        driver.begin(pipeline_setup)
    assert [driver.answer() for driver in drivers] == [Answer(recovered=False)] * 2
    for pipeline_setup in both:
        assert_exactly_once(pipeline_setup)


@pytest.mark.parametrize(
    "over",
    [{}, {"transform": {"steps": [{"spark": "functions.py:same"}]}}],
    ids=["plain", "function"],
)
def test_a_killed_executor_is_run_again(
    ground: Ground,
    setup: PipelineSetup,
    drivers: list[Driver],
    tmp_path: Path,
    over: dict[str, Any],
) -> None:
    """The task of a killed executor is run again, also in a function of DataFrames.

    1. A worker has read a batch, and stops.
    2. Its executor is killed, and the worker ends with it.
    3. Spark runs its task again.
    """
    ground.trap.unlink()
    drivers[0].begin(PipelineSetup(setup.bootstrap, setup.topic, tmp_path, over))
    worker = stopped_worker(ground.cluster)
    [executor] = [parent for parent in worker.parents() if parent in ground.cluster.executors()]
    executor.kill()
    until(lambda: status_of(worker) in OVER, "the worker outlived its executor")
    assert drivers[0].answer() == Answer(recovered=False)
    assert_exactly_once(setup)


def test_what_was_read_goes_with_its_executors(
    ground: Ground, setup: PipelineSetup, tmp_path: Path
) -> None:
    """Data that was read is lost with its executors.

    1. A function of DataFrames gets the data, and stops.
    2. The executors are killed: the run says to try again.
    3. Nothing is committed.
    4. The next run is right.
    """
    driver = Driver(ground.address, {}, tmp_path)
    halting = PipelineSetup(
        setup.bootstrap,
        setup.topic,
        tmp_path,
        {"transform": {"steps": [{"spark": "functions.py:halts"}]}},
    )
    try:
        driver.begin(halting)
        until(
            lambda: status_of(driver.process) == psutil.STATUS_STOPPED,
            "the function was not called",
        )
        killed = ground.cluster.executors()
        for executor in killed:
            executor.kill()
        until(
            lambda: all(status_of(executor) in OVER for executor in killed),
            "a killed executor is still there",
        )
        driver.process.resume()
        failed = driver.answer()
        assert failed.code == 3
        assert "Nothing was committed. Run the window again" in failed.text
        assert in_table(setup) == set()
        driver.begin(halting)
        until(
            lambda: status_of(driver.process) == psutil.STATUS_STOPPED,
            "the function was not called again",
        )
        driver.process.resume()
        assert driver.answer() == Answer(recovered=False)
    finally:
        driver.close()
    assert_exactly_once(setup)


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_killed_client_is_followed_at_once(
    ground: Ground, setup: PipelineSetup, drivers: list[Driver], point: str, tmp_path: Path
) -> None:
    """A second client goes on at once after a killed one.

    1. A client dies by SIGKILL right before or after its commit.
    2. Another client runs the window, and says whether it was committed already.
    """
    first = Driver(ground.address, {}, tmp_path)
    try:
        first.begin(setup, crash=f"{point}:kill")
        first.dies()
    finally:
        first.close()
    assert drivers[1].runs(setup) == Answer(recovered=point == "commit.after")
    assert_exactly_once(setup)


def test_a_killed_server_is_an_outage(
    ground: Ground, setup: PipelineSetup, drivers: list[Driver], tmp_path: Path
) -> None:
    """A killed server is an outage.

    1. A worker has staged a batch, and stops.
    2. The server is killed with SIGKILL: the run says to try again, and the executors end.
    3. Nothing is committed.
    4. The window on another server is right.
    """
    executors_before = ground.cluster.executors()
    with serving(*ground.words(), folder=ground.code, environment=ground.environment()) as (
        address,
        command,
    ):
        driver = Driver(address, {}, tmp_path)
        try:
            ground.trap.unlink()
            driver.begin(setup)
            stopped_worker(ground.cluster)
            server_executors = [
                executor
                for executor in ground.cluster.executors()
                if executor not in executors_before
            ]
            below = command.children(recursive=True)
            command.kill()
            failed = driver.answer()
        finally:
            driver.close()
        assert failed.code == 3
        assert "Nothing was committed" in failed.text
        psutil.wait_procs(below, 60)
        until(
            lambda: all(status_of(executor) in OVER for executor in server_executors),
            "executors outlived their server",
        )
    assert drivers[0].runs(setup) == Answer(recovered=False)
    assert_exactly_once(setup)
