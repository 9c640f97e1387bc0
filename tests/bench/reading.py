"""The cost of reading alone: one topic-partition, by each way to fetch messages.

python -m tests.bench.reading [--messages 1000000] [--rounds 3]

The ways take turns. Each has its own process on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.harness.shapes import fill
from tests.bench.orders import values
from tests.source.reader.clients import WAYS
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_properties
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import ReadPlan
from windrow.ingest.source.reader.reader import KafkaReader

TOPIC = "bench.reading"
RUNS = 3
"""The number of runs of one process, which reports the best. The first run warms up."""


def read(bootstrap: str, fetching: str, messages: int) -> None:
    """Reads in this process and prints the figures as JSON.

    The memory is that of the whole process with all its modules.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    broker = KafkaBroker(bootstrap, {})
    plan = ReadPlan(broker.cluster_id(), {TOPIC: broker.topic(TOPIC).topic_id}, "fail")
    reader = KafkaReader(consumer_properties(bootstrap, {}), plan, fetching=WAYS[fetching])
    first = time.process_time()
    reader.read(Split(TOPIC, 0, 0, 1), lambda _: None)
    loading, runs = time.process_time() - first, []
    for _ in range(RUNS):
        began, cpu = time.perf_counter(), time.process_time()
        summary = reader.read(Split(TOPIC, 0, 0, messages), lambda _: None)
        runs.append((time.process_time() - cpu, time.perf_counter() - began))
        assert summary.read == messages
    cpu, seconds = min(runs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"cpu": cpu, "seconds": seconds, "loading": loading, "peak": peak}))


def main() -> None:
    """Fills a topic, lets the ways read it in turn, and prints medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--read", nargs=2, metavar=("BOOTSTRAP", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(*options.read, options.messages)
        return
    figures_by_way: dict[str, list[dict[str, float]]] = {fetching: [] for fetching in WAYS}
    with (
        tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch,
        EmbeddedBroker(Path(scratch) / "kafka", find_jars()) as broker,
    ):
        size = fill(broker.bootstrap, TOPIC, values(), options.messages, partitions=1)
        print(
            f"{options.messages:,} messages of {size:.0f} bytes in one topic-partition; the reader"
            " on one core",
            flush=True,
        )
        for _ in range(options.rounds):
            for fetching, figures in figures_by_way.items():
                command = [
                    sys.executable,
                    "-m",
                    "tests.bench.reading",
                    "--messages",
                    str(options.messages),
                    "--read",
                    broker.bootstrap,
                    fetching,
                ]
                figures.append(
                    json.loads(
                        subprocess.run(
                            command, check=True, capture_output=True, text=True, timeout=600
                        ).stdout
                    )
                )
    for fetching, figures in figures_by_way.items():
        cpu, seconds, loading, peak = (
            statistics.median(f[name] for f in figures)
            for name in ("cpu", "seconds", "loading", "peak")
        )
        print(
            f"{fetching:12s} {options.messages / cpu / 1e6:5.2f} M messages a CPU second,"
            f" {options.messages / seconds / 1e6:5.2f} M a second, peak {peak:.0f} MB,"
            f" {loading:.2f} CPU s for the first message"
        )


if __name__ == "__main__":
    main()
