"""A topic for dead letters in memory: a `ports.dead_topic.DeadTopic` without Kafka.

It fences publish attempts, and can forget, as the real one does.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.model.window import Window


class MemoryDeadTopic:
    """A topic for dead letters in this process.

    `letters`: what readers of committed messages see. `marks`: the attempts that the
    topic remembers as published.
    """

    def __init__(self, name: str, *, is_there: bool = True) -> None:
        self.letters: list[dict[str, Any]] = []
        self.marks: set[tuple[Window, str]] = set()
        self.is_there = is_there
        self.publish_attempts = 0
        self._name = name
        self._epochs: dict[tuple[Window, str], int] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def refuse_unwritable(self) -> None:
        if not self.is_there:
            raise SpecError(
                f"There is no topic {self._name} for dead letters", "setup", "Create it."
            )

    def remembers(self) -> timedelta:
        """A week, which is Kafka's default; tests remove `marks` to make it forget."""
        return timedelta(days=7)

    @contextmanager
    def publishing(
        self, window: Window, attempt: str
    ) -> Generator[MemoryPublishAttempt, None, None]:
        self.refuse_unwritable()
        with self._lock:
            self.publish_attempts += 1
            epoch = self._epochs[window, attempt] = self._epochs.get((window, attempt), 0) + 1
        yield MemoryPublishAttempt(self, (window, attempt), epoch)

    def settle(
        self, attempt: tuple[Window, str], epoch: int, letters: list[dict[str, Any]]
    ) -> None:
        """Adds dead letters and their mark, unless a later publish attempt has begun.

        Raises:
            UnreachableError: a later one has begun.
        """
        with self._lock:
            if self._epochs[attempt] != epoch:
                raise UnreachableError(
                    "another run, which began later, publishes them",
                    "commit",
                    "Run the window again.",
                )
            self.letters += letters
            self.marks.add(attempt)


class MemoryPublishAttempt:
    """A `ports.dead_topic.PublishAttempt` in memory."""

    def __init__(self, topic: MemoryDeadTopic, attempt: tuple[Window, str], epoch: int) -> None:
        self._topic, self._attempt, self._epoch = topic, attempt, epoch
        self._letters: list[dict[str, Any]] = []

    def is_published(self) -> bool:
        return self._attempt in self._topic.marks

    def write(self, letters: Iterable[pa.RecordBatch]) -> None:
        self._letters = [letter for batch in letters for letter in batch.to_pylist()]

    def commit(self, count: int) -> None:
        del count
        self._topic.settle(self._attempt, self._epoch, self._letters)
