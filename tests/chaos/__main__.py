"""Chaos: windows of a real sink under kills, stops, doubled runs and whatever else goes
wrong, until the minutes are over.

    python -m tests.chaos --sink delta --seed 1 --minutes 10 [--windows 25] [--rows
    4000] [--twin NAME] [--record]

Rounds follow each other, each with a seed of its own drawn from SEED and on a table of
its own. Each prints its seed, what struck, and one line of JSON. The first round in
which anything is wrong ends it, and its folder is kept. `--record` adds what was found
to docs/chaos.md.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from tests.chaos.harness import Asked, Found, chaos
from tests.chaos.record import record
from tests.sinks.worlds import KINDS, world_of
from tests.soak import seeds


def tell(found: Found) -> None:
    """For people, then for programs."""
    asked = found.asked
    print(
        f"chaos: {asked.kind}, seed {asked.seed}: {asked.windows} windows, {found.rows:,} rows,"
        f" {found.hit} faults in {found.seconds} s"
    )
    print("  " + ", ".join(f"{n} {fault}" for fault, n in found.faults.items()))
    print("  attempts: " + ", ".join(f"{n} {outcome}" for outcome, n in found.outcomes.items()))
    print(
        f"  lost {found.lost}, doubled {found.doubled}, foreign {found.foreign}; the reader looked"
        f" {found.looks} times"
    )
    for line in found.wrong[:10]:
        print(f"  WRONG: {line}")
    print(
        msgspec.json.encode(msgspec.structs.replace(found, wrong=found.wrong[:100])).decode(),
        flush=True,
    )


def rounds(first: Asked, minutes: float) -> list[Found]:
    """Rounds until the minutes are over, or one has found something."""
    end, done = time.monotonic() + 60 * minutes, list[Found]()
    for seed in seeds(first.seed):
        folder = Path(tempfile.mkdtemp(prefix="windrow-chaos-"))
        found = chaos(msgspec.structs.replace(first, seed=seed), folder)
        tell(found)
        done.append(found)
        if not found.ok:
            print(
                f"  its folder: {folder}\n  the same round again: {command(found.asked)}",
                flush=True,
            )
            break
        shutil.rmtree(folder)
        if time.monotonic() > end:
            break
    return done


def command(asked: Asked) -> str:
    """What has a round again."""
    twin = f" --twin {asked.twin}" if asked.twin else ""
    return (
        f"python -m tests.chaos --sink {asked.kind} --seed {asked.seed} --minutes 0 --windows"
        f" {asked.windows} --rows {asked.rows}{twin}"
    )


def main() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--sink", choices=KINDS, default="delta")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--windows", type=int, default=25)
    parser.add_argument(
        "--rows", type=int, default=4000, help="of a window, in both partitions together"
    )
    parser.add_argument("--twin")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    if asked.twin is not None and asked.twin not in world_of(asked.sink).by_name:
        parser.error(
            f"--twin of {asked.sink} is one of: {', '.join(world_of(asked.sink).by_name) or 'none'}"
        )
    if asked.rows % 2 or asked.rows < 8 or asked.windows < 1:
        parser.error("--rows is an even number from 8 on, and --windows is one from 1 on")
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    done = rounds(Asked(asked.sink, seed, asked.windows, asked.rows, asked.twin), asked.minutes)
    if asked.record and asked.twin is None:
        record(done, seed)
    return 0 if all(found.ok for found in done) else 1


if __name__ == "__main__":
    sys.exit(main())
