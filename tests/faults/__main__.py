"""Each I/O call of each command fails, one in each run, until the minutes are over.

    python -m tests.faults [--place "delta here"] [--command run] [--seed 1] [--minutes 30]
        [--record]

The calls of each command at each place are recorded first. Then each call fails in each way, in
an order that the seed draws. `--record` adds what was found to docs/chaos.md.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.chaos import servers as own_servers
from tests.chaos.record import PAGE, SUMS
from tests.faults.harness import Case, Verdict, cases_of, judge
from tests.faults.places import (
    COMMANDS,
    PLACES,
    Servers,
    commands_at,
    serving,
)
from tests.s3.server import S3Server
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

NEXT = f"\n{SUMS}"
"""What follows the table."""

WORKERS = 3 * (os.cpu_count() or 1)
"""The cases at the same time: most of them wait."""


@contextmanager
def started() -> Iterator[Servers]:
    """Yields servers of this process."""
    with (
        tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder,
        EmbeddedBroker(Path(folder), find_jars()) as broker,
        own_servers.postgres() as url,
        S3Server() as s3,
        serving(broker.bootstrap, url, s3) as servers,
    ):
        yield servers


def record(seed: int, verdicts: Sequence[Verdict], page: Path = PAGE) -> None:
    """Adds a line to the table of docs/chaos.md."""
    numbers = (
        len(verdicts),
        sum(bool(verdict.hit) for verdict in verdicts),
        sum(verdict.code == 0 for verdict in verdicts),
        sum(bool(verdict.wrong) for verdict in verdicts),
        round(sum(verdict.seconds for verdict in verdicts)),
    )
    line = f"| {seed} | {' | '.join(f'{number:,}' for number in numbers)} |\n"
    page.write_text(page.read_text("utf-8").replace(NEXT, f"{line}{NEXT}", 1), "utf-8")


def main() -> int:
    """Runs the cases, and returns 0 if nothing is wrong, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--place", choices=PLACES)
    parser.add_argument("--command", choices=COMMANDS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    verdicts = list[Verdict]()

    def judged(case: Case) -> None:
        if time.monotonic() < end:
            verdicts.append(verdict := judge(case, servers))
            if verdict.wrong:
                print(f"WRONG: {case} ({verdict.hit}): {verdict.wrong}\n{verdict.text}", flush=True)

    with started() as servers, ThreadPoolExecutor(WORKERS) as pool:
        asked = [
            (place, command)
            for place in PLACES
            for command in commands_at(place)
            if args.place in {None, place} and args.command in {None, command}
        ]
        recorded = pool.map(lambda names: cases_of(*names, servers), asked)
        cases = [case for cases in recorded for case in cases]
        random.Random(args.seed).shuffle(cases)
        print(f"seed {args.seed}: {len(cases):,} cases", flush=True)
        end = time.monotonic() + 60 * args.minutes
        list(pool.map(judged, cases))
    print(f"{len(verdicts):,} cases; exit codes: {Counter(verdict.code for verdict in verdicts)}")
    if args.record:
        record(args.seed, verdicts)
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
