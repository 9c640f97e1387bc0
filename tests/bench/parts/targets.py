"""The targets of a side's runs: a new place for each run, and the count of its rows.

Rows are counted without windrow's receipts: by the footers of Parquet files, by lines, by SQL,
or by a consumer.
"""

from __future__ import annotations

import gzip
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import psycopg
from deltalake import DeltaTable

from tests.bench.harness.shapes import PARTITIONS, Shape
from tests.bench.harness.side import parquet_rows
from tests.bench.orders import DISTINCT
from tests.bench.parts import customers
from tests.kafka.produce import create_topic, delete_topic
from tests.sinks.kafka.world import read_committed


@dataclass(frozen=True)
class Job:
    """One run of a side: a topic of one shape, and a folder for its output.

    Attributes:
        bootstrap: the broker.
        topic: the topic.
        shape: the shape of the messages.
        messages: the number of messages.
        out: the folder.
        postgres: the URL of a PostgreSQL server; empty if the comparison has none.
        customers: the path of the looked-up Delta table; empty if the comparison has none.
        more: further instructions for windrow.
    """

    bootstrap: str
    topic: str
    shape: Shape
    messages: int
    out: Path
    postgres: str = ""
    customers: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stops(self) -> list[int]:
        """The end of each topic-partition. The messages are distributed in turn."""
        return [len(range(partition, self.messages, PARTITIONS)) for partition in range(PARTITIONS)]


@dataclass(frozen=True)
class Target:
    """The target of one run.

    Attributes:
        job: the job with the target in it.
        expected: the number of rows that must be there after the run.
        rows: counts these rows.
    """

    job: Job
    expected: int
    rows: Callable[[], int]


Into = Callable[[Job], AbstractContextManager[Target]]
"""Makes a target for one run, and removes it after the run."""


@contextmanager
def nowhere(job: Job) -> Iterator[Target]:
    """Yields a target for a run that writes nothing."""
    yield Target(job, 0, lambda: 0)


@contextmanager
def parquet(job: Job) -> Iterator[Target]:
    """Yields a target for Parquet files anywhere in the job's folder."""
    yield Target(job, job.messages, lambda: parquet_rows(job.out))


@contextmanager
def looked_up(job: Job) -> Iterator[Target]:
    """Yields a target for Parquet files whose rows must have the answers of the customers table."""
    yield Target(job, job.messages, lambda: customers.right_rows(job.out, job.shape, job.messages))


def _of_sink(
    job: Job, sink: Mapping[str, Any], rows: Callable[[], int], expected: int | None = None
) -> Target:
    return Target(
        replace(job, more={**job.more, "sink": sink}),
        job.messages if expected is None else expected,
        rows,
    )


@contextmanager
def _delta_keyed(job: Job) -> Iterator[Target]:
    """Yields a Delta table with a primary key.

    The topic repeats a fixed number of orders, so each replaces the previous one. Merged change
    files stay in the folder until a sweep, so rows are counted in the files that the table
    names.
    """
    sink = {
        "kind": "delta",
        "path": f"{job.out}/table",
        "mode": "upsert",
        "primary_key": ["order_id"],
    }
    yield _of_sink(job, sink, lambda: DeltaTable(sink["path"]).count(), min(job.messages, DISTINCT))


@contextmanager
def _iceberg(job: Job) -> Iterator[Target]:
    """Yields an Iceberg table of a new name, because a process keeps a catalog open by its path."""
    sink = {
        "kind": "iceberg",
        "warehouse": f"{job.out}/table-{time.time_ns()}",
        "table": "bench.orders",
    }
    yield _of_sink(job, sink, lambda: parquet_rows(job.out))


@contextmanager
def _files(written: Literal["parquet", "jsonl", "csv"], job: Job) -> Iterator[Target]:
    folder = job.out / "table"
    count = {"parquet": parquet_rows, "jsonl": lines, "csv": partial(lines, heads=1)}[written]
    yield _of_sink(
        job, {"kind": "files", "path": str(folder), "format": written}, lambda: count(folder)
    )


@contextmanager
def _routes(job: Job) -> Iterator[Target]:
    """Yields three Delta tables, chosen by an order's currency."""
    tables = [
        {"values": [name], "sink": {"kind": "delta", "path": f"{job.out}/{name}"}}
        for name in ("EUR", "USD")
    ]
    sink = {
        "kind": "routes",
        "by": "column",
        "name": "currency",
        "tables": tables,
        "other": {"kind": "delta", "path": f"{job.out}/other"},
    }
    yield _of_sink(job, sink, lambda: parquet_rows(job.out))


@contextmanager
def _postgres(job: Job) -> Iterator[Target]:
    """Yields a database of its own.

    So no run pays for another run's checkpoint, and no rows stay on the disk.
    """
    name = f"bench_{time.time_ns()}"
    url = urlunsplit(urlsplit(job.postgres)._replace(path=f"/{name}"))
    sink = {"kind": "postgres", "url": url, "table": "orders", "staging": f"{job.out}/staging"}

    def rows() -> int:
        with psycopg.connect(url) as connection:
            count_row = connection.execute("SELECT count(*) FROM orders").fetchone()
        return int(count_row[0]) if count_row else 0

    with psycopg.connect(job.postgres, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")  # The name is only digits after a fixed prefix.
        server.execute("CHECKPOINT")
        try:
            yield _of_sink(job, sink, rows)
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _sqlite(job: Job) -> Iterator[Target]:
    """Yields a SQLite file of its own."""
    file = f"{job.out}/orders.sqlite"

    def rows() -> int:
        with closing(sqlite3.connect(file)) as database:
            return int(database.execute("SELECT count(*) FROM orders").fetchone()[0])

    yield _of_sink(job, {"kind": "sqlite", "path": file, "table": "orders"}, rows)


@contextmanager
def kafka(job: Job) -> Iterator[Target]:
    """Yields a topic of its own with as many topic-partitions as the source.

    A reader of committed messages counts the rows.
    """
    topic = create_topic(job.bootstrap, PARTITIONS)
    sink = {
        "kind": "kafka",
        "topic": topic,
        "control_topic": f"{topic}.windrow",
        "staging": f"{job.out}/staging",
    }
    try:
        yield _of_sink(job, sink, lambda: sum(1 for _ in read_committed(job.bootstrap, topic)))
    finally:
        delete_topic(job.bootstrap, topic)


SINKS: dict[str, tuple[str, Into]] = {
    "delta": ("a Delta table", parquet),
    "delta-keyed": ("a Delta table with a primary key", _delta_keyed),
    "iceberg": ("an Iceberg table", _iceberg),
    "parquet": ("Parquet files", partial(_files, "parquet")),
    "jsonl": ("files of JSON lines", partial(_files, "jsonl")),
    "csv": ("CSV files", partial(_files, "csv")),
    "postgres": ("a PostgreSQL table", _postgres),
    "sqlite": ("a table in SQLite", _sqlite),
    "kafka": ("a Kafka topic", kafka),
    "routes": ("three Delta tables, by routes", _routes),
}
"""The kinds of sinks that are measured: a description, and the target of their runs."""


def lines(folder: Path, heads: int = 0) -> int:
    """Returns the number of lines in all gzipped text files below a folder.

    Args:
        folder: the folder. Files of a log are ignored.
        heads: the number of header lines of each file, which don't count.
    """
    files = (
        path
        for path in folder.rglob("*.gz")
        if all(part[0] not in "._" for part in path.relative_to(folder).parts)
    )
    return sum(_lines_of(path) - heads for path in files)


def _lines_of(path: Path) -> int:
    with gzip.open(path, "rb") as text:
        return sum(chunk.count(b"\n") for chunk in iter(partial(text.read, 1 << 20), b""))
