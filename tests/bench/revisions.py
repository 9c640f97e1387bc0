"""The cost of this tree compared with another revision: the command, a worker, and a window.

python -m tests.bench.revisions REVISION [--messages 1000000] [--rounds 5]

The window has no steps. The revision is checked out below .windrow and runs in this
environment. `windrow --help` is a new process each time, and a window is a run of a process
that stays. Both trees take turns. The revision's machine code is compiled before, and the first
turn of each warms up.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.bench.harness.environments import CACHE
from tests.bench.harness.figures import Run, Spread
from tests.bench.harness.shapes import SMALL, fill
from tests.bench.harness.side import ROOT, Program, parquet_rows
from tests.bench.parts.sides import windrow
from tests.bench.parts.targets import Job
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, find_jars

PROGRAM = Path("tests/bench/measured/program.py")
COMPILE = (
    "from windrow.ingest.formats.json.layout import PASS;"
    " from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE;"
    " PASS.scan, ENTRIES_CODE.scatter"
)
HELP = "import sys; from windrow.ingest.cli.main import main; sys.argv[1:] = ['--help']; main()"


def checked_out(revision: str) -> Path:
    """Returns a folder with the files of a revision, without git's data."""
    folder = CACHE / "revisions" / revision
    if not folder.exists():
        folder.mkdir(parents=True)
        files = subprocess.run(
            ["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60
        ).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=files, check=True, timeout=60)
    return folder


def help_seconds(tree: Path) -> float:
    """Returns the seconds of `windrow --help`."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", HELP],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )
    return time.perf_counter() - began


def windows(trees: list[Path], messages: int, rounds: int, scratch: Path) -> list[list[Run]]:
    """Returns the runs of each tree, without the first."""
    side, topic = windrow("table", ""), "bench.revisions"
    runs: list[list[Run]] = [[] for _ in trees]
    with ExitStack() as stack:
        bootstrap = stack.enter_context(EmbeddedBroker(scratch / "kafka", find_jars())).bootstrap
        fill(bootstrap, topic, SMALL.values(), messages)
        for tree in trees:
            subprocess.run([sys.executable, "-c", COMPILE], cwd=tree, check=True, timeout=300)
        programs = [
            stack.enter_context(
                Program(
                    # Spark's workers import from the folder in which its driver starts.
                    [*("env", "-C", tree), sys.executable, PROGRAM, bootstrap],
                    scratch / str(n),
                    {"PYTHONPATH": str(tree)},
                )
            )
            for n, tree in enumerate(trees)
        ]
        for number in range(rounds + 1):
            for program, tree_runs in zip(programs, runs, strict=True):
                instructions = side.instructions(
                    Job(bootstrap, topic, SMALL, messages, program.out)
                )
                written = partial(parquet_rows, program.out)
                run = program.run(instructions, messages, expected=messages, written=written)
                if number:
                    tree_runs.append(run)
    return runs


def line_of(label: str, ours: list[float], others: list[float]) -> str:
    """Returns a line with both medians, and the ratio of each round."""
    our_spread, their_spread = Spread.of(ours), Spread.of(others)
    ratio = Spread.of([a / b for a, b in zip(ours, others, strict=True)])
    return (
        f"{label:36} {our_spread.median:8.2f}, then {their_spread.median:8.2f}: {ratio.median:.2f}"
        f" ({ratio.lowest:.2f} to {ratio.highest:.2f})"
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    trees = [ROOT, checked_out(options.revision)]
    helped = [[help_seconds(tree) for tree in trees] for _ in range(options.rounds + 1)][1:]
    with tempfile.TemporaryDirectory(prefix="windrow-bench-") as scratch:
        ours, others = windows(trees, options.messages, options.rounds, Path(scratch))
    print(f"now, and at {options.revision}; the ratio of a round")
    print(
        line_of(
            "windrow --help, s", *([*map(float, seconds)] for seconds in zip(*helped, strict=True))
        )
    )
    for label, figure_of in (
        ("a window, s", lambda run: run.seconds),
        ("a window, CPU s", lambda run: run.cpu_seconds),
        ("a worker's peak, MB", lambda run: run.peaks["worker"]),
        ("the driver's peak, MB", lambda run: run.peaks["process"]),
    ):
        print(line_of(label, list(map(figure_of, ours)), list(map(figure_of, others))))


if __name__ == "__main__":
    main()
