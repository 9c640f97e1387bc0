"""Messages about long waits, so that nobody at a terminal takes the silence for a hang."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 2.0
"""The time that a wait may be silent."""

_LOG = logging.getLogger("windrow.waiting")


def say(what: str) -> None:
    """Logs what is waited for, if it is already known that the wait is long."""
    _LOG.warning("Waiting for %s", what)


@contextmanager
def waiting_for(what: str | Callable[[], str]) -> Iterator[None]:
    """Logs what is waited for, if the block takes longer than `SECONDS`.

    Python's logging writes it to stderr unless configured otherwise. A function `what`
    is called only then.
    """
    timer = threading.Timer(SECONDS, lambda: say(what if isinstance(what, str) else what()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def lock_holder(*paths: str) -> str:
    """Names the other process that holds a lock on one of these files, if Linux says so.

    Of several ones it is one that writes.
    """
    inodes, held = set(), list[tuple[bool, str]]()
    for path in paths:
        with suppress(OSError):
            inodes.add(str(Path(path).stat().st_ino))
    with suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, mode, process, place = line.split()[:6]
            others = kind == "POSIX" and process != str(os.getpid())
            if others and place.rpartition(":")[2] in inodes:
                held.append((mode != "WRITE", process))
        process = min(held)[1]
        name = Path(f"/proc/{process}/comm").read_text().strip()
        return f"which process {process} ({name}) holds"
    return "which another process holds"
