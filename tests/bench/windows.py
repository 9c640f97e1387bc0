"""What a small window costs beyond reading and decoding its messages: a backfill of many, and the same again when all are committed.

On the embedded broker, Spark and Delta. What reading and decoding take is told by one window over the same messages.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.assemble import assemble
from ingest.engine.local import local_session
from ingest.engine.spark import SparkEngine
from ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from ingest.model.window import Window
from ingest.run.context import Pipeline, Request
from ingest.run.pipeline import run_windows
from ingest.spec.load import parse_spec
from tests.bench.orders import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
FIRST = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TOPIC = "bench.windows"


def fill(bootstrap: str, windows: int, each: int, partitions: int) -> None:
    """`each` messages in every minute, in turn over the topic-partitions, and some behind the last window."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config={"retention.ms": "-1"})])[TOPIC].result(60)
    producer, orders = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50}), values()
    first = int(FIRST.timestamp() * 1000)
    for i in range((windows + 1) * each):
        producer.produce(TOPIC, orders[i % len(orders)], partition=i % partitions, timestamp=first + i * 60_000 // each)
        if i % 10_000 == 0:
            producer.flush()
    producer.flush()


def pipeline_in(folder: Path, bootstrap: str, grid: str, session: SparkSession) -> Pipeline:
    """A pipeline with a fresh table and ledger."""
    folder.mkdir()
    attributes = {
        "id": "bench", "source": {"bootstrap_servers": bootstrap, "topic": TOPIC},
        "window": {"grid": grid, "start": FIRST.isoformat()},
        "decode": {"schema": "orders_schema.py:Order"}, "sink": {"kind": "delta", "path": f"{folder}/table"},
        "state": f"sqlite:///{folder}/state.db",
    }  # fmt: skip
    return assemble(parse_spec(attributes, HERE), SparkEngine(lambda: session))


def timed(pipeline: Pipeline, windows: Sequence[Window]) -> float:
    """Seconds that all of them take."""
    began = time.perf_counter()
    for _ in run_windows(pipeline, windows, Request("bench")):
        pass
    return time.perf_counter() - began


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--messages", type=int, default=1_000, help="in each")
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    n = options.windows
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch, EmbeddedBroker(Path(scratch) / "kafka", find_jars()) as broker:
        fill(broker.bootstrap, n, options.messages, options.partitions)
        session = local_session("local[2]")
        minutes = [Window("bench", FIRST + i * MINUTE, FIRST + (i + 1) * MINUTE) for i in range(n)]
        day = [Window("bench", FIRST, FIRST + timedelta(days=1))]
        warm, whole = (timed(pipeline_in(Path(scratch) / name, broker.bootstrap, "daily", session), day) for name in ("warm", "whole"))
        pipeline = pipeline_in(Path(scratch) / "minutes", broker.bootstrap, "* * * * *", session)
        many, again = timed(pipeline, minutes), timed(pipeline, minutes)
    print(
        f"{n} windows of {options.messages:,} messages {many:.2f} s; all of them in one window {whole:.2f} s ({warm:.2f} s the first time)"
    )
    print(f"{(many - whole) / n * 1000:.0f} ms a window beyond reading and decoding; {again / n * 1000:.1f} ms for a committed one")


if __name__ == "__main__":
    main()
