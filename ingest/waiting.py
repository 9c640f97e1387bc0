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

AGAIN_SECONDS = 15.0
"""The time after which it is said again."""

_LOG = logging.getLogger("windrow.waiting")


def say(what: str) -> None:
    """Logs what is waited for, if it is already known that the wait is long."""
    _LOG.warning("Waiting for %s", what)


@contextmanager
def waiting_for(what: str | Callable[[], str]) -> Iterator[None]:
    """Logs what is waited for, if the block takes longer than `SECONDS`, and again if it goes on.

    Python's logging writes it to stderr unless configured otherwise. A function `what`
    is called only then.
    """
    ended = threading.Event()

    def tell(silent: float = SECONDS) -> None:
        while not ended.wait(silent):
            say(what if isinstance(what, str) else what())
            silent = AGAIN_SECONDS

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def lock_holder(*paths: str) -> str:
    """Names the other process that holds a lock on one of these files, if Linux says so.

    Of several ones it is one that writes.
    """
    inodes = set()
    for path in paths:
        with suppress(OSError):
            inodes.add(str(Path(path).stat().st_ino))
    with suppress(LookupError, OSError, ValueError):
        lines = [line.split()[:6] for line in Path("/proc/locks").read_text().splitlines()]
        holders = sorted(
            (mode != "WRITE", process)
            for _, kind, _, mode, process, file_id in lines
            if kind == "POSIX" and process != str(os.getpid())
            if file_id.rpartition(":")[2] in inodes
        )
        name = Path(f"/proc/{holders[0][1]}/comm").read_text().strip()
        return f"which process {holders[0][1]} ({name}) holds"
    return "which another process holds"
