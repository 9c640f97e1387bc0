"""Daft's Kafka source. It runs in its own environment.

python program.py BOOTSTRAP      then a JSON job per line on stdin, an answer per line on stdout

The job `raw` reads messages and sums their bytes, so that the values are accessed. The job
`table` makes columns from JSON and writes them to Parquet.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import daft
from daft import DataType, col

MOST = 10_000
"""The most messages of a batch. The default of 1,024 makes more and smaller batches."""


def chunk(stops: list[int]) -> int:
    """Returns a number of messages that divides each topic-partition's number.

    Daft waits for a timeout of 10 seconds if its last batch isn't full.
    """
    divisor = math.gcd(*stops)
    return max(size for size in range(1, MOST + 1) if divisor % size == 0)


TYPES = {
    "bigint": DataType.int64(),
    "int": DataType.int32(),
    "double": DataType.float64(),
    "boolean": DataType.bool(),
    "string": DataType.string(),
}


def dtype(description: Any) -> DataType:
    """Returns Daft's type."""
    if isinstance(description, str):
        return TYPES[description]
    if "list" in description:
        return DataType.list(dtype(description["list"]))
    return DataType.struct({name: dtype(inner) for name, inner in description["struct"].items()})


def main(bootstrap: str) -> None:
    """Answers jobs until stdin ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        messages = daft.read_kafka(
            bootstrap, job["topic"], start="earliest", end="latest", chunk_size=chunk(job["stops"])
        )
        if job["work"] == "raw":
            total = messages.agg(
                col("value").count().alias("rows"), col("value").length().sum().alias("bytes")
            ).to_pydict()
            row_count = total["rows"][0]
        else:
            names = list(job["columns"]["struct"])
            parsed = messages.select(
                col("value").decode("utf-8").deserialize("json", dtype(job["columns"])).alias("r"),
                "offset",
            )
            parsed.select(
                *(col("r").get(name).alias(name) for name in names), "offset"
            ).write_parquet(job["out"])
            row_count = job["rows"]  # The harness counts the written rows.
        print(json.dumps({"rows": row_count}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
