"""What is dear to open and waits for the next split: clients, while a worker takes the
splits of one job one after the other.

Each try at a split has a task of its own, which keeps nothing. So what may outlive a
try is kept here, by the thread that runs the tasks, and no longer than until the last
of them. Whoever takes something has it alone, and who keeps it vouches that it is
whole.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol


class Closeable(Protocol):
    """What can be kept."""

    def close(self) -> None:
        """Give everything back; nobody will ask for it again."""


class _Thread(threading.local):
    shelf: dict[Hashable, Closeable] | None = None


_thread = _Thread()


@contextmanager
def keeping() -> Iterator[None]:
    """While this lasts, what is kept waits to be taken; what waits at the end is closed."""
    before, shelf = _thread.shelf, dict[Hashable, Closeable]()
    _thread.shelf = shelf
    try:
        yield
    finally:
        _thread.shelf = before
        with ExitStack() as closing:
            for thing in shelf.values():
                closing.callback(thing.close)


def is_keeping() -> bool:
    """Whether what is kept now waits for anybody."""
    return _thread.shelf is not None


def keep(key: Hashable, thing: Closeable) -> None:
    """Let a thing wait under a key, in the place of what waits there; that, or without
    `keeping` the thing itself, is closed.
    """
    left = thing if _thread.shelf is None else _thread.shelf.pop(key, None)
    if _thread.shelf is not None:
        _thread.shelf[key] = thing
    if left is not None:
        left.close()


def taken(key: Hashable) -> Closeable | None:
    """What waits under a key, which waits there no longer; None if there is nothing."""
    return None if _thread.shelf is None else _thread.shelf.pop(key, None)
