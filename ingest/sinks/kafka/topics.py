"""The topics of a Kafka table: requests about them, and checks that they can be written.

This module also makes the control topic.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import confluent_kafka as ck
import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from windrow.ingest.errors import SpecError, UnreachableError, format_count
from windrow.ingest.kafka.admin_requests import Questions
from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.broker import NO_TOPIC_ID
from windrow.ingest.kafka.error_codes import LOST_OFFSETS, UNKNOWN
from windrow.ingest.kafka.rights import Right, lacking_error, lacks
from windrow.ingest.kafka.shared_clients import CLIENTS
from windrow.ingest.kafka.timeouts import (
    LOOK_SECONDS,
    PATIENCE_SECONDS,
    SEEN_SECONDS,
    confirm,
)
from windrow.ingest.ports.sink import Delivered
from windrow.ingest.sinks.kafka.control_records import OffsetSpan

_Spec: Any = OffsetSpec
_LATEST: Any = _Spec.latest()
_CONTROL_SETTINGS = {"cleanup.policy": "compact", "retention.ms": "-1"}
_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default for max.message.bytes."""

_EVER_MS = 50 * 365 * 86_400_000
"""A retention of at least this many milliseconds counts as unlimited."""

_GUARANTEES: Mapping[Delivered, str] = {
    "exactly-once": "exactly once",
    "at-least-once": "at least once",
    "none": "at all",
}
DO_MADE_ANEW = (
    "Its readers may have read the messages, which can't be restored at their offsets. To publish"
    " the windows again, begin a pipeline with another id, topic, control topic and staging. Later"
    " windows of this pipeline can be run all the same."
)
"""Advice if a target topic isn't the topic that windows were published to."""
VERIFICATION = "transaction.partition.verification.enable"
"""The broker's setting that keeps late messages out of later transactions."""


class Topic(msgspec.Struct, frozen=True):
    """A target topic.

    Attributes:
        partitions: number of its partitions.
        message_bytes: limit of a message or a batch, in bytes.
    """

    partitions: int
    message_bytes: int


class LogEnd(NamedTuple):
    """End of a log, and its topic's id.

    Attributes:
        topic_id: the id of the log's topic; "" if it isn't known.
        end: the log's end, open transactions included.
    """

    topic_id: str
    end: int


class Readable(NamedTuple):
    """What readers of committed messages can read of a log.

    Attributes:
        start: the first offset of the log.
        stable: the log's end for readers of committed messages.
        topic_id: the id of the log's topic.
    """

    start: int
    stable: int
    topic_id: str


class LogSeen(msgspec.Struct, frozen=True):
    """State of the control topic's log.

    Attributes:
        topic_id: the topic's id.
        epoch: the epoch of the log's leader.
        start: the log's first offset.
        end: the log's end, open transactions included.
    """

    topic_id: str
    epoch: int | None
    start: int
    end: int

    def goes_on(self, earlier: LogSeen | None) -> bool:
        """Returns whether the records that were read before are still in the log.

        A log loses its last records only when its leader changes.
        """
        return earlier is not None and (self.topic_id, self.epoch, self.start) == (
            earlier.topic_id,
            earlier.epoch,
            earlier.start,
        )


class SinkTopics:
    """Asks the cluster about the topics of a table, with new requests at each call.

    Used by one thread at a time; the client is shared.
    """

    def __init__(
        self,
        servers: str,
        admin: Mapping[str, Value],
        names: Sequence[str],
        control: str,
    ) -> None:
        """Connects to nothing yet.

        Args:
            servers: the bootstrap servers, for messages.
            admin: an AdminClient's properties.
            names: the target topics.
            control: the control topic.
        """
        self._servers, self._admin, self._names = servers, admin, tuple(names)
        self._control_name = control

    def cluster_id(self) -> str:
        return self._questions().cluster_id()

    def retention(self) -> tuple[str, timedelta] | None:
        """Returns the target topic that keeps messages for the shortest time, and that time.

        The time counts from the timestamp in a message. It is None if no target topic deletes
        messages by their timestamps.
        """
        config = self._describe_configs(self._questions(), self._names)
        expiring = [
            (ms, name)
            for name in self._names
            if "delete" in _policy(config[name])
            and config[name]["message.timestamp.type"].value != "LogAppendTime"
            and 0 <= (ms := _number(config[name], "retention.ms", -1)) < _EVER_MS
        ]
        ms, name = min(expiring, default=(-1, ""))
        return None if not name else (name, timedelta(milliseconds=ms))

    def targets(self) -> dict[str, Topic]:
        """Asks for the target topics, and returns them by name.

        Raises:
            SpecError: a topic doesn't exist.
        """
        questions = self._questions()
        described, config = (
            self._describe_topics(questions, self._names, may_be_new=True),
            self._describe_configs(questions, self._names),
        )
        self._refuse_missing(described)
        return {
            name: Topic(
                len(description.partitions),
                _number(config[name], "max.message.bytes", _MAX_MESSAGE_BYTES),
            )
            for name, description in described.items()
        }

    def control(self, *, wait: bool) -> LogSeen | None:
        """Asks for the log of the control topic; returns None if the topic doesn't exist.

        Args:
            wait: True if the topic was just made, so that the answering broker may not know
                it yet.

        Raises:
            SpecError: the topic has several partitions, or this client may not see it.
        """
        questions = self._questions()
        (described,) = self._describe_topics(
            questions, [self._control_name], may_be_new=wait
        ).values()
        if self._is_missing(self._control_name, described):
            return None
        if len(described.partitions) != 1:
            raise SpecError(
                f"The control topic {self._control_name} has"
                f" {format_count(len(described.partitions), 'partition')}",
                "setup",
                "It must have one: make another topic, and name it by sink.control_topic. If the"
                " table has windows, windrow verify SPEC --restore-receipts writes their receipts"
                " to it, and windrow rebind SPEC goes on with it.",
            )
        end, start = questions.ask(
            f"the ends of {self._control_name}", None, lambda: self._limits(questions)
        )
        return LogSeen(
            str(described.topic_id), end.leader_epoch, int(start.offset), int(end.offset)
        )

    def _make_control(self, questions: Questions, *, try_only: bool = False) -> None:
        new = NewTopic(
            self._control_name, num_partitions=1, replication_factor=-1, config=_CONTROL_SETTINGS
        )
        try:
            questions.ask(
                f"that the topic {self._control_name} is created",
                None,
                lambda: self._create(questions, new, try_only=try_only),
                [Right("Create", "topic", self._control_name)],
            )
        except SpecError as error:
            settings = ", ".join(f"{name}={value}" for name, value in _CONTROL_SETTINGS.items())
            raise SpecError(
                f"The control topic {self._control_name} can't be made: {error.message}",
                "setup",
                f"Create it with one partition and {settings}. Or: {error.advice}",
            ) from None

    def _limits(self, questions: Questions) -> list[Any]:
        """Asks for the control topic's end, open transactions included, and its first offset."""
        topic_partition, level = (
            ck.TopicPartition(self._control_name, 0),
            ck.IsolationLevel.READ_UNCOMMITTED,
        )
        futures = [
            questions.admin.list_offsets(
                {topic_partition: spec}, isolation_level=level, request_timeout=questions.seconds
            )[topic_partition]
            for spec in (_Spec.latest(), _Spec.earliest())
        ]
        return [questions.result(future) for future in futures]

    def ends(self, names: Iterable[str] = ()) -> dict[tuple[str, int], LogEnd]:
        """Asks for the ends of the logs of topics; without names, of the target topics.

        A topic that doesn't exist is left out.
        """
        questions, ids = self._ids(names)
        ends = log_ends(questions, list(ids), ck.IsolationLevel.READ_UNCOMMITTED)
        return {log_key: LogEnd(ids[log_key], end) for log_key, end in ends.items()}

    def readable(self, names: Iterable[str] = ()) -> dict[tuple[str, int], Readable]:
        """Asks for the readable part of topics; without names, of the target topics.

        A topic that doesn't exist is left out.
        """
        questions, ids = self._ids(names)
        starts = log_ends(questions, list(ids), ck.IsolationLevel.READ_COMMITTED, _Spec.earliest())
        stable = log_ends(questions, list(ids), ck.IsolationLevel.READ_COMMITTED)
        return {
            log_key: Readable(starts[log_key], stable[log_key], ids[log_key]) for log_key in ids
        }

    def _ids(self, names: Iterable[str]) -> tuple[Questions, dict[tuple[str, int], str]]:
        """Asks for the topic-partitions of topics, each with its topic's id."""
        questions = self._questions()
        described = self._describe_topics(questions, sorted(names) or self._names)
        return questions, {
            (name, partition.id): _id_of(description)
            for name, description in described.items()
            if not self._is_missing(name, description)
            for partition in description.partitions
        }

    def find_deleted(self, spans: Collection[OffsetSpan]) -> dict[OffsetSpan, str]:
        """Returns the spans whose messages are surely gone, each with a sentence about the reason.

        A log that is shorter than expected is asked about again before it is believed.

        Args:
            spans: where messages were published, perhaps in topics that are no targets now.
        """

        def lacking(suspects: Collection[OffsetSpan]) -> dict[OffsetSpan, str]:
            topics = {span.topic for span in suspects}
            return _find_lacking(suspects, self.ends(topics)) if topics else {}

        suspects = confirm(lacking(spans), lacking, time.sleep)
        return {
            span: f"{span.topic}[{span.partition}] {reason}, and the window's messages were at"
            f" {span.first} to {span.last}"
            for span, reason in suspects.items()
        }

    def error_for(self, topic: str, error: KafkaError) -> SpecError | UnreachableError:
        """Converts a consumer's error into an error for users."""
        if error.code() in LOST_OFFSETS:
            return UnreachableError(
                f"The topic {topic} lost messages while it was read",
                "check",
                "Run the command again.",
                topic,
            )
        return self._questions().error_for(f"the messages of {topic}", topic, error)

    def wait_until_seen(self, written: Mapping[tuple[str, int], int]) -> None:
        """Waits until readers see all written messages, but at most `SEEN_SECONDS`.

        Kafka answers a commit before every partition has its marker. The wait is limited
        because an open transaction of another program may hold readers back.

        Args:
            written: the last written offset of each topic-partition.
        """
        questions, deadline = self._questions(), time.monotonic() + SEEN_SECONDS
        while written and time.monotonic() < deadline:
            ends = log_ends(questions, list(written), ck.IsolationLevel.READ_COMMITTED)
            if all(ends[tp] > last for tp, last in written.items()):
                return
            time.sleep(LOOK_SECONDS)

    def make_control(self) -> None:
        """Makes the control topic, if it doesn't exist.

        Raises:
            SpecError: this client may not make the topic.
        """
        questions = self._questions()
        # Without the right to create it, Kafka's answer would be a refusal, also if it exists.
        if self.control(wait=False) is None:
            self._make_control(questions)
        questions.ask(
            f"the topic {self._control_name}", None, lambda: self._require_leader(questions)
        )

    def check(self, delivery: Delivered, timeout: timedelta) -> None:
        """Checks topics, rights and the cluster's settings.

        Args:
            delivery: the delivery guarantee.
            timeout: the timeout of transactions, if there are any.

        Raises:
            SpecError: a check failed; the message lists all problems.
        """
        questions = self._questions()
        described = self._describe_topics(questions, [*self._names, self._control_name])
        lacking = [
            Right(operation, "topic", name)
            for name, description in described.items()
            for operation in (("Read", "Write") if name == self._control_name else ("Write",))
            if lacks(description, operation)
        ]
        if lacking:
            raise lacking_error(lacking, self._servers, "setup")
        control = described.pop(self._control_name)
        self._refuse_missing(described)
        existing = dict(described)
        if not isinstance(control, KafkaException):
            existing[self._control_name] = control
        else:
            self._make_control(questions, try_only=True)
        settings = self._describe_configs(questions, list(existing))
        problems = list[str]()
        if delivery == "exactly-once":
            problems += self._broker_mistakes(questions, timeout)
        if self._control_name in existing:
            problems += _control_mistakes(self._control_name, control, settings[self._control_name])
        if problems:
            raise SpecError(
                f"The sink on {self._servers} can't be written {_GUARANTEES[delivery]}:"
                f" {'; '.join(problems)}",
                "setup",
                "Change that, then run again.",
            )

    def changelog_warnings(self) -> list[str]:
        """Returns a warning if messages replace each other and topics aren't compacted.

        Such topics must keep the last message of each key for ever.
        """
        names = ", ".join(self.uncompacted())
        if not names:
            return []
        warning = (
            f"Kafka will delete messages of {names} by their age or size, not by their key: set"
            " cleanup.policy=compact for each"
        )
        return [warning]

    def uncompacted(self) -> list[str]:
        """Returns the target topics that Kafka doesn't compact.

        A topic whose settings this client may not see counts as compacted.
        """
        config = self._describe_configs(self._questions(), self._names)
        return [name for name in self._names if "compact" not in _policy(config[name])]

    def _broker_mistakes(self, questions: Questions, timeout: timedelta) -> Iterator[str]:
        """Yields problems of a broker's settings; none if this client may not see them."""
        try:
            config = questions.ask(
                "the broker's settings", None, lambda: broker_settings(questions)
            )
        except SpecError:
            return
        longest = _number(config, "transaction.max.timeout.ms", 15 * 60 * 1000)
        if timeout // timedelta(milliseconds=1) > longest:
            yield (
                "sink.transaction_timeout is longer than the cluster's transaction.max.timeout.ms,"
                f" {longest} ms"
            )
        verifies = config.get(VERIFICATION)
        if verifies is None:
            yield (
                f"its brokers are older than Kafka 3.6 (they have no {VERIFICATION}): a late"
                " message may get into a later transaction"
            )
        elif verifies.value == "false":
            yield (
                f"{VERIFICATION} is false: a late message may get into a later transaction. Set it"
                " to true"
            )

    def _refuse_missing(self, described: Mapping[str, Any]) -> None:
        for name, description in described.items():
            if self._is_missing(name, description):
                raise SpecError(
                    f"There is no topic {name} on {self._servers}",
                    "setup",
                    "Create it with the number of partitions that it should have, or correct"
                    " sink.topic: windrow doesn't create it.",
                )

    def _is_missing(self, name: str, description: Any) -> bool:
        """Returns whether a topic doesn't exist, by its description or its error.

        Raises:
            SpecError: this client may not see the topic.
        """
        if not isinstance(description, KafkaException):
            return False
        if description.args[0].code() not in UNKNOWN:
            raise self._questions().error_for(f"the topic {name}", name, description.args[0])
        return True

    def _create(self, questions: Questions, new: NewTopic, *, try_only: bool) -> None:
        """Makes a topic, unless it exists; with `try_only`, only asks whether it may be made."""
        (future,) = questions.admin.create_topics(
            [new], request_timeout=questions.seconds, validate_only=try_only
        ).values()
        try:
            questions.result(future)
        except KafkaException as why:
            if why.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _require_leader(self, questions: Questions) -> None:
        """Returns if the control topic has a leader.

        Raises:
            KafkaException: the topic has no leader yet; the request is then repeated.
        """
        (description,) = questions.topics([self._control_name]).values()
        if isinstance(description, KafkaException) or any(
            p.leader is None for p in description.partitions
        ):
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    def _describe_topics(
        self, questions: Questions, names: Sequence[str], *, may_be_new: bool = False
    ) -> dict[str, Any]:
        """Asks for topics. A missing topic's value is its KafkaException."""
        return questions.ask(
            f"the topics {', '.join(names)}",
            None,
            lambda: questions.topics(names, may_be_new=may_be_new),
        )

    @staticmethod
    def _describe_configs(questions: Questions, names: Sequence[str]) -> dict[str, Any]:
        return questions.ask("the topics' settings", None, lambda: questions.settings(names))

    def _questions(self) -> Questions:
        return Questions(self._servers, CLIENTS.of(self._admin), PATIENCE_SECONDS)


def _find_lacking(
    spans: Iterable[OffsetSpan], ends: Mapping[tuple[str, int], LogEnd]
) -> dict[OffsetSpan, str]:
    """Returns the spans that a log doesn't have, each with the reason. Pure.

    First messages that retention deleted don't count.
    """
    reason_by_span = dict[OffsetSpan, str]()
    for span in spans:
        log = ends.get((span.topic, span.partition))
        if log is None:
            reason_by_span[span] = "doesn't exist any more"
        elif "" not in {span.topic_id, log.topic_id} and span.topic_id != log.topic_id:
            reason_by_span[span] = "was deleted and made again"
        elif log.end <= span.last:
            reason_by_span[span] = (
                f"ends at {log.end}: the topic was deleted and made again, or lost its end"
            )
    return reason_by_span


def log_ends(
    questions: Questions,
    topic_partitions: Sequence[tuple[str, int]],
    level: ck.IsolationLevel,
    spec: Any = _LATEST,
) -> dict[tuple[str, int], int]:
    """Asks for an offset of each topic-partition.

    Args:
        questions: sends the requests.
        topic_partitions: names of topics, and numbers of partitions.
        level: the isolation level of the readers that the offsets are for.
        spec: the offset to ask for: by default the log's end.
    """
    if not topic_partitions:
        return {}
    latest = {ck.TopicPartition(*tp): spec for tp in topic_partitions}

    def listed() -> dict[tuple[str, int], int]:
        futures = questions.admin.list_offsets(
            latest, isolation_level=level, request_timeout=questions.seconds
        )
        return {
            (tp.topic, tp.partition): int(questions.result(future).offset)
            for tp, future in futures.items()
        }

    return questions.ask(
        f"the ends of {', '.join(sorted({topic for topic, _ in topic_partitions}))}", None, listed
    )


def broker_settings(questions: Questions) -> Mapping[str, Any]:
    """Asks for the settings of the cluster's controller; returns them by name."""
    described = questions.result(
        questions.admin.describe_cluster(request_timeout=questions.seconds)
    )
    resource = ConfigResource(ResourceType.BROKER, str(described.controller.id))
    (future,) = questions.admin.describe_configs(
        [resource], request_timeout=questions.seconds
    ).values()
    settings: Mapping[str, Any] = questions.result(future)
    return settings


def _id_of(description: Any) -> str:
    """Returns a topic's id, or "" if the cluster has no topic ids."""
    return "" if str(description.topic_id) in {"None", NO_TOPIC_ID} else str(description.topic_id)


def _number(config: Any, name: str, otherwise: int) -> int:
    """Returns a setting that is a number; `otherwise` if this client may not see it."""
    setting = None if isinstance(config, KafkaException) else config.get(name)
    return otherwise if setting is None else int(setting.value)


def _control_mistakes(name: str, description: Any, config: Any) -> Iterator[str]:
    if len(description.partitions) != 1:
        yield (
            f"the control topic {name} has"
            f" {format_count(len(description.partitions), 'partition')}: it must have one"
        )
    policy = _policy(config)
    if policy != "compact":
        yield (
            f"the control topic {name} has cleanup.policy={policy}: it must be compact, or receipts"
            " are lost"
        )


def _policy(config: Any) -> str:
    """Returns a topic's cleanup policies; "compact" if this client may not see them."""
    return "compact" if isinstance(config, KafkaException) else str(config["cleanup.policy"].value)
