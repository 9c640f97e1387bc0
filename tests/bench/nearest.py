"""The cost of a vector search for a worker: rows in a CPU second, and the peak memory.

python -m tests.bench.nearest [--vectors 80000] [--dimensions 768] [--rows 1000] [--metric
cosine]

It has one core. The Delta table has random vectors, and each row gets the ten nearest. The peak
memory is that of the whole process, including windrow's modules.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # Spark sets the same for its workers.

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from tests.transform.small_verdicts import decoded
from windrow.ingest import client_cache
from windrow.ingest.lookups.table.kind import TableSection
from windrow.ingest.testing.contracts.transform import messages_for
from windrow.ingest.transform.lookup.nearest import Nearest


def by_chance(rows: int, dimensions: int) -> pa.Table:
    """Returns rows with a number and a random vector."""
    numbers = np.random.default_rng(rows).standard_normal(rows * dimensions, np.float32)
    ends = pa.array(np.arange(rows + 1, dtype=np.int32) * dimensions)
    vectors = pa.ListArray.from_arrays(ends, pa.array(numbers))
    return pa.table({"id": np.arange(rows), "vector": vectors})


def write(folder: str, vectors: int, dimensions: int) -> None:
    """Makes the table, ten thousand rows at a time."""
    for begin in range(0, vectors, 10_000):
        write_deltalake(folder, by_chance(min(10_000, vectors - begin), dimensions), mode="append")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=80_000)
    parser.add_argument("--dimensions", type=int, default=768)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--metric", choices=["cosine", "l2", "dot"], default="cosine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch:
        arguments = f"{scratch}/t", options.vectors, options.dimensions
        writer = get_context("spawn").Process(target=write, args=arguments)
        writer.start()  # A process of its own, because its memory isn't the search's.
        writer.join(timeout=600)
        source = TableSection(table=f"{scratch}/t").source(Path(scratch))
        lookup = Nearest(
            "near",
            (("vector", "vector"),),
            (("id", "id"),),
            source,
            into="near",
            top_k=10,
            metric=options.metric,
        )
        rows = decoded(by_chance(options.rows, options.dimensions).to_batches()[0])
        messages, step = messages_for(rows), lookup.open()
        with client_cache.keeping():
            began = time.process_time()
            step(decoded(rows.rows.slice(0, 1)), messages)
            loaded = time.process_time()
            step(rows, messages)
            ended = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{options.vectors:,} vectors of {options.dimensions} dimensions, {options.metric}:"
        f" {options.rows / (ended - loaded):,.0f} rows a CPU second,"
        f" {loaded - began:.1f} s to load the table, peak {peak:,.0f} MB"
    )


if __name__ == "__main__":
    main()
