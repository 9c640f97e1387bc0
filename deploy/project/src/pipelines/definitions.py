"""The code location: every pipeline in `defs`. Their tasks run on a Spark cluster.

The environment names the cluster.
"""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from windrow.dagster import SPARK_KEY, Spark, standing_on


@dg.definitions
def defs() -> dg.Definitions:
    """Returns the definitions of all pipelines.

    Steps run in the process of the run, which is Spark's driver. `spark.driver.host` is the
    name by which executors reach it.
    """
    cluster = Spark(
        master=os.environ["SPARK_MASTER"],
        spark_config={
            "spark.driver.host": os.environ["SPARK_DRIVER_HOST"],
            "spark.executor.memory": "512m",
        },
    )
    pipelines = dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
        dg.Definitions(executor=dg.in_process_executor),
    )
    return standing_on(pipelines, {SPARK_KEY: cluster})
