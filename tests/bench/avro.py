"""What decoding Avro costs, beside Spark's `from_avro`: the same messages in memory, each side on one core, the best of its runs.

python -m tests.bench.avro [--messages 2000000] [--runs 6]

A run of windrow's is a batch of 32,768 messages after the other, as a task has them, once whole and once with one message of a hundred
broken; of Spark's what stands in `peers/spark/avro.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.decode.avro.machine import avro_machine
from ingest.decode.avro.schema import parse_schema
from ingest.schema.columns import Columns
from tests.bench.harness import environments
from tests.bench.harness.environments import PEERS, made
from tests.bench.orders import values
from tests.bench.orders_schema import Order
from tests.decode.avro.wire import text, varint

BATCH = 32_768
LIMIT_SECONDS = 900
KINDS = {"order_id": "long", "amount": "double", "quantity": "int", "created_at": "long", "note": ["null", "string"]}
SCHEMA = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": n, "type": KINDS.get(n, "string")} for n in json.loads(values()[0])]}
)


def encoded(order: bytes) -> bytes:
    """An order in Avro's encoding."""
    written = b""
    for name, value in json.loads(order).items():
        kind = KINDS.get(name, "string")
        if isinstance(kind, list):
            written += varint(0) if value is None else varint(1) + text(value)
        else:
            written += {"string": text, "double": lambda v: struct.pack("<d", v)}.get(kind, varint)(value)
    return written


def windrow(messages: list[pa.BinaryArray], runs: int) -> list[float]:
    """CPU seconds of each run."""
    machine, seconds = avro_machine(parse_schema(SCHEMA, "the benchmark"), Columns.of(Order)), []
    for _ in range(runs):
        began = time.process_time()
        for batch in messages:
            machine.decode(batch, "dead")
        seconds.append(time.process_time() - began)
    return seconds


def spark(messages: pa.BinaryArray, runs: int) -> list[float]:
    """Seconds of each run."""
    folder = made("spark", PEERS / "spark", environments.python_and_jars)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "messages.parquet"
        pq.write_table(pa.table({"value": messages}), path)
        command = [str(folder / "venv/bin/python"), str(PEERS / "spark/avro.py"), str(path), SCHEMA, str(folder / "jars"), str(runs)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    """Both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=6)
    options = parser.parse_args()
    orders = [encoded(order) for order in values()]
    count = options.messages
    whole = pa.array((orders * (count // len(orders) + 1))[:count], pa.binary())
    broken = [order[:-1] + b"\x7f" if i % 100 == 0 else order for i, order in enumerate(orders)]
    poisoned = pa.array((broken * (count // len(broken) + 1))[:count], pa.binary())
    theirs = min(spark(whole, options.runs))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{count} messages of {len(whole.buffers()[2]) / count:.0f} bytes, on one core")
    print(f"{'':34}{'M messages/s':>14}")
    print(f"{'Spark, from_avro':34}{count / theirs / 1e6:14.2f}")
    for name, messages in (("windrow", whole), ("windrow, one of a hundred broken", poisoned)):
        best = min(windrow([messages.slice(i, BATCH) for i in range(0, count, BATCH)], options.runs))
        print(f"{name:34}{count / best / 1e6:14.2f}   {theirs / best:.1f} times Spark")


if __name__ == "__main__":
    main()
