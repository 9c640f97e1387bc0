"""A cluster at one moment: each question that many windows have is asked once."""

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

    A pause (`sleep`) ends the moment: then everything is asked anew. So code that asks
    again some time apart, before it believes an answer, gets a new one.
    """
    moment = BrokerSnapshot(pipeline.broker)

    def sleep(seconds: float) -> None:
        pipeline.sleep(seconds)
        moment.forget()

    return replace(pipeline, broker=cast("Broker", moment), sleep=sleep)


class BrokerSnapshot:
    """`ports.broker.Broker` that keeps its first answers about ids and ends of logs.

    It passes all other questions on.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.forget()

    def __getattr__(self, question: str) -> Any:
        return getattr(self._broker, question)

    def forget(self) -> None:
        """Ask everything anew from now on."""
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

    def diverged(self, marks: Sequence[Mark]) -> list[Mark]:
        """Asks only for offsets that the log wasn't seen to reach yet.

        A log that reaches an offset under an epoch reaches all offsets below it.
        """
        unreached_marks = [
            mark
            for mark in marks
            if mark.offset > self._reached.get((mark.tp, mark.leader_epoch), -1)
        ]
        diverged = self._broker.diverged(unreached_marks) if unreached_marks else []
        for mark in sorted(set(unreached_marks) - set(diverged), key=lambda mark: mark.offset):
            self._reached[mark.tp, mark.leader_epoch] = mark.offset
        return diverged


def _ask_unknown(
    answers: dict[K, V], keys: Sequence[K], question: Callable[[Sequence[K]], Mapping[K, V]]
) -> dict[K, V]:
    """Returns the known answers, and asks for those that aren't known yet."""
    unknown_keys = [key for key in keys if key not in answers]
    if unknown_keys:
        answers.update(question(unknown_keys))
    return {key: answers[key] for key in keys if key in answers}
