"""The broker's answers, by confluent-kafka: metadata and offsets through an
AdminClient, timestamps through a consumer.

A question about many topics or topic-partitions is one request of each kind that it
needs, however many they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # public, untyped

from windrow.ingest.errors import DataLossError, SpecError, UnreachableError
from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import (
    END,
    FORBIDDEN,
    LOST,
    OCCUPIED,
    PASSING,
    UNKNOWN,
    is_truncation,
)
from windrow.ingest.kafka.properties import Tuning
from windrow.ingest.kafka.questions import Questions
from windrow.ingest.kafka.retry import PATIENCE_SECONDS, POLL_SECONDS
from windrow.ingest.kafka.scan import scan, scanning
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import OffsetAndEpoch, Stamps, TopicInfo

_Spec: Any = OffsetSpec
Asked = Mapping[TopicPartition, Any]
"""Per topic-partition an OffsetSpec."""

_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero UUID: what a cluster before Kafka 2.8 names instead of an id."""

_NONE = -1
"""Kafka's answer where no message is at or after an instant."""

_LEVELS: Mapping[Isolation, ck.IsolationLevel] = {
    "read_committed": ck.IsolationLevel.READ_COMMITTED,
    "read_uncommitted": ck.IsolationLevel.READ_UNCOMMITTED,
}
_UNTUNED = Tuning()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED = 3
"""So many topics are named in an error about several."""


class KafkaBroker:
    """`ports.broker.Broker` on a real cluster.

    Used on the driver, by one thread; its client is shared (`clients`).
    """

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, object],
        *,
        isolation: Isolation = "read_committed",
        tuning: Tuning = _UNTUNED,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Connects lazily.

        Args:
            bootstrap: the cluster's address.
            client: the user's properties.
            isolation: the level that all answers but `ends` go by.
            tuning: the user's typed settings.
            patience_seconds: how long one question is asked again before giving up.

        Raises:
            SpecError: the client properties can't be used.
        """
        self._isolation = isolation
        consumer = consumer_properties(bootstrap, client, isolation=isolation, tuning=tuning)
        shared = CLIENTS.of(admin_properties(bootstrap, client, tuning=tuning))
        self._questions, self._admin = Questions(bootstrap, shared, patience_seconds), shared.admin
        self._consumers = shared.consumers(scanning(consumer))

    def cluster_id(self) -> str:
        """The cluster's id."""
        described = self._questions.ask(
            "the cluster's id",
            None,
            lambda: self._questions.result(
                self._admin.describe_cluster(request_timeout=self._questions.seconds)
            ),
        )
        return str(described.cluster_id)

    def topic(self, name: str) -> TopicInfo:
        """What the cluster says of a topic now.

        Raises:
            SpecError: if there is no such topic, or the client may not see it.
        """
        found = self._infos([name])[name]
        if isinstance(found, KafkaException):
            raise self._questions.named("the topic", name, found.args[0])
        return found

    def names(self) -> list[str]:
        """The names of all topics that the client may see, sorted, without Kafka's
        internal ones.
        """
        names = self._questions.ask("the topics' names", None, self._names)
        doubtful = [name for name in names if name.startswith("__")]
        described = self._questions.ask(
            "which topics are internal", None, lambda: self._described(doubtful)
        )
        internal = {
            name
            for name, found in described.items()
            if isinstance(found, KafkaException) or found.is_internal
        }
        return [name for name in names if name not in internal]

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """What the cluster says of several topics now, in two requests; those that aren't there are left out.

        Raises:
            SpecError: one may not be seen: that must not look like a topic that is gone.
        """  # noqa: E501
        infos = self._infos(names)
        for name, found in infos.items():
            if isinstance(found, KafkaException) and found.args[0].code() in FORBIDDEN:
                raise self._questions.named("the topic", name, found.args[0])
        return {name: found for name, found in infos.items() if isinstance(found, TopicInfo)}

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there; above 0 after retention or a deletion
        of records.
        """
        answers = self._offsets(
            "the log's start", dict.fromkeys(tps, _Spec.earliest()), self._isolation
        )
        return {tp: self._there(tp, answer).offset for tp, answer in answers.items()}

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The last stable offsets: everything below is decided.

        Under read_uncommitted the high watermarks.
        """
        answers = self._offsets(
            "the stable end", dict.fromkeys(tps, _Spec.latest()), self._isolation
        )
        return {tp: self._there(tp, answer) for tp, answer in answers.items()}

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks, whatever the isolation level."""
        answers = self._offsets(
            "the log's end", dict.fromkeys(tps, _Spec.latest()), "read_uncommitted"
        )
        return {tp: self._there(tp, answer).offset for tp, answer in answers.items()}

    def regrown(self, marks: Sequence[Mark]) -> list[Mark]:
        """Those below which the log was cut off since they were cut.

        A log is cut off only where its leader changes.
        """
        witnessed = [mark for mark in marks if mark.leader_epoch is not None]
        ends = self.stable_ends([mark.tp for mark in witnessed])
        doubtful = [mark for mark in witnessed if ends[mark.tp].leader_epoch != mark.leader_epoch]
        return [
            mark
            for topic in sorted({m.topic for m in doubtful})
            for mark in self._regrown([m for m in doubtful if m.topic == topic])
        ]

    def committed(
        self, group: str, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The next offsets that a consumer group has committed; None where it has committed none.

        Asking makes no group.
        """
        if not tps:
            return {}
        asked = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(tp.topic, tp.partition) for tp in dict.fromkeys(tps)]
        )
        what = f"the offsets of group {group}"
        answers = self._questions.ask(
            what, None, lambda: self._of_group(self._admin.list_consumer_group_offsets, asked)
        )
        for tp, (_, error) in answers.items():
            if error is not None and error.code() not in UNKNOWN:
                raise self._questions.named(what, tp.topic, error)
        return {tp: offset if offset >= 0 else None for tp, (offset, _) in answers.items()}

    def publish(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commit offsets to a consumer group, for the tools that watch groups; per
        topic-partition None, or why it did not work.

        Kafka refuses it where consumers are at work in the group. Never raises for what
        the cluster answers or doesn't.
        """
        if not offsets:
            return {}
        sent = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in offsets.items()]
        )
        what = f"the offsets of group {group}"
        try:
            answers = self._questions.ask(
                what, None, lambda: self._of_group(self._admin.alter_consumer_group_offsets, sent)
            )
        except (SpecError, UnreachableError) as why:
            return dict.fromkeys(offsets, why.what)
        return {
            tp: None if error is None else self._refusal(error)
            for tp, (_, error) in answers.items()
        }

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Kafka's own answer: the first offset whose timestamp is at or after the
        moment, or None.
        """
        asked = dict.fromkeys(tps, _Spec.for_timestamp(first_millisecond(moment)))
        return self._offsets("the first offset at an instant", asked, self._isolation)

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """The visible messages of [start, stop) in chunks, lazily: the caller may stop
        early (close the iterator).

        Raises:
            DataLossError: if `start` lies below the log start.
            UnreachableError: if `stop` lies beyond the stable end, or nothing arrives.
        """
        if start >= stop:
            return
        with self._consumers.one(tp.topic) as consumer:
            yield from scan(consumer, tp, start, stop, self._doubt)

    # ----------------------------------------------------------------------------------------------

    def _regrown(self, marks: Sequence[Mark]) -> list[Mark]:
        """Of one topic.

        A consumer that is assigned with a leader epoch asks the cluster whether the log
        still reaches as far under it.

        It asks as soon as it hears of the topic's leaders, and one that has heard of
        them doesn't ask: so it is a new one each time.

        Raises:
            UnreachableError: the cluster doesn't say.
        """
        left, found = {mark.partition: mark for mark in marks}, list[Mark]()
        deadline = time.monotonic() + self._questions.patience
        with closing(self._consumers.new()) as consumer:
            consumer.assign(
                [
                    ck.TopicPartition(m.topic, m.partition, m.offset, leader_epoch=m.leader_epoch)
                    for m in marks
                ]
            )
            while left:
                message = consumer.poll(POLL_SECONDS)
                error = None if message is None else message.error()
                if error is not None and error.code() not in LOST | {END}:
                    if error.code() not in PASSING | UNKNOWN:
                        raise self._questions.named("the leader epochs", marks[0].topic, error)
                elif (
                    message is not None
                    and (mark := left.pop(cast("int", message.partition()), None)) is not None
                ):
                    found += [mark] if error is not None and is_truncation(error) else []
                if left and time.monotonic() > deadline:
                    why = self._questions.heard or "nothing arrived"
                    raise self._questions.unreachable(
                        "whether the log was cut off", str(next(iter(left.values())).tp), why
                    )
        return sorted(found)

    def _infos(self, names: Iterable[str]) -> dict[str, TopicInfo | KafkaException]:
        """Per topic what is said of it, or why nothing is."""
        asked = sorted(set(names))
        described = self._questions.ask(
            "the topic", _several(asked), lambda: self._described(asked)
        )
        there = [name for name, found in described.items() if not isinstance(found, KafkaException)]
        configured = self._questions.ask(
            "the topic's settings", _several(there), lambda: self._configured(there)
        )
        config = described | configured
        failed = {
            name: found for name, found in config.items() if isinstance(found, KafkaException)
        }
        return failed | {
            name: _info(name, described[name], config[name]) for name in asked if name not in failed
        }

    def _names(self) -> list[str]:
        try:
            return sorted(self._admin.list_topics(timeout=self._questions.seconds).topics)
        finally:
            self._admin.poll(0)  # what the client has to say of a failure

    def _described(self, names: Sequence[str]) -> dict[str, Any]:
        if not names:
            return {}
        return self._questions.each(
            self._admin.describe_topics(
                ck.TopicCollection(list(names)), request_timeout=self._questions.seconds
            )
        )

    def _configured(self, names: Sequence[str]) -> dict[str, Any]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = self._admin.describe_configs(resources, request_timeout=self._questions.seconds)
        return self._questions.each({resource.name: future for resource, future in futures.items()})

    def _of_group(
        self, request: Callable[..., Any], asked: ck.ConsumerGroupTopicPartitions
    ) -> dict[TopicPartition, tuple[int, Any]]:
        """Per topic-partition the group's offset, negative for none, and the error."""
        answer = self._questions.result(
            request([asked], request_timeout=self._questions.seconds)[asked.group_id]
        )
        for found in answer.topic_partitions:
            if found.error is not None and self._questions.again(found.error):
                raise KafkaException(found.error)
        return {
            TopicPartition(found.topic, found.partition): (found.offset, found.error)
            for found in answer.topic_partitions
        }

    def _offsets(
        self, what: str, asked: Asked, isolation: Isolation
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """One answer for each topic-partition that was asked for; -1, Kafka's word for
        "there is none", becomes None.
        """
        if not asked:
            return {}
        topics = sorted({tp.topic for tp in asked})
        answers = self._questions.ask(
            what, _several(topics), lambda: self._listed(what, topics, asked, isolation)
        )
        return {
            tp: self._position(tp, answer.offset, answer.leader_epoch)
            for tp, answer in answers.items()
        }

    def _position(
        self, tp: TopicPartition, offset: int, epoch: int | None
    ) -> OffsetAndEpoch | None:
        if offset < _NONE:
            raise self._questions.unreachable("an offset", str(tp), f"{offset} is none")
        return None if offset == _NONE else OffsetAndEpoch(offset, epoch)

    def _there(self, tp: TopicPartition, answer: OffsetAndEpoch | None) -> OffsetAndEpoch:
        if answer is None:
            raise self._questions.unreachable("an end of the log", str(tp), "every log has one")
        return answer

    def _listed(
        self, what: str, topics: Sequence[str], asked: Asked, isolation: Isolation
    ) -> dict[TopicPartition, Any]:
        """Describe first: list_offsets takes leaders from the client's memory, where a
        partition that was added since is unknown.
        """
        for name, found in self._described(topics).items():
            if isinstance(found, KafkaException):
                raise self._questions.named(what, name, found.args[0])
            _known([tp for tp in asked if tp.topic == name], len(found.partitions))
        request = {ck.TopicPartition(tp.topic, tp.partition): spec for tp, spec in asked.items()}
        futures = self._admin.list_offsets(
            request, isolation_level=_LEVELS[isolation], request_timeout=self._questions.seconds
        )
        answers = self._questions.each(
            {TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}
        )
        for tp, answer in answers.items():
            if isinstance(answer, KafkaException):
                raise self._questions.named(what, tp.topic, answer.args[0])
        return answers

    def _refusal(self, error: KafkaError) -> str:
        """Why an offset was not published."""
        text = self._questions.scrub(error.str())
        return f"consumers are at work in the group ({text})" if error.code() in OCCUPIED else text

    def _doubt(
        self, tp: TopicPartition, offset: int, stop: int, error: KafkaError | None, quiet: float
    ) -> None:
        """Why a scan can't go on from an offset to its stop, if so: asked only once the
        client stands still, or says something.
        """
        code = None if error is None else error.code()
        available = offset if code == END else self.log_starts([tp])[tp]
        if offset < available:
            raise _lost(tp, offset, f"the log now starts at {available}")
        decided = self.stable_ends([tp])[tp].offset
        if stop > decided:
            what = f"Timestamps up to {stop} are wanted and the log is decided up to {decided}"
            raise UnreachableError(
                what,
                "read",
                "Wait for the open transaction, or for the messages.",
                tp.topic,
                tp.partition,
                decided,
            )
        if error is not None and code in LOST:
            raise _lost(tp, offset, self._questions.scrub(error.str()))
        if error is not None and code not in PASSING | UNKNOWN | {END}:
            raise self._questions.named("timestamps", str(tp), error)
        if quiet >= self._questions.patience:
            raise self._questions.unreachable(
                f"the timestamps from {offset} on",
                str(tp),
                self._questions.heard or "nothing arrived",
            )


def _lost(tp: TopicPartition, wanted: int, found: str) -> DataLossError:
    do = (
        "Messages are gone: restore the topic, or leave this window out and run later ones; raise"
        " the topic's retention."
    )
    return DataLossError(
        f"Offset {wanted} is not there any more: {found}",
        "read",
        do,
        tp.topic,
        tp.partition,
        wanted,
    )


def _several(names: Sequence[str]) -> str:
    """For an error about all of them."""
    return (
        ", ".join(names)
        if len(names) <= _NAMED
        else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    )


def _info(name: str, described: Any, config: Mapping[str, Any]) -> TopicInfo:
    policies = set(config["cleanup.policy"].value.split(","))
    retention = int(config["retention.ms"].value)
    return TopicInfo(
        name,
        topic_id_of(name, str(described.topic_id)),
        len(described.partitions),
        compacted="compact" in policies,
        retention_ms=retention if retention >= 0 and "delete" in policies else None,
        append_time=config["message.timestamp.type"].value == "LogAppendTime",
    )


def _known(tps: Sequence[TopicPartition], count: int) -> None:
    for tp in tps:
        if not 0 <= tp.partition < count:
            raise SpecError(
                f"The topic has {count} partitions",
                "plan",
                "Ask for a partition that is there.",
                tp.topic,
                tp.partition,
            )


def topic_id_of(name: str, text: str) -> str:
    """The id that the cluster gave to a topic.

    Raises:
        SpecError: the cluster is older than topic ids.
    """
    if text == _NO_TOPIC_ID:
        do = (
            "Kafka 2.8 or later is needed: without ids a topic that was deleted and made again"
            " looks like the old one."
        )
        raise SpecError("The cluster names no id for the topic", "plan", do, name)
    return text


def first_millisecond(moment: datetime) -> int:
    """The first millisecond at or after the moment, never below 0: negative ones are
    Kafka's words for log start and end.
    """
    return max(0, -((_EPOCH - moment) // timedelta(milliseconds=1)))
