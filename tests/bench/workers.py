"""The gain from a second worker: one window on a cluster of one worker, and on one of two.

    python -m tests.bench.workers [--messages 8000000] [--rounds 5]

Each worker is pinned to its own core. Both clusters run all the time and take turns with the
window. The first five runs of each warm it up. A window goes from Kafka to a committed Delta
table, whose rows are counted. The workers have none of windrow's code.

Broker and driver need a processor too. On a machine with only as many cores as workers, a
single worker leaves them a core that two workers don't. So the single worker is measured twice:
with a second core for broker and driver, and with everything on the worker's own core. The
first shows the gain from a second worker where broker and driver had room. The second shows the
gain from a second core for everything.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import psutil

from tests.bench.harness.shapes import DAY_MS, PARTITIONS, SMALL, fill
from tests.bench.harness.side import Program, parquet_rows
from tests.bench.parts.sides import Side, windrow
from tests.bench.parts.targets import Job
from tests.runner.spark.standalone import cluster
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

_LITTLE_SECONDS = 0.1
# While the executors' JVMs still compile code, two of them compile twice as much as one.
_WARM_UP_RUNS = 5


@dataclass
class Workers:
    """A cluster with a driver that takes jobs, and the figures of its runs.

    Attributes:
        processes: the workers.
        side: the measured program.
        program: the driver's process.
        cores: the cores of all other processes, such as broker and driver.
        seconds: the seconds of each run.
        tasks_seconds: the workers' CPU seconds of each run.
    """

    processes: list[psutil.Process]
    side: Side
    program: Program
    cores: frozenset[int]
    seconds: list[float] = field(default_factory=list)
    tasks_seconds: list[float] = field(default_factory=list)

    def run(self, bootstrap: str, topic: str, messages: int) -> None:
        """Runs one window and records its times."""
        job = Job(bootstrap, topic, SMALL, messages, self.program.out)
        cpu_before = sum(map(_cpu_seconds, self.processes))
        with _others_on(self.cores):
            run = self.program.run(
                self.side.instructions(job),
                messages,
                expected=messages,
                written=partial(parquet_rows, self.program.out),
            )
        self.seconds.append(run.seconds)
        self.tasks_seconds.append(sum(map(_cpu_seconds, self.processes)) - cpu_before)

    def line_of(self) -> str:
        """Returns a printed line about all runs after the warm-up."""
        seconds, tasks = (
            statistics.median(self.seconds[_WARM_UP_RUNS:]),
            statistics.median(self.tasks_seconds[_WARM_UP_RUNS:]),
        )
        rounds_text = ", ".join(f"{took:.2f}" for took in self.seconds[_WARM_UP_RUNS:])
        where = f"{len(self.processes)} of them, all else on {len(self.cores)} cores"
        return f"{where}: {seconds:.2f} s ({rounds_text}), {tasks:.2f} CPU s of the workers"


@contextmanager
def workers(count: int, bootstrap: str, scratch: Path) -> Iterator[Workers]:
    """Yields a cluster whose n-th worker is pinned to the n-th core."""
    with cluster(scratch / f"cluster-{count}", count) as spark_cluster:
        processes = list(spark_cluster.workers.values())
        for core, process in zip(sorted(os.sched_getaffinity(0)), processes, strict=False):
            _pin(process, {core})
        side = windrow("table", "", master=spark_cluster.master)
        with Program(
            side.command(bootstrap), scratch / f"driver-{count}", side.environment
        ) as program:
            yield Workers(processes, side, program, frozenset(os.sched_getaffinity(0)))
            if strays := _strays(processes):
                sys.exit(f"not pinned: {', '.join(strays)}")


def _pin(process: psutil.Process, cores: Collection[int]) -> None:
    """Pins a process and its future threads to cores.

    A new thread starts on the cores of the thread that creates it.
    """
    pinned = False
    while not pinned:
        pinned = True
        for thread in process.threads():
            with suppress(ProcessLookupError):  # The thread may have ended meanwhile.
                if os.sched_getaffinity(thread.id) != set(cores):
                    pinned = False  # It may have created other threads since they were listed.
                    os.sched_setaffinity(thread.id, cores)


@contextmanager
def _others_on(cores: frozenset[int]) -> Iterator[None]:
    """Restricts all processes that aren't pinned to some cores until the end of the block.

    These are this process and its children.
    """
    all_cores = os.sched_getaffinity(0)
    own_process = psutil.Process()
    others = [
        process
        for process in (own_process, *own_process.children(recursive=True))
        if set(process.cpu_affinity()) == all_cores
    ]
    try:
        for process in others:
            _pin(process, cores)
        yield
    finally:
        for process in others:
            _pin(process, all_cores)


def _strays(processes: list[psutil.Process]) -> list[str]:
    """Returns the workers' processes that aren't on their cores and use CPU time there.

    A shell that a JVM starts to ask for a number is ignored.
    """
    strays = []
    for core, process in zip(sorted(os.sched_getaffinity(0)), processes, strict=False):
        for below in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if (cores := below.cpu_affinity()) != [core] and _cpu_seconds(
                    below
                ) >= _LITTLE_SECONDS:
                    strays.append(
                        f"{shlex.join(below.cmdline())}, begun by {below.parent()}, on {cores}, not"
                        f" {core}"
                    )
    return strays


def _cpu_seconds(process: psutil.Process) -> float:
    """Returns the CPU seconds of the process and its children, living or awaited."""
    times = [
        process_begun.cpu_times() for process_begun in (process, *process.children(recursive=True))
    ]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def main() -> None:
    """Parses the arguments, measures in turn and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=8_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    messages, topic = options.messages, f"bench.workers.{time.time_ns()}"
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder, ExitStack() as stack:
        scratch = Path(folder)
        bootstrap = stack.enter_context(EmbeddedBroker(scratch / "kafka", find_jars())).bootstrap
        fill(
            bootstrap,
            topic,
            SMALL.values(),
            messages,
            partitions=2 * PARTITIONS,
            every_ms=min(1.0, DAY_MS / (messages + 1)),
        )
        one_worker, two_workers = (
            stack.enter_context(workers(count, bootstrap, scratch)) for count in (1, 2)
        )
        crowded = replace(
            one_worker, cores=frozenset({min(one_worker.cores)}), seconds=[], tasks_seconds=[]
        )
        for _ in range(_WARM_UP_RUNS + options.rounds):
            for setup in (one_worker, crowded, two_workers):
                setup.run(bootstrap, topic, messages)
        print(
            f"{messages:,} orders in {2 * PARTITIONS} splits, from Kafka to a Delta table; workers"
            " pinned to a core each"
        )
        for setup in (one_worker, crowded, two_workers):
            print(setup.line_of())
        for setup in (one_worker, crowded):
            ratios = [
                a / b
                for a, b in zip(
                    setup.seconds[_WARM_UP_RUNS:], two_workers.seconds[_WARM_UP_RUNS:], strict=True
                )
            ]
            spread = f"({min(ratios):.2f} to {max(ratios):.2f} by round)"
            print(
                f"speed-up from one with all else on {len(setup.cores)} cores:"
                f" {statistics.median(ratios):.2f} {spread}"
            )


if __name__ == "__main__":
    main()
