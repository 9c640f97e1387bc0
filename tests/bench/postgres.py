"""The cost of loading rows into PostgreSQL exactly once, compared with a plain binary COPY.

    python -m tests.bench.postgres [--rows 500000] [--rounds 5]

The plain COPY loads the same rows from memory into the same table. It gets bytes that windrow
encoded before, so it pays for no encoding. It keeps no receipt.

windrow's side begins with Arrow batches and ends with the committed window. One task, or two
concurrent tasks, encode and stage the rows. Then the driver streams their files into the table
and commits. Both tables have the same index, and a checkpoint precedes each round.

The output has the rows a second of each side; the median, least and greatest ratio; and the
rate of the encoding alone on one core.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from decimal import Decimal
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import psycopg
import pyarrow as pa

from tests.bench.harness.servers import postgres
from tests.sinks.postgres.world import PostgresBoth
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, Staged
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.sinks.kit.files.file_stager import RowLayout
from windrow.ingest.sinks.postgres.encode import HEAD, TAIL, encode_copy_rows
from windrow.ingest.sinks.postgres.names import TableName
from windrow.ingest.sinks.postgres.server import TablePlace
from windrow.ingest.sinks.postgres.stage import PostgresStagerFactory
from windrow.ingest.sinks.postgres.url import server_url
from windrow.ingest.testing.contracts.windows import TOPIC, plan_of, receipt, split_counts, window

BATCH = 8192
ROWS = pa.schema(
    [
        pa.field("order_id", pa.string(), nullable=False),
        pa.field("customer", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(12, 2), nullable=False),
        pa.field("weight", pa.float64()),
        pa.field("placed", pa.timestamp("us", tz="UTC")),
        pa.field("note", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("paid", pa.bool_()),
    ]
)


def orders(n: int) -> pa.RecordBatch:
    """Returns rows like those of a shop."""
    dice = np.random.default_rng(0)
    return pa.record_batch(
        [
            pa.array([f"order-{i:012d}" for i in range(n)]),
            pa.array(dice.integers(0, 1 << 40, n)),
            pa.array(
                [Decimal(int(x)) / 100 for x in dice.integers(0, 10**7, n)], pa.decimal128(12, 2)
            ),
            pa.array(dice.random(n)),
            pa.array(dice.integers(0, 1 << 50, n)).cast(pa.timestamp("us", tz="UTC")),
            pa.array(["leave it with the neighbours"] * n),
            pa.array([["new", "gift"]] * n),
            pa.array([True] * n),
        ],
        schema=ROWS,
    )


def messages(split: Split, n: int) -> pa.RecordBatch:
    """Returns the messages of the rows. Only their coordinates are used."""
    values = [
        [split.topic] * n,
        [0] * n,
        range(n),
        [0] * n,
        ["CreateTime"] * n,
        [None] * n,
        [None] * n,
        [[]] * n,
        [1] * n,
    ]
    arrays = [
        (
            pa.array(v, pa.string()).dictionary_encode().cast(f.type)
            if pa.types.is_dictionary(f.type)
            else pa.array(v, f.type)
        )
        for v, f in zip(values, MESSAGES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)


def staged_by(stager_of: PostgresStagerFactory, split: Split, batch: pa.RecordBatch) -> Staged:
    """Does the work of one task."""
    stager, split_messages, offset_column = (
        stager_of(split),
        messages(split, BATCH),
        MESSAGES.get_field_index("offset"),
    )
    for start in range(split.start, split.stop, BATCH):
        stager.add(
            batch,
            split_messages.set_column(
                offset_column,
                MESSAGES.field(offset_column),
                pa.array(np.arange(start, start + BATCH)),
            ),
        )
    staging, rows = stager.finish(), split.stop - split.start
    counts = split_counts(
        split,
        read=rows,
        valid=rows,
        rows_staged=rows,
        checksums=Checksums(staging.checksum),
        rows=rows,
    )
    return Staged(split, counts, staging.committables, ())


def windrow_side(
    sink: PostgresBoth, number: int, rows: int, tasks: Executor, splits: int, batch: pa.RecordBatch
) -> tuple[float, float]:
    """Returns the seconds until the commit, and the seconds until all rows are staged.

    Both begin with the first batch.

    Args:
        sink: the sink.
        number: the window.
        rows: the number of rows.
        tasks: the processes.
        splits: the number of splits, one for each process.
        batch: the batch that is repeated.
    """
    planned = plan_of(
        sink, window(number), (number * rows, (number + 1) * rows), topics=[TOPIC_ALONE]
    )
    full_split, step = planned.splits[0], -(-rows // BATCH // splits) * BATCH
    starts = range(full_split.start, full_split.stop, step)
    parts = tuple(
        msgspec.structs.replace(full_split, start=s, stop=min(s + step, full_split.stop))
        for s in starts
    )
    planned = msgspec.structs.replace(planned, splits=parts)
    began = time.perf_counter()
    staged = list(
        tasks.map(partial(staged_by, sink.stager(planned, 0, "a")), parts, [batch] * len(parts))
    )
    staged_seconds = time.perf_counter() - began
    sink.commit(receipt(planned, staged, 0, "a"), staged)
    return time.perf_counter() - began, staged_seconds


TOPIC_ALONE = type(TOPIC)(TOPIC.topic, TOPIC.topic_id, 1)


def plain_side(connection: psycopg.Connection, octets: bytes) -> float:
    """Returns the seconds of one COPY with its commit."""
    began = time.perf_counter()
    with connection.cursor().copy("COPY plain FROM STDIN (FORMAT binary)") as copy:
        copy.write(octets)
    return time.perf_counter() - began


def main() -> None:
    """Measures both sides in turn and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    count, batch = options.rows // BATCH, orders(BATCH)
    rows = count * BATCH
    with (
        ProcessPoolExecutor(2, get_context("spawn")) as tasks,
        tempfile.TemporaryDirectory(prefix="windrow-pg-") as folder,
        postgres(Path(folder) / "server") as url,
    ):
        sink = PostgresBoth(
            TablePlace(server_url(url), TableName("public", "orders"), "windrow"), ROWS
        )
        sink.prepare()
        split = Split(TOPIC.topic, 0, 0, 1 << 40)
        stored_batch = RowLayout(ROWS, sink.metadata, "a").batch(
            batch, messages(split, BATCH), split
        )
        octets = (
            HEAD
            + bytes(
                encode_copy_rows(
                    stored_batch.append_column("_window", pa.repeat(window(0).key, BATCH))
                )
            )
            * count
            + TAIL
        )
        began = time.perf_counter()
        for _ in range(count):
            encode_copy_rows(stored_batch)
        encoding = time.perf_counter() - began
        plain: list[float] = []
        ours: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE plain (LIKE orders INCLUDING INDEXES)")
            for turn in range(options.rounds + 1):
                connection.execute("TRUNCATE plain")
                connection.execute("CHECKPOINT")
                plain.append(plain_side(connection, octets))
                for splits, seconds in ours.items():
                    connection.execute("CHECKPOINT")
                    seconds.append(
                        windrow_side(sink, 2 * turn + splits - 1, rows, tasks, splits, batch)
                    )
    print(
        f"{rows} rows of {len(octets) / rows:.0f} bytes; encoding alone {rows / encoding:,.0f}"
        " rows/s"
    )
    print(f"plain COPY: {rows / median(plain[1:]):,.0f} rows/s")  # The first round warms up.
    for splits, seconds in ours.items():
        whole_s, staged_s = median(s for s, _ in seconds[1:]), median(s for _, s in seconds[1:])
        ratios = sorted(p / s for p, (s, _) in zip(plain[1:], seconds[1:], strict=True))
        print(
            f"windrow, tasks: {splits}: {rows / whole_s:,.0f} rows/s (staged in {staged_s:.2f} s,"
            f" committed in {whole_s - staged_s:.2f} s)"
        )
        print(
            f"    ratio to plain COPY: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
