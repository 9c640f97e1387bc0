"""Clients that are expensive to open, kept for the next split.

A worker takes the splits of a job one after the other. Each try at a split has a task
of its own, which keeps nothing. So a client that may outlive a try is kept here, by the
thread that runs the tasks, until the last of them. Whoever takes a client is its only
user, and keeps only a client that is in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar, cast


class Closeable(Protocol):
    """A client that can be kept."""

    def close(self) -> None:
        """Releases everything; the client isn't used again."""


C = TypeVar("C", bound=Closeable)


class _Thread(threading.local):
    clients: dict[Hashable, Closeable] | None = None


_thread = _Thread()


@contextmanager
def keeping() -> Iterator[None]:
    """Turns keeping on for this thread. Clients that are still kept at the end are closed."""
    outer_clients, clients = _thread.clients, dict[Hashable, Closeable]()
    _thread.clients = clients
    try:
        yield
    finally:
        _thread.clients = outer_clients
        with ExitStack() as closing:
            for client in clients.values():
                closing.callback(client.close)


def is_keeping() -> bool:
    """True if a client that is kept now can be taken later."""
    return _thread.clients is not None


def keep(key: Hashable, client: Closeable) -> None:
    """Keeps a client under a key.

    A client that is kept there already is closed. Outside of `keeping`, the client
    itself is closed.
    """
    superseded = client if _thread.clients is None else _thread.clients.pop(key, None)
    if _thread.clients is not None:
        _thread.clients[key] = client
    if superseded is not None:
        superseded.close()


def taken(key: Hashable) -> Closeable | None:
    """Takes the client that is kept under a key; None if there is none."""
    return None if _thread.clients is None else _thread.clients.pop(key, None)


@contextmanager
def borrowed(key: Hashable, made: Callable[[], C]) -> Iterator[C]:
    """Gives the client that is kept under a key, or one that is `made`; keeps it afterwards.

    It is closed if the block fails.
    """
    client = cast("C", taken(key)) or made()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    keep(key, client)
