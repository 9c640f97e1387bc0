"""The topics of a Kafka table: what they are, whether they can be written exactly once,
and the making of the control topic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import confluent_kafka as ck
import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    AclOperation,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import LOST, UNKNOWN, UNSEEN
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.questions import Questions
from windrow.ingest.kafka.retry import LOOK_SECONDS, NEWS_SECONDS, SEEN_SECONDS
from windrow.ingest.ports.sink import Delivered

_Spec: Any = OffsetSpec
_LATEST: Any = _Spec.latest()
_CONTROL = {"cleanup.policy": "compact", "retention.ms": "-1"}
_MAX_BYTES = 1_048_588
_LEFT_PACKED = frozenset({"producer", "lz4"})
"""By these a broker keeps a batch of LZ4 as it comes.

By any other one it packs it anew, and holds it to `max.message.bytes` once more.
"""

_SAID: Mapping[Delivered, str] = {
    "exactly-once": "exactly once",
    "at-least-once": "at least once",
    "none": "at all",
}
_VERIFICATION = "transaction.partition.verification.enable"


class Topic(msgspec.Struct, frozen=True):
    """A target topic: its name, its partitions, how large a message may be, and whether
    its broker packs batches anew.
    """

    name: str
    partitions: int
    message_bytes: int
    packs_anew: bool


class Readable(NamedTuple):
    """The first offset of a log, to where readers of committed messages come, and its end."""

    start: int
    stable: int
    end: int


class LogSeen(msgspec.Struct, frozen=True):
    """A log as the cluster names it: the topic's id, its leader's epoch, its first
    offset and its end.
    """

    topic_id: str
    epoch: int | None
    start: int
    end: int

    def goes_on(self, before: LogSeen | None) -> bool:
        """Whether what was read of it before is still there.

        A log is cut off only where its leader changes.
        """
        return before is not None and (self.topic_id, self.epoch, self.start) == (
            before.topic_id,
            before.epoch,
            before.start,
        )


class SinkTopics:
    """Asks the cluster anew each time. Used by one thread at a time; the client is everybody's."""

    def __init__(
        self,
        servers: str,
        admin: Mapping[str, Value],
        names: Sequence[str],
        control: str,
        patience: float,
    ) -> None:
        """`admin`: a client's properties; `names`: of the target topics; `control`: of
        the control topic.
        """
        self._servers, self._admin, self._names, self._name, self._patience = (
            servers,
            admin,
            tuple(names),
            control,
            patience,
        )

    def targets(self) -> dict[str, Topic]:
        """The target topics, by their names.

        Raises:
            SpecError: one isn't there.
        """
        questions = self._questions()
        described, config = (
            self._described(questions, self._names),
            self._configured(questions, self._names),
        )
        self._refuse_missing(described)
        return {
            name: _topic(name, len(found.partitions), config[name])
            for name, found in described.items()
        }

    def control(self, *, wait: bool) -> LogSeen | None:
        """The control topic's log; None if it isn't there.

        `wait`: it was, so the news of it may be on its way.

        Raises:
            SpecError: it can't be one, or this client may not see it.
        """
        questions = self._questions()
        described = self._described(questions, [self._name])[self._name]
        if isinstance(described, KafkaException):
            if described.args[0].code() not in UNKNOWN:
                raise questions.error_for("the control topic", self._name, described.args[0])
            if not wait:
                return None
            time.sleep(NEWS_SECONDS)
            return self.control(wait=False)
        if len(described.partitions) != 1:
            what = f"The control topic {self._name} has {len(described.partitions)} partitions"
            raise SpecError(
                what,
                "setup",
                "It must have one: make another one, and name it as sink.control_topic.",
            )
        end, start = questions.ask(
            f"the ends of {self._name}", None, lambda: self._limits(questions)
        )
        return LogSeen(
            str(described.topic_id), end.leader_epoch, int(start.offset), int(end.offset)
        )

    def _limits(self, questions: Questions) -> list[Any]:
        """The control topic's end, open transactions and all, and its first offset."""
        at, level = ck.TopicPartition(self._name, 0), ck.IsolationLevel.READ_UNCOMMITTED
        asked = [
            questions.admin.list_offsets(
                {at: spec}, isolation_level=level, request_timeout=questions.seconds
            )[at]
            for spec in (_Spec.latest(), _Spec.earliest())
        ]
        return [questions.result(future) for future in asked]

    def ends(self) -> dict[tuple[str, int], int]:
        """Per partition of the target topics the end of its log, open transactions and all."""
        questions = self._questions()
        described = self._described(questions, self._names)
        self._refuse_missing(described)
        every = [
            (name, partition.id)
            for name, found in described.items()
            for partition in found.partitions
        ]
        return log_ends(questions, every, ck.IsolationLevel.READ_UNCOMMITTED)

    def readable(self) -> dict[tuple[str, int], Readable]:
        """What can be read of each partition of the target topics."""
        ends, questions = self.ends(), self._questions()
        starts = log_ends(questions, list(ends), ck.IsolationLevel.READ_COMMITTED, _Spec.earliest())
        stable = log_ends(questions, list(ends), ck.IsolationLevel.READ_COMMITTED)
        return {at: Readable(starts[at], stable[at], end) for at, end in ends.items()}

    def named(self, topic: str, error: KafkaError) -> SpecError | UnreachableError:
        """What an error of a client that reads a topic means to a user."""
        if error.code() in LOST:
            what = f"The topic {topic} was deleted from, or cut off, while it was read"
            return UnreachableError(what, "check", "Run the command again.", topic)
        return self._questions().error_for(f"what {topic} holds", topic, error)

    def stable_and_end(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Per topic-partition of the target topics and the control topic, to where
        readers of committed messages come, and the log's end.

        The end is asked first: what comes meanwhile is taken for nothing that is held back.
        """
        questions = self._questions()
        described = self._described(questions, [*self._names, self._name])
        there = {
            name: found
            for name, found in described.items()
            if not isinstance(found, KafkaException)
        }
        self._refuse_missing(
            {name: found for name, found in described.items() if name != self._name}
        )
        every = [
            (name, partition.id) for name, found in there.items() for partition in found.partitions
        ]
        ends = log_ends(questions, every, ck.IsolationLevel.READ_UNCOMMITTED)
        stable = log_ends(questions, every, ck.IsolationLevel.READ_COMMITTED)
        return {tp: (stable[tp], end) for tp, end in ends.items()}

    def wait_until_seen(self, written: Mapping[tuple[str, int], int]) -> None:
        """Until readers of committed messages come past the last offset that was
        written to each of these topic-partitions.

        Kafka answers a commit before it has marked every partition. Not for ever: what
        holds a partition back may be a transaction of another program's.
        """
        questions, deadline = self._questions(), time.monotonic() + SEEN_SECONDS
        while written and time.monotonic() < deadline:
            ends = log_ends(questions, list(written), ck.IsolationLevel.READ_COMMITTED)
            if all(ends[tp] > last for tp, last in written.items()):
                return
            time.sleep(LOOK_SECONDS)

    def make_control(self) -> None:
        """Make the control topic, if it isn't there.

        Raises:
            SpecError: this client may not.
        """
        questions = self._questions()
        new = NewTopic(self._name, num_partitions=1, replication_factor=-1, config=_CONTROL)
        try:
            questions.ask(
                f"whether {self._name} can be made",
                None,
                lambda: questions.result(self._made(questions, new)),
            )
        except SpecError as error:
            settings = ", ".join(f"{name}={value}" for name, value in _CONTROL.items())
            do = f"Create it with one partition and {settings}, or grant this client Create on it."
            raise SpecError(
                f"The control topic {self._name} can't be made: {error.what}", "setup", do
            ) from None
        questions.ask(f"the topic {self._name}", None, lambda: self._led(questions))

    def refuse_unfit(self, delivery: Delivered, timeout: timedelta) -> None:
        """Hold topics, rights and the cluster's settings against what the sink needs;
        `timeout`: of transactions, where there are any.

        Raises:
            SpecError: with all that is wrong, and what to do.
        """
        questions = self._questions()
        described = self._described(questions, [*self._names, self._name])
        control = described.pop(self._name)
        self._refuse_missing(described)
        there = {
            **described,
            **({} if isinstance(control, KafkaException) else {self._name: control}),
        }
        wrong = [*_rights(there), *_copies(there, self._configured(questions, list(there)))]
        if delivery == "exactly-once":
            wrong += self._broker_mistakes(questions, timeout)
        if self._name in there:
            wrong += _control_mistakes(
                self._name, control, self._configured(questions, [self._name])[self._name]
            )
        if wrong:
            what = (
                f"The sink on {self._servers} can't be written {_SAID[delivery]}:"
                f" {'; '.join(wrong)}"
            )
            raise SpecError(what, "setup", "Fix that, then run again.")

    def changelog_warnings(self) -> list[str]:
        """What is wrong with the target topics where messages replace each other: Kafka
        is to keep the last one of each key, for ever.
        """
        named = ", ".join(self.uncompacted())
        if not named:
            return []
        return [
            f"Kafka will delete messages of {named} by their age or size, not by their key: give"  # noqa: ISC004
            " each cleanup.policy=compact"
        ]

    def uncompacted(self) -> list[str]:
        """Those of the target topics that Kafka doesn't compact; none where their
        settings may not be seen.
        """
        config = self._configured(self._questions(), self._names)
        return [name for name in self._names if "compact" not in _policy(config[name])]

    def _broker_mistakes(self, questions: Questions, timeout: timedelta) -> Iterator[str]:
        """What one broker's settings say; nothing where they may not be asked for."""
        try:
            config = questions.ask(
                "the broker's settings", None, lambda: _broker_settings(questions)
            )
        except SpecError:
            return
        longest = _number(config, "transaction.max.timeout.ms", 15 * 60 * 1000)
        if timeout // timedelta(milliseconds=1) > longest:
            yield (
                "sink.transaction_timeout is longer than the cluster's transaction.max.timeout.ms,"
                f" {longest} ms"
            )
        verifies = config.get(_VERIFICATION)
        if verifies is None:
            yield (
                f"its brokers are older than Kafka 3.6 (they have no {_VERIFICATION}): a late"
                " message may come into a later transaction"
            )
        elif verifies.value == "false":
            yield (
                f"{_VERIFICATION} is false: a late message may come into a later transaction. Set"
                " it to true"
            )

    def _refuse_missing(self, described: Mapping[str, Any]) -> None:
        for name, found in described.items():
            if isinstance(found, KafkaException):
                if found.args[0].code() not in UNKNOWN:
                    raise self._questions().error_for(f"the topic {name}", name, found.args[0])
                do = (
                    "Create it with the partitions that it should have, or fix sink.topic: windrow"
                    " doesn't make it."
                )
                raise SpecError(f"There is no topic {name} on {self._servers}", "setup", do)

    def _made(self, questions: Questions, new: NewTopic) -> Any:
        (future,) = questions.admin.create_topics([new], request_timeout=questions.seconds).values()
        error = future.exception(questions.seconds + 5)
        if (
            isinstance(error, KafkaException)
            and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        ):
            future = type(future)()
            future.set_result(None)
        return future

    def _led(self, questions: Questions) -> None:
        """Asked again until the topic has a leader."""
        found = self._described_once(questions, [self._name])[self._name]
        if isinstance(found, KafkaException):
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        if any(partition.leader is None for partition in found.partitions):
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    def _described(self, questions: Questions, names: Sequence[str]) -> dict[str, Any]:
        return questions.ask(
            f"the topics {', '.join(names)}", None, lambda: self._described_once(questions, names)
        )

    @staticmethod
    def _described_once(questions: Questions, names: Sequence[str]) -> dict[str, Any]:
        """Per topic what is said of it, or that it isn't there, which is an answer."""
        asked, found = ck.TopicCollection(list(names)), dict[str, Any]()
        request = questions.admin.describe_topics(
            asked, include_authorized_operations=True, request_timeout=questions.seconds
        )
        for name, future in request.items():
            try:
                found[name] = questions.result(future)
            except KafkaException as why:
                if why.args[0].code() not in UNSEEN:
                    raise
                found[name] = why
        return found

    @staticmethod
    def _configured(questions: Questions, names: Sequence[str]) -> dict[str, Any]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]

        def asked() -> dict[str, Any]:
            futures = questions.admin.describe_configs(resources, request_timeout=questions.seconds)
            return questions.results(
                {resource.name: future for resource, future in futures.items()}
            )

        return questions.ask("the topics' settings", None, asked)

    def _questions(self) -> Questions:
        return Questions(self._servers, CLIENTS.of(self._admin), self._patience)


def log_ends(
    questions: Questions,
    asked: Sequence[tuple[str, int]],
    level: ck.IsolationLevel,
    spec: Any = _LATEST,
) -> dict[tuple[str, int], int]:
    """Per topic-partition the end of its log, or another offset that can be asked for,
    as who reads at that level sees it.
    """
    latest = {ck.TopicPartition(*tp): spec for tp in asked}

    def listed() -> dict[tuple[str, int], int]:
        futures = questions.admin.list_offsets(
            latest, isolation_level=level, request_timeout=questions.seconds
        )
        return {
            (tp.topic, tp.partition): int(questions.result(future).offset)
            for tp, future in futures.items()
        }

    return questions.ask(
        f"the ends of {', '.join(sorted({topic for topic, _ in asked}))}", None, listed
    )


def _broker_settings(questions: Questions) -> Mapping[str, Any]:
    described = questions.result(
        questions.admin.describe_cluster(request_timeout=questions.seconds)
    )
    resource = ConfigResource(ResourceType.BROKER, str(described.controller.id))
    (found,) = questions.admin.describe_configs(
        [resource], request_timeout=questions.seconds
    ).values()
    settings: Mapping[str, Any] = questions.result(found)
    return settings


def _topic(name: str, partitions: int, config: Any) -> Topic:
    """Where its settings may not be seen they are Kafka's own, and batches are made for any."""
    packs_anew = (
        isinstance(config, KafkaException) or config["compression.type"].value not in _LEFT_PACKED
    )
    return Topic(name, partitions, _number(config, "max.message.bytes", _MAX_BYTES), packs_anew)


def _number(config: Any, name: str, otherwise: int) -> int:
    found = None if isinstance(config, KafkaException) else config.get(name)
    return otherwise if found is None else int(found.value)


def _rights(there: Mapping[str, Any]) -> Iterator[str]:
    for name, found in there.items():
        if (
            found.authorized_operations is not None
            and AclOperation.WRITE not in found.authorized_operations
        ):
            yield f"this client may not write to {name}: grant it Write"


def _copies(there: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """A log whose every copy must answer stops with the first broker that does."""
    for name, found in there.items():
        copies = min((len(partition.replicas) for partition in found.partitions), default=0)
        least = _number(config[name], "min.insync.replicas", 1)
        if least > copies:
            yield (
                f"{name} has {copies} replicas and min.insync.replicas {least}: nothing can be"
                " written. Give it more replicas"
            )


def _control_mistakes(name: str, found: Any, config: Any) -> Iterator[str]:
    if len(found.partitions) != 1:
        yield f"the control topic {name} has {len(found.partitions)} partitions: it must have one"
    policy = _policy(config)
    if policy != "compact":
        yield (
            f"the control topic {name} has cleanup.policy={policy}: it must be compact, or receipts"
            " are lost"
        )


def _policy(config: Any) -> str:
    """A topic's cleanup policies; where they may not be seen they are taken for right."""
    return "compact" if isinstance(config, KafkaException) else str(config["cleanup.policy"].value)
