"""The process's clients, one per cluster and way to reach it, however many pipelines ask.

A client costs threads, connections and a login, and any number of threads may use one
of librdkafka's at once. So a broker takes the one that was made with the same
properties, and the consumers that wait beside it. A client is kept until the process
ends, and closed then, but for two kinds: one that a question failed on for good (it may
be broken, and librdkafka doesn't repeat why), and the one that nobody has asked for the
longest while, where there are more than `MOST`. Those are closed with the last broker
that has them.

A child made by a fork makes its own: see `consumers`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.client import LOG, scrubbed
from windrow.ingest.kafka.consumers import Consumers
from windrow.ingest.kafka.properties import PLACE, Value

T = TypeVar("T")
Key = frozenset[tuple[str, Value]]

MOST = 16
"""Clients that are kept; a process that reads from more clusters makes some of them again."""

_HEARD = 64
"""The newest errors that are remembered: a question looks at those since it was put."""


class Client:
    """An AdminClient, the consumers beside it, and what they have said of themselves lately.

    Used by any thread.
    """

    def __init__(self, properties: Mapping[str, Value]) -> None:
        """Connects lazily.

        Raises:
            SpecError: the properties can't be used.
        """
        self._said: deque[tuple[float, KafkaError]] = deque(maxlen=_HEARD)
        self._properties = properties
        # nothing in here refers to this object, so it goes with its last broker
        self._listen = partial(_noted, self._said)
        self._pools: dict[Key, Consumers] = {}
        self.admin = made(AdminClient, properties, self._listen)

    def consumers(self, properties: Mapping[str, Value]) -> Consumers:
        """Consumers with these properties: one that is idle may have served another broker."""
        new = partial(made, Consumer, dict(properties), self._listen)
        return self._pools.setdefault(frozenset(properties.items()), Consumers(new))

    def said_since(self, moment: float) -> list[tuple[float, KafkaError]]:
        """The clients' own errors since an instant of the monotonic clock, in the order of time."""
        return [(at, error) for at, error in self._said.copy() if at >= moment]

    def scrub(self, text: str) -> str:
        """A text of librdkafka without the secrets that it might quote."""
        return scrubbed(text, self._properties)


class Clients:
    """Clients by their properties, and the process that they may be used in."""

    def __init__(self) -> None:
        self._kept: dict[Key, Client] = {}  # the one that was asked for last comes last
        self._lock = threading.Lock()

    def of(self, properties: Mapping[str, Value]) -> Client:
        """The client with these properties, which are an AdminClient's.

        Raises:
            SpecError: the properties can't be used.
        """
        key = frozenset(properties.items())
        with self._lock:
            found = self._kept.pop(key, None) or Client(properties)
            self._kept[key] = found
            left = [self._kept.pop(oldest) for oldest in list(self._kept)[:-MOST]]
        del left  # closed only here: the lock is not held while threads end
        return found

    def leave(self, client: Client) -> None:
        """Don't give this one to anybody any more; who has it may go on with it."""
        with self._lock:
            self._kept = {key: kept for key, kept in self._kept.items() if kept is not client}

    def close(self) -> None:
        """Leave all of them."""
        with self._lock:
            left, self._kept = self._kept, {}
        left.clear()

    def forsake(self) -> None:
        """In the child of a fork: never use nor destroy what the parent made.

        Whoever held the lock may not be here to release it.
        """
        for client in self._kept.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        self._kept, self._lock = {}, threading.Lock()


CLIENTS = Clients()
"""This process's."""

atexit.register(CLIENTS.close)
os.register_at_fork(after_in_child=CLIENTS.forsake)


def _noted(said: deque[tuple[float, KafkaError]], error: KafkaError) -> None:
    said.append((time.monotonic(), error))


def made(
    client: Callable[[Any], T],
    properties: Mapping[str, Value],
    listen: Callable[[KafkaError], None],
) -> T:
    """A client with these properties, whose errors go to `listen`, and whose log to no terminal.

    Raises:
        SpecError: the properties can't be used.
    """
    try:
        return client(dict(properties) | {"error_cb": listen, "logger": LOG})
    except KafkaException as why:
        text = scrubbed(why.args[0].str(), properties)
        raise SpecError(
            f"The client properties can't be used: {text}", "spec", f"Fix them {PLACE}."
        ) from None
