"""A process that commits windows in children and kills each with SIGKILL at a random
delay, then runs the window again.

    python sweeper.py PLACE KILLS SEED

Prints one JSON line: how many were still alive to be killed, and how many windows were
there right after it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.sinks.postgres.world import sink_at
from tests.sinks.things import staged_receipt
from windrow.ingest.ports.sink import AlreadyDone, Done


def attempt(place: str, number: int, name: str, ready: int | None = None) -> type:
    """One run of a window: stage, dead letters, commit; a byte on `ready` when the
    staging begins.
    """
    sink = sink_at(place)
    if ready is not None:
        os.write(ready, b"!")
    made, staged = staged_receipt(sink, number, 0, name)
    sink.commit_dead(made.plan, name, staged)
    return type(sink.commit(made, staged))


def child(place: str, number: int, name: str, ready: int | None = None) -> int:
    """The attempt in a forked child; its process id."""
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            code = {Done: 0, AlreadyDone: 1}.get(attempt(place, number, name, ready), 2)
        finally:
            os._exit(code)
    return pid


def killed(place: str, number: int, delay: float) -> tuple[bool, float]:
    """Run a window and kill it so many seconds after it began; whether it was still
    alive then, and how long it lived.
    """
    read, write = os.pipe()
    pid = child(place, number, "killed", write)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    began = time.monotonic()
    while (
        time.monotonic() - began < delay
        and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status), time.monotonic() - began


def main(place: str, kills: int, seed: int) -> None:
    """Sweep."""
    chance = random.Random(seed)
    took = min(killed(place, n, 60)[1] for n in range(2))
    alive, there = 0, 0
    for number in range(2, 2 + kills):
        alive += killed(place, number, took * (number - 2 + chance.random()) / kills)[0]
        _, status = os.waitpid(child(place, number, "retry"), 0)
        outcome = os.waitstatus_to_exitcode(status)
        if outcome not in {0, 1}:
            raise SystemExit(f"window {number}: the retry ended with {outcome}")
        there += outcome
    print(json.dumps({"killed": alive, "there": there, "seconds": took}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
