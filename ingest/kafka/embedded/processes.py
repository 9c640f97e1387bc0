"""Programs that run on after the process that started them.

Each is noted in a file by process id and start time, so that another program that has
got the id since is never taken for it.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

_POLL_SECONDS = 0.1


class _Noted(msgspec.Struct, frozen=True):
    pid: int
    started: float


def note(file: Path, pid: int) -> psutil.Process:
    """Writes a process into a file, whole or not at all; returns it."""
    process, part = psutil.Process(pid), file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(_Noted(pid, process.create_time())))
    part.replace(file)
    return process


def noted(file: Path) -> psutil.Process | None:
    """The process that was noted in a file, if it still runs."""
    try:
        known = msgspec.json.decode(file.read_bytes(), type=_Noted)
        process = psutil.Process(known.pid)
        same = abs(process.create_time() - known.started) < 1
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, psutil.NoSuchProcess):
        return None
    return process if same and not _ended(process) else None


def end(processes: list[psutil.Process], sign: signal.Signals, seconds: float) -> None:
    """Signals processes, and kills those that haven't ended after some seconds.

    psutil refuses to signal another process that has got the same pid since.
    """
    for each in (sign, signal.SIGKILL):
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                process.send_signal(each)
        deadline = time.monotonic() + seconds
        processes = [p for p in processes if not ended_within(p, deadline - time.monotonic())]


def ended_within(process: psutil.Process, seconds: float) -> bool:
    """Waits for the end of a process, at most for some seconds; returns whether it came."""
    deadline = time.monotonic() + seconds
    while not _ended(process):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        with suppress(psutil.TimeoutExpired, psutil.NoSuchProcess):
            process.wait(min(_POLL_SECONDS, left))
            return True
    return True


def _ended(process: psutil.Process) -> bool:
    """Returns whether a process has ended, also as a zombie without other threads.

    A zombie may be the child of another process, which alone can reap it; psutil would
    wait for that. But a zombie with threads hasn't ended: the first thread of a killed
    JVM is a zombie while the others still hold files and ports.
    """
    try:
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    # also psutil's ZombieProcess, raised where a zombie's threads can't be counted
    except psutil.NoSuchProcess:
        return True
