"""Spark as a Dagster resource: dagster-pyspark's lazy session, set up for windrow, as an `ingest` engine."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from ingest.engine.local import local_session
from ingest.engine.spark import SparkEngine


class Spark(LazyPySparkResource):
    """Starts Spark at the first window that has something to read, and stops at the end of the run what it started.

    A run that only reports what is committed never starts Spark.
    """

    master: str = Field(default="local[*,4]", description="Spark's master; the default runs a task per core, a failed one up to 4 times.")
    spark_config: dict[str, str] = Field(default_factory=dict, description="Spark properties by dotted name, on top of windrow's own.")
    _own: bool = PrivateAttr(default=False)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._own = SparkSession.getActiveSession() is None
            self._spark_session = local_session(self.master, self.spark_config)

    def engine(self) -> SparkEngine:
        """Where the tasks of the splits run."""
        return SparkEngine(lambda: self.spark_session)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the session if this run made it."""
        del context
        session: Any = self._spark_session
        if session is not None and self._own:
            session.stop()
        self._spark_session = None
