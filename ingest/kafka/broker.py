"""Metadata, offsets and timestamps of a cluster, by confluent-kafka.

Metadata and offsets come through an AdminClient, timestamps through a consumer. A
question about many topics or topic-partitions takes one request of each kind that it
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
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # untyped

from windrow.ingest.errors import DataLossError, SpecError, UnreachableError, counted, first_few
from windrow.ingest.kafka.admin_requests import Questions
from windrow.ingest.kafka.client_properties import admin_properties, consumer_properties
from windrow.ingest.kafka.error_codes import (
    END,
    FORBIDDEN,
    LOST,
    OCCUPIED,
    PASSING,
    UNKNOWN,
    is_truncation,
)
from windrow.ingest.kafka.shared_clients import CLIENTS
from windrow.ingest.kafka.timeouts import PATIENCE_SECONDS, POLL_SECONDS
from windrow.ingest.kafka.timestamp_scan import scan, scanning
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import OffsetAndEpoch, Stamps, TopicInfo

_OFFSET_SPEC: Any = OffsetSpec
_OffsetSpecs = Mapping[TopicPartition, Any]
"""The OffsetSpec of each topic-partition."""

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero UUID, which a cluster before Kafka 2.8 gives instead of an id."""

_NO_OFFSET = -1
"""Kafka's offset where no message has a timestamp at or after an instant."""

_LEVELS: Mapping[Isolation, ck.IsolationLevel] = {
    "read_committed": ck.IsolationLevel.READ_COMMITTED,
    "read_uncommitted": ck.IsolationLevel.READ_UNCOMMITTED,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KafkaBroker:
    """`ports.broker.Broker` of a real cluster.

    Used on the driver, by one thread. It shares its client with others (`clients`).
    """

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, object],
        *,
        isolation: Isolation = "read_committed",
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Connects lazily.

        Args:
            bootstrap: the cluster's address.
            client: the user's client properties.
            isolation: the isolation level of all offsets but those of `ends`.
            patience_seconds: how long a request is repeated before it fails.

        Raises:
            SpecError: the client properties can't be used.
        """
        self._isolation = isolation
        consumer = consumer_properties(bootstrap, client, isolation=isolation)
        shared = CLIENTS.of(admin_properties(bootstrap, client))
        self._questions, self._admin = Questions(bootstrap, shared, patience_seconds), shared.admin
        self._consumers = shared.consumers(scanning(consumer))

    def cluster_id(self) -> str:
        return self._questions.cluster_id()

    def topic(self, name: str) -> TopicInfo:
        found = self._topic_infos([name])[name]
        if isinstance(found, KafkaException):
            raise self._questions.error_for("the topic", name, found.args[0])
        return found

    def names(self) -> list[str]:
        names = self._questions.ask("the topics' names", None, self._names)
        doubtful = [name for name in names if name.startswith("__")]
        described = self._questions.ask(
            "which topics are internal", None, lambda: self._questions.topics(doubtful)
        )
        internal = {
            name
            for name, found in described.items()
            if isinstance(found, KafkaException) or found.is_internal
        }
        return [name for name in names if name not in internal]

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        infos = self._topic_infos(names)
        for name, found in infos.items():
            # left out, it would look like a topic that was deleted
            if isinstance(found, KafkaException) and found.args[0].code() in FORBIDDEN:
                raise self._questions.error_for("the topic", name, found.args[0])
        return {name: found for name, found in infos.items() if isinstance(found, TopicInfo)}

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._offsets(
            "the log's start", dict.fromkeys(tps, _OFFSET_SPEC.earliest()), self._isolation
        )
        return {tp: self._required(tp, answer).offset for tp, answer in answers.items()}

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """Under read_uncommitted these are the high watermarks."""
        answers = self._offsets(
            "the stable end", dict.fromkeys(tps, _OFFSET_SPEC.latest()), self._isolation
        )
        return {tp: self._required(tp, answer) for tp, answer in answers.items()}

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._offsets(
            "the log's end", dict.fromkeys(tps, _OFFSET_SPEC.latest()), "read_uncommitted"
        )
        return {tp: self._required(tp, answer).offset for tp, answer in answers.items()}

    def diverged(self, marks: Sequence[Mark]) -> list[Mark]:
        """Looks only at marks whose leader epoch isn't the newest one.

        A log is truncated only where its leader changes.
        """
        witnessed = [mark for mark in marks if mark.leader_epoch is not None]
        ends = self.stable_ends([mark.tp for mark in witnessed])
        doubtful = [mark for mark in witnessed if ends[mark.tp].leader_epoch != mark.leader_epoch]
        return [
            mark
            for topic in sorted({m.topic for m in doubtful})
            for mark in self._truncated_in_topic([m for m in doubtful if m.topic == topic])
        ]

    def committed(
        self, group: str, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """This doesn't create the group."""
        if not tps:
            return {}
        asked = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(tp.topic, tp.partition) for tp in dict.fromkeys(tps)]
        )
        what = f"the offsets of group {group}"
        answers = self._questions.ask(
            what, None, lambda: self._group_offsets(self._admin.list_consumer_group_offsets, asked)
        )
        for tp, (_, error) in answers.items():
            if error is not None and error.code() not in UNKNOWN:
                raise self._questions.error_for(what, tp.topic, error)
        return {tp: offset if offset >= 0 else None for tp, (offset, _) in answers.items()}

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commits offsets to a consumer group, for tools that watch the lag of groups.

        Kafka refuses this while the group has active consumers. A failure is returned, not
        raised.

        Returns:
            The reason of the failure for each topic-partition; None where there is none.
        """
        if not offsets:
            return {}
        sent = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in offsets.items()]
        )
        what = f"the offsets of group {group}"
        try:
            answers = self._questions.ask(
                what,
                None,
                lambda: self._group_offsets(self._admin.alter_consumer_group_offsets, sent),
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
        asked = dict.fromkeys(tps, _OFFSET_SPEC.for_timestamp(first_millisecond(moment)))
        return self._offsets("the first offset at an instant", asked, self._isolation)

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """Reads the timestamps of the visible messages of [start, stop), in chunks.

        The caller may stop early by closing the iterator.

        Raises:
            DataLossError: `start` is below the log's start.
            UnreachableError: `stop` is above the stable end, or no message arrives.
        """
        if start >= stop:
            return
        with self._consumers.one(tp.topic) as consumer:
            yield from scan(consumer, tp, start, stop, self._refuse_stalled)

    # ----------------------------------------------------------------------------------------------

    def _truncated_in_topic(self, marks: Sequence[Mark]) -> list[Mark]:
        """Returns the marks of one topic below which its logs were truncated.

        A consumer that is assigned an offset with a leader epoch asks the cluster whether
        the log reached that offset under this epoch. It asks only when it gets to know
        the topic's leaders for the first time, so each call takes a new consumer.

        Raises:
            UnreachableError: the cluster doesn't answer.
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
                        raise self._questions.error_for("the leader epochs", marks[0].topic, error)
                elif (
                    message is not None
                    and (mark := left.pop(cast("int", message.partition()), None)) is not None
                ):
                    found += [mark] if error is not None and is_truncation(error) else []
                if left and time.monotonic() > deadline:
                    why = self._questions.client_error or "nothing arrived"
                    raise self._questions.unreachable(
                        "whether the log was truncated", str(next(iter(left.values())).tp), why
                    )
        return sorted(found)

    def _topic_infos(self, names: Iterable[str]) -> dict[str, TopicInfo | KafkaException]:
        """Description of each topic, or the error that the cluster has for it."""
        asked = sorted(set(names))
        described = self._questions.ask(
            "the topic", first_few(asked), lambda: self._questions.topics(asked)
        )
        existing = [
            name for name, found in described.items() if not isinstance(found, KafkaException)
        ]
        configured = self._questions.ask(
            "the topic's settings", first_few(existing), lambda: self._questions.settings(existing)
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
            self._admin.poll(0)  # delivers the client's errors

    def _group_offsets(
        self, request: Callable[..., Any], asked: ck.ConsumerGroupTopicPartitions
    ) -> dict[TopicPartition, tuple[int, Any]]:
        """The group's offset of each topic-partition, negative for none, and the error."""
        answer = self._questions.result(
            request([asked], request_timeout=self._questions.seconds)[asked.group_id]
        )
        for found in answer.topic_partitions:
            if found.error is not None and self._questions.is_retriable(found.error):
                raise KafkaException(found.error)
        return {
            TopicPartition(found.topic, found.partition): (found.offset, found.error)
            for found in answer.topic_partitions
        }

    def _offsets(
        self, what: str, asked: _OffsetSpecs, isolation: Isolation
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Offset of each topic-partition; None where Kafka answers -1, "no such offset"."""
        if not asked:
            return {}
        topics = sorted({tp.topic for tp in asked})
        answers = self._questions.ask(
            what, first_few(topics), lambda: self._listed(what, topics, asked, isolation)
        )
        return {
            tp: self._position(tp, answer.offset, answer.leader_epoch)
            for tp, answer in answers.items()
        }

    def _position(
        self, tp: TopicPartition, offset: int, epoch: int | None
    ) -> OffsetAndEpoch | None:
        if offset < _NO_OFFSET:
            raise self._questions.unreachable("an offset", str(tp), f"{offset} is no offset")
        return None if offset == _NO_OFFSET else OffsetAndEpoch(offset, epoch)

    def _required(self, tp: TopicPartition, answer: OffsetAndEpoch | None) -> OffsetAndEpoch:
        if answer is None:
            raise self._questions.unreachable("an end of the log", str(tp), "every log has one")
        return answer

    def _listed(
        self, what: str, topics: Sequence[str], asked: _OffsetSpecs, isolation: Isolation
    ) -> dict[TopicPartition, Any]:
        """Lists offsets, after a description of the topics.

        list_offsets takes the leaders from the client's cache, which doesn't know a
        partition that was added since.
        """
        for name, found in self._questions.topics(topics).items():
            if isinstance(found, KafkaException):
                raise self._questions.error_for(what, name, found.args[0])
            _refuse_unknown_partitions(
                [tp for tp in asked if tp.topic == name], len(found.partitions)
            )
        request = {ck.TopicPartition(tp.topic, tp.partition): spec for tp, spec in asked.items()}
        futures = self._admin.list_offsets(
            request, isolation_level=_LEVELS[isolation], request_timeout=self._questions.seconds
        )
        answers = self._questions.results(
            {TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}
        )
        for tp, answer in answers.items():
            if isinstance(answer, KafkaException):
                raise self._questions.error_for(what, tp.topic, answer.args[0])
        return answers

    def _refusal(self, error: KafkaError) -> str:
        """The reason why an offset was not committed to a group."""
        text = self._questions.scrub(error.str())
        return f"the group has active consumers ({text})" if error.code() in OCCUPIED else text

    def _refuse_stalled(
        self, tp: TopicPartition, offset: int, stop: int, error: KafkaError | None, quiet: float
    ) -> None:
        """Raises the reason why a scan can't go on from an offset to its stop, if any.

        Called when the client reports an error, or when no message has come for a while.

        Raises:
            DataLossError: the messages from the offset on are gone.
            SpecError: this client may not read the topic, or the topic doesn't exist.
            UnreachableError: the stable end is below the stop, or the patience is over.
        """
        code = None if error is None else error.code()
        available = offset if code == END else self.log_starts([tp])[tp]
        if offset < available:
            raise _lost(tp, offset, f"the log now starts at {available}")
        decided = self.stable_ends([tp])[tp].offset
        if stop > decided:
            raise UnreachableError(
                f"Timestamps up to {stop} are needed and the log is decided up to {decided}",
                "read",
                "Wait for the open transaction, or for the messages.",
                tp.topic,
                tp.partition,
                decided,
            )
        if error is not None and code in LOST:
            raise _lost(tp, offset, self._questions.scrub(error.str()))
        if error is not None and code not in PASSING | UNKNOWN | {END}:
            raise self._questions.error_for("timestamps", str(tp), error)
        if quiet >= self._questions.patience:
            raise self._questions.unreachable(
                f"the timestamps from {offset} on",
                str(tp),
                self._questions.client_error or "nothing arrived",
            )


def _lost(tp: TopicPartition, wanted: int, found: str) -> DataLossError:
    return DataLossError(
        f"Offset {wanted} is no longer in the log: {found}",
        "read",
        "Messages are gone: restore the topic, or leave this window out and run later ones; raise"
        " the topic's retention.",
        tp.topic,
        tp.partition,
        wanted,
    )


def _info(name: str, described: Any, config: Mapping[str, Any]) -> TopicInfo:
    policies = set(config["cleanup.policy"].value.split(","))
    retention = int(config["retention.ms"].value)
    # not every cluster that speaks Kafka has this setting
    deletes = int(config["delete.retention.ms"].value) if "delete.retention.ms" in config else -1
    return TopicInfo(
        name,
        topic_id_of(name, str(described.topic_id)),
        len(described.partitions),
        compacted="compact" in policies,
        retention_ms=retention if retention >= 0 and "delete" in policies else None,
        append_time=config["message.timestamp.type"].value == "LogAppendTime",
        delete_retention_ms=deletes if deletes >= 0 and "compact" in policies else None,
    )


def _refuse_unknown_partitions(tps: Sequence[TopicPartition], count: int) -> None:
    for tp in tps:
        if not 0 <= tp.partition < count:
            raise SpecError(
                f"The topic has {counted(count, 'partition')}",
                "plan",
                "Name a partition that the topic has.",
                tp.topic,
                tp.partition,
            )


def topic_id_of(name: str, text: str) -> str:
    """Id of a topic, as the cluster gives it.

    Raises:
        SpecError: the cluster is too old to have topic ids.
    """
    if text == NO_TOPIC_ID:
        raise SpecError(
            "The cluster gives no id for the topic",
            "plan",
            "Use Kafka 2.8 or later: without topic ids, a topic that was deleted and created again"
            " looks like the old one.",
            name,
        )
    return text


def first_millisecond(moment: datetime) -> int:
    """First millisecond at or after the moment, at least 0.

    Negative timestamps mean the log's start or end to Kafka.
    """
    return max(0, -((_EPOCH - moment) // timedelta(milliseconds=1)))
