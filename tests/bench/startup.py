"""How long Spark takes from nothing to the end of its first task, with Java's archive of its classes and without, alternating.

`python -m tests.bench.startup [ROUNDS]`; `make setup` has made the archive.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from ingest.engine.archive import archive_options
from ingest.engine.archive_run import same
from ingest.engine.local import JAVA, local_session

ROUNDS = 5
WAYS = ("archive", "plain")


def measure(way: str) -> None:
    """In a fresh process: print the seconds until there is a session, and until its first task has ended."""
    begun = time.monotonic()
    session = local_session("local[2,4]", {} if way == "archive" else {"spark.driver.extraJavaOptions": JAVA})
    there = time.monotonic()
    session.range(0, 2, 1, 2).mapInArrow(same, "id long").collect()
    print(there - begun, time.monotonic() - begun)
    session.stop()


def main(rounds: int) -> None:
    """Print a line for each way: medians with their least and most, and the ratio."""
    assert archive_options(), "no archive: type `windrow spark archive`"
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            command = [sys.executable, "-m", "tests.bench.startup", way]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
            session, task = map(float, done.stdout.split())
            taken[way].append((session, task))
    for way, both in taken.items():
        session, task = (f"{statistics.median(t):.1f} s ({min(t):.1f} to {max(t):.1f})" for t in zip(*both, strict=True))
        print(f"{way:8} session {session}, first task ended {task}")
    whole = {way: statistics.median(task for _, task in both) for way, both in taken.items()}
    print(f"ratio {whole['archive'] / whole['plain']:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in WAYS:
        measure(sys.argv[1])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)
