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

from tests.chaos.harness import RoundOptions, RoundSummary, chaos
from tests.chaos.record import record
from tests.sinks.worlds import KINDS, world_of
from tests.soak import seeds


def tell(summary: RoundSummary) -> None:
    """Prints a round's summary, first as text, then as a line of JSON."""
    options = summary.options
    print(
        f"chaos: {options.kind}, seed {options.seed}: {options.windows} windows,"
        f" {summary.rows:,} rows, {summary.hit} faults in {summary.seconds} s"
    )
    print("  " + ", ".join(f"{n} {fault}" for fault, n in summary.faults.items()))
    print("  attempts: " + ", ".join(f"{n} {outcome}" for outcome, n in summary.outcomes.items()))
    print(
        f"  lost {summary.lost_messages}, doubled {summary.doubled}, foreign {summary.foreign};"
        f" the reader looked {summary.looks} times"
    )
    for line in summary.violations[:10]:
        print(f"  WRONG: {line}")
    print(
        msgspec.json.encode(
            msgspec.structs.replace(summary, violations=summary.violations[:100])
        ).decode(),
        flush=True,
    )


def rounds(first: RoundOptions, minutes: float) -> list[RoundSummary]:
    """Runs rounds until the minutes are over, or a round has found something wrong."""
    end, done = time.monotonic() + 60 * minutes, list[RoundSummary]()
    for seed in seeds(first.seed):
        folder = Path(tempfile.mkdtemp(prefix="windrow-chaos-"))
        summary = chaos(msgspec.structs.replace(first, seed=seed), folder)
        tell(summary)
        done.append(summary)
        if not summary.ok:
            print(
                f"  its folder: {folder}\n  the same round again: {command(summary.options)}",
                flush=True,
            )
            break
        shutil.rmtree(folder)
        if time.monotonic() > end:
            break
    return done


def command(options: RoundOptions) -> str:
    """Returns the command that repeats a round."""
    twin = f" --twin {options.twin}" if options.twin else ""
    return (
        f"python -m tests.chaos --sink {options.kind} --seed {options.seed} --minutes 0 --windows"
        f" {options.windows} --rows {options.rows}{twin}"
    )


def main() -> int:
    """Runs the rounds, and returns 0 if nothing is wrong, else 1."""
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
    args = parser.parse_args()
    if args.twin is not None and args.twin not in world_of(args.sink).by_name:
        parser.error(
            f"--twin of {args.sink} is one of: {', '.join(world_of(args.sink).by_name) or 'none'}"
        )
    if args.rows % 2 or args.rows < 8 or args.windows < 1:
        parser.error("--rows is an even number from 8 on, and --windows is one from 1 on")
    seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed
    done = rounds(
        RoundOptions(args.sink, seed, args.windows, args.rows, args.twin),
        args.minutes,
    )
    if args.record and args.twin is None:
        record(done, seed)
    return 0 if all(summary.ok for summary in done) else 1


if __name__ == "__main__":
    sys.exit(main())
