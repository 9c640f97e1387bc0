"""Repeats the long random tests with new seeds: `make soak SEED=1 MINUTES=10`.

    python -m tests.soak --seed 1 --minutes 10 [--workers 2] [PYTEST ARGUMENT ...]

A round runs every part of the tests marked `sampled` (random kills, layouts, sweeps), and every
property with Hypothesis's profile `soak`. Each round has its own seed, which is drawn from
SEED. No new round starts when the minutes are over. A round with a failed test is the last one;
pytest then prints how to run that test again.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator

ROUND = ["-q", "--soak", "--hypothesis-profile=soak", "-m", "sampled or hypothesis"]
LIMIT = 6 * 3600
"""Limit of a round in seconds. A round that reaches it hangs, because each test has a limit, too.
"""


def seeds(first: int) -> Iterator[int]:
    """Yields SEED, so that one round can be repeated by its seed, and then numbers
    drawn from it.
    """
    yield first
    drawn = random.Random(first)
    while True:
        yield drawn.randrange(2**32)


def round_of(seed: int, workers: int, more: list[str]) -> int:
    """Runs one round, and returns its exit code."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        *ROUND,
        f"--numprocesses={workers}",
        f"--seed={seed}",
        *more,
    ]
    return subprocess.run(command, check=False, timeout=LIMIT).returncode


def main() -> int:
    """Runs rounds until the time is over, and returns 0 if no test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options, more = parser.parse_known_args()
    first = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    end = time.monotonic() + 60 * options.minutes
    for number, seed in enumerate(seeds(first), 1):
        print(f"soak: round {number}, seed {seed}", flush=True)
        if code := round_of(seed, options.workers, more):
            print(
                f"soak: round {number} failed; the same round again: make soak SEED={seed}"
                " MINUTES=0",
                flush=True,
            )
            return code
        if time.monotonic() > end:
            break
    print(
        f"soak: {number} rounds, nothing failed; the same again: make soak SEED={first}"
        f" MINUTES={options.minutes:g}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
