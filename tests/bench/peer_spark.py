"""The peer: Spark's own Kafka source, `from_json`, Parquet. Runs in an environment of its own (pyspark 4.0.0 with its connector's jars).

python peer_spark.py BOOTSTRAP TOPIC JARS_DIR OUT_DIR      then a line on stdin per run; a JSON line on stdout per answer
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from meter import Meter
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

COLUMNS = "order_id bigint, customer string, amount double, currency string, sku string, quantity int, created_at bigint, note string"


def main(bootstrap: str, topic: str, jars: str, out: str) -> None:
    """Answer until stdin ends."""
    session = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar")))).getOrCreate()
    )  # fmt: skip
    session.sparkContext.setLogLevel("ERROR")
    messages = (
        session.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        .option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
    )  # fmt: skip
    rows = messages.select(from_json(col("value").cast("string"), COLUMNS).alias("r"), "topic", "partition", "offset", "timestamp")
    rows = rows.select("r.*", "topic", "partition", "offset", "timestamp")
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        shutil.rmtree(out, ignore_errors=True)
        with Meter() as meter:
            rows.write.mode("overwrite").parquet(out)
        written = session.read.parquet(out).count()
        print(
            json.dumps({"seconds": meter.seconds, "cpu_seconds": meter.cpu_seconds, "worker_mb": meter.worker_mb, "rows": written}),
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:5])
