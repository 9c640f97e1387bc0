"""Sends a split's messages without a Python object for each: a compiled pass hands them
to the producer's own librdkafka.

Nothing is reported for each message in a transaction. That all were written is known
all the same: librdkafka ends the transaction if one was not, so its commit fails.
Without a transaction that isn't so: where messages are to be written at least once, the
reports are taken from librdkafka's queue, thousands at a time, and a compiled pass
looks whether each says that its message was written. Either way, a split with one that
was not written is sent again one by one (`send.sent_one_by_one`), which names it. Who
asks for no guarantee isn't told.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from windrow.ingest.kafka.capi import Api, Unusable, load_api
from windrow.ingest.kafka.record_batch import addresses
from windrow.ingest.kafka.transaction import Sender, TransactionError, kind_of
from windrow.ingest.model.plan import Split
from windrow.ingest.native.calling import Compiled
from windrow.ingest.sinks.kafka.control import OffsetSpan
from windrow.ingest.sinks.kafka.form import HEADER
from windrow.ingest.sinks.kafka.places import PARTITION, partitions
from windrow.ingest.sinks.kafka.publish import PublishTarget

if TYPE_CHECKING:
    from collections.abc import Generator

Ends = Mapping[tuple[str, int], int]
"""Per target topic-partition the end of its log."""

passes = Compiled("windrow.ingest.sinks.kafka.passes")

_LOG = logging.getLogger("windrow.kafka")
_VTYPE = {"rkt": 2, "partition": 3, "value": 4, "key": 5, "flags": 7, "time": 8, "header": 9}
_COPY = 2
_WORDS, _HEADERS = 9, 6
_FULL = KafkaError._QUEUE_FULL  # public  # noqa: SLF001
_POLL_SECONDS = 0.005
_TOO_LARGE = 2**31
"""Bytes of a message that librdkafka takes under no settings; it looks at the size
before it looks at what is there.
"""
_REPORTS = 4096
"""Messages whose reports are looked at in one pass."""
_NOTHING = ctypes.create_string_buffer(1)

_BEHIND_HEAD = 2 * ctypes.sizeof(ctypes.c_void_p)
"""Where a Python object's own fields begin; confluent-kafka's first one is the client."""


@cache
def usable() -> Api | None:
    """The library, if it is one that this was tried on; else None, and the log says why."""
    try:
        api = load_api()
        _refuse_unlike(api)
    except Unusable as why:
        _LOG.warning("messages are sent one by one: %s", why)
        return None
    return api


def _refuse_unlike(api: Api) -> None:
    """See that a producer of confluent-kafka holds its client where it is looked for.

    Raises:
        Unusable: it doesn't, or the library can't send like this.
    """
    api.address("produceva")
    probe = ck.Producer(
        {"client.id": "windrow-probe", "bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    )
    if not api.name(_client(probe)).startswith(b"windrow-probe#producer"):
        raise Unusable("a producer of confluent-kafka doesn't begin with its client")


def _client(producer: ck.Producer) -> int:
    return ctypes.c_void_p.from_address(id(producer) + _BEHIND_HEAD).value or 0


class CompiledPump:
    """Sends messages in an open transaction, or without one. Used by one thread.

    Args:
        api: the library.
        ends: asks for the ends of all target logs.
        target: where messages go.
        transaction: which they are in.
        window: its key.
    """

    def __init__(
        self,
        api: Api,
        ends: Callable[[], Ends],
        target: PublishTarget,
        transaction: Sender,
        window: str,
    ) -> None:
        self._api, self._ends, self._target, self._transaction = api, ends, target, transaction
        self._client, self._window = _client(transaction.producer), window.encode()
        self._calls = np.array(
            [api.address(name) for name in ("produceva", "error_code", "error_destroy")], np.int64
        )
        self._reports = np.zeros(_REPORTS, np.int64)
        self._before = ends()

    def send(self, number: int, split: Split, batches: Iterable[pa.RecordBatch]) -> None:
        """All messages of a split, in their order.

        Raises:
            TransactionError: the transaction can't go on, or a message is reported that
                was not written.
        """
        sent = 0
        with self._topics() as topics:
            for batch in batches:
                self._send(batch, topics, number, split, sent)
                sent += batch.num_rows

    def wait(self) -> tuple[OffsetSpan, ...]:
        """Between which offsets the messages are, once nothing waits to be sent.

        Raises:
            TransactionError: the cluster takes longer than the transaction may, or the
                transaction can't go on.
        """
        deadline = time.monotonic() + self._target.timeout_ms / 1000
        while len(self._transaction.producer):
            self._poll()
            self._refuse_broken()
            if time.monotonic() > deadline:
                raise TransactionError(
                    "failed", f"{len(self._transaction.producer)} messages are not written yet"
                )
        after = self._ends()
        return tuple(
            OffsetSpan(*at, first, after[at] - 1)
            for at, first in sorted(self._before.items())
            if after[at] > first
        )

    def _poll(self) -> None:
        if self._target.delivery == "at-least-once":
            self._take_reports()
            return
        try:
            self._transaction.producer.poll(_POLL_SECONDS)
        except (KafkaException, SystemError) as why:
            error = self._transaction.reason(why)
            raise TransactionError(kind_of(error), self._transaction.scrub(error)) from None

    def _take_reports(self) -> None:
        """Wait a moment for reports, and take all that are there: librdkafka counts a
        message as waiting until its report is taken.
        """
        queue, wait_ms = self._api.queue_get_main(self._client), int(_POLL_SECONDS * 1000)
        try:
            while (event := self._api.queue_poll(queue, wait_ms)) is not None:
                wait_ms = 0
                try:
                    self._refuse_unwritten(event)
                finally:
                    self._api.event_destroy(event)
        finally:
            self._api.queue_destroy(queue)

    def _refuse_unwritten(self, event: int) -> None:
        """Look at what an event reports; one that reports no messages has none."""
        while count := self._api.event_message_array(
            event, self._reports.ctypes.data, len(self._reports)
        ):
            code = passes.first_error(self._reports, count)
            if code:
                error = KafkaError(
                    code,
                    "a message was not written"
                    f" ({self._api.err2str(code).decode(errors='replace')})",
                )
                raise TransactionError(kind_of(error), self._transaction.scrub(error))

    def _refuse_broken(self) -> None:
        """Ask whether the transaction still takes messages, by one that is too large
        for any: it is told so, or that nothing is taken.

        Nobody is told of a message that was not written; what waits behind it is never
        sent then, and would be waited for in vain.

        Raises:
            TransactionError: it doesn't.
        """
        with self._topics() as topics:
            taken = (
                self._api.produce(
                    next(iter(topics.values())), 0, 0, _NOTHING, _TOO_LARGE, None, 0, None
                )
                == 0
            )
        code = self._api.last_error()
        if taken or code != KafkaError.MSG_SIZE_TOO_LARGE:
            error = KafkaError(
                code,
                f"a message was not written ({self._api.err2str(code).decode(errors='replace')})",
            )
            raise TransactionError(kind_of(error), self._transaction.scrub(error))

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
        parts, kept = _parts(headers, (self._target.window_header.encode(), self._window))
        numbers = batch["time"].to_numpy()
        times = np.where(numbers < 0, 0, numbers).astype(np.int64)
        where, to = self._chosen(batch, topics, number, split, sent)
        failure, row = np.zeros(1, np.int64), 0
        while (
            row := passes.produce(
                self._calls, self._client, parts, columns, to, where, times, row, failure
            )
        ) < batch.num_rows:
            if failure[0] != _FULL:
                error = KafkaError(int(failure[0]))
                raise TransactionError(kind_of(error), self._transaction.scrub(error))
            self._poll()
        del kept

    def _chosen(
        self, batch: pa.RecordBatch, topics: Mapping[str, int], number: int, split: Split, sent: int
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Of each message its partition, and its topic."""
        how, n, only = self._target.partitioner, batch.num_rows, self._target.only
        told = (
            batch[PARTITION].to_numpy().astype(np.int64)
            if PARTITION in batch.schema.names
            else None
        )
        if only is not None:
            count = self._target.topics[only].partitions
            chosen = (
                partitions(how, n, sent, number, split.partition, count) if told is None else told
            )
            return chosen.astype(np.int64), np.full(n, topics[only], np.int64)
        encoded = batch["topic"].dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        to = np.array([topics[name] for name in names], np.int64)[codes]
        if told is not None:
            return told, to
        by_topic = [
            partitions(how, n, sent, number, split.partition, self._target.topics[name].partitions)
            for name in names
        ]
        return np.choose(codes, by_topic).astype(np.int64), to


def _parts(
    headers: list[bytes], window: tuple[bytes, bytes]
) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """A message's parts as librdkafka is told them, and what must live as long as they are used."""
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
