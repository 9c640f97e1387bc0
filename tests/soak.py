"""What is long by nature, over and over with other numbers: `make soak SEED=1 MINUTES=10`.

    python -m tests.soak --seed 1 --minutes 10 [--workers 2] [PYTEST ARGUMENT ...]

A round is every part of the tests marked `sampled` (random kills, layouts, sweeps) and
every property with Hypothesis's profile `soak`. Rounds follow each other, each with a
seed of its own drawn from SEED, until the minutes are over: the last one goes on to its
end. The first round in which a test fails ends it; pytest says then how to run that
test again.
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
"""Seconds after which a round can only be hanging; each test has a limit of its own."""


def seeds(first: int) -> Iterator[int]:
    """SEED itself, so that a single round is had again by its seed; then what is drawn from it."""
    yield first
    drawn = random.Random(first)
    while True:
        yield drawn.randrange(2**32)


def round_of(seed: int, workers: int, more: list[str]) -> int:
    """One round's exit code."""
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
    """Rounds until the time is over; 0 if no test failed."""
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
