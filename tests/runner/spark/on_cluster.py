"""The contract of engines on a cluster; `test_cluster.py` runs it in another process, with the
master in an environment variable.

A process has only one Spark session, and that of the tests' process is local.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tests.contracts.engine_contract import SPLITS, EngineContract
from tests.runner.spark import tasks
from tests.runner.spark.tasks import Dies, Where
from windrow.ingest.runner.spark.cluster import spark_session
from windrow.ingest.runner.spark.engine import SparkEngine

MASTER = "WINDROW_TEST_MASTER"
cloudpickle.register_pickle_by_value(tasks)  # workers can't import the tests


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """A session on the cluster."""
    spark = spark_session(
        os.environ[MASTER], {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    )
    yield spark
    spark.stop()


class TestCluster(EngineContract):
    """The contract of engines, on workers that have no windrow installed."""

    dies = Dies

    @pytest.fixture
    def engine(self, session: SparkSession) -> Iterator[SparkEngine]:
        yield SparkEngine(lambda: session.sparkContext)
        session.sparkContext.setLogLevel("ERROR")  # an interrupt switches it off

    def test_the_drivers_code_runs_there(self, engine: SparkEngine) -> None:
        """Workers import windrow from the folder with the driver's code, named by its digest,
        in each machine's own home.
        """
        places = {result.rows[0] for result in engine.run(Where(), SPLITS)}
        assert all("/home/.cache/windrow/code/" in code_path for code_path in places), places
