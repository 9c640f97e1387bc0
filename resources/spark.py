"""Spark as a Dagster resource: the run's own, or a session on a Connect server."""

from __future__ import annotations

from typing import Self

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr, model_validator
from pyspark import SparkContext

from windrow.ingest.runner.spark.cluster import launch_early, spark_context
from windrow.ingest.runner.spark.connect import ConnectedSpark
from windrow.ingest.runner.spark.engine import SparkEngine
from windrow.ingest.runner.spark.java import end_unused
from windrow.ingest.runner.spark.jobs import session_of
from windrow.ingest.runner.spark.local import MASTER
from windrow.ingest.runner.spark.pyspark_internals import own_context


class Spark(LazyPySparkResource):
    """A Spark that starts at the first window with messages, and stops at the end of the run.

    Its Java process is launched earlier, while the first uncommitted window is planned. A
    run that only reports committed windows never starts Spark. With `connect` the run has
    its own session on a Spark Connect server (`windrow spark run`).

    Example:
        from windrow import load_spec
        from windrow.dagster import SPARK_KEY, Spark, kafka_table

        spec = load_spec("payments/defs.yaml")
        spark = Spark(spark_config={"spark.driver.memory": "4g"})
        defs = kafka_table(spec, {SPARK_KEY: spark})
    """

    master: str = Field(
        default=MASTER,
        description="Spark's master; the default runs a task per core, a failed one up to 4 times.",
    )
    spark_config: dict[str, str] = Field(
        default_factory=dict,
        description="Spark properties by dotted name, on top of windrow's own.",
    )
    connect: str | None = Field(
        default=None,
        description=(
            "The address of a Spark Connect server, sc://HOST:PORT, which has a master and"
            " properties of its own. The token that it asks for, if any, is in the environment:"
            " SPARK_CONNECT_AUTHENTICATE_TOKEN."
        ),
    )
    _started_context: SparkContext | None = PrivateAttr(default=None)
    _connected: ConnectedSpark | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _refuse_both(self) -> Self:
        """Refuses settings that would have no effect."""
        if self.connect is not None and (self.spark_config or self.master != MASTER):
            raise ValueError(
                "connect excludes master and spark_config: give them to the server, windrow spark"
                " run --conf NAME=VALUE"
            )
        return self

    def _init_session(self) -> None:
        if self.connect is not None:
            self._spark_session = self._server(self.connect).session()
        elif self._spark_session is None:
            self._spark_session = session_of(self._context())

    def engine(self) -> SparkEngine:
        """Returns the engine that runs the tasks.

        Raises:
            SpecError: `connect` is no valid address.
        """
        if self.connect is not None:
            return SparkEngine(self._server(self.connect).session)
        return SparkEngine(self._context, lambda: launch_early(self.master, self.spark_config))

    def _context(self) -> SparkContext:
        is_new = own_context() is None
        context = spark_context(self.master, self.spark_config)
        if is_new:
            self._started_context = context
        return context

    def _server(self, address: str) -> ConnectedSpark:
        if self._connected is None:
            self._connected = ConnectedSpark(address)
        return self._connected

    def teardown_after_execution(self, _context: dg.InitResourceContext) -> None:
        """Stops Spark if this run started it."""
        if self._started_context is not None:
            self._started_context.stop()
            self._started_context = None
        if self._connected is not None:
            self._connected.close()
            self._connected = None
        end_unused()
        self._spark_session = None
