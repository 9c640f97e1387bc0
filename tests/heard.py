"""The log messages about waiting that a user sees."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler
from queue import Queue


@contextmanager
def hear_waits() -> Iterator[Queue[logging.LogRecord]]:
    """Yields the records that the logger `windrow.waiting` gets inside the block."""
    records: Queue[logging.LogRecord] = Queue()
    handler = QueueHandler(records)
    logging.getLogger("windrow.waiting").addHandler(handler)
    try:
        yield records
    finally:
        logging.getLogger("windrow.waiting").removeHandler(handler)
