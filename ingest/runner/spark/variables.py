"""Variables of this process's environment, for a moment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def variable_set(name: str, value: str | None) -> Iterator[None]:
    """A variable for what is done in the block, which is as it was afterwards.

    None: it stays as it is.
    """
    if value is None:
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
