"""A process that commits windows in children and kills each with SIGKILL at a random delay, then runs the window again.

The delays lie one in each of as many parts of a commit's time as there are kills: few kills reach all of it, too.

    python sweeper.py TABLE KILLS SEED

Prints one JSON line: how many windows were there right after the kill, and how long a commit takes that nobody kills. The children
are forked from a process that has touched no table yet: deltalake's threads don't survive a fork.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from ingest.ports.sink import AlreadyDone, Done
from ingest.schema.primary_key import PrimaryKey
from tests.sinks.beside import DeltaBoth, DeltaKeyedBoth
from tests.sinks.delta.things import ROWS, staged_receipt


def sink_at(uri: str) -> Any:
    """The table at a place, whose name says whether it has a primary key."""
    return DeltaKeyedBoth(uri, ROWS, PrimaryKey(("id",), buckets=3)) if uri.endswith("-keyed") else DeltaBoth(uri, ROWS)


def attempt(uri: str, number: int, name: str, ready: int | None) -> type:
    """One run of a window: stage, dead letters, commit; a byte on `ready` when the commits begin."""
    sink = sink_at(uri)
    made, staged = staged_receipt(sink, number, 0, name)
    if ready is not None:
        os.write(ready, b"!")
    sink.commit_dead(made.plan, name, staged)
    return type(sink.commit(made, staged))


def child(uri: str, number: int, name: str, ready: int | None) -> int:
    """The attempt in a forked child; its process id."""
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            code = {Done: 0, AlreadyDone: 1}.get(attempt(uri, number, name, ready), 2)
        finally:
            os._exit(code)
    return pid


def killed(uri: str, number: int, delay: float) -> bool:
    """Run a window and kill it so many seconds after its commits began; whether it was still alive then."""
    read, write = os.pipe()
    pid = child(uri, number, "killed", write)
    os.close(write)
    os.read(read, 1)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(read)
    return os.WIFSIGNALED(status)


def finished(uri: str, number: int, name: str) -> int:
    """Run a window to its end; its exit code."""
    _, status = os.waitpid(child(uri, number, name, None), 0)
    return os.waitstatus_to_exitcode(status)


def timed(uri: str, number: int) -> float:
    """Seconds from the beginning of the commits to their end."""
    read, write = os.pipe()
    pid = child(uri, number, "timed", write)
    os.close(write)
    os.read(read, 1)
    began = time.monotonic()
    os.waitpid(pid, 0)
    os.close(read)
    return time.monotonic() - began


def main(uri: str, kills: int, seed: int) -> None:
    """Sweep."""
    chance = random.Random(seed)
    took = max(timed(uri, n) for n in range(2))
    alive, there = 0, 0
    for number in range(2, 2 + kills):
        alive += killed(uri, number, took * (number - 2 + chance.random()) / kills)
        outcome = finished(uri, number, "retry")
        if outcome not in {0, 1}:
            raise SystemExit(f"window {number}: the retry ended with {outcome}")
        there += outcome
    print(json.dumps({"killed": alive, "there": there, "seconds": took}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
