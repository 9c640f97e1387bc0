"""A full disk for one process: no file that it writes may grow beyond some bytes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from unittest.mock import patch


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """What a quota does, for whoever runs it.

    Python doesn't see that a compiled module was cut off while it was kept: half of one
    would stay beside its source, and every process after this one would fail to import
    it. So none is kept meanwhile.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with patch.object(SourceFileLoader, "set_data"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
