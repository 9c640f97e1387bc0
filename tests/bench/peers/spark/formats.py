"""Spark's functions for formats: `from_avro`, `from_csv`, `from_json`, and Protobuf in Python.

It runs in its own environment with its jars.

python formats.py FORMAT PARQUET SCHEMA JARS_DIR RUNS      prints a JSON list of each run's
seconds

The messages are the column `value` of a Parquet file, loaded into Spark's memory first. Spark
has one core. The decoded rows go to Spark's noop sink, which reads every column of every row.
SCHEMA is Avro's JSON, a descriptor set in hexadecimal digits, or Spark's DDL.

The jar with Spark's `from_protobuf` isn't in every mirror of Maven's repository. So Protobuf is
decoded as a PySpark user does it without the jar: by a function for `mapInArrow` with Google's
library, which parses in C.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, from_csv, from_json

FUNCTIONS = {
    "avro": lambda value, schema: from_avro(value, schema, {"mode": "PERMISSIVE"}),
    "csv": lambda value, schema: from_csv(value.cast("string"), schema),
    "json": lambda value, schema: from_json(value.cast("string"), schema),
}
ORDER = (
    "order_id bigint, customer string, amount double, currency string, sku string, quantity int,"
    " created_at bigint, note string"
)


def of_protobuf(values: DataFrame, schema: str) -> DataFrame:
    """Returns orders that Google's library decodes."""

    def parsed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(bytes.fromhex(schema)).file:
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
        names = [field.name for field in kind.DESCRIPTOR.fields]
        for batch in batches:
            orders = [kind.FromString(value) for value in batch.column(0).to_pylist()]
            columns = [[getattr(order, name) for order in orders] for name in names[:-1]]
            note = [order.note if order.HasField("note") else None for order in orders]
            types = [
                pa.int64(),
                pa.string(),
                pa.float64(),
                pa.string(),
                pa.string(),
                pa.int32(),
                pa.int64(),
                pa.string(),
            ]
            yield pa.RecordBatch.from_arrays(
                [pa.array(c, t) for c, t in zip([*columns, note], types, strict=True)], names
            )

    return values.mapInArrow(parsed, ORDER)


def main(kind: str, messages: str, schema: str, jars: str, runs: str) -> None:
    """Decodes the messages repeatedly. The first runs warm up."""
    builder = SparkSession.builder.master("local[1]").config(
        "spark.jars", ",".join(map(str, Path(jars).glob("*.jar")))
    )
    for name, value in {
        "spark.ui.enabled": "false",  # not needed, and a server costs time
        "spark.ui.showConsoleProgress": "false",
        # In local mode tasks run in the driver. Its default of 1 GB can't hold the messages.
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    values = session.read.parquet(messages).cache()
    count = values.count()
    if kind == "protobuf":
        decoded = of_protobuf(values, schema)
    else:
        decoded = values.select(FUNCTIONS[kind](col("value"), schema).alias("r")).select("r.*")
    assert decoded.where(col("order_id").isNull()).count() == 0, count
    seconds = []
    for _ in range(int(runs)):
        began = time.perf_counter()
        decoded.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:6])
