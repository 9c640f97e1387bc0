"""A snapshot of a cluster: a question that several windows have is asked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.ports.broker import Broker, TopicInfo
from windrow.ingest.runner.context import Pipeline

K = TypeVar("K")
V = TypeVar("V")


def with_broker_snapshot(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with a broker that repeats its first answer to each question.

    `sleep` drops all answers. So code that pauses and asks again, to confirm an answer, gets a
    new answer.
    """
    moment = BrokerSnapshot(pipeline.broker)

    def sleep(seconds: float) -> None:
        pipeline.sleep(seconds)
        moment.forget()

    return replace(pipeline, broker=cast("Broker", moment), sleep=sleep)


class BrokerSnapshot:
    """A `ports.broker.Broker` that keeps its first answers about topics, logs and the cluster.

    It passes all other questions to the broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.forget()

    def __getattr__(self, question: str) -> Any:
        return getattr(self._broker, question)

    def forget(self) -> None:
        """Drops all answers, so that the broker is asked again."""
        self._cluster: str | None = None
        self._topics: dict[str, TopicInfo | None] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._reached: dict[tuple[TopicPartition, int | None], int] = {}

    def cluster_id(self) -> str:
        if self._cluster is None:
            self._cluster = self._broker.cluster_id()
        return self._cluster

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        answers = _ask_unknown(
            self._topics, names, lambda new: dict.fromkeys(new) | self._broker.topics(new)
        )
        return {name: info for name, info in answers.items() if info is not None}

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return _ask_unknown(self._starts, tps, self._broker.log_starts)

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return _ask_unknown(self._ends, tps, self._broker.ends)

    def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
        """Returns the marks that the log doesn't reach any more.

        The broker is asked only for marks above the offset that the log is known to reach. A
        log that reaches an offset under a leader epoch reaches all lower offsets under it.
        """
        unreached_marks = [
            mark
            for mark in marks
            if mark.offset > self._reached.get((mark.tp, mark.leader_epoch), -1)
        ]
        diverged = self._broker.diverged_marks(unreached_marks) if unreached_marks else []
        for mark in sorted(set(unreached_marks) - set(diverged), key=lambda mark: mark.offset):
            self._reached[mark.tp, mark.leader_epoch] = mark.offset
        return diverged


def _ask_unknown(
    answers: dict[K, V], keys: Sequence[K], question: Callable[[Sequence[K]], Mapping[K, V]]
) -> dict[K, V]:
    """Returns answers to all keys, and asks only for unknown keys.

    Args:
        answers: the known answers; gets the new ones.
        keys: the keys.
        question: answers some keys.
    """
    unknown_keys = [key for key in keys if key not in answers]
    if unknown_keys:
        answers.update(question(unknown_keys))
    return {key: answers[key] for key in keys if key in answers}
