"""What somebody who waits is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler
from queue import Queue


@contextmanager
def hear_waits() -> Iterator[Queue[logging.LogRecord]]:
    """What `windrow.waiting` says meanwhile."""
    records: Queue[logging.LogRecord] = Queue()
    handler = QueueHandler(records)
    logging.getLogger("windrow.waiting").addHandler(handler)
    try:
        yield records
    finally:
        logging.getLogger("windrow.waiting").removeHandler(handler)
