"""The cost of a small window beyond reading and decoding its messages.

It measures a backfill of many windows, and the same again when all are committed. They run on
the embedded broker, Spark and Delta: by `run_windows`, and by one run of Dagster over a range
of partitions. One window over the same messages shows the cost of reading and decoding.

With `--committed N` it measures the next window's cost for a table of N committed windows,
compared with a table of ten. This is without Spark, for each kind of sink, or those of
`--sink`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.committed import KINDS, cost, line_of
from tests.bench.orders import values
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run_windows
from windrow.ingest.runner.spark.cluster import spark_session
from windrow.ingest.runner.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
FIRST = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TOPIC = "bench.windows"


def fill(bootstrap: str, windows: int, per_window: int, partitions: int) -> None:
    """Fills the topic with `per_window` messages a minute, and some after the last window.

    They are distributed in turn over the topic-partitions.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config={"retention.ms": "-1"})])[
        TOPIC
    ].result(60)
    producer, orders = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50}), values()
    first = int(FIRST.timestamp() * 1000)
    for i in range((windows + 1) * per_window):
        producer.produce(
            TOPIC,
            orders[i % len(orders)],
            partition=i % partitions,
            timestamp=first + i * 60_000 // per_window,
        )
        if i % 10_000 == 0:
            producer.flush()
    producer.flush()


def attributes_in(folder: Path, bootstrap: str, grid: str) -> dict[str, object]:
    """Returns the contents of a spec for a pipeline with a new table and ledger."""
    folder.mkdir()
    return {
        "id": "bench",
        "source": {"bootstrap_servers": bootstrap, "topic": TOPIC},
        "window": {"grid": grid, "start": FIRST.isoformat()},
        "decode": {"schema": "orders_schema.py:Order"},
        "sink": {"kind": "delta", "path": f"{folder}/table"},
        "state": f"sqlite:///{folder}/state.db",
    }


def spec_in(folder: Path, bootstrap: str, grid: str) -> PipelineSpec:
    """Returns the spec of such a pipeline."""
    return parse_spec(attributes_in(folder, bootstrap, grid), HERE)


def pipeline_in(folder: Path, bootstrap: str, grid: str, session: SparkSession) -> Pipeline:
    """Returns such a pipeline, assembled with a Spark session."""
    return assemble(spec_in(folder, bootstrap, grid), SparkEngine(lambda: session.sparkContext))


def in_dagster(spec: PipelineSpec, windows: Sequence[Window], home: Path) -> float:
    """Returns the seconds of one run of Dagster over the windows' partitions."""
    import dagster as dg

    from windrow.assets.dagster_internals import range_tags
    from windrow.assets.factory import kafka_table
    from windrow.assets.names import job_name
    from windrow.assets.partitions import key_of

    home.mkdir()
    grid, quiet = (
        in_time(spec.window),
        {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    first, last = (
        key_of(grid, cast("datetime", window.start)) for window in (windows[0], windows[-1])
    )
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        job = kafka_table(spec).resolve_job_def(job_name(spec))
        began = time.perf_counter()
        result = job.execute_in_process(
            run_config=quiet, instance=instance, tags=range_tags(dg.PartitionKeyRange(first, last))
        )
        assert result.success
        return time.perf_counter() - began


def seconds_of(pipeline: Pipeline, windows: Sequence[Window]) -> float:
    """Returns the seconds of all windows."""
    began = time.perf_counter()
    for _ in run_windows(pipeline, windows, Request("bench")):
        pass
    return time.perf_counter() - began


def beside_ten(kinds: Sequence[str], committed: int) -> None:
    """Prints each sink's cost of a window after ten and after `committed` windows."""
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch:
        for kind in kinds:
            for windows in (10, committed):
                print(
                    line_of(
                        kind, windows, cost(kind, windows, Path(scratch) / f"{kind}-{windows}")
                    ),
                    flush=True,
                )


def main() -> None:
    """Parses the arguments, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--messages", type=int, default=1_000, help="in each")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument(
        "--committed",
        type=int,
        metavar="N",
        help="measure only the next window of a table with N committed windows, and with ten",
    )
    parser.add_argument(
        "--sink", choices=KINDS, action="append", help="with --committed: left out, every kind"
    )
    options = parser.parse_args()
    if options.sink and options.committed is None:
        parser.error("--sink goes with --committed")
    if options.committed is not None:
        beside_ten(options.sink or list(KINDS), options.committed)
        return
    n = options.windows
    with (
        tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch,
        EmbeddedBroker(Path(scratch) / "kafka", find_jars()) as broker,
    ):
        fill(broker.bootstrap, n, options.messages, options.partitions)
        session = spark_session("local[2]")
        minutes = [Window("bench", FIRST + i * MINUTE, FIRST + (i + 1) * MINUTE) for i in range(n)]
        day = [Window("bench", FIRST, FIRST + timedelta(days=1))]
        first_seconds, daily_seconds = (
            seconds_of(pipeline_in(Path(scratch) / name, broker.bootstrap, "daily", session), day)
            for name in ("warm", "whole")
        )
        pipeline = pipeline_in(Path(scratch) / "minutes", broker.bootstrap, "* * * * *", session)
        minutes_seconds, again_seconds = (
            seconds_of(pipeline, minutes),
            seconds_of(pipeline, minutes),
        )
        spec = spec_in(Path(scratch) / "partitions", broker.bootstrap, "* * * * *")
        dagster_seconds, dagster_again_seconds = (
            in_dagster(spec, minutes, Path(scratch) / name) for name in ("dagster", "dagster again")
        )
    print(
        f"{n} windows of {options.messages:,} messages {minutes_seconds:.2f} s;"
        f" all of them in one window {daily_seconds:.2f} s ({first_seconds:.2f} s the first time)"
    )
    print(
        f"{(minutes_seconds - daily_seconds) / n * 1000:.0f} ms a window"
        f" beyond reading and decoding; {again_seconds / n * 1000:.1f} ms for a committed one"
    )
    print(
        f"in one run of Dagster {(dagster_seconds - daily_seconds) / n * 1000:.0f} ms a window,"
        f" {dagster_again_seconds / n * 1000:.0f} ms for a committed one"
    )


if __name__ == "__main__":
    main()
