"""Programs that the demo leaves running.

Each is noted by process id and start time, so that `stop` never ends another program.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

_WAIT_SECONDS = 8.0
_SLICE_SECONDS = 0.1


class Noted(msgspec.Struct, frozen=True):
    """A process: ids are used again, an id with its start time is not."""

    pid: int
    started: float


def note(file: Path, pid: int) -> None:
    """Writes a process into a file, whole or not at all."""
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(Noted(pid, psutil.Process(pid).create_time())))
    part.replace(file)


def noted(file: Path) -> psutil.Process | None:
    """The process that was noted in a file, if it still runs."""
    try:
        known = msgspec.json.decode(file.read_bytes(), type=Noted)
        process = psutil.Process(known.pid)
        same = (
            abs(process.create_time() - known.started) < 1
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except (FileNotFoundError, msgspec.DecodeError, psutil.NoSuchProcess):
        return None
    return process if same else None


def end(file: Path) -> bool:
    """Terminates the noted process and its children, kills them after a while.

    Returns whether the process was running.
    """
    process = noted(file)
    file.unlink(missing_ok=True)
    if process is None:
        return False
    family = [process, *process.children(recursive=True)]
    for each in family:
        _signal(each, kill=False)
    for each in _alive_after(family, _WAIT_SECONDS):
        _signal(each, kill=True)
    _alive_after(family, _WAIT_SECONDS)
    return True


def _alive_after(family: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """The processes that still run after some seconds.

    A zombie doesn't run: only its parent, which may be another program, can reap it.
    """
    deadline = time.monotonic() + seconds
    alive = family
    while alive and time.monotonic() < deadline:
        alive = [
            each
            for each in psutil.wait_procs(alive, timeout=_SLICE_SECONDS)[1]
            if not _is_zombie(each)
        ]
    return alive


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _signal(process: psutil.Process, *, kill: bool) -> None:
    with suppress(psutil.NoSuchProcess):  # it has ended by itself
        process.kill() if kill else process.terminate()
