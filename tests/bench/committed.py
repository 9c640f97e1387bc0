"""What a table's committed windows cost the next one: a process's first look and first commit, later commits, and a window that is there.

The windows are committed by the sink itself, with nothing synced to disk, so that thousands take minutes. Each measurement is of a process
of its own, on a copy of the table.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from ingest.ports.sink import AlreadyDone, Done
from tests.sinks.beside import BINDING, DeltaBoth
from tests.sinks.things import ROWS, staged_receipt, window

COMMITS = 100
"""Later commits, and looks at windows that are there: one checkpoint is among them."""

ROUNDS = 3


class Cost(NamedTuple):
    """In milliseconds; commits later than the first by their mean, for what only some of them do counts."""

    first_look: float
    first_commit: float
    later_commit: float
    skip: float


def make(uri: str, windows: int) -> None:
    """A table that holds so many windows."""
    sink = DeltaBoth(uri, ROWS)
    sink.prepare(BINDING)
    with patch.object(os, "fsync", lambda _: None):
        for number in range(windows):
            assert isinstance(sink.commit(*staged_receipt(sink, number, dead=False)), Done)


def cost(table: Path, windows: int, scratch: Path) -> Cost:
    """The medians of several processes."""
    rounds = []
    for number in range(ROUNDS):
        copy = scratch / f"copy {number} of {windows}"  # a name that no other measurement had: beside it stands what warms up
        shutil.copytree(table, copy)
        command = [sys.executable, "-m", "tests.bench.committed", str(copy), str(windows)]
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
        rounds.append(Cost(*json.loads(told)))
        shutil.rmtree(copy)
    return Cost(*map(statistics.median, zip(*rounds, strict=True)))


def told(windows: int, found: Cost) -> str:
    """A line for people."""
    return (
        f"{windows:>7,} committed windows: first look {found.first_look:.1f} ms, first commit {found.first_commit:.1f} ms, "
        f"later ones {found.later_commit:.1f} ms, a window that is there {found.skip:.2f} ms"
    )


def _measure(uri: str, windows: int) -> Cost:
    """In this process, which has looked at nothing yet but for another table: what is loaded, and begun, once is not a table's cost."""
    warm = DeltaBoth(f"{uri} warm", ROWS)
    warm.prepare(BINDING)
    assert isinstance(warm.commit(*staged_receipt(warm, 0, dead=False)), Done)
    sink = DeltaBoth(uri, ROWS)
    staged = [staged_receipt(sink, windows + number, dead=False) for number in range(COMMITS + 1)]
    look = _timed(lambda: sink.look(window(0)))
    commits = [_timed(lambda one=one: _committed(sink, *one)) for one in staged]  # type: ignore[misc]
    skip = _timed(lambda: list(sink.looks([window(n % windows) for n in range(COMMITS)]))) / COMMITS
    return Cost(look, commits[0], statistics.fmean(commits[1:]), skip)


def _committed(sink: DeltaBoth, *one: object) -> None:
    outcome = sink.commit(*one)  # type: ignore[arg-type]
    assert not isinstance(outcome, AlreadyDone)
    assert isinstance(outcome, Done)


def _timed(what: object) -> float:
    began = time.perf_counter()
    what()  # type: ignore[operator]
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))))
