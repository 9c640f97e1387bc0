"""A pool of consumers for scans.

A consumer costs threads, connections and a request for the topic's metadata, so an idle
consumer is kept for the next scan.

A client of librdkafka can be used only in the process that made it. A fork doesn't copy the
client's threads, so a call in the child would wait for them for ever. That includes the call
that closes the client.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import confluent_kafka as ck

from windrow.ingest.kafka.timeouts import NEW_TOPIC_SECONDS


class Consumers:
    """Gives each scan its own consumer, and keeps one idle consumer.

    The idle consumer is closed when this object is freed. Used by any thread.
    """

    def __init__(self, new: Callable[[], ck.Consumer]) -> None:
        """Makes no consumer yet.

        Args:
            new: makes a consumer without an assignment.
        """
        self._new = new
        self._idle: deque[_PooledConsumer] = deque(maxlen=1)  # its operations are atomic

    def new(self) -> ck.Consumer:
        """Makes a consumer outside the pool; the caller closes it."""
        return self._new()

    @contextmanager
    def lend(self, topic: str) -> Generator[ck.Consumer, None, None]:
        """Lends a consumer without an assignment for a scan of a topic.

        The consumer goes back to the pool if the scan ended or was stopped. It is closed if
        the scan failed.
        """
        idle = self._take_idle()
        pooled = idle or _PooledConsumer(self._new())
        try:
            pooled.prefetch_metadata(topic, ask=idle is not None)
            yield pooled.consumer
        except GeneratorExit:
            self._give_back(pooled)
            raise
        except BaseException:
            pooled.close()
            raise
        self._give_back(pooled)

    def _take_idle(self) -> _PooledConsumer | None:
        try:
            pooled = self._idle.pop()
        except IndexError:
            return None
        return pooled if pooled.in_own_process else None

    def _give_back(self, pooled: _PooledConsumer) -> None:
        """Keeps the consumer as the idle one; a consumer that was idle before is closed."""
        if not pooled.in_own_process:
            pooled.close()
            return
        pooled.consumer.unassign()
        self._idle.append(pooled)


class _PooledConsumer:
    """A consumer, and the process that may use it."""

    def __init__(self, consumer: ck.Consumer) -> None:
        self.consumer = consumer
        self._process = os.getpid()
        self._closed = False
        self._topics = set[str]()

    @property
    def in_own_process(self) -> bool:
        """True in the process that made the consumer."""
        return os.getpid() == self._process

    def prefetch_metadata(self, topic: str, *, ask: bool) -> None:
        """Makes the client ask for the leaders of a topic that it hasn't read before.

        By itself the client would ask up to a second later. A request without an answer is
        no failure here, because the scan will meet the same problem.

        Args:
            topic: the topic's name.
            ask: True for a consumer that was idle. A new consumer asks at once by itself.
        """
        if ask and topic not in self._topics:
            with suppress(ck.KafkaException):
                self.consumer.list_topics(topic, NEW_TOPIC_SECONDS)
        self._topics.add(topic)

    def close(self) -> None:
        """Closes the consumer; in another process, leaves it alone until the process ends."""
        if self._closed:
            return
        self._closed = True
        if self.in_own_process:
            self.consumer.close()
        else:
            # never destroyed, not even at the interpreter's end
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.consumer))

    def __del__(self) -> None:
        self.close()
