"""The memory that Spark's settings give to a worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windrow.ingest.runner.spark.engine import SparkEngine


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"spark.executor.pyspark.memory": "3g"}, 3 << 30),
        ({"spark.executor.pyspark.memory": "512"}, 512 << 20),
        ({"spark.executor.pyspark.memory": "4096MB", "spark.executor.cores": "2"}, 2 << 30),
        ({"spark.executor.pyspark.memory": "1048576k"}, 1 << 30),
    ],
)
def test_memory_of_a_worker(settings: dict[str, str], expected: int | None) -> None:
    """Each worker has its share of `spark.executor.pyspark.memory`, if that is set."""
    session: Any = SimpleNamespace(conf=settings)
    assert SparkEngine(lambda: session).worker_memory() == expected
