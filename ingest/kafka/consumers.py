"""Consumers for scans: one that is done waits for the next scan, for a consumer costs
threads, connections and a look at the topic.

A librdkafka handle belongs to the process that made it: after a fork its threads are
missing in the child, where using it or destroying it waits for them for ever.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import confluent_kafka as ck

from windrow.ingest.kafka.retry import NEWS_SECONDS


class Consumers:
    """Gives each scan a consumer of its own, and keeps one idle.

    What is idle is closed when this object goes. Used by any thread.
    """

    def __init__(self, new: Callable[[], ck.Consumer]) -> None:
        """`new` makes one, without an assignment."""
        self._new = new
        self._idle: deque[_Kept] = deque(maxlen=1)  # whose operations are whole to all threads

    def new(self) -> ck.Consumer:
        """One that has served nobody, for whoever takes it to close."""
        return self._new()

    @contextmanager
    def one(self, topic: str) -> Generator[ck.Consumer, None, None]:
        """A consumer without an assignment, for a scan of a topic.

        It is kept if the scan ended or was left, and closed if it failed.
        """
        idle = self._taken()
        kept = idle or _Kept(self._new())
        try:
            kept.hears_of(topic, ask=idle is not None)
            yield kept.consumer
        except GeneratorExit:
            self._give_back(kept)
            raise
        except BaseException:
            kept.close()
            raise
        self._give_back(kept)

    def _taken(self) -> _Kept | None:
        try:
            kept = self._idle.pop()
        except IndexError:
            return None
        return kept if kept.ours else None

    def _give_back(self, kept: _Kept) -> None:
        """The one that was idle before, if any, goes, and is closed with that."""
        if not kept.ours:
            kept.close()
            return
        kept.consumer.unassign()
        self._idle.append(kept)


class _Kept:
    """A consumer, and the process that it may be used in."""

    def __init__(self, consumer: ck.Consumer) -> None:
        self.consumer = consumer
        self._process = os.getpid()
        self._closed = False
        self._topics = set[str]()

    @property
    def ours(self) -> bool:
        """Whether this is its process."""
        return os.getpid() == self._process

    def hears_of(self, topic: str, *, ask: bool) -> None:
        """Have the client ask who leads a topic that it hasn't read before: by itself
        it would, but up to a second later.

        `ask`: it is no new client, which asks for all that it is given at once. No
        answer is no failure here: the scan will meet it.
        """
        if ask and topic not in self._topics:
            with suppress(ck.KafkaException):
                self.consumer.list_topics(topic, NEWS_SECONDS)
        self._topics.add(topic)

    def close(self) -> None:
        """Closed, its threads ended; in another process left alone, for as long as that lives."""
        if self._closed:
            return
        self._closed = True
        if self.ours:
            self.consumer.close()
        else:
            # never destroyed, not even when the interpreter ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.consumer))

    def __del__(self) -> None:
        self.close()
