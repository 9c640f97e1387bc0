"""What a second worker is worth: one window on a cluster of one worker and on one of
two, each with a core that it is pinned to.

    python -m tests.bench workers [--messages 8000000] [--rounds 5]

Both clusters are up all the time, and run the window in turn; the first five of each
warm it up. From Kafka to a committed Delta table, whose rows are counted. The workers
are bare: they have none of windrow's code.

Broker and driver need a processor, too. On a machine with no more cores than workers, a
worker that is alone leaves them a core that two workers don't: so it is measured both
ways, with a second core for them, and with all that there is on the worker's own. The
first says what a second worker is worth where broker and driver had room before; the
second, what a second core is worth to all.
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
# while the executors' JVMs still compile, two of them have twice as much to compile as
# one
_WARM_UP_RUNS = 5


@dataclass
class Workers:
    """A cluster of so many, with a driver that takes jobs, and what it took for them.

    `cores`: where all else is meanwhile, as broker and driver.
    """

    processes: list[psutil.Process]
    side: Side
    program: Program
    cores: frozenset[int]
    seconds: list[float] = field(default_factory=list)
    tasks_seconds: list[float] = field(default_factory=list)

    def run(self, bootstrap: str, topic: str, messages: int) -> None:
        """One window, timed."""
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
        """A line for people, of all rounds that count."""
        seconds, tasks = (
            statistics.median(self.seconds[_WARM_UP_RUNS:]),
            statistics.median(self.tasks_seconds[_WARM_UP_RUNS:]),
        )
        rounds_text = ", ".join(f"{took:.2f}" for took in self.seconds[_WARM_UP_RUNS:])
        where = f"{len(self.processes)} of them, all else on {len(self.cores)} cores"
        return f"{where}: {seconds:.2f} s ({rounds_text}), {tasks:.2f} CPU s of the workers"


@contextmanager
def workers(count: int, bootstrap: str, scratch: Path) -> Iterator[Workers]:
    """A cluster whose n-th worker has the n-th core to itself, as far as windrow goes."""
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
    """Put it on cores, and with it all that it will begin: a thread begins where the
    one is that begins it.
    """
    pinned = False
    while not pinned:
        pinned = True
        for thread in process.threads():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                if os.sched_getaffinity(thread.id) != set(cores):
                    pinned = False  # and may have begun others since they were listed
                    os.sched_setaffinity(thread.id, cores)


@contextmanager
def _others_on(cores: frozenset[int]) -> Iterator[None]:
    """Hold all that isn't pinned, this process and what it began, to some of its cores
    until the end of the block.
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
    """What workers have begun that isn't on their cores and does anything there; a
    shell that a JVM asks for a number isn't looked at.
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
    """Of all that it has begun, as far as it lives or has been waited for."""
    times = [
        process_begun.cpu_times() for process_begun in (process, *process.children(recursive=True))
    ]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def main() -> None:
    """Parse, run in turn, print."""
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
