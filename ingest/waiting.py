"""Messages about long waits, so that a person at a terminal doesn't think that windrow hangs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 2.0
"""The seconds that a wait may last without a message."""

AGAIN_SECONDS = 15.0
"""The seconds between two messages about the same wait."""

_LOG = logging.getLogger("windrow.waiting")


def log_waiting(subject: str) -> None:
    """Logs what windrow waits for, if it is known beforehand that the wait is long."""
    _LOG.warning("Waiting for %s", subject)


@contextmanager
def waiting_for(subject: str | Callable[[], str]) -> Iterator[None]:
    """Logs what windrow waits for, if the block takes longer than `SECONDS`, and then repeatedly.

    Python's logging writes the message to stderr unless it is configured otherwise. If
    `subject` is a function, it is called only when a message is written.
    """
    ended = threading.Event()

    def tell(silent: float = SECONDS) -> None:
        while not ended.wait(silent):
            log_waiting(subject if isinstance(subject, str) else subject())
            silent = AGAIN_SECONDS

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def lock_holder(*paths: str) -> str:
    """Returns words that name another process with a lock on one of these files.

    Linux lists locks in /proc/locks; elsewhere the process has no name. If several
    processes hold a lock, a writing one is named.
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
