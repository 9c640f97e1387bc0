"""Clients that are expensive to open, kept for the next split.

A worker runs the splits of a job one after the other. Each attempt at a split has a task of
its own, which keeps no state. A client that may outlive an attempt is therefore kept here,
in the thread that runs the tasks, until the last task has ended. A client that is taken has
one user. The user puts it back only if it still works.
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
    """Keeps clients of this thread during the block, and closes the kept ones at its end."""
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
    """Returns whether a client that is kept now can be taken later."""
    return _thread.clients is not None


def keep(key: Hashable, client: Closeable) -> None:
    """Keeps a client under a key.

    A client that is already kept under the key is closed. Outside of `keeping`, the given
    client is closed instead.
    """
    superseded = client if _thread.clients is None else _thread.clients.pop(key, None)
    if _thread.clients is not None:
        _thread.clients[key] = client
    if superseded is not None:
        superseded.close()


def take_client(key: Hashable) -> Closeable | None:
    """Takes the client that is kept under a key; None if there is none."""
    return None if _thread.clients is None else _thread.clients.pop(key, None)


@contextmanager
def borrow_client(key: Hashable, make_client: Callable[[], C]) -> Iterator[C]:
    """Yields the client that is kept under a key, or a new one, and keeps it after the block.

    If the block fails, the client is closed.
    """
    client = cast("C", take_client(key)) or make_client()
    try:
        yield client
    except BaseException:
        client.close()
        raise
    keep(key, client)
