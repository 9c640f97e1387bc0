"""The contract of engines on a cluster's master, which the environment names: run by
`test_cluster.py` in a process of its own.

(A process has one Spark session, and the tests' own is a local one.)
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
cloudpickle.register_pickle_by_value(tasks)  # the workers have no tests


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    """On the cluster."""
    spark = spark_session(
        os.environ[MASTER], {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    )
    yield spark
    spark.stop()


class TestCluster(EngineContract):
    """The contract, on workers that have no windrow of their own."""

    dies = Dies

    @pytest.fixture
    def engine(self, session: SparkSession) -> Iterator[SparkEngine]:
        yield SparkEngine(lambda: session.sparkContext)
        session.sparkContext.setLogLevel("ERROR")  # an interrupt turns it off

    def test_the_drivers_code_runs_there(self, engine: SparkEngine) -> None:
        """Workers import windrow from where they keep what the driver sent, each
        machine in its own home, by its digest.
        """
        places = {result.rows[0] for result in engine.run(Where(), SPLITS)}
        assert all("/home/.cache/windrow/code/" in code_path for code_path in places), places
