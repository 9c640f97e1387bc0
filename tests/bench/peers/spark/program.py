"""Spark's own Kafka source. Runs in an environment of its own: pyspark with its connector's jars.

python program.py BOOTSTRAP JARS_DIR      then a JSON job per line on stdin, an answer
per line on stdout

Jobs: `raw` reads, `parsed` makes columns by from_json, `table` writes them to Parquet.
The first two go to Spark's noop sink, which takes every column of every row. Rows are
counted as they pass, by Spark's own observation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import col, count, from_json, lit

SETTINGS = {
    "spark.ui.enabled": "false",  # nobody looks, and it costs a server
    "spark.ui.showConsoleProgress": "false",
    # in local mode tasks run in the driver; its default of 1 GB makes it collect
    # garbage all the time
    "spark.driver.memory": "3g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # one for each core, as the tuning guide says of small data; nothing is shuffled
    # here
    "spark.sql.shuffle.partitions": "2",
}
KAFKA = {
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    # Kafka's default gives the source 500 messages a poll. More save calls; what is
    # fetched from the broker stays the same.
    "kafka.max.poll.records": "10000",
    # As much a fetch as Kafka's default for a whole answer, and not only 1 MB of each
    # topic-partition.
    "kafka.max.partition.fetch.bytes": "52428800",
}


def messages(session: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """All of a topic. minPartitions isn't set: the topic has more topic-partitions than
    there are cores.
    """
    reader = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
    )
    return reader.options(**KAFKA).load()


def rows(frame: DataFrame, job: dict[str, Any]) -> DataFrame:
    """What the job wants of them."""
    if job["work"] == "raw":
        return frame
    where = ["topic", "partition", "offset", "timestamp"]
    return frame.select(
        from_json(col("value").cast("string"), job["columns"]).alias("r"), *where
    ).select("r.*", *where)


def main(bootstrap: str, jars: str) -> None:
    """Answer until stdin ends."""
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
