"""Metadata, offsets and timestamps of a cluster, by confluent-kafka.

Metadata and offsets come through an AdminClient, timestamps through a consumer. A question
about many topics or topic-partitions takes a single request of each kind that it needs.
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

from windrow.ingest.errors import (
    DataLossError,
    RefusedError,
    SpecError,
    UnreachableError,
    format_count,
    join_first_few,
)
from windrow.ingest.kafka.admin_requests import NO_OFFSET, Questions
from windrow.ingest.kafka.client_properties import admin_properties, consumer_properties
from windrow.ingest.kafka.error_codes import (
    END,
    FORBIDDEN,
    LOST_OFFSETS,
    OCCUPIED,
    PASSING,
    UNKNOWN,
    UNREADABLE,
    is_truncation,
)
from windrow.ingest.kafka.rights import Right, lacking_error, lacks
from windrow.ingest.kafka.shared_clients import CLIENTS
from windrow.ingest.kafka.timeouts import PATIENCE_SECONDS, POLL_SECONDS
from windrow.ingest.kafka.timestamp_scan import scan, scan_properties
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.source import Isolation
from windrow.ingest.ports.broker import OffsetAndEpoch, Stamps, TopicInfo
from windrow.ingest.waiting import waiting_for

_OFFSET_SPEC: Any = OffsetSpec
_OffsetSpecs = Mapping[TopicPartition, Any]
"""The OffsetSpec of each topic-partition."""

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero UUID, which a cluster before Kafka 2.8 returns instead of a topic id."""

_LEVELS: Mapping[Isolation, ck.IsolationLevel] = {
    "read_committed": ck.IsolationLevel.READ_COMMITTED,
    "read_uncommitted": ck.IsolationLevel.READ_UNCOMMITTED,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KafkaBroker:
    """`ports.broker.Broker` of a real cluster.

    Used on the driver, by one thread. It shares its client with other brokers
    (`shared_clients`).
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
            isolation: the isolation level of all offsets except those of `ends`.
            patience_seconds: how long a request is repeated before it fails.

        Raises:
            SpecError: the client properties can't be used.
        """
        self._bootstrap, self._isolation = bootstrap, isolation
        consumer = consumer_properties(bootstrap, client, isolation=isolation)
        shared = CLIENTS.of(admin_properties(bootstrap, client))
        self._questions, self._admin = Questions(bootstrap, shared, patience_seconds), shared.admin
        self._consumers = shared.consumers(scan_properties(consumer))

    def cluster_id(self) -> str:
        return self._questions.cluster_id()

    def topic(self, name: str) -> TopicInfo:
        topic_info = self._topic_infos([name])[name]
        if isinstance(topic_info, KafkaException):
            raise self._questions.error_for("the topic", name, topic_info.args[0])
        return topic_info

    def names(self) -> list[str]:
        names = self._questions.ask("the topics' names", None, self._names)
        doubtful = [name for name in names if name.startswith("__")]
        described = self._questions.ask(
            "which topics are internal", None, lambda: self._questions.topics(doubtful)
        )
        internal = {
            name
            for name, description in described.items()
            if isinstance(description, KafkaException) or description.is_internal
        }
        return [name for name in names if name not in internal]

    def topics(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        return {
            name: topic_info
            for name, topic_info in self._topic_infos(names).items()
            if isinstance(topic_info, TopicInfo)
        }

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._offsets(
            "the log's start", dict.fromkeys(tps, _OFFSET_SPEC.earliest()), self._isolation
        )
        return {tp: self._require_position(tp, position).offset for tp, position in answers.items()}

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """Returns the stable ends; under read_uncommitted these are the high watermarks."""
        answers = self._offsets(
            "the stable end", dict.fromkeys(tps, _OFFSET_SPEC.latest()), self._isolation
        )
        return {tp: self._require_position(tp, position) for tp, position in answers.items()}

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._offsets(
            "the log's end", dict.fromkeys(tps, _OFFSET_SPEC.latest()), "read_uncommitted"
        )
        return {tp: self._require_position(tp, position).offset for tp, position in answers.items()}

    def diverged_marks(self, marks: Sequence[Mark]) -> list[Mark]:
        """Returns the marks below which their logs were truncated.

        Only marks whose leader epoch isn't the newest one are checked, because a log is
        truncated only when its leader changes.
        """
        witnessed = [mark for mark in marks if mark.leader_epoch is not None]
        ends = self.stable_ends([mark.tp for mark in witnessed])
        doubtful = [mark for mark in witnessed if ends[mark.tp].leader_epoch != mark.leader_epoch]
        return [
            mark
            for topic in sorted({m.topic for m in doubtful})
            for mark in self._truncated_in_topic([m for m in doubtful if m.topic == topic])
        ]

    def committed_offsets(
        self, group: str, tps: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Returns a group's committed offsets. The request doesn't create the group."""
        if not tps:
            return {}
        group_tps = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(tp.topic, tp.partition) for tp in dict.fromkeys(tps)]
        )
        subject = f"the offsets of group {group}"
        answers = self._questions.ask(
            subject,
            None,
            lambda: self._group_offsets(self._admin.list_consumer_group_offsets, group_tps),
            [Right("Describe", "group", group)],
        )
        for tp, (_, error) in answers.items():
            if error is not None and error.code() not in UNKNOWN:
                raise self._questions.error_for(subject, tp.topic, error)
        return {tp: offset if offset >= 0 else None for tp, (offset, _) in answers.items()}

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str | None]:
        """Commits offsets to a consumer group, for tools that watch the lag of groups.

        Kafka refuses the commit while the group has active consumers. A failure is returned,
        not raised.

        Returns:
            The reason of the failure for each topic-partition; None if there was no failure.
        """
        if not offsets:
            return {}
        group_tps = ck.ConsumerGroupTopicPartitions(
            group, [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in offsets.items()]
        )
        subject = f"the offsets of group {group}"
        try:
            answers = self._questions.ask(
                subject,
                None,
                lambda: self._group_offsets(self._admin.alter_consumer_group_offsets, group_tps),
                [Right("Read", "group", group)],
            )
        except (SpecError, UnreachableError) as why:
            return dict.fromkeys(offsets, f"{why.message}. {why.advice}")
        return {
            tp: None if error is None else self._refusal(group, tp.topic, error)
            for tp, (_, error) in answers.items()
        }

    def first_at_or_after(
        self, tps: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        specs = dict.fromkeys(tps, _OFFSET_SPEC.for_timestamp(first_millisecond(moment)))
        return self._offsets("the first offset at an instant", specs, self._isolation)

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """Reads the timestamps of the visible messages of [start, stop), in chunks.

        The caller may stop early by closing the iterator.

        Raises:
            DataLossError: `start` is below the log's start.
            UnreachableError: `stop` is above the stable end, or no message arrives.
        """
        if start >= stop:
            return
        with self._consumers.lend(tp.topic) as consumer:
            yield from scan(consumer, tp, start, stop, self._refuse_stalled)

    def refuse_lacking(self, topics: Sequence[str], group: str | None) -> None:
        described = self._questions.ask(
            "the rights on topics", None, lambda: self._questions.topics(topics)
        )
        groups = [] if group is None else [group]
        groups_described = self._questions.ask(
            "the rights on a group", None, lambda: self._questions.groups(groups)
        )
        lacking = [
            *(Right("Read", "topic", name) for name in topics if lacks(described[name], "Read")),
            *(Right("Read", "group", n) for n in groups if lacks(groups_described[n], "Read")),
        ]
        if lacking:
            raise lacking_error(lacking, self._bootstrap, "setup")

    # ----------------------------------------------------------------------------------------------

    def _truncated_in_topic(self, marks: Sequence[Mark]) -> list[Mark]:
        """Returns the marks of one topic below which its logs were truncated.

        A consumer that is assigned an offset with a leader epoch asks the cluster whether the
        log reached that offset under this epoch. It asks only when it learns the topic's
        leaders for the first time, so each call makes a new consumer.

        Raises:
            UnreachableError: the cluster doesn't answer.
        """
        unanswered_marks, truncated_marks = {mark.partition: mark for mark in marks}, list[Mark]()
        deadline = time.monotonic() + self._questions.patience
        with (
            closing(self._consumers.new()) as consumer,
            waiting_for(f"the leader epochs of {marks[0].topic}"),
        ):
            consumer.assign(
                [
                    ck.TopicPartition(m.topic, m.partition, m.offset, leader_epoch=m.leader_epoch)
                    for m in marks
                ]
            )
            while unanswered_marks:
                message = consumer.poll(POLL_SECONDS)
                error = None if message is None else message.error()
                if error is not None and error.code() not in LOST_OFFSETS | {END}:
                    if error.code() not in PASSING | UNKNOWN:
                        raise self._read_error("the leader epochs", marks[0].tp, error)
                elif (
                    message is not None
                    and (mark := unanswered_marks.pop(cast("int", message.partition()), None))
                    is not None
                ):
                    truncated_marks += [mark] if error is not None and is_truncation(error) else []
                if unanswered_marks and time.monotonic() > deadline:
                    reason = self._questions.client_error or "nothing arrived"
                    raise self._questions.unreachable(
                        "whether the log was truncated",
                        str(next(iter(unanswered_marks.values())).tp),
                        reason,
                    )
        return sorted(truncated_marks)

    def _topic_infos(self, names: Iterable[str]) -> dict[str, TopicInfo | KafkaException]:
        """Returns the description of each topic, or the cluster's error for it."""
        distinct_names = sorted(set(names))
        described = self._questions.ask(
            "the topic",
            join_first_few(distinct_names),
            lambda: self._questions.topics(distinct_names),
        )
        existing = [
            name
            for name, description in described.items()
            if not isinstance(description, KafkaException)
        ]
        configured = self._questions.ask(
            "the topic's settings",
            join_first_few(existing),
            lambda: self._questions.settings(existing),
        )
        config = described | configured
        failed = {
            name: outcome for name, outcome in config.items() if isinstance(outcome, KafkaException)
        }
        for name, outcome in failed.items():
            # if it were left out, it would look like a deleted topic
            if outcome.args[0].code() in FORBIDDEN:
                right = Right("DescribeConfigs" if name in existing else "Read", "topic", name)
                raise self._questions.error_for("the topic", name, outcome.args[0], [right])
        return failed | {
            name: _info(name, described[name], config[name])
            for name in distinct_names
            if name not in failed
        }

    def _names(self) -> list[str]:
        # list_topics waits for its whole timeout, also if the cluster refuses this client
        self._questions.result(
            self._admin.describe_cluster(request_timeout=self._questions.seconds)
        )
        try:
            return sorted(self._admin.list_topics(timeout=self._questions.seconds).topics)
        finally:
            self._admin.poll(0)  # delivers the client's errors

    def _group_offsets(
        self, request: Callable[..., Any], group_tps: ck.ConsumerGroupTopicPartitions
    ) -> dict[TopicPartition, tuple[int, Any]]:
        """Returns the group's offset of each topic-partition (negative: none), and the error."""
        response = self._questions.result(
            request([group_tps], request_timeout=self._questions.seconds)[group_tps.group_id]
        )
        for tp in response.topic_partitions:
            if tp.error is not None and self._questions.is_retriable(tp.error):
                raise KafkaException(tp.error)
        return {
            TopicPartition(tp.topic, tp.partition): (tp.offset, tp.error)
            for tp in response.topic_partitions
        }

    def _offsets(
        self, subject: str, specs: _OffsetSpecs, isolation: Isolation
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """Returns the offset of each topic-partition; None if Kafka answers -1, "no offset"."""
        if not specs:
            return {}
        topics = sorted({tp.topic for tp in specs})
        answers = self._questions.ask(
            subject,
            join_first_few(topics),
            lambda: self._list_offsets(subject, topics, specs, isolation),
        )
        return {
            tp: None
            if listed.offset == NO_OFFSET
            else OffsetAndEpoch(listed.offset, listed.leader_epoch)
            for tp, listed in answers.items()
        }

    def _require_position(
        self, tp: TopicPartition, position: OffsetAndEpoch | None
    ) -> OffsetAndEpoch:
        if position is None:
            raise self._questions.unreachable("an end of the log", str(tp), "every log has one")
        return position

    def _list_offsets(
        self, subject: str, topics: Sequence[str], specs: _OffsetSpecs, isolation: Isolation
    ) -> dict[TopicPartition, Any]:
        """Lists offsets, after a description of the topics.

        list_offsets takes the leaders from the client's cache, which doesn't know partitions
        that were added since. The description refreshes the cache.
        """
        for name, description in self._questions.topics(topics).items():
            if isinstance(description, KafkaException):
                raise self._questions.error_for(subject, name, description.args[0])
            _refuse_unknown_partitions(
                [tp for tp in specs if tp.topic == name], len(description.partitions)
            )
        request = {ck.TopicPartition(tp.topic, tp.partition): spec for tp, spec in specs.items()}
        futures = self._admin.list_offsets(
            request, isolation_level=_LEVELS[isolation], request_timeout=self._questions.seconds
        )
        answers = self._questions.results(
            {TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}
        )
        for tp, listed in answers.items():
            if isinstance(listed, KafkaException):
                raise self._questions.error_for(subject, tp.topic, listed.args[0])
        return answers

    def _refusal(self, group: str, topic: str, error: KafkaError) -> str:
        """Returns the reason why an offset was not committed to a group."""
        if error.code() in FORBIDDEN:
            of_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            rights = [Right("Read", "group", group)] if of_group else ()
            lacking = self._questions.error_for("", topic, error, rights)
            return f"{lacking.message}. {lacking.advice}"
        text = self._questions.scrub(error.str())
        return f"the group has active consumers ({text})" if error.code() in OCCUPIED else text

    def _read_error(
        self, subject: str, tp: TopicPartition, error: KafkaError
    ) -> SpecError | UnreachableError:
        """Makes the error for messages that the client can't read."""
        rights = [Right("Read", "topic", tp.topic)]
        return self._questions.error_for(subject, str(tp), error, rights)

    def _refuse_stalled(
        self, tp: TopicPartition, offset: int, stop: int, error: KafkaError | None, quiet: float
    ) -> None:
        """Raises the reason why a scan can't go on from an offset to its stop, if there is one.

        It is called when the client reports an error, or when no message has come for a while.

        Raises:
            DataLossError: the messages from the offset on are gone.
            RefusedError: a batch can't be unpacked.
            SpecError: this client may not read the topic, or the topic doesn't exist.
            UnreachableError: the stable end is below the stop, or the patience is over.
        """
        code = None if error is None else error.code()
        available = offset if code == END else self.log_starts([tp])[tp]
        if offset < available:
            raise _lost_error(tp, offset, f"the log now starts at {available}")
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
        if error is not None and code in LOST_OFFSETS:
            raise _lost_error(tp, offset, self._questions.scrub(error.str()))
        if error is not None and code in UNREADABLE:
            raise RefusedError(
                f"The client can't read any further: {self._questions.scrub(error.str())}",
                "plan",
                "Nothing was committed. Look at this offset with Kafka's own tools.",
                tp.topic,
                tp.partition,
                offset,
            )
        if error is not None and code not in PASSING | UNKNOWN | {END}:
            raise self._read_error("timestamps", tp, error)
        if quiet >= self._questions.patience:
            raise self._questions.unreachable(
                f"the timestamps from {offset} on",
                str(tp),
                self._questions.client_error or "nothing arrived",
            )


def _lost_error(tp: TopicPartition, offset: int, log_text: str) -> DataLossError:
    return DataLossError(
        f"Offset {offset} is no longer in the log: {log_text}",
        "read",
        "Messages are gone: restore the topic, or leave this window out and run later ones; raise"
        " the topic's retention.",
        tp.topic,
        tp.partition,
        offset,
    )


def _info(name: str, described: Any, config: Mapping[str, Any]) -> TopicInfo:
    policies = set(config["cleanup.policy"].value.split(","))
    retention = int(config["retention.ms"].value)
    # some Kafka-compatible clusters don't have this setting
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
                f"The topic has {format_count(count, 'partition')}",
                "plan",
                "Name a partition that the topic has.",
                tp.topic,
                tp.partition,
            )


def topic_id_of(name: str, text: str) -> str:
    """Returns the id of a topic, as the cluster reports it.

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
    """Returns the first millisecond at or after the moment, at least 0.

    To Kafka, negative timestamps mean the log's start or end.
    """
    return max(0, -((_EPOCH - moment) // timedelta(milliseconds=1)))
