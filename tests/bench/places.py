"""The driver's cost of planning and committing a window, wherever the tasks run.

    python -m tests.bench.places [--splits 8,1000] [--rounds 9]

The places are this machine's Spark, a cluster and a Connect server. A topic of 8
topic-partitions is cut into the given numbers of splits, and goes from Kafka to a new Delta
table each time. All three places run all the time with slots for two tasks. They run the window
in turn, and the first run of each warms up.

The measured time is a window's time without the driver's wait for the engine: freezing,
planning, looking, checking and committing. The driver does the same in all places, so the
ratios matter.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.harness.shapes import SMALL, fill
from tests.bench.harness.side import Program, parquet_rows
from tests.bench.parts.sides import windrow
from tests.bench.parts.targets import Job
from tests.runner.spark.servers import serving
from tests.runner.spark.standalone import cluster
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

TOPIC_PARTITIONS, EACH = 8, 2
"""The number of topic-partitions, and the number of messages in a split."""
HERE = "local Spark"


def measure_masters(
    programs: Mapping[str, Program], bootstrap: str, splits: int, rounds: int
) -> dict[str, list[float]]:
    """Returns the driver's seconds in each place, for each round."""
    topic, messages = f"bench.places.{splits}.{time.time_ns()}", splits * EACH
    fill(bootstrap, topic, SMALL.values(), messages, partitions=TOPIC_PARTITIONS)
    seconds: dict[str, list[float]] = {master_name: [] for master_name in programs}
    for _ in range(rounds + 1):
        for master_name, program in programs.items():
            job = Job(
                bootstrap,
                topic,
                SMALL,
                messages,
                program.out,
                more={"source": {"split_records": EACH}},
            )
            instructions = windrow("around", "").instructions(job)
            run = program.run(
                instructions,
                messages,
                expected=messages,
                written=partial(parquet_rows, program.out),
            )
            seconds[master_name].append(run.seconds)
    return {master_name: took[1:] for master_name, took in seconds.items()}


def main() -> None:
    """Parses the arguments, measures in turn and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--splits", type=lambda text: tuple(map(int, text.split(","))), default=(8, 1_000)
    )
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder, ExitStack() as stack:
        scratch = Path(folder)
        bootstrap = stack.enter_context(EmbeddedBroker(scratch / "kafka", find_jars())).bootstrap
        server, _ = stack.enter_context(serving("--master", "local[2,4]"))
        places = {
            HERE: "local[2]",
            "a cluster": stack.enter_context(cluster(scratch / "cluster")).master,
            "Connect": server,
        }
        programs = {}
        for number, (master_name, master) in enumerate(places.items()):
            side = windrow("around", "", master=master)
            programs[master_name] = stack.enter_context(
                Program(side.command(bootstrap), scratch / f"driver-{number}", side.environment)
            )
        for splits in options.splits:
            seconds = measure_masters(programs, bootstrap, splits, options.rounds)
            print(f"{splits:,} splits, planned and committed by the driver")
            for master_name, took in seconds.items():
                ratios = [
                    elsewhere / local for elsewhere, local in zip(took, seconds[HERE], strict=True)
                ]
                print(
                    f"    {master_name:12s} {statistics.median(took):.3f} s,"
                    f" {statistics.median(ratios):.2f} of {HERE} ({min(ratios):.2f} to"
                    f" {max(ratios):.2f} by round)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
