"""What somebody who waits is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler
from queue import Queue


@contextmanager
def waits_heard() -> Iterator[Queue[logging.LogRecord]]:
    """What `windrow.waiting` says meanwhile."""
    heard: Queue[logging.LogRecord] = Queue()
    handler = QueueHandler(heard)
    logging.getLogger("windrow.waiting").addHandler(handler)
    try:
        yield heard
    finally:
        logging.getLogger("windrow.waiting").removeHandler(handler)
