"""One attempt at a window, in a process that may be killed: stage, dead letters,
commit, with the crash points that a run has.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from contextlib import nullcontext
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from tests.clock import clock_ahead
from tests.full_disk import files_end_at
from tests.sinks.worlds import world_of
from tests.warm import SERVER
from windrow.ingest.crashpoints import CrashError, crash_point
from windrow.ingest.errors import WindrowError
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.testing.contracts.windows import (
    PARTITIONS,
    plan,
    receipt,
    stage,
    staged_dead_replay,
    window,
)

DONE, ALREADY, UNKNOWN, REFUSED, CRASHED, FAILED = 0, 1, 2, 3, 4, 5
"""Exit codes; a killed attempt's is negative."""
COMMITTED = {DONE, ALREADY}


class Job(msgspec.Struct, frozen=True):
    """What an attempt is to do.

    `rows`: of a window, dead letters included. `folder`: where it leaves its errors.
    `crash`: WINDROW_CRASH. `disk`: how long a file may become. `gate`: the moment (of
    the monotonic clock) at which it goes on from staging to its commits, so that
    several meet there.
    """

    kind: str
    place: str
    folder: str
    window: int
    attempt: str
    rows: int = 20
    generation: int = 0
    what: Literal["run", "replay_dead_letters", "sweep", "look"] = "run"
    twin: str | None = None
    crash: str = ""
    disk: int | None = None
    gate: float | None = None

    def but(self, **changed: Any) -> Job:
        """Another one."""
        return msgspec.structs.replace(self, **changed)


def start(job: Job) -> BaseProcess:
    """The attempt in a process of its own."""
    process = SERVER.Process(target=_child, args=(job,))
    process.start()
    return process


WAKE = signal.SIGCONT
WHERE = signal.SIGUSR1
"""Has an attempt write down where each of its threads stands."""


def signalled(process: BaseProcess, number: signal.Signals) -> bool:
    """Send a signal; whether the process was still there."""
    try:
        psutil.Process(process.pid).send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _child(job: Job) -> None:
    os.environ["WINDROW_CRASH"] = job.crash
    os.dup2(os.open(Path(job.folder) / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    faulthandler.register(WHERE, 2)
    try:
        with nullcontext() if job.disk is None else files_end_at(job.disk):
            code = attempt(job)
    except CrashError:
        code = CRASHED
    except WindrowError as error:
        code = _write_failure(job, REFUSED, f"{type(error).__name__}: {error}")
    except BaseException:  # what an attempt ends with is told, whatever it is  # noqa: BLE001
        code = _write_failure(job, FAILED, traceback.format_exc())
    sys.stdout.flush()
    os._exit(code)  # as a run's end would be: nothing of Python's own is waited for


def _write_failure(job: Job, code: int, reason: str) -> int:
    (Path(job.folder) / f"{job.attempt}.error").write_text(reason)
    return code


def attempt(job: Job) -> int:
    """Do it, here; the exit code."""
    kind = world_of(job.kind)
    sink = kind.sink_at(job.place) if job.twin is None else kind.twin_at(job.place, job.twin)
    if job.what == "sweep":
        with clock_ahead(timedelta(hours=2)):
            sink.sweep_both(timedelta(hours=1))
        return DONE
    if job.what == "look":
        return FAILED if sink.look(window(job.window)) is None else ALREADY
    return _replay_dead_letters(job, sink) if job.what == "replay_dead_letters" else _run(job, sink)


def _run(job: Job, sink: Any) -> int:
    crash_point("plan.before")
    planned = plan(sink, job.window, offsets_of(job.window, job.rows))
    crash_point("plan.after")
    staged = stage(sink, planned, job.generation, job.attempt)
    _wait(job.gate)
    crash_point("dead.before")
    sink.commit_dead(planned, job.attempt, staged)
    return _code_of(sink.commit(receipt(planned, staged, job.generation, job.attempt), staged))


def _replay_dead_letters(job: Job, sink: Any) -> int:
    commit = sink.look(window(job.window))
    if commit is None or not commit.receipt.counts.dead:
        return ALREADY
    replayed, staged = staged_dead_replay(sink, commit.receipt, job.attempt)
    _wait(job.gate)
    sink.commit_dead(replayed.plan, job.attempt, staged)
    return _code_of(sink.commit(replayed, staged))


def _code_of(outcome: object) -> int:
    crash_point("report.before")
    return (
        DONE
        if isinstance(outcome, Done)
        else ALREADY
        if isinstance(outcome, AlreadyDone)
        else UNKNOWN
    )


def _wait(gate: float | None) -> None:
    if gate is not None:
        time.sleep(max(0.0, gate - time.monotonic()))


def offsets_of(number: int, rows: int) -> tuple[int, int]:
    """The offsets of a window in each of the topic-partitions."""
    return number * (rows // PARTITIONS), (number + 1) * (rows // PARTITIONS)
