"""DataFrames on a cluster's master, which an environment variable names.

`tests/runner/spark/test_cluster.py` runs this module in a separate process. A process has only
one Spark session, and the tests' session is a local one. The tests are the same as on the local
session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.dataframes.test_sink import Ground, each_once, ground
from tests.dataframes.test_source import (
    reading,
    test_a_windows_rows,
    test_messages_of_exact_ranges,
    things,
)
from tests.runner.spark.on_cluster import MASTER
from windrow.ingest.runner.spark.cluster import spark_session

BOOTSTRAP = "WINDROW_TEST_BOOTSTRAP"

__all__ = ["ground", "reading", "test_a_windows_rows", "test_messages_of_exact_ranges", "things"]


@pytest.fixture(scope="session")
def kafka() -> str:
    """The broker of the calling process."""
    return os.environ[BOOTSTRAP]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark session on the cluster."""
    session = spark_session(
        os.environ[MASTER], {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    )
    yield session
    session.stop()


def test_each_batch_is_there_once(spark: SparkSession, ground: Ground) -> None:
    """A batch that is written again writes nothing, even with other rows or partitions."""
    ground.write(spark.range(500).repartition(3), 7)
    ground.write(spark.range(900, 950), 7)
    assert ground.ids() == each_once(range(500))
