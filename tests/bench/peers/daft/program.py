"""Daft's Kafka source. Runs in an environment of its own.

python program.py BOOTSTRAP      then a JSON job per line on stdin, an answer per line on stdout

Jobs: `raw` reads and adds up the messages' bytes, so that values are looked at; `table`
makes columns of JSON and writes them to Parquet.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import daft
from daft import DataType, col

MOST = 10_000
"""Messages a batch, at most. The default of 1,024 makes more and smaller ones."""


def chunk(stops: list[int]) -> int:
    """A number of messages that divides every topic-partition's: Daft waits out a
    timeout of 10 seconds for the rest of its last batch.
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
    """Daft's type."""
    if isinstance(description, str):
        return TYPES[description]
    if "list" in description:
        return DataType.list(dtype(description["list"]))
    return DataType.struct({name: dtype(inner) for name, inner in description["struct"].items()})


def main(bootstrap: str) -> None:
    """Answer until stdin ends."""
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
            row_count = job["rows"]  # the harness counts what was written
        print(json.dumps({"rows": row_count}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
