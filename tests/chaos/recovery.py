"""Measures how long it takes until a window is there after its run was killed, and until a run
sees that it is there: a table by sink.

    python -m tests.chaos.recovery [--sink delta] [--rows 4000] [--record]

For each point at which a run may die, a run is killed there with SIGKILL and another
one begun at once, with all that it needs loaded. Its time counts from its start, and
has everything in it that the dead one left: locks, open transactions, staged rows. Then
a run that only looks is timed: it reads no message and writes nothing. `--record`
writes the table into docs/chaos.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.chaos import worker
from tests.chaos.record import PAGE
from tests.chaos.worker import COMMITTED, Job
from tests.sinks.worlds import SINKS, world_of

TITLE = "## Recovery"
LIMIT = 180
"""Seconds after which an attempt must be hanging."""


class Recovery(msgspec.Struct, frozen=True):
    """The times of a sink.

    Attributes:
        kind: the kind of sink.
        reruns: the seconds of a rerun after a death at each point.
        looks: the seconds of a run that finds its window committed.
    """

    kind: str
    reruns: list[float]
    looks: list[float]

    def line(self) -> list[str]:
        """Returns the sink's line of the table."""
        return [
            self.kind,
            str(len(self.reruns)),
            *(f"{_short(seconds)}" for seconds in (*_typical(self.reruns), *_typical(self.looks))),
        ]


HEAD = (
    "sink",
    "points",
    "window there: median, s",
    "at most",
    "seen to be there: median, s",
    "at most",
)


def recovery(name: str, rows: int, folder: Path) -> Recovery:
    """Measures a sink in an empty folder.

    Raises:
        AssertionError: a rerun did not commit, or the next run doesn't see its window.
    """
    kind, reruns, looks = world_of(name), list[float](), list[float]()
    with kind.serve_location(folder) as location:
        kind.sink_at(location).prepare()
        # the first child also starts the fork server, which isn't measured
        _run_to_end(Job(name, location, str(folder), len(kind.points), "loads", rows))
        for number, point in enumerate(kind.points):
            job = Job(
                name, location, str(folder), number, f"w{number}-dies", rows, crash=f"{point}:kill"
            )
            _run_to_end(job)
            seconds, code = _run_to_end(job.but(attempt=f"w{number}-again", crash=""))
            assert code in COMMITTED, (
                f"{name}: the rerun after a death at {point} ended with {code}"
            )
            reruns.append(seconds)
            seconds, code = _run_to_end(job.but(attempt=f"w{number}-looks", crash="", what="look"))
            assert code == worker.ALREADY, (
                f"{name}: after a death at {point} and a rerun the window isn't there"
            )
            looks.append(seconds)
    return Recovery(name, reruns, looks)


def _run_to_end(job: Job) -> tuple[float, int]:
    """Runs an attempt, and returns its seconds from start to end and its exit code."""
    began = time.monotonic()
    process = worker.start(job)
    process.join(LIMIT)
    seconds = time.monotonic() - began
    if process.is_alive():
        process.kill()
        process.join(LIMIT)
    assert process.exitcode is not None
    return seconds, process.exitcode


def _typical(seconds: Sequence[float]) -> tuple[float, float]:
    return statistics.median(seconds), max(seconds)


def _short(seconds: float) -> str:
    return f"{seconds:.2f}"


def record(recoveries: Sequence[Recovery], page: Path = PAGE) -> None:
    """Replaces the table in the page; sinks that weren't measured keep their lines."""
    text = page.read_text(encoding="utf-8")
    page_start, _, rest = text.partition(TITLE)
    table, next_heading, page_end = rest.partition("\n## ")
    line_by_sink = {
        line.split("|")[1].strip(): line
        for line in table.splitlines()
        if re.match(r"\| (?!sink|---)", line)
    }
    line_by_sink |= {
        sink_recovery.kind: f"| {' | '.join(sink_recovery.line())} |"
        for sink_recovery in recoveries
    }
    rows = "\n".join(
        [
            f"| {' | '.join(HEAD)} |",
            f"| {' | '.join(['---'] * len(HEAD))} |",
            *(line_by_sink[name] for name in sorted(line_by_sink)),
        ]
    )
    about = table.partition("\n|")[0].strip()
    page.write_text(
        f"{page_start}{TITLE}\n\n{about}\n\n{rows}\n{next_heading}{page_end}", encoding="utf-8"
    )


def main() -> None:
    """Prints each sink's line when it is measured."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.recovery",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--sink", choices=SINKS, action="append")
    parser.add_argument(
        "--rows", type=int, default=4000, help="of a window, in both partitions together"
    )
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    done = []
    print(" | ".join(HEAD))
    for name in arguments.sink or SINKS:
        with tempfile.TemporaryDirectory(prefix="windrow-recovery-") as folder:
            done.append(recovery(name, arguments.rows, Path(folder)))
        print(" | ".join(done[-1].line()), flush=True)
    if arguments.record:
        record(done)


if __name__ == "__main__":
    main()
