"""An attempt at a window in a child process that may be killed.

It has the steps and crash points of a run: it stages rows, commits dead letters, and commits.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
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
from windrow.ingest.ports.sink import AlreadyDone, Done, Maintenance
from windrow.ingest.testing.contracts.windows import (
    PARTITIONS,
    plan,
    receipt,
    stage,
    staged_dead_replay,
    window,
)

DONE, ALREADY, UNKNOWN, REFUSED, CRASHED, FAILED = 0, 1, 2, 3, 4, 5
"""Exit codes; a killed attempt has a negative one."""
COMMITTED = {DONE, ALREADY}


class Job(msgspec.Struct, frozen=True):
    """The description of an attempt.

    Attributes:
        kind: the kind of sink.
        location: the table's location.
        folder: the folder for its error and for standard error.
        window: the window's number.
        attempt: the attempt's id.
        rows: the number of messages of a window, dead letters included.
        generation: the generation that it writes.
        what: what it does.
        twin: the broken sink to use instead of the real one.
        crash: the value of WINDROW_CRASH.
        disk: the largest size of a file in bytes; None without a limit.
        gate: the time of the monotonic clock until which it waits between staging and its
            commits, so that several attempts commit at the same moment.
    """

    kind: str
    location: str
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
        """Returns a changed copy."""
        return msgspec.structs.replace(self, **changed)


EXPIRED = "expired-"
"""The beginning of the names of files that say below which window rows may have expired."""


def start(job: Job) -> BaseProcess:
    """Starts the attempt in a child process."""
    process = SERVER.Process(target=_child, args=(job,))
    process.start()
    return process


WAKE = signal.SIGCONT
WHERE = signal.SIGUSR1
"""The signal upon which an attempt writes the stack of each thread."""


def signalled(process: BaseProcess, number: signal.Signals) -> bool:
    """Sends a signal, and returns whether the process still existed."""
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
    except BaseException:  # any exception of an attempt is written  # noqa: BLE001
        code = _write_failure(job, FAILED, traceback.format_exc())
    sys.stdout.flush()
    os._exit(code)  # ends the process at once, without Python's cleanup


def _write_failure(job: Job, code: int, reason: str) -> int:
    (Path(job.folder) / f"{job.attempt}.error").write_text(reason)
    return code


def attempt(job: Job) -> int:
    """Runs the attempt in this process, and returns its exit code."""
    kind = world_of(job.kind)
    sink = kind.sink_at(job.location) if job.twin is None else kind.twin_at(job.location, job.twin)
    if job.what == "sweep":
        return _sweep(job, sink)
    if job.what == "look":
        return FAILED if sink.look(window(job.window)) is None else ALREADY
    return _replay_dead_letters(job, sink) if job.what == "replay_dead_letters" else _run(job, sink)


def _sweep(job: Job, sink: Any) -> int:
    """Maintains the table, and has rows of the older windows expire if the table takes that.

    Later windows have a later clock, so that they don't wait for the lease of a killed sweep.
    """
    ahead, limits = timedelta(hours=2 + job.window), Maintenance(timedelta(hours=1))
    limits = msgspec.structs.replace(limits, file_size=1 << 20)
    takes = sink.capabilities.mode == "append" and sink.capabilities.atomic == "window"
    if takes and job.twin is None:  # an expired row of a broken twin can't be found missing
        old = job.window // 2
        (Path(job.folder) / f"{EXPIRED}{old}").touch()
        age = datetime.now(UTC) + ahead - window(old).start
        limits = msgspec.structs.replace(limits, keep_rows=age)
    with clock_ahead(ahead):
        for table in (sink, sink.dead_letters):
            table.maintain(limits)
    return DONE


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
    if commit is None or not commit.receipt.counts.dead or commit.receipt.expired_at is not None:
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
    """Returns the offsets of a window in each partition: the first one, and the one
    after the last.
    """
    return number * (rows // PARTITIONS), (number + 1) * (rows // PARTITIONS)
