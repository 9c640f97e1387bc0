"""`make bench`, first part: 1,000 hourly windows over 100 topic-partitions are planned.

They are planned in order and in random order. Only windrow is measured, not Kafka: the broker
is in memory, the ledger in a file, and each plan is frozen as in a run. The exit code is 1 if a
limit is broken. CPU seconds far below the seconds indicate a busy machine or a slow disk.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import NoReturn

from windrow.ingest.config.load import parse_spec
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.progress import ignore
from windrow.ingest.runner.run_windows import freeze_plans
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.contracts.windows import receipt
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.sink import MemoryDeadLetters, MemorySink
from windrow.ingest.transform.validate import Validate

HERE = Path(__file__).parent
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TOPIC = "bench.planning"
MAX_SECONDS = 30
LATER = 101
"""The number of windows after the committed ones: the first, and later ones."""
ORDERS = ("in order", "in any order")


def filled(hours: int, partitions: int) -> MemoryBroker:
    """Returns a broker whose topic has a message for each hour and topic-partition.

    Each topic-partition has its own minute. One more hour follows the last window.
    """
    broker = MemoryBroker()
    broker.create_topic(TOPIC, partitions)
    for partition in range(partitions):
        for hour in range(hours + 1):
            broker.produce(
                TopicPartition(TOPIC, partition),
                b"{}",
                timestamp=FIRST + hour * HOUR + timedelta(minutes=partition % 60),
            )
    return broker


def planner(broker: MemoryBroker, folder: Path) -> Pipeline:
    """Returns a pipeline with its own ledger and an empty table, long after the last window."""
    attributes = {
        "id": "bench",
        "source": {"bootstrap_servers": "127.0.0.1:9", "topic": TOPIC},
        "window": {"grid": "hourly", "start": FIRST},
        "decode": {"schema": "orders_schema.py:Order"},
        "sink": {"path": str(folder / "table")},
        "state": str(folder / "state.db"),
    }
    spec = parse_spec(attributes, HERE)
    columns = Columns.of(load_model(ModelReference(spec.decode.schema_, spec.folder)))
    return Pipeline(
        spec=spec,
        columns=lambda: columns,
        decoder=lambda: RowDecoder(
            ModelReference(spec.decode.schema_, spec.folder), JsonEncoding()
        ),
        transform=lambda: Validate(ModelReference(spec.decode.schema_, spec.folder)),
        broker=broker,
        reader=_nothing_is_read,
        ledger=open_ledger(spec.state_url()),
        sink=MemorySink("bench", columns.arrow_schema),
        dead_letters=MemoryDeadLetters(),
        engine=LocalEngine(),
    )


def _nothing_is_read(_: object) -> NoReturn:
    raise AssertionError


def plan(broker: MemoryBroker, hours: list[int], partitions: int) -> tuple[float, float]:
    """Returns the seconds and CPU seconds for the plans of these windows, in this order.

    Each message must be in one plan.
    """
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        pipeline = planner(broker, Path(folder))
        began, cpu, offsets = time.perf_counter(), time.process_time(), 0
        for hour in hours:
            offsets += sum(s.stop - s.start for s in freeze_plan(pipeline, hour).splits)
        took = time.perf_counter() - began, time.process_time() - cpu
    assert offsets == len(hours) * partitions, offsets
    return took


def measure_ledger(committed: int) -> str:
    """Returns a printed line with the cost of a window's plan and of its receipt's record.

    The ledger has this number of committed windows. A new handle of it is measured.
    """
    broker = filled(committed + LATER, 1)
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
        first_pipeline = planner(broker, Path(folder))
        for hour in range(committed):
            first_pipeline.ledger.record(receipt(freeze_plan(first_pipeline, hour), [], 0, "a"))
        pipeline = planner(broker, Path(folder))
        plans, records = [], []
        for hour in range(committed, committed + LATER):
            began = time.perf_counter()
            frozen = freeze_plan(pipeline, hour)
            plans.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            pipeline.ledger.record(receipt(frozen, [], 0, "a"))
            records.append((time.perf_counter() - began) * 1000)
    return (
        f"     ledger, {committed:>7,} committed windows: first plan {plans[0]:.1f} ms, later ones"
        f" {median(plans[1:]):.1f} ms, its receipt's record {median(records):.1f} ms"
    )


def freeze_plan(pipeline: Pipeline, hour: int) -> Plan:
    """Returns the plan of an hour, frozen as in a run."""
    window = Window("bench", FIRST + hour * HOUR, FIRST + (hour + 1) * HOUR)
    return freeze_plans(pipeline, [window], {window: None}, ignore)[0]


def main() -> None:
    """Parses the arguments, measures and checks the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument(
        "--order", choices=ORDERS, action="append", help="left out: both, one after the other"
    )
    parser.add_argument(
        "--committed",
        type=int,
        metavar="N",
        help="what a window costs behind ten others, and behind N, and nothing else",
    )
    options = parser.parse_args()
    if options.committed is not None:
        for committed in (10, options.committed):
            print(measure_ledger(committed), flush=True)
        return
    broker, broken = filled(options.windows, options.partitions), []
    for order in options.order or ORDERS:
        hours = list(range(options.windows))
        if order != "in order":
            random.Random(0).shuffle(hours)
        seconds, cpu = plan(broker, hours, options.partitions)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        print(
            f"{options.windows:,} windows over {options.partitions} topic-partitions planned"
            f" {order:12s} {seconds:6.2f} s  {options.windows / seconds:6.0f} windows/s  {cpu:5.2f}"
            f" CPU s, at most {peak:.0f} MB (limit {MAX_SECONDS} s)",
            flush=True,
        )
        broken += [f"planning {order} took {seconds:.1f} s"] if seconds > MAX_SECONDS else []
    if broken:
        sys.exit("limits broken: " + "; ".join(broken))


if __name__ == "__main__":
    main()
