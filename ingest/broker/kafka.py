"""The broker's answers, by confluent-kafka: metadata and offsets through an AdminClient, timestamps through a short-lived consumer.

An answer that failed is never an answer: each result is taken out of its own future, whose error is either worth another try (the leader
moves, the network broke) or named at once (no such topic, no right to see it).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import confluent_kafka as ck
import stamina
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # public, untyped

from ingest.broker.client import admin_properties, consumer_properties, scrubbed
from ingest.broker.codes import AGAIN, FORBIDDEN, LOGIN, LOST, UNKNOWN
from ingest.broker.scan import scan
from ingest.errors import DataLossError, SpecError, UnreachableError
from ingest.model import TopicPartition
from ingest.ports import Position, Stamps, TopicInfo

T = TypeVar("T")

_Spec: Any = OffsetSpec
Asked = Mapping[TopicPartition, Any]
"""Per topic-partition an OffsetSpec."""

_log = logging.getLogger("windrow.librdkafka")
_log.addHandler(logging.NullHandler())
_log.propagate = False  # each lost connection is several lines of noise; what matters is in the errors. Attach a handler to see it all

_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero UUID: what a cluster before Kafka 2.8 names instead of an id."""

_NONE = -1
"""Kafka's answer where no message is at or after an instant."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUEST_SECONDS = 10.0
_HEAR_SECONDS = 0.05
_NEWS_SECONDS = 1.0
"""How long the news of a topic that was just made may take to reach the broker that is asked."""


class KafkaBroker:
    """`ports.Broker` on a real cluster. Used on the driver, by one thread."""

    def __init__(self, bootstrap: str, client: Mapping[str, object], patience_seconds: float = 30.0) -> None:
        """Connects lazily. `client`: the user's properties; `patience_seconds`: how long one question is asked again before giving up.

        Raises:
            SpecError: the client properties can't be used.
        """
        self._bootstrap = bootstrap
        self._consumer = consumer_properties(bootstrap, client)
        self._patience = patience_seconds
        self._login: str | None = None
        self._last: str | None = None
        properties: dict[str, Any] = dict(admin_properties(bootstrap, client))
        try:
            self._admin = AdminClient(properties | {"error_cb": self._heard, "logger": _log})
        except KafkaException as why:
            raise self._unusable(why) from None

    def cluster_id(self) -> str:
        """The cluster's id."""
        described = self._ask("the cluster's id", None, lambda: self._result(self._admin.describe_cluster(request_timeout=self._request)))
        return str(described.cluster_id)

    def topic(self, name: str) -> TopicInfo:
        """What the cluster says of a topic now.

        Raises:
            SpecError: if there is no such topic, or the client may not see it.
        """
        described = self._ask("the topic", name, lambda: self._result(self._described(name)))
        config = self._ask("the topic's settings", name, lambda: self._result(self._configured(name)))
        policies = set(config["cleanup.policy"].value.split(","))
        retention = int(config["retention.ms"].value)
        return TopicInfo(
            name,
            _topic_id(name, str(described.topic_id)),
            len(described.partitions),
            "compact" in policies,
            retention if retention >= 0 and "delete" in policies else None,
        )

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there; above 0 after retention or a deletion of records."""
        answers = self._offsets("the log's start", dict.fromkeys(tps, _Spec.earliest()))
        return {tp: self._there(tp, answer).offset for tp, answer in answers.items()}

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        """The last stable offsets: everything below is decided."""
        answers = self._offsets("the last stable offset", dict.fromkeys(tps, _Spec.latest()))
        return {tp: self._there(tp, answer) for tp, answer in answers.items()}

    def first_at_or_after(self, tps: Sequence[TopicPartition], moment: datetime) -> dict[TopicPartition, Position | None]:
        """Kafka's own answer: the first offset whose timestamp is at or after the moment, or None."""
        return self._offsets("the first offset at an instant", dict.fromkeys(tps, _Spec.for_timestamp(_milliseconds(moment))))

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """The visible messages of [start, stop) in chunks, lazily: the caller may stop early (close the iterator).

        Raises:
            DataLossError: if `start` lies below the log start.
            UnreachableError: if `stop` lies beyond the last stable offset, or nothing arrives.
        """
        if start >= stop:
            return
        available = self.log_starts([tp])[tp]
        if start < available:
            raise _lost(tp, start, f"the log now starts at {available}")
        decided = self.stable_ends([tp])[tp].offset
        if stop > decided:
            what = f"Timestamps up to {stop} are wanted and the log is decided up to {decided}"
            raise UnreachableError(what, "read", "Wait for the open transaction, or for the messages.", tp.topic, tp.partition, decided)
        consumer = self._new_consumer()
        try:
            yield from scan(consumer, tp, start, stop, self._patience, self._consumer_failed)
        finally:
            consumer.close()

    # --------------------------------------------------------------------------------------------------------------- questions

    @property
    def _request(self) -> float:
        return min(_REQUEST_SECONDS, self._patience)

    def _described(self, name: str) -> Future[Any]:
        return self._admin.describe_topics(ck.TopicCollection([name]), request_timeout=self._request)[name]

    def _configured(self, name: str) -> Future[Any]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        return self._admin.describe_configs([resource], request_timeout=self._request)[resource]

    def _offsets(self, what: str, asked: Asked) -> dict[TopicPartition, Position | None]:
        """One answer for each topic-partition that was asked for; -1, Kafka's word for "there is none", becomes None."""
        if not asked:
            return {}
        topics = ", ".join(sorted({tp.topic for tp in asked}))
        answers = self._ask(what, topics, lambda: self._listed(asked))
        return {tp: self._position(tp, answer.offset, answer.leader_epoch) for tp, answer in answers.items()}

    def _position(self, tp: TopicPartition, offset: int, epoch: int | None) -> Position | None:
        if offset < _NONE:
            raise self._unreachable("an offset", str(tp), f"{offset} is none")
        return None if offset == _NONE else Position(offset, epoch)

    def _there(self, tp: TopicPartition, answer: Position | None) -> Position:
        if answer is None:
            raise self._unreachable("an end of the log", str(tp), "every log has one")
        return answer

    def _listed(self, asked: Asked) -> dict[TopicPartition, Any]:
        """Describe first: list_offsets takes leaders from the client's memory, where a partition that was added since is unknown."""
        for name in sorted({tp.topic for tp in asked}):
            count = len(self._result(self._described(name)).partitions)
            _known([tp for tp in asked if tp.topic == name], count)
        request = {ck.TopicPartition(tp.topic, tp.partition): spec for tp, spec in asked.items()}
        futures = self._admin.list_offsets(request, isolation_level=ck.IsolationLevel.READ_COMMITTED, request_timeout=self._request)
        return {TopicPartition(tp.topic, tp.partition): self._result(future) for tp, future in futures.items()}

    def _result(self, future: Future[T]) -> T:
        """The future's value. While it is waited for, the client's errors are heard: a refused login is not waited out.

        librdkafka times the request out itself; the deadline here is for a future that is never answered.
        """
        deadline = time.monotonic() + self._request + 5
        while True:
            wait([future], _HEAR_SECONDS)
            self._admin.poll(0)  # serves errors and logs, which else would pile up
            if future.done() or self._login is not None or time.monotonic() > deadline:
                break
        if not future.done() and self._login is not None:
            raise KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED))
        return future.result(0)

    def _ask(self, what: str, topic: str | None, question: Callable[[], T]) -> T:
        """The answer, after bounded tries."""
        began = time.monotonic()

        def again(why: Exception) -> bool:
            if isinstance(why, KafkaException):
                code = why.args[0].code()
                return self._login is None and (code in AGAIN or (code in UNKNOWN and time.monotonic() - began < _NEWS_SECONDS))
            return isinstance(why, TimeoutError)

        self._login = self._last = None

        try:
            for attempt in stamina.retry_context(on=again, attempts=None, timeout=self._patience, wait_initial=0.1, wait_max=2.0):
                with attempt:
                    return question()
        except TimeoutError:
            raise self._unreachable(what, topic, "no answer") from None
        except KafkaException as why:
            raise self._named(what, topic, why.args[0]) from None
        raise AssertionError("stamina returns or raises")

    # ------------------------------------------------------------------------------------------------------------------ errors

    def _named(self, what: str, topic: str | None, error: KafkaError) -> SpecError | UnreachableError:
        code = error.code()
        if code in UNKNOWN:
            do = "Check source.topic and source.bootstrap_servers, or create the topic."
            return SpecError(f"There is no such topic or partition on {self._bootstrap}", "plan", do, topic)
        if code in FORBIDDEN:
            do = "Grant Describe, DescribeConfigs and Read on the topic to it."
            return SpecError(f"The cluster does not let this client ask for {what}", "plan", do, topic)
        if code == KafkaError.TOPIC_EXCEPTION:
            return SpecError("Kafka does not take this for a topic's name", "plan", "Mend source.topic.", topic)
        if code in LOGIN or self._login is not None:
            text = self._login or self._scrub(error.str())
            do = "Check the sasl.* and ssl.* properties under source.client."
            return SpecError(f"The cluster refused the login: {text}", "plan", do, topic)
        return self._unreachable(what, topic, self._last or self._scrub(error.str()))

    def _unreachable(self, what: str, topic: str | None, why: str) -> UnreachableError:
        text = f"{self._bootstrap} did not tell {what} within {self._patience:.0f} s: {why}"
        return UnreachableError(text, "plan", "Check that the broker runs and can be reached, then try again.", topic)

    def _unusable(self, why: KafkaException) -> SpecError:
        text = self._scrub(why.args[0].str())
        return SpecError(f"The client properties can't be used: {text}", "spec", "Mend them under source.client.")

    def _consumer_failed(self, tp: TopicPartition, offset: int, error: KafkaError | None) -> DataLossError | SpecError | UnreachableError:
        """What a reading consumer's error means; None: nothing arrived for as long as we are patient."""
        if error is None:
            return self._unreachable(f"the timestamps from {offset} on", str(tp), self._last or "nothing arrived")
        if error.code() in LOST:
            return _lost(tp, offset, self._scrub(error.str()))
        return self._named("timestamps", str(tp), error)

    def _new_consumer(self) -> ck.Consumer:
        try:
            return ck.Consumer(self._consumer | {"error_cb": self._heard, "logger": _log})
        except KafkaException as why:
            raise self._unusable(why) from None

    def _heard(self, error: KafkaError) -> None:
        """The client's own errors: the reason behind a timeout, and a refused login, which no further try would mend."""
        if self._last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  # which only counts the reasons
            self._last = self._scrub(error.str())
        if error.code() in LOGIN:
            self._login = self._last

    def _scrub(self, text: str) -> str:
        return scrubbed(text, self._consumer)


def _lost(tp: TopicPartition, wanted: int, found: str) -> DataLossError:
    do = "Messages are gone: restore the topic, or leave this window out and run later ones; raise the topic's retention."
    return DataLossError(f"Offset {wanted} is not there any more: {found}", "read", do, tp.topic, tp.partition, wanted)


def _known(tps: Sequence[TopicPartition], count: int) -> None:
    for tp in tps:
        if not 0 <= tp.partition < count:
            raise SpecError(f"The topic has {count} partitions", "plan", "Ask for a partition that is there.", tp.topic, tp.partition)


def _topic_id(name: str, text: str) -> str:
    if text == _NO_TOPIC_ID:
        do = "Kafka 2.8 or later is needed: without ids a topic that was deleted and made again looks like the old one."
        raise SpecError("The cluster names no id for the topic", "plan", do, name)
    return text


def _milliseconds(moment: datetime) -> int:
    """The first millisecond at or after the moment, never below 0: negative ones are Kafka's words for log start and end."""
    return max(0, -((_EPOCH - moment) // timedelta(milliseconds=1)))
