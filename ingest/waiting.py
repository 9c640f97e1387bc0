"""What takes long says what it is: who waits at a terminal would else take the silence
for a hang.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 2.0
"""So long nobody wonders."""

_LOG = logging.getLogger("windrow.waiting")


def say(what: str) -> None:
    """Say what is waited for, where it is known already that it takes long."""
    _LOG.warning("Waiting for %s", what)


@contextmanager
def waiting_for(what: str | Callable[[], str]) -> Iterator[None]:
    """Say what is waited for, if the block takes longer than `SECONDS`: by Python's
    logging, which has it on stderr unless told.

    `what`: asked only then, if it is to be asked.
    """
    said = threading.Timer(SECONDS, lambda: say(what if isinstance(what, str) else what()))
    said.daemon = True
    said.start()
    try:
        yield
    finally:
        said.cancel()


def lock_holder(*paths: str) -> str:
    """Who holds a lock of one of these files that keeps writers out, as far as Linux says."""
    inodes = set()
    for path in paths:
        with suppress(OSError):
            inodes.add(str(Path(path).stat().st_ino))
    with suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, mode, process, place = line.split()[:6]
            if (kind, mode) == ("POSIX", "WRITE") and place.rpartition(":")[2] in inodes:
                name = Path(f"/proc/{process}/comm").read_text().strip()
                return f"which process {process} ({name}) holds"
    return "which another process holds"
