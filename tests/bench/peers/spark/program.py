"""Spark's own Kafka source. It runs in its own environment: pyspark with the connector's jars.

python program.py BOOTSTRAP JARS_DIR      then a JSON job per line on stdin, an answer per line
on stdout

The job `raw` reads, `parsed` makes columns with from_json, and `table` writes them to Parquet.
The first two write to Spark's noop sink, which reads every column of every row. Spark's own
observation counts the rows as they pass.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import col, count, from_json, lit

SETTINGS = {
    "spark.ui.enabled": "false",  # not needed, and a server costs time
    "spark.ui.showConsoleProgress": "false",
    # In local mode tasks run in the driver. Its default of 1 GB makes it collect garbage all
    # the time.
    "spark.driver.memory": "3g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # One for each core, as the tuning guide says for small data. Nothing is shuffled here.
    "spark.sql.shuffle.partitions": "2",
}
KAFKA = {
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    # Kafka's default gives the source 500 messages in each poll. Larger polls save calls. The
    # fetches from the broker stay the same.
    "kafka.max.poll.records": "10000",
    # A fetch is as large as Kafka's default for a whole response, not only 1 MB for each
    # topic-partition.
    "kafka.max.partition.fetch.bytes": "52428800",
}


def messages(session: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Returns all messages of a topic.

    minPartitions isn't set, because the topic has more topic-partitions than there are cores.
    """
    reader = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
    )
    return reader.options(**KAFKA).load()


def rows(frame: DataFrame, job: dict[str, Any]) -> DataFrame:
    """Returns the columns that the job needs."""
    if job["work"] == "raw":
        return frame
    where = ["topic", "partition", "offset", "timestamp"]
    return frame.select(
        from_json(col("value").cast("string"), job["columns"]).alias("r"), *where
    ).select("r.*", *where)


def main(bootstrap: str, jars: str) -> None:
    """Answers jobs until stdin ends."""
    builder = SparkSession.builder.master("local[2]").config(
        "spark.jars", ",".join(map(str, Path(jars).glob("*.jar")))
    )
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.range(1).count()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job, observation = json.loads(line), Observation()
        frame = rows(messages(session, bootstrap, job["topic"]), job).observe(
            observation, count(lit(1)).alias("rows")
        )
        if job["work"] == "table":
            frame.write.parquet(job["out"])
        else:
            frame.write.format("noop").mode("overwrite").save()
        print(json.dumps({"rows": observation.get["rows"]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
