"""The clients of this process, shared by all pipelines: one for each set of properties.

A client costs threads, connections and a login, and any number of threads may use it at
once. So each `KafkaBroker` with the same properties shares a client and its idle consumers.
A client is kept until the process ends, with two exceptions:

- A request on it failed for good. The client may be broken, and librdkafka doesn't repeat
  the reason.
- It is the least recently used of more than `MAX_CLIENTS` clients.

Such a client is closed with the last broker that uses it.

The child of a fork makes its own clients: see `consumers`.
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
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.allowed_properties import WHERE_TO_SET, Value
from windrow.ingest.kafka.client_properties import LOG, scrub
from windrow.ingest.kafka.consumers import Consumers

T = TypeVar("T")
Key = frozenset[tuple[str, Value]]

MAX_CLIENTS = 16
"""Most clients that are kept; a process with more clusters makes some clients again."""

_MOST_ERRORS = 64
"""Most errors that are kept. A request looks at the errors since it was sent."""


class Client:
    """An AdminClient, its consumers, and their latest errors. Used by any thread."""

    def __init__(self, properties: Mapping[str, Value]) -> None:
        """Connects lazily.

        Raises:
            SpecError: the properties can't be used.
        """
        self._errors: deque[tuple[float, KafkaError]] = deque(maxlen=_MOST_ERRORS)
        self._properties = properties
        # nothing in these fields refers to this object, so it is freed with its last broker
        self._on_error = partial(_note_error, self._errors)
        self._pools: dict[Key, Consumers] = {}
        self.admin = create_client(AdminClient, properties, self._on_error)

    def consumers(self, properties: Mapping[str, Value]) -> Consumers:
        """Returns the pool of consumers with these properties, shared by all users."""
        new = partial(create_client, Consumer, dict(properties), self._on_error)
        return self._pools.setdefault(frozenset(properties.items()), Consumers(new))

    def errors_since(self, moment: float) -> list[tuple[float, KafkaError]]:
        """Returns the clients' errors since a moment of the monotonic clock, in order of time."""
        return [
            (error_time, error) for error_time, error in self._errors.copy() if error_time >= moment
        ]

    def scrub(self, text: str) -> str:
        """Removes the secrets that a text of librdkafka might quote."""
        return scrub(text, self._properties)

    @property
    def token_note(self) -> str:
        """Words for an error that name the server that librdkafka asks for tokens, if any."""
        url = self._properties.get("sasl.oauthbearer.token.endpoint.url")
        return f" (the login asks {urlsplit(str(url)).netloc} for tokens)" if url else ""


class Clients:
    """The clients of one process, by their properties."""

    def __init__(self) -> None:
        self._client_by_properties: dict[Key, Client] = {}  # the most recently used one is last
        self._lock = threading.Lock()

    def of(self, properties: Mapping[str, Value]) -> Client:
        """Returns the client with these properties of an AdminClient.

        Raises:
            SpecError: the properties can't be used.
        """
        key = frozenset(properties.items())
        with self._lock:
            client = self._client_by_properties.pop(key, None) or Client(properties)
            self._client_by_properties[key] = client
            evicted = [
                self._client_by_properties.pop(oldest)
                for oldest in list(self._client_by_properties)[:-MAX_CLIENTS]
            ]
        del evicted  # closed after the lock is released: closing waits for threads
        return client

    def drop(self, client: Client) -> None:
        """Drops a client: new users don't get it any more, and present users may go on."""
        with self._lock:
            self._client_by_properties = {
                key: cached
                for key, cached in self._client_by_properties.items()
                if cached is not client
            }

    def close(self) -> None:
        """Drops all clients."""
        with self._lock:
            dropped, self._client_by_properties = self._client_by_properties, {}
        dropped.clear()

    def drop_after_fork(self) -> None:
        """Drops the parent's clients in the child of a fork, without destroying them.

        The lock is replaced, because a thread that held it doesn't exist in the child.
        """
        for client in self._client_by_properties.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        self._client_by_properties, self._lock = {}, threading.Lock()


CLIENTS = Clients()
"""The clients of this process."""

atexit.register(CLIENTS.close)
os.register_at_fork(after_in_child=CLIENTS.drop_after_fork)


def _note_error(errors: deque[tuple[float, KafkaError]], error: KafkaError) -> None:
    errors.append((time.monotonic(), error))


def create_client(
    client: Callable[[Any], T],
    properties: Mapping[str, Value],
    on_error: Callable[[KafkaError], None],
) -> T:
    """Makes a client whose errors go to `on_error`, and whose log goes to `LOG`.

    librdkafka 2.16 ends the process if its own client of a provider of tokens meets certificates
    or keys that it can't use. So a client without a login tries them first.

    Raises:
        SpecError: the properties can't be used.
    """
    try:
        if "sasl.oauthbearer.method" in properties:
            tls = {name: value for name, value in properties.items() if name.startswith("ssl.")}
            Producer({"security.protocol": "SSL", "logger": LOG, **tls})
        return client(dict(properties) | {"error_cb": on_error, "logger": LOG})
    except KafkaException as why:
        text = scrub(why.args[0].str(), properties)
        raise SpecError(
            f"The client properties can't be used here: {text}",
            "spec",
            f"Fix them {WHERE_TO_SET}; the files that they name must be where tasks run, too.",
        ) from None
