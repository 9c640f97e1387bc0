"""How soon Spark's first task begins: by a Spark of the run's own, with Java's archive
of its classes and without, and on one that is up.

`python -m tests.bench.startup [ROUNDS]`; `make setup` has made the archive. It is
counted from where a run asks for it, in a process of its own each time, whose loading
of Spark's client counts; the ways alternate. On a server (`windrow spark run`) there is
a first client, whose workers are new, and a next one, which finds them warm; either has
later runs.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import closing

from tests.runner.spark.servers import serving
from tests.runner.spark.tasks import staged
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged_split import Staged
from windrow.ingest.runner.spark.local import archive_options

ROUNDS = 5
COLD = {"archive": "a Spark of its own", "plain": "the same, without an archive"}
WARM = ("a server's first client", "a server's next client", "its later runs")
SPLITS = [Split("t", partition, 0, 1) for partition in range(2)]


class Begins:
    """Says when it was called, in seconds of a clock that all processes share."""

    def __call__(self, split: Split) -> Staged:
        """See `Engine.run`."""
        return staged(split, str(time.monotonic()))


def measure(way: str) -> None:
    """In a fresh process: print the seconds from a run's begin to its first task's, for
    one run after the other.

    `way`: or an address.
    """
    begun = time.monotonic()
    from windrow.ingest.runner.spark.engine import SparkEngine

    if way in COLD:
        from windrow.ingest.runner.spark.local import JAVA, local_session

        more = {} if way == "archive" else {"spark.driver.extraJavaOptions": JAVA}
        print(
            json.dumps(
                [_until_first(SparkEngine(lambda: local_session("local[2,4]", more)), begun)]
            )
        )
        return
    from windrow.ingest.runner.spark.connect import ConnectedSpark

    with closing(ConnectedSpark(way)) as spark:
        engine = SparkEngine(spark.session)
        first = _until_first(engine, begun)
        print(
            json.dumps(
                [
                    first,
                    *(_until_first(engine, time.monotonic()) for _ in range(3)),
                ]
            )
        )


def _until_first(engine: object, begun: float) -> float:
    return min(float(result.rows[0]) for result in engine.run(Begins(), SPLITS)) - begun  # type: ignore[attr-defined]


def _measured(way: str) -> list[float]:
    command = [sys.executable, "-m", "tests.bench.startup", way]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    taken: list[float] = json.loads(done.stdout)
    return taken


def main(rounds: int) -> None:
    """Print a line for each way: the median with the least and the most, and the ratio
    to a Spark of the run's own.
    """
    assert archive_options(), "no archive: type `windrow spark archive`"
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for way, name in COLD.items():
            taken[name] += _measured(way)
        with serving("--master", "local[2,4]") as (address, _):
            for name in WARM[:2]:
                first, *later = _measured(address)
                taken[name].append(first)
                taken[WARM[2]] += later
    cold = statistics.median(taken[COLD["archive"]])
    print(
        "seconds until the first task begins: median (least to most), and beside a Spark of the"
        " run's own"
    )
    for name, seconds in taken.items():
        middle = statistics.median(seconds)
        print(
            f"{name:30} {middle:5.2f} ({min(seconds):.2f} to {max(seconds):.2f}) "
            f" {middle / cold:.2f}"
        )


if __name__ == "__main__":
    if sys.argv[1:] and not sys.argv[1].isdigit():
        measure(sys.argv[1])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)
