"""What takes long says what it is: who waits at a terminal would else take the silence for a hang."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 2.0
"""So long nobody wonders."""

_LOG = logging.getLogger("windrow.waiting")


def say(what: str) -> None:
    """Say what is waited for, where it is known already that it takes long."""
    _LOG.warning("Waiting for %s", what)


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Say what is waited for, if the block takes longer than `SECONDS`: by Python's logging, which has it on stderr unless told."""
    said = threading.Timer(SECONDS, say, [what])
    said.daemon = True
    said.start()
    try:
        yield
    finally:
        said.cancel()
