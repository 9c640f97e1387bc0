"""A topic for dead letters in memory: a `ports.dead_topic.DeadTopic` without Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.model.plan import Window


class MemoryDeadTopic:
    """A topic for dead letters in this process.

    Attributes:
        letters: the dead letters in the topic.
        publications: how often `publish` wrote dead letters.
        is_there: whether the topic exists.
        cluster: the id of its cluster.
    """

    def __init__(self, name: str, *, is_there: bool = True, cluster: str = "memory") -> None:
        self.letters: list[dict[str, Any]] = []
        self.publications = 0
        self.is_there, self.cluster = is_there, cluster
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def cluster_id(self) -> str:
        return self.cluster

    def refuse_unwritable(self) -> None:
        if not self.is_there:
            raise SpecError(
                f"There is no topic {self._name} for dead letters", "setup", "Create it."
            )

    def publish(self, _window: Window, dead_letters: Iterable[pa.RecordBatch]) -> None:
        self.refuse_unwritable()
        self.publications += 1
        self.letters += [letter for batch in dead_letters for letter in batch.to_pylist()]
