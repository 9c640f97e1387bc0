"""Sends the messages of splits, without a Python object for each message.

A compiled pass hands messages to librdkafka's client inside a producer of confluent-kafka.
Another compiled pass examines the delivery reports, thousands at a time.

The error about an unwritten message names the row's source by the header `windrow.origin`.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from threading import BoundedSemaphore
from typing import Any

import confluent_kafka as ck
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError

from windrow.ingest.errors import RefusedError, SpecError, format_count
from windrow.ingest.kafka.allowed_properties import Value
from windrow.ingest.kafka.capi import Api, MessageHead, library
from windrow.ingest.kafka.producers import (
    MESSAGE_LIMIT,
    MessageProducer,
    NonIdempotentProducer,
    ProducerError,
    TransactionalProducer,
    kind_of,
)
from windrow.ingest.kafka.timeouts import IDLE_SECONDS, PATIENCE_SECONDS
from windrow.ingest.model.plan import Split
from windrow.ingest.native.calling import Compiled
from windrow.ingest.sinks.kafka.control_records import OffsetSpan, PublishedSplit
from windrow.ingest.sinks.kafka.encoder import HEADER, ORIGIN, origin_of
from windrow.ingest.sinks.kafka.fields import CALLS, FLAGS, HEADERS, WORDS
from windrow.ingest.sinks.kafka.options import KafkaOptions
from windrow.ingest.sinks.kafka.partitioners import BY_KEY, PARTITION, partitions
from windrow.ingest.sinks.kafka.stage import StagedMessageFiles
from windrow.ingest.sinks.kafka.topics import LogEnd, Topic
from windrow.ingest.sinks.kafka.work import WindowWork

Ends = Mapping[tuple[str, int], LogEnd]
"""The end of the log of each target topic-partition."""

Ints = npt.NDArray[np.int64]

passes = Compiled("windrow.ingest.sinks.kafka.passes")

_KINDS = (2, 3, 7, 8, 4, 5, 9)
"""librdkafka's numbers for the kinds of arguments, in the order of their positions."""
_COPY = 2
_QUEUE_FULL = KafkaError._QUEUE_FULL
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""Errors of messages that were dropped because an earlier message failed."""
POLL_MS = 20
_REPORTS = 4096
"""Number of delivery reports that one pass examines."""

_FIRST_FIELD = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Offset of a Python object's first own field, which confluent-kafka uses for the client."""

_slots = BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))
"""Limits the number of threads that send.

Each sending thread keeps two processors busy: its own and that of its client's thread.
Beginning and committing transactions isn't limited.
"""

_ADVICE = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "Raise the topic's max.message.bytes, or refuse such rows by a rule"
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "Raise the topic's message.timestamp.after.max.ms (or before.max.ms), or set"
        " sink.timestamp: published"
    ),
}
"""Advice about a refused message, by the broker's error code."""


_BATCH_BYTES = 512 * 1024


class PublishTarget(msgspec.Struct, frozen=True):
    """Target of messages, and how they are sent.

    Attributes:
        options: the options of the table.
        topics: the target topics by name, as the cluster has them now.
        properties: the properties of an AdminClient.
    """

    options: KafkaOptions
    topics: Mapping[str, Topic]
    properties: Mapping[str, Value]

    def producer(self, name: str) -> MessageProducer:
        """Makes the producer; with transactions, under a transactional id."""
        client_properties: Mapping[str, Value] = {
            **self.properties,
            **({"partitioner": BY_KEY} if self.options.partitioner == "key-hash" else {}),
            "batch.size": self.batch_bytes,
        }
        if self.options.delivery == "none":
            return NonIdempotentProducer(client_properties, self.options.acks, PATIENCE_SECONDS)
        if self.options.delivery == "at-least-once":
            return MessageProducer(client_properties, PATIENCE_SECONDS)
        # librdkafka refuses a request timeout above the transaction's timeout.
        timeout_ms = self.options.timeout // timedelta(milliseconds=1)
        socket = min(int(str(self.properties["socket.timeout.ms"])), timeout_ms)
        return TransactionalProducer(
            {
                **client_properties,
                "transaction.timeout.ms": timeout_ms,
                "socket.timeout.ms": socket,
            },
            name,
            PATIENCE_SECONDS,
        )

    @property
    def batch_bytes(self) -> int:
        """Limit of a batch of messages before compression, in bytes.

        A topic refuses whole batches. With this limit it refuses a batch only if a single
        message is too large.
        """
        least = min(topic.message_bytes for topic in self.topics.values())
        return max(1024, min(_BATCH_BYTES, least // 2))

    @property
    def taken_back(self) -> str:
        """What happens to a split with a message that can't be published, for error messages."""
        return (
            "was taken back"
            if self.options.delivery == "exactly-once"
            else "may be in the topic already, and may come again"
        )


@cache
def sending_library() -> Api:
    """Returns librdkafka, after its client was found inside a producer of confluent-kafka.

    Raises:
        SpecError: this Python, or this confluent-kafka, lays out its objects differently.
    """
    api = library()
    probe = ck.Producer(
        {"client.id": "windrow-probe", "bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    )
    if not api.name(_client(probe)).startswith(b"windrow-probe#producer"):
        raise SpecError(
            "windrow can't find librdkafka's client in a producer of confluent-kafka",
            "setup",
            "Run windrow in a release build of CPython, with confluent-kafka's own wheel.",
        )
    return api


def _client(producer: ck.Producer) -> int:
    return ctypes.c_void_p.from_address(id(producer) + _FIRST_FIELD).value or 0


def send_splits(
    ends: Callable[[], Ends],
    files: StagedMessageFiles,
    work: WindowWork,
    target: PublishTarget,
    producer: MessageProducer,
    numbers: Sequence[int],
) -> list[PublishedSplit]:
    """Sends the messages of splits, and waits until all are confirmed.

    The records of all these splits name the same spans of offsets. The spans hold the messages
    of all these splits; the origin of a message shows its split.

    Args:
        ends: asks for the ends of all target logs.
        files: the table's staged files.
        work: the window.
        target: where messages go.
        producer: the producer, in its transaction if there is one.
        numbers: the numbers of the splits.

    Returns:
        The record of each split.

    Raises:
        ProducerError: the transaction can't go on.
        RefusedError: a staged file is gone, or a topic's settings refuse a message.
    """
    with _slots:
        sender = MessageSender(ends, target, producer)
        for number in numbers:
            for file in work.files[number]:
                sender.send(number, work.receipt.plan.splits[number], files.batches(file))
        spans = sender.wait()
    return [work.published(number, spans) for number in numbers]


class MessageSender:
    """Sends messages, in an open transaction or without one.

    Used by one thread.

    Args:
        ends: asks for the ends of all target logs.
        target: where messages go.
        producer: the producer.
    """

    def __init__(
        self,
        ends: Callable[[], Ends],
        target: PublishTarget,
        producer: MessageProducer,
    ) -> None:
        self._api, self._ends, self._target = sending_library(), ends, target
        self._producer, self._client = producer, _client(producer.producer)
        self._calls = np.array([self._api.address(name) for name in CALLS], np.int64)
        self._reports = np.zeros(_REPORTS, np.int64)
        self._failure: ProducerError | RefusedError | None = None
        self._ends_before = ends()

    def send(self, number: int, split: Split, batches: Iterable[pa.RecordBatch]) -> None:
        """Sends all messages of a split, in their order.

        Raises:
            RefusedError: a topic's settings refuse a message.
            ProducerError: the transaction can't go on, or a message was not written.
        """
        first = 0
        with self._topics() as topics:
            for batch in batches:
                self._send(batch, topics, number, split, first)
                first += batch.num_rows

    def wait(self) -> tuple[OffsetSpan, ...]:
        """Waits until all messages are confirmed, and returns their offsets.

        Raises:
            RefusedError: a topic's settings refuse a message, or a topic was made anew.
            ProducerError: a message was not written within a transaction's timeout.
        """
        deadline = time.monotonic() + self._target.options.timeout.total_seconds()
        while unconfirmed := len(self._producer.producer):
            self._poll()
            if time.monotonic() > deadline:
                raise ProducerError(
                    "failed", f"{format_count(unconfirmed, 'message')} are not written yet"
                )
        return spans_between(self._ends_before, self._ends())

    def _poll(self) -> None:
        """Takes the delivery reports that have arrived.

        librdkafka counts a message as waiting until its report is taken.

        Raises:
            RefusedError, ProducerError: a message was not written, or the transaction
                has failed.
        """
        if not self._take_reports():
            self._refuse_broken()

    def _take_reports(self) -> bool:
        """Waits for reports for a short time, and returns whether any arrived.

        Raises:
            RefusedError, ProducerError: a message was not written.
        """
        queue, has_reports = self._api.queue_get_main(self._client), False
        try:
            while event := self._api.queue_poll(queue, 0 if has_reports else POLL_MS):
                has_reports = True
                try:
                    self._look_at(event)
                finally:
                    self._api.event_destroy(event)
        finally:
            self._api.queue_destroy(queue)
        if self._failure is not None:
            raise self._failure
        return has_reports

    def _refuse_broken(self) -> None:
        """Checks that the transaction has not failed.

        librdkafka breaks the transaction first. It reports the message that a topic refused
        only after that. The report names the row, so this method waits for it.

        Raises:
            RefusedError, ProducerError: the transaction has failed.
        """
        try:
            self._producer.refuse_broken()
        except ProducerError as broken:
            deadline = time.monotonic() + IDLE_SECONDS
            while broken.kind == "refused" and time.monotonic() < deadline:
                self._take_reports()
            raise

    def _look_at(self, event: int) -> None:
        """Searches an event for reports of failed messages; other events have no reports."""
        while count := self._api.event_message_array(
            event, self._reports.ctypes.data, len(self._reports)
        ):
            row = passes.next_failed(self._reports, count, 0)
            while row < count and self._target.options.delivery != "none":
                self.keep_failure(int(self._reports[row]))
                row = passes.next_failed(self._reports, count, row + 1)

    def keep_failure(self, message: int) -> None:
        """Keeps the error of a message that was not written.

        An error that names a row replaces an error that doesn't.
        """
        code = MessageHead.from_address(message).err
        error = KafkaError(code, self._api.err2str(code).decode(errors="replace"))
        if code not in _PURGED and not isinstance(self._failure, RefusedError):
            if kind_of(error) == "refused":
                topic = self._api.topic_name(MessageHead.from_address(message).topic).decode()
                advice = _ADVICE.get(
                    code, "Change the topic's settings, or refuse such rows by a rule"
                )
                self._failure = self._refused_error(
                    f"The topic {topic} doesn't take the message of a row:"
                    f" {self._producer.scrub(error)}",
                    advice,
                    self._origin(message),
                )
            elif self._failure is None:
                self._failure = self._producer.failed(error)

    def _refused_error(self, message: str, advice: str, origin: bytes) -> RefusedError:
        """Makes the error for a message that is refused however often it is sent.

        Args:
            message: the text of the error.
            advice: what the user can do.
            origin: the value of the message's `windrow.origin` header.
        """
        read = origin_of({ORIGIN: origin})
        assert read is not None, "each message has an origin"
        return RefusedError(
            message,
            "commit",
            f"Its split {self._target.taken_back}. {advice}; then run the window again.",
            read.topic,
            read.partition,
            read.offset,
        )

    def _origin(self, message: int) -> bytes:
        headers, value, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        self._api.message_headers(message, ctypes.byref(headers))
        self._api.header_get_last(
            headers,
            ORIGIN.encode(),
            ctypes.byref(value),
            ctypes.byref(size),
        )
        return ctypes.string_at(value.value or 0, size.value)

    @contextmanager
    def _topics(self) -> Generator[dict[str, int], None, None]:
        """Opens librdkafka's handles of the target topics, and closes them at the end."""
        topic_handles = {
            name: self._api.topic_new(self._client, name.encode(), None)
            for name in self._target.topics
        }
        try:
            yield topic_handles
        finally:
            for topic in topic_handles.values():
                self._api.topic_destroy(topic)

    def _send(
        self,
        batch: pa.RecordBatch,
        topics: Mapping[str, int],
        number: int,
        split: Split,
        sent_rows: int,
    ) -> None:
        names = [name for name in batch.schema.names if name.startswith(HEADER)]
        columns = np.array([_addresses(batch[name]) for name in ("value", "key", *names)], np.int64)
        headers = [name.removeprefix(HEADER).encode() for name in names]
        arguments, buffers = _arguments(headers)
        # 0 means the time of the client's clock.
        times = np.maximum(batch["time"].to_numpy(), 0).astype(np.int64)
        partition_numbers, topic_handles = self._route_rows(batch, topics, number, split, sent_rows)
        failure, row = np.zeros(1, np.int64), 0
        while (
            row := passes.produce(
                self._calls,
                self._client,
                arguments,
                columns,
                topic_handles,
                partition_numbers,
                times,
                row,
                failure,
            )
        ) < batch.num_rows:
            self._poll()
            if failure[0] == KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._refused_error(
                    f"The message of a row has more than {MESSAGE_LIMIT}, and no such message"
                    " is published",
                    "Refuse such rows by a rule, or leave a large column out of sink.value.columns",
                    batch[f"{HEADER}{ORIGIN}"][row].as_py(),
                )
            if failure[0] != _QUEUE_FULL:
                self._refuse_broken()
                raise self._producer.failed(KafkaError(int(failure[0])))
        del buffers

    def _route_rows(
        self,
        batch: pa.RecordBatch,
        topics: Mapping[str, int],
        number: int,
        split: Split,
        sent_rows: int,
    ) -> tuple[Ints, Ints]:
        """Returns the partition of each message, and the address of its topic's handle."""
        options, n = self._target.options, batch.num_rows
        function = PARTITION in batch.schema.names

        def chosen(topic: str) -> Any:
            if function:
                return batch[PARTITION].to_numpy().astype(np.int64)
            count = self._target.topics[topic].partitions
            return partitions(
                options.partitioner, n, sent_rows, number, split.partition, count
            ).astype(np.int64)

        if options.only_topic is not None:
            only = options.only_topic
            return chosen(only), np.full(n, topics[only], np.int64)
        encoded = batch["topic"].dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        partition_numbers = np.empty(n, np.int64)
        for code, name in enumerate(names):
            partition_numbers[codes == code] = chosen(name)[codes == code]
        return partition_numbers, np.array([topics[name] for name in names], np.int64)[codes]


def spans_between(old_ends: Ends, new_ends: Ends) -> tuple[OffsetSpan, ...]:
    """Returns the offsets by which logs grew. Pure.

    A topic-partition may have been added in between.

    Raises:
        RefusedError: a topic was deleted and made again in between.
    """
    ids = {topic: log.topic_id for (topic, _), log in old_ends.items()}
    for (topic, _), log in new_ends.items():
        if log.topic_id != ids.get(topic, log.topic_id):
            raise RefusedError(
                f"The topic {topic} was deleted and made again while messages were sent to it",
                "commit",
                "Run the window again.",
            )
    return tuple(
        OffsetSpan(*log_key, first, log.end - 1, log.topic_id)
        for log_key, log in sorted(new_ends.items())
        if log.end > (first := old_ends[log_key].end if log_key in old_ends else 0)
    )


def _addresses(column: pa.Array) -> list[int]:
    """Returns the addresses of a byte column for compiled passes: see `passes.DATA`."""
    present, ends, data = column.buffers()
    return [
        0 if data is None else data.address,
        ends.address,
        0 if present is None or not column.null_count else present.address,
        column.offset,
    ]


def _arguments(headers: list[bytes]) -> tuple[Ints, list[Any]]:
    """Makes the arguments of rd_kafka_produceva that are the same for all messages.

    Args:
        headers: the names of the headers.

    Returns:
        The array of rd_kafka_vu_t, and the buffers that it points to. The buffers must live
            as long as the array is used.
    """
    arguments = np.zeros((HEADERS + len(headers)) * WORDS, np.int64)
    arguments[::WORDS] = _KINDS + _KINDS[HEADERS:] * (len(headers) - 1)
    arguments[FLAGS * WORDS + 1] = _COPY
    buffers = [ctypes.create_string_buffer(name) for name in headers]
    for number, name in enumerate(buffers):
        arguments[(HEADERS + number) * WORDS + 1] = ctypes.addressof(name)
    return arguments, buffers
