"""Workers, machines and drivers of a Spark cluster die, stop and come back, on real
Kafka: exactly once, by the checker's own look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.integration.harness import Place, millis, verdict, visible
from tests.integration.test_exactly_once import one_hour, place, thing
from tests.integration.test_spark_task import OVER, status_of, until
from tests.kafka.door import Door
from tests.kafka.produce import Put, create_topic, produce
from tests.runner.spark.drivers import Answer, Driver
from tests.runner.spark.standalone import Cluster, known_cluster

__all__ = ["one_hour", "place"]  # the fixtures
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.long]

TRIES = 4
"""Of a task, where nobody says otherwise."""
COPIES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
    "spark.python.task.killTimeout": "10m",
}
"""A task that takes longer than half of the others is run a second time; whose result
comes too late, isn't killed for it at once.
"""


@dataclass
class Ground:
    """A cluster with the tests' driver on it, and a trap for the Python workers of that driver."""

    cluster: Cluster
    folder: Path
    _driver: Driver | None = field(default=None)

    @property
    def trap(self) -> Path:
        """While this file isn't there, the next Python worker that has staged a batch
        makes it, and stops itself.
        """
        return self.folder / "trap"

    def words(self) -> dict[str, str]:
        """Spark's, for a session on half of the cluster."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.cores.max": "4",
            "spark.executorEnv.WINDROW_CRASH": f"write.middle:stop:{self.trap}",
        }

    @property
    def driver(self) -> Driver:
        """The one that is there; a new one where the last one has died."""
        if self._driver is None or self._driver.ended:
            self._driver = Driver(self.cluster.master, self.words(), self.folder)
        return self._driver

    def close(self) -> None:
        """End the driver."""
        if self._driver is not None:
            self._driver.close()


def stopped_worker(cluster: Cluster) -> psutil.Process:
    """Waits until the trap has caught a Python worker of the cluster, and returns that."""
    stopped: list[psutil.Process] = []

    def any_stopped() -> bool:
        children = [
            process
            for worker in cluster.workers.values()
            for process in worker.children(recursive=True)
        ]
        stopped[:] = [p for p in children if status_of(p) == psutil.STATUS_STOPPED]
        return bool(stopped)

    until(any_stopped, "no worker reached its crash point")
    [process] = stopped
    return process


def end(process: psutil.Process) -> None:
    """SIGKILL; it is gone when this returns."""
    process.kill()
    until(lambda: status_of(process) in OVER, "a killed process is still there")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Two workers with room for two drivers, with two tasks at once on each for both."""
    folder = tmp_path_factory.mktemp("ground")
    with known_cluster(folder / "cluster", cores=4) as cluster:
        new_ground = Ground(cluster, folder)
        try:
            yield new_ground
        finally:
            new_ground.close()


@pytest.fixture(autouse=True)
def no_trap(ground: Ground) -> None:
    """A test that wants the trap sets it."""
    ground.trap.touch()


def list_staged(setup: Place) -> set[str]:
    """Data files under the table, whether a commit names them or not."""
    return {path.name for path in (setup.folder / "things" / "data").rglob("*.parquet*")}


def list_finished(setup: Place) -> set[str]:
    """Those that were written to their end."""
    return {name for name in list_staged(setup) if name.endswith(".parquet")}


def in_table(setup: Place) -> set[str]:
    """Data files that the table is made of."""
    table = setup.folder / "things"
    return (
        {Path(uri).name for uri in DeltaTable(str(table)).file_uris()}
        if (table / "_delta_log").exists()
        else set()
    )


def assert_exactly_once_beside_garbage(setup: Place, *garbage: int) -> None:
    """The checker finds nothing wrong, and so many staged files are there (or so many)
    that the table doesn't know.
    """
    report = verdict(setup, visible(setup.bootstrap, setup.topic))
    assert report.ok, report
    assert len(list_staged(setup) - in_table(setup)) in garbage


def test_a_killed_executor_is_run_again(ground: Ground, place: Place) -> None:
    """1 A worker has staged and halts. 2 Its executor is killed with SIGKILL, and the
    worker ends with it. 3 Spark runs its task again.

    The other task may have run on the same executor, whose result is then lost with it.
    """
    driver = ground.driver
    ground.trap.unlink()
    driver.begin(place)
    worker = stopped_worker(ground.cluster)
    [executor] = [parent for parent in worker.parents() if parent in ground.cluster.executors()]
    executor.kill()
    until(lambda: status_of(worker) in OVER, "the worker outlived its executor")
    assert driver.answer() == Answer(recovered=False)
    assert_exactly_once_beside_garbage(place, 1, 2)


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_killed_driver_is_followed_at_once(ground: Ground, place: Place, point: str) -> None:
    """1 A driver dies by SIGKILL around its commit. 2 A second one goes on at once, and
    says whether the commit was in already.

    Nothing of the first one is left on the workers' machines.
    """
    first = ground.driver
    first.begin(place, crash=f"{point}:kill")
    first.dies()
    old_executors = ground.cluster.executors()
    assert ground.driver.runs(place) == Answer(recovered=point == "commit.after")
    until(
        lambda: all(status_of(executor) in OVER for executor in old_executors),
        "executors outlived their driver",
    )
    assert_exactly_once_beside_garbage(place, 2 if point == "commit.before" else 0)


def test_a_task_that_always_kills_its_worker_ends_the_run(
    ground: Ground, kafka: str, tmp_path: Path
) -> None:
    """As often as Spark tries a task, its worker has staged and dies by SIGKILL: the
    run says to try again, and the rerun is right.
    """
    setup = Place(kafka, create_topic(kafka), tmp_path)
    produce(kafka, setup.topic, [Put(thing(i), millis(1, i)) for i in range(50)])
    driver = ground.driver
    for tried in range(TRIES):
        ground.trap.unlink()
        if not tried:
            driver.begin(setup)
        end(stopped_worker(ground.cluster))
    failed = driver.answer()
    assert failed.code == 3
    assert "Nothing was committed. Run the window again" in failed.text
    assert (len(list_staged(setup)), in_table(setup)) == (TRIES, set())
    assert driver.runs(setup) == Answer(recovered=False)
    assert_exactly_once_beside_garbage(setup, TRIES)


def test_a_broker_that_only_the_workers_do_not_reach(
    ground: Ground, kafka: str, one_hour: str, tmp_path: Path
) -> None:
    """1 The driver has planned, and stops. 2 The way to the broker is shut, and the
    driver, inside, goes on. 3 Its workers stay outside.

    The run says that nobody answers where the tasks run, and to try again. With the way
    open again, the rerun is right.
    """
    door = Door(kafka)
    try:
        setup = Place(
            door.bootstrap, one_hour, tmp_path, {"source": {"client": {"socket.timeout.ms": 5000}}}
        )
        driver = ground.driver
        driver.begin(setup, crash="plan.after:stop")
        until(
            lambda: status_of(driver.process) == psutil.STATUS_STOPPED,
            "the driver didn't come to its plan's end",
        )
        door.close()
        driver.process.resume()
        failed = driver.answer()
        assert failed.code == 3
        assert "from where the tasks run" in failed.text
        assert in_table(setup) == set()
        door.open()
        assert driver.runs(setup) == Answer(recovered=False)
        assert_exactly_once_beside_garbage(setup, 0)
    finally:
        door.close()


def test_a_thousand_splits_on_four_slots(ground: Ground, kafka: str, tmp_path: Path) -> None:
    """Each message is there once, and of a split comes so little back that a thousand
    of them fit into two megabytes of the driver's.
    """
    setup = Place(
        kafka, create_topic(kafka, partitions=4), tmp_path, {"source": {"split_records": 2}}
    )
    produce(
        kafka, setup.topic, [Put(thing(i), millis(1, i // 60, i % 60), i % 4) for i in range(2000)]
    )
    driver = Driver(
        ground.cluster.master, ground.words() | {"spark.driver.maxResultSize": "2m"}, tmp_path
    )
    try:
        assert driver.runs(setup) == Answer(recovered=False)
    finally:
        driver.close()
    [committed] = setup.pipeline().sink.receipts()
    assert len(committed.receipt.plan.splits) == 1000
    assert_exactly_once_beside_garbage(setup, 0)


def test_a_worker_that_wakes_behind_its_copy_changes_nothing(
    ground: Ground, place: Place, tmp_path: Path
) -> None:
    """1 A worker stops in the middle of writing. 2 Spark gives its task to the other
    machine too, the driver looks, and stops.

    3 The worker wakes, and stages its file. 4 The driver commits without that file. 5 A
    rerun, and another look, change nothing.
    """
    driver = Driver(ground.cluster.master, ground.words() | COPIES, tmp_path)
    try:
        ground.trap.unlink()
        driver.begin(place, crash="commit.before:stop")
        late = stopped_worker(ground.cluster)
        until(
            lambda: status_of(driver.process) == psutil.STATUS_STOPPED,
            "the driver didn't come to its commit",
        )
        assert status_of(late) == psutil.STATUS_STOPPED, "the worker was not waited for"
        finished_files = list_finished(place)
        late.resume()
        until(
            lambda: list_finished(place) > finished_files, "the worker staged nothing after it woke"
        )
        driver.process.resume()
        assert driver.answer() == Answer(recovered=False)
        assert_exactly_once_beside_garbage(place, 1)
        assert in_table(place) == finished_files
        assert driver.runs(place) == Answer(recovered=True)
    finally:
        driver.close()
    assert_exactly_once_beside_garbage(place, 1)


def test_a_function_of_dataframes(
    ground: Ground, kafka: str, one_hour: str, tmp_path: Path
) -> None:
    """1 A worker halts in the middle of staging. 2 The executors are killed, and what
    they had read is lost: the run says to try again.

    3 The driver runs it again, and is killed behind its commit. 4 Another one finds
    each row there once. UDFs of its file travel.
    """
    setup = Place(
        kafka, one_hour, tmp_path, {"transform": {"steps": [{"spark": "functions.py:same"}]}}
    )
    trap, others = tmp_path / "trap", ground.cluster.executors()
    driver = Driver(
        ground.cluster.master,
        ground.words() | {"spark.executorEnv.WINDROW_CRASH": f"transform.middle:stop:{trap}"},
        tmp_path,
    )
    try:
        driver.begin(setup)
        stopped_worker(ground.cluster)
        for executor in ground.cluster.executors():
            if executor not in others:
                end(executor)
        failed = driver.answer()
        assert (failed.code, in_table(setup)) == (3, set())
        assert "Nothing was committed. Run the window again" in failed.text
        driver.begin(setup, crash="commit.after:kill")
        driver.dies()
    finally:
        driver.close()
    assert ground.driver.runs(setup) == Answer(recovered=True)
    report = verdict(Place(kafka, one_hour, tmp_path), visible(kafka, one_hour))
    assert report.ok, report


def test_a_function_that_needs_what_workers_have_not(
    ground: Ground, kafka: str, one_hour: str, tmp_path: Path
) -> None:
    """A module that the driver alone can import is named, with what to do; nothing is committed."""
    setup = Place(
        kafka, one_hour, tmp_path, {"transform": {"steps": [{"spark": "functions.py:foreign"}]}}
    )
    failed = ground.driver.runs(setup)
    assert (failed.code, in_table(setup)) == (2, set())
    assert (
        "A worker can't import tests, which a UDF of the function functions.py:foreign of"
        " the spark step needs" in failed.text
    )
