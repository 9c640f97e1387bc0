"""Sends the messages of splits without a Python object for each: in record batches that
are encoded here, or by librdkafka. There a compiled pass hands them to the producer's own
client, and another one looks at the reports on them, thousands at a time.

A message that was not written is named by its headers, which say where its row was read.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from threading import BoundedSemaphore
from typing import Any

import confluent_kafka as ck
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.kafka.capi import Api, MessageHead, library
from windrow.ingest.kafka.record_batch import addresses
from windrow.ingest.kafka.transaction import Sender, Sending, TransactionError, kind_of
from windrow.ingest.kafka.wire_transaction import WireTransaction
from windrow.ingest.model.plan import Split
from windrow.ingest.native.calling import Compiled
from windrow.ingest.sinks.kafka.batch_pump import BatchPump
from windrow.ingest.sinks.kafka.control import OffsetSpan, PublishedSplit
from windrow.ingest.sinks.kafka.encoder import HEADER
from windrow.ingest.sinks.kafka.places import PARTITION, partitions
from windrow.ingest.sinks.kafka.publish import PublishTarget
from windrow.ingest.sinks.kafka.stage import StagedFiles
from windrow.ingest.sinks.kafka.work import WindowWork

Ends = Mapping[tuple[str, int], int]
"""Per target topic-partition the end of its log."""

Ints = npt.NDArray[np.int64]

passes = Compiled("windrow.ingest.sinks.kafka.passes")

_VTYPE = {"rkt": 2, "partition": 3, "value": 4, "key": 5, "flags": 7, "time": 8, "header": 9}
_COPY = 2
_WORDS, _HEADERS = 9, 6
_FULL = KafkaError._QUEUE_FULL  # public  # noqa: SLF001
_GIVEN_UP = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # public  # noqa: SLF001
"""Errors of messages that wait behind the one that failed."""
_POLL_MS = 20
_REPORTS = 4096
"""Messages whose reports are looked at in one pass."""

_BEHIND_HEAD = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Where a Python object's own fields begin; confluent-kafka's first one is the client."""

_sending = BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))
"""A sender keeps two processors busy: its own thread and its client's.

Transactions that begin or end meanwhile don't.
"""

_encoding = BoundedSemaphore(os.cpu_count() or 1)
"""Who encodes batches keeps one busy."""

_WAYS_OUT = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "Raise the topic's max.message.bytes, or refuse such rows by a rule"
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "Raise the topic's message.timestamp.after.max.ms (or before.max.ms), or set"
        " sink.timestamp: published"
    ),
}
"""By the broker's code."""


@cache
def sending_library() -> Api:
    """librdkafka, checked to be where a producer of confluent-kafka holds it.

    Raises:
        SpecError: it isn't one that windrow was tried with.
    """
    api = library()
    probe = ck.Producer(
        {"client.id": "windrow-probe", "bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    )
    if not api.name(_client(probe)).startswith(b"windrow-probe#producer"):
        raise SpecError(
            "A producer of confluent-kafka doesn't begin with its client in this Python",
            "setup",
            "Run windrow in a release build of CPython, with confluent-kafka's own wheel.",
        )
    return api


def _client(producer: ck.Producer) -> int:
    return ctypes.c_void_p.from_address(id(producer) + _BEHIND_HEAD).value or 0


def sent(
    ends: Callable[[], Ends],
    files: StagedFiles,
    work: WindowWork,
    target: PublishTarget,
    sending: Sending,
    numbers: Sequence[int],
) -> list[PublishedSplit]:
    """Sends the messages of some splits, and waits until the brokers have them.

    Args:
        ends: asks for the ends of all target logs.
        files: of the splits.
        work: the window.
        target: where messages go.
        sending: the transaction, or the producer without one.
        numbers: of the splits.

    Raises:
        TransactionError: the transaction can't go on; where batches were encoded here,
            librdkafka may tell more.
        RefusedError: a staged file is gone, or a topic doesn't take a message.
    """
    if isinstance(sending, WireTransaction):
        return _sent_in_batches(files, work, target, sending, numbers)
    assert isinstance(sending, Sender)  # there is no third
    return _sent_by_librdkafka(ends, files, work, target, sending, numbers)


def _sent_in_batches(
    files: StagedFiles,
    work: WindowWork,
    target: PublishTarget,
    transaction: WireTransaction,
    numbers: Sequence[int],
) -> list[PublishedSplit]:
    published = []
    with _encoding:
        for number in numbers:
            split = work.receipt.plan.splits[number]
            pump = BatchPump(target, transaction, work.receipt.window.key, number, split)
            for file in work.files[number]:
                pump.send(files.batches(file))
            published.append(work.published(number, pump.wait()))
    return published


def _sent_by_librdkafka(
    ends: Callable[[], Ends],
    files: StagedFiles,
    work: WindowWork,
    target: PublishTarget,
    sender: Sender,
    numbers: Sequence[int],
) -> list[PublishedSplit]:
    """The splits share the places between which their messages are: headers say which
    message is of which split.
    """
    with _sending:
        pump = MessagePump(ends, target, sender, work.receipt.window.key)
        for number in numbers:
            for file in work.files[number]:
                pump.send(number, work.receipt.plan.splits[number], files.batches(file))
        spans = pump.wait()
    return [work.published(number, spans) for number in numbers]


class MessagePump:
    """Sends messages, in an open transaction or without one. Used by one thread.

    Args:
        ends: asks for the ends of all target logs.
        target: where messages go.
        sender: the producer.
        window: the window's key.
    """

    def __init__(
        self, ends: Callable[[], Ends], target: PublishTarget, sender: Sender, window: str
    ) -> None:
        self._api, self._ends, self._target, self._sender = sending_library(), ends, target, sender
        self._client, self._window = _client(sender.producer), window.encode()
        self._calls = np.array(
            [self._api.address(name) for name in ("produceva", "error_code", "error_destroy")],
            np.int64,
        )
        self._reports = np.zeros(_REPORTS, np.int64)
        self._failure: TransactionError | RefusedError | None = None
        self._before = ends()

    def send(self, number: int, split: Split, batches: Iterable[pa.RecordBatch]) -> None:
        """Sends all messages of a split, in their order.

        Raises:
            RefusedError: the topic doesn't take one.
            TransactionError: the transaction can't go on, or a message was not written.
        """
        first = 0
        with self._topics() as topics:
            for batch in batches:
                self._send(batch, topics, number, split, first)
                first += batch.num_rows

    def wait(self) -> tuple[OffsetSpan, ...]:
        """Between which offsets the messages are, once the brokers have all of them.

        Raises:
            RefusedError: the topic doesn't take one.
            TransactionError: one was not written in the time that a transaction has.
        """
        deadline = time.monotonic() + self._target.timeout_ms / 1000
        while left := len(self._sender.producer):
            self._poll()
            if time.monotonic() > deadline:
                raise TransactionError("failed", f"{left} messages are not written yet")
        if self._failure is not None:
            raise self._failure
        after = self._ends()
        return tuple(
            OffsetSpan(*at, first, after[at] - 1)
            for at, first in sorted(self._before.items())
            if after[at] > first
        )

    def _poll(self) -> None:
        """Takes the reports that have come: librdkafka counts a message as waiting until then.

        Raises:
            RefusedError, TransactionError: a message was not written; or nothing comes,
                for the transaction has failed.
        """
        queue, wait_ms = self._api.queue_get_main(self._client), _POLL_MS
        try:
            while (event := self._api.queue_poll(queue, wait_ms)) is not None:
                wait_ms = 0
                try:
                    self._look_at(event)
                finally:
                    self._api.event_destroy(event)
        finally:
            self._api.queue_destroy(queue)
        if self._failure is not None:
            raise self._failure
        if wait_ms:
            self._sender.refuse_broken()

    def _look_at(self, event: int) -> None:
        """Looks for a message that was not written; an event of another kind has none."""
        while count := self._api.event_message_array(
            event, self._reports.ctypes.data, len(self._reports)
        ):
            row = passes.next_failed(self._reports, count, 0)
            while row < count and self._target.delivery != "none":
                self._note(int(self._reports[row]))
                row = passes.next_failed(self._reports, count, row + 1)

    def _note(self, message: int) -> None:
        """Keeps the reason for a message that was not written; one that names a row wins."""
        code = MessageHead.from_address(message).err
        error = KafkaError(code, self._api.err2str(code).decode(errors="replace"))
        if code not in _GIVEN_UP and not isinstance(self._failure, RefusedError):
            if kind_of(error) == "refused":
                self._failure = self._refused(error, message)
            elif self._failure is None:
                self._failure = self._sender.failed(error)

    def _refused(self, error: KafkaError, message: int) -> RefusedError:
        topic = self._api.topic_name(MessageHead.from_address(message).topic).decode()
        do = _WAYS_OUT.get(error.code(), "Fix that at the topic, or refuse such rows by a rule")
        return RefusedError(
            f"The topic {topic} doesn't take the message of a row: {self._sender.scrub(error)}",
            "commit",
            f"Its split {self._target.taken_back}. {do}; then run the window again.",
            self._header(message, "topic").decode(),
            int(self._header(message, "partition")),
            int(self._header(message, "offset")),
        )

    def _header(self, message: int, name: str) -> bytes:
        headers, value, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        self._api.message_headers(message, ctypes.byref(headers))
        self._api.header_get_last(
            headers,
            self._target.metadata[name].encode(),
            ctypes.byref(value),
            ctypes.byref(size),
        )
        return ctypes.string_at(value.value or 0, size.value)

    @contextmanager
    def _topics(self) -> Generator[dict[str, int], None, None]:
        """The target topics as librdkafka knows them."""
        made = {
            name: self._api.topic_new(self._client, name.encode(), None)
            for name in self._target.topics
        }
        try:
            yield made
        finally:
            for topic in made.values():
                self._api.topic_destroy(topic)

    def _send(
        self, batch: pa.RecordBatch, topics: Mapping[str, int], number: int, split: Split, sent: int
    ) -> None:
        names = [name for name in batch.schema.names if name.startswith(HEADER)]
        columns = np.array([addresses(batch[name]) for name in ("value", "key", *names)], np.int64)
        headers = [name.removeprefix(HEADER).encode() for name in names]
        parts, kept = _parts(headers, (self._target.metadata["window"].encode(), self._window))
        times = np.maximum(batch["time"].to_numpy(), 0).astype(np.int64)  # 0: the client's clock
        where, to = self._chosen(batch, topics, number, split, sent)
        failure, row = np.zeros(1, np.int64), 0
        while (
            row := passes.produce(
                self._calls, self._client, parts, columns, to, where, times, row, failure
            )
        ) < batch.num_rows:
            self._poll()
            if failure[0] != _FULL:
                self._sender.refuse_broken()
                raise self._sender.failed(KafkaError(int(failure[0])))
        del kept

    def _chosen(
        self, batch: pa.RecordBatch, topics: Mapping[str, int], number: int, split: Split, sent: int
    ) -> tuple[Ints, Ints]:
        """The partition of each message, and the address of its topic."""
        how, n, only = self._target.partitioner, batch.num_rows, self._target.only
        by_function = (
            batch[PARTITION].to_numpy().astype(np.int64)
            if PARTITION in batch.schema.names
            else None
        )

        def chosen(topic: str) -> Any:
            count = self._target.topics[topic].partitions
            return partitions(how, n, sent, number, split.partition, count).astype(np.int64)

        if only is not None:
            return (
                chosen(only) if by_function is None else by_function,
                np.full(n, topics[only], np.int64),
            )
        encoded = batch["topic"].dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        to = np.array([topics[name] for name in names], np.int64)[codes]
        if by_function is not None:
            return by_function, to
        found = np.empty(n, np.int64)
        for code, name in enumerate(names):
            found[codes == code] = chosen(name)[codes == code]
        return found, to


def _parts(headers: list[bytes], window: tuple[bytes, bytes]) -> tuple[Ints, list[Any]]:
    """A message's parts as librdkafka takes them, and what must live as long as they are used."""
    kinds = [
        "rkt",
        "partition",
        "flags",
        "time",
        "value",
        "key",
        *(["header"] * (len(headers) + 1)),
    ]
    parts = np.zeros(len(kinds) * _WORDS, np.int64)
    parts[::_WORDS] = [_VTYPE[kind] for kind in kinds]
    parts[2 * _WORDS + 1] = _COPY
    kept = [ctypes.create_string_buffer(name) for name in (*headers, *window)]
    for number, name in enumerate(kept[:-1]):
        parts[(_HEADERS + number) * _WORDS + 1] = ctypes.addressof(name)
    parts[-_WORDS + 2], parts[-_WORDS + 3] = ctypes.addressof(kept[-1]), len(window[1])
    return parts, kept
