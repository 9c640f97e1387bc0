"""A full disk for one process: no file that the process writes can grow beyond a limit."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from unittest.mock import patch


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Limits the size of files inside the block, like a disk quota does.

    No compiled module is written inside the block. Python doesn't notice that the limit cut
    such a file off, and every later process would fail to import the broken file.

    Args:
        size: the limit in bytes.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with patch.object(SourceFileLoader, "set_data"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
