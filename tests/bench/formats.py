"""The cost of decoding a format, compared with Spark's functions.

python -m tests.bench.formats [avro protobuf csv json] [--messages 2000000] [--runs 6]

The messages are the same and in memory. Each side has one core, and the result is its best run.
A run of windrow decodes batches of 32,768 messages, as a task does: once whole messages, and
once with one broken message of a hundred. A run of Spark is in `peers/spark/formats.py`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.harness import environments
from tests.bench.harness.environments import PEERS, environment_folder
from tests.bench.orders import values
from tests.bench.orders_schema import Order
from tests.formats.avro import wire as avro
from tests.formats.protobuf import wire as protobuf
from windrow.ingest.formats.avro.decoder import avro_batch_decoder
from windrow.ingest.formats.avro.schema import parse_schema
from windrow.ingest.formats.csv.decoder import csv_batch_decoder
from windrow.ingest.formats.csv.lines import Dialect
from windrow.ingest.formats.json.decoder import json_batch_decoder
from windrow.ingest.formats.protobuf.decoder import protobuf_batch_decoder
from windrow.ingest.formats.protobuf.descriptors import descriptor_set, message_type
from windrow.ingest.formats.shared.batch_decoder import BatchDecoder
from windrow.ingest.schema.columns import Columns

BATCH = 32_768
LIMIT_SECONDS = 900
THEIRS = {"protobuf": "Google's library in mapInArrow"}
FIELDS: Mapping[str, tuple[Any, str, str]] = {
    "order_id": ("long", "int64", "BIGINT"),
    "customer": ("string", "string", "STRING"),
    "amount": ("double", "double", "DOUBLE"),
    "currency": ("string", "string", "STRING"),
    "sku": ("string", "string", "STRING"),
    "quantity": ("int", "int32", "INT"),
    "created_at": ("long", "int64", "BIGINT"),
    "note": (["null", "string"], "optional string", "STRING"),
}
"""The types of the orders' fields in Avro, Protobuf and Spark."""
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": n, "type": kind} for n, (kind, _, _) in FIELDS.items()],
    }
)
PROTO = "\n".join(
    [
        'syntax = "proto3";',
        "message Order {",
        *(f"  {kind} {n} = {i};" for i, (n, (_, kind, _)) in enumerate(FIELDS.items(), 1)),
        "}",
    ]
)
DDL = ", ".join(f"{name} {kind}" for name, (_, _, kind) in FIELDS.items())


def as_avro(order: Mapping[str, Any]) -> bytes:
    """Returns an order in Avro's encoding."""
    written = b""
    for name, value in order.items():
        kind = FIELDS[name][0]
        if isinstance(kind, list):
            written += avro.varint(0) if value is None else avro.varint(1) + avro.text(value)
        else:
            written += {"string": avro.text, "double": lambda v: struct.pack("<d", v)}.get(
                kind, avro.varint
            )(value)
    return written


def as_protobuf(order: Mapping[str, Any]) -> bytes:
    """Returns an order in Protobuf's encoding."""
    numbers = {name: i for i, name in enumerate(FIELDS, 1)}
    writers = {"int64": protobuf.number, "int32": protobuf.number, "double": protobuf.double}
    return b"".join(
        writers.get(FIELDS[n][1], protobuf.text)(numbers[n], v)
        for n, v in order.items()
        if v is not None
    )


def as_csv(order: Mapping[str, Any]) -> bytes:
    """Returns an order as a line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        ["" if value is None else value for value in order.values()]
    )
    return line.getvalue().encode()


def as_json(order: Mapping[str, Any]) -> bytes:
    """Returns an order as JSON, as on the benchmark's topics."""
    return json.dumps(order, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Format:
    """A measured format.

    Attributes:
        written: writes an order.
        machine: makes windrow's decoder.
        spark_schema: makes the schema for Spark's function.
        broken: makes a broken message of a whole one.
    """

    written: Callable[[Mapping[str, Any]], bytes]
    machine: Callable[[], BatchDecoder]
    spark_schema: Callable[[], str]
    broken: Callable[[bytes], bytes] = lambda message: message[:-1]


def _proto() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "order.proto"
        file.write_text(PROTO, encoding="utf-8")
        return descriptor_set(file)


FORMATS = {
    "avro": Format(
        as_avro,
        lambda: avro_batch_decoder(parse_schema(AVRO, "the benchmark"), Columns.of(Order)),
        lambda: AVRO,
        lambda m: m[:-1] + b"\x7f",
    ),
    "protobuf": Format(
        as_protobuf,
        lambda: protobuf_batch_decoder(
            message_type(_proto(), "Order", "the benchmark"), Columns.of(Order)
        ),
        lambda: _proto().hex(),
    ),
    "csv": Format(
        as_csv,
        lambda: csv_batch_decoder(Columns.of(Order), Dialect(null_literal="")),
        lambda: DDL,
        lambda m: m + b",1",
    ),
    "json": Format(as_json, lambda: json_batch_decoder(Columns.of(Order)), lambda: DDL),
}


def windrow(machine: BatchDecoder, messages: list[pa.BinaryArray], runs: int) -> list[float]:
    """Returns the CPU seconds of each run of windrow."""
    seconds = []
    for _ in range(runs):
        began = time.process_time()
        for batch in messages:
            machine.decode(batch, "dead")
        seconds.append(time.process_time() - began)
    return seconds


def spark(kind: str, spark_schema: str, messages: pa.BinaryArray, runs: int) -> list[float]:
    """Returns the seconds of each run of Spark."""
    folder = environment_folder("spark", PEERS / "spark", environments.python_and_jars)
    with tempfile.TemporaryDirectory() as folder_name:
        path = Path(folder_name) / "messages.parquet"
        pq.write_table(pa.table({"value": messages}), path)
        command = [
            folder / "venv/bin/python",
            PEERS / "spark/formats.py",
            kind,
            path,
            spark_schema,
            folder / "jars",
            str(runs),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
        )
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def measure(name: str, count: int, runs: int) -> None:
    """Measures both sides of a format and prints their ratio."""
    kind = FORMATS[name]
    orders = [kind.written(json.loads(order)) for order in values()]
    valid_messages = pa.array((orders * (count // len(orders) + 1))[:count], pa.binary())
    broken = [kind.broken(order) if i % 100 == 0 else order for i, order in enumerate(orders)]
    poisoned_messages = pa.array((broken * (count // len(broken) + 1))[:count], pa.binary())
    spark_seconds = min(spark(name, kind.spark_schema(), valid_messages, runs))
    machine = kind.machine()
    print(
        f"{name}, {count} messages of"
        f" {len(valid_messages.buffers()[2]) / count:.0f} bytes, on one core"
    )
    print(f"{'':34}{'M messages/s':>14}")
    print(f"{'Spark, ' + THEIRS.get(name, 'from_' + name):34}{count / spark_seconds / 1e6:14.2f}")
    for words, messages in (
        ("windrow", valid_messages),
        ("windrow, one of a hundred broken", poisoned_messages),
    ):
        best = min(
            windrow(machine, [messages.slice(i, BATCH) for i in range(0, count, BATCH)], runs)
        )
        print(
            f"{words:34}{count / best / 1e6:14.2f}   {spark_seconds / best:.1f} times Spark",
            flush=True,
        )


def main() -> None:
    """Measures the requested formats in sequence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "formats", nargs="*", choices=[*FORMATS, []], default=[], help="all, if none is named"
    )
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=6)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in options.formats or FORMATS:
        measure(name, options.messages, options.runs)


if __name__ == "__main__":
    main()
