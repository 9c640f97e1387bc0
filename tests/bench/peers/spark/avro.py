"""Spark's own `from_avro`. Runs in an environment of its own: pyspark with its jars.

python avro.py PARQUET SCHEMA JARS_DIR RUNS      prints a JSON list: for each run its seconds

The messages are the column `value` of a Parquet file, taken into Spark's memory first. On one core; what is decoded goes to Spark's noop
sink, which takes every column of every row.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col


def main(messages: str, schema: str, jars: str, runs: str) -> None:
    """Decode them again and again: the first runs warm up."""
    builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
    for name, value in {
        "spark.ui.enabled": "false",  # nobody looks, and it costs a server
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",  # in local mode tasks run in the driver; its default of 1 GB can't hold the messages
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    values = session.read.parquet(messages).cache()
    count = values.count()
    decoded = values.select(from_avro(col("value"), schema, {"mode": "PERMISSIVE"}).alias("r")).select("r.*")
    assert decoded.where(col("order_id").isNull()).count() == 0, count
    seconds = []
    for _ in range(int(runs)):
        began = time.perf_counter()
        decoded.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5])
