"""Fetches messages with librdkafka itself, and copies them to Arrow by compiled code.

No Python object is made for a message. confluent-kafka's consumer hides the client inside
it, and its messages before they are objects. So this module makes its own client, with
the same properties. librdkafka calls its callbacks while it is polled, in the thread that
reads, except one: it asks for tokens in its own thread, so that a client that waits for
its next split keeps its login.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from windrow.ingest.errors import BugError, WindrowError
from windrow.ingest.kafka.capi import (
    CONSUMER,
    ERROR_CB,
    LOG_CB,
    TEXT_SIZE,
    TOKEN_CB,
    Api,
    MessageHead,
    library,
)
from windrow.ingest.kafka.client_properties import LOG
from windrow.ingest.kafka.oauth import TokenSource
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.messages import HEADERS
from windrow.ingest.source.reader import fields
from windrow.ingest.source.reader.batches import (
    UNREADABLE_HEADERS,
    HeaderList,
    columns_to_batch,
    headers_to_array,
)
from windrow.ingest.source.reader.fetching import (
    WAIT_SECONDS,
    Event,
    Fetched,
    Fetcher,
    LastMessage,
    OnError,
    Start,
    can_continue,
)

passes = Compiled("windrow.ingest.source.reader.passes")

AT_ONCE = 16_384
"""The most messages of one poll. So many stay in the CPU's cache while they are copied."""

POLL_BYTES = 4 * 1024 * 1024
"""Roughly the most bytes of one poll, by the mean message size of the poll before.

librdkafka holds a poll's messages until they are copied, besides those that it fetches
ahead. The first poll after a start takes whatever is in its queue.
"""

PIECE_BYTES = 16 * 1024 * 1024
"""The bytes of keys, values and headers that are copied at once; a larger message is alone."""

_LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)
"""Python's log levels for syslog's levels 0 to 7, as confluent-kafka maps them."""

_CLOSED = 8  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE


def connect(properties: Mapping[str, Any], start: Start, on_error: OnError) -> Fetcher:
    """Makes a client at an offset, as `fetching.Fetching` describes.

    Raises:
        SpecError: the librdkafka of this environment can't be used.
    """
    return LibrdkafkaFetcher(library(), properties, start, on_error)


class LibrdkafkaFetcher:
    """A `fetching.Fetcher` on a consumer of librdkafka that is assigned to one topic-partition.

    Its callbacks are called while it is polled.

    Attributes:
        api: the functions of librdkafka.
        messages: the addresses of messages that aren't destroyed yet, else 0. They stay
            valid after an interrupt.
        state: the state of the pass `look`.
        turn: the number of polls and other releases. Each one destroys the remaining
            messages of the poll before.
        handle: the client; None after `close`.
        tp: the topic-partition.
    """

    def __init__(
        self, api: Api, properties: Mapping[str, Any], start: Start, on_error: OnError
    ) -> None:
        self.api = api
        self._calls = np.array([api.address(name) for name in fields.CALLS], np.int64)
        # an entry is 0 once its message is destroyed, so the array is valid after an interrupt too
        self.messages = np.zeros(AT_ONCE, np.int64)
        self._rows = np.empty((fields.FIELDS, AT_ONCE), np.int64)
        self._scratch = np.zeros(fields.SCRATCH, np.int64)
        self.state = np.zeros(fields.STATE, np.int64)
        # counts releases: each poll destroys the remaining messages of the poll before
        self.turn = 0
        self._expect(start)
        self._on_error = on_error
        # referenced here, because librdkafka only has their addresses
        self._token_source: TokenSource | None = properties.get("oauth_cb")
        self._callbacks = ERROR_CB(self._error), LOG_CB(self._log), TOKEN_CB(self._give_token)
        self.handle: int | None = self._create(
            {name: value for name, value in properties.items() if name != "oauth_cb"}
        )
        api.set_log_queue(self.handle, None)
        api.poll_set_consumer(self.handle)
        self._queue = api.queue_get_consumer(self.handle)
        self._partitions = api.topic_partition_list_new(1)
        try:
            self._assign(start)
        except KafkaException:
            self.close()
            raise

    def begin(self, start: Start, on_error: OnError) -> bool:
        self._release()
        if self.tp == TopicPartition(start.topic, start.partition) and can_continue(
            self._last, start
        ):
            self._on_error = on_error
            return True
        if not start.doubtful:
            self._expect(start)
            self._on_error = on_error
            self.api.topic_partition_list_destroy(self._partitions)
            self._partitions = self.api.topic_partition_list_new(1)
            self._assign(start)
        return not start.doubtful

    def _expect(self, start: Start) -> None:
        """Resets the state, so that only messages after a start are accepted."""
        self._poll_limit = AT_ONCE
        self.tp, self._begun = TopicPartition(start.topic, start.partition), False
        self._last: LastMessage | None = None
        self.state[[fields.TOPIC, fields.PARTITION, fields.DUE]] = 0, start.partition, start.offset

    def _assign(self, start: Start) -> None:
        partition = self.api.topic_partition_list_add(
            self._partitions, start.topic.encode(), start.partition
        )
        partition.contents.offset = start.offset
        if start.leader_epoch is not None:
            self.api.topic_partition_set_leader_epoch(partition, start.leader_epoch)
        self._check(self.api.assign(self.handle, self._partitions))

    def poll(self, max_messages: int, stop: int) -> Fetched:
        self._release()
        fetched = self._consume(min(max_messages, self._poll_limit))
        self.state[fields.STOP] = stop
        count = passes.look(
            self._calls, self.messages, fetched, self._rows, self.state, self._scratch
        )
        if self.state[fields.WRONG] or not self._is_topic():
            raise self._bug(
                f"librdkafka gave something that can't be the next message of {self.tp}, after"
                f" offset {self.state[fields.DUE] - 1}"
            )
        if count:
            mean = max(1, int(self.state[fields.BYTES]) // count)
            self._poll_limit = max(1, min(AT_ONCE, POLL_BYTES // mean))
        events = self._events(fetched) if self.state[fields.EVENTS] else []
        self._last = self._last_message(count) if fetched else self._last
        return Fetched(count, self._position(fetched), events, self.batches(count, self.turn))

    def close(self) -> None:
        self._release()
        # cleared first: after an interrupt, a second close must not repeat the calls
        handle, self.handle = self.handle, None
        if handle is not None:
            self.api.consumer_close(handle)
            self.api.topic_partition_list_destroy(self._partitions)
            self.api.queue_destroy(self._queue)
            # without the flag, librdkafka closes the consumer again, and hangs after a fatal error
            self.api.destroy_flags(handle, _CLOSED)
            del self._callbacks  # they refer to this object, and would keep its arrays

    def _consume(self, max_messages: int) -> int:
        """Takes the messages that have arrived; waits for the first one if there are none.

        After that wait more messages have arrived, because the cluster's answer comes as a whole.
        """
        address = self.messages.ctypes.data
        count = self._take(address, max_messages, 0)
        if count == 0:
            count = self._take(address, 1, WAIT_SECONDS)
            if 0 < count < max_messages:
                count += self._take(address + 8, max_messages - 1, 0)
        return count

    def _take(self, address: int, max_messages: int, seconds: float) -> int:
        """Writes the addresses of up to `max_messages` messages to an address.

        With zero seconds it takes only messages that have already arrived.

        Returns:
            The number of messages.
        """
        count = int(
            self.api.consume_batch_queue(self._queue, round(seconds * 1000), address, max_messages)
        )
        if count < 0:
            self._check(self.api.last_error())
        return count

    def _is_topic(self) -> bool:
        """Returns whether the messages are of the expected topic.

        The first message's topic name is compared once. Later messages are compared with the
        first message.
        """
        if self.state[fields.TOPIC] == 0 and self.state[fields.TOPIC_SEEN] != 0:
            self.state[fields.TOPIC] = self.state[fields.TOPIC_SEEN]
            return bool(
                self.api.topic_name(int(self.state[fields.TOPIC_SEEN])) == self.tp.topic.encode()
            )
        return True

    def _last_message(self, count: int) -> LastMessage | None:
        """Returns the last message, or None if an event or an omitted message may follow it."""
        if (
            not count
            or self.state[fields.EVENTS]
            or self._rows[fields.OFFSET, count - 1] + 1 != self.state[fields.DUE]
        ):
            return None
        return LastMessage(
            int(self._rows[fields.OFFSET, count - 1]),
            int(self._rows[fields.LEADER_EPOCH, count - 1]),
        )

    def position(self) -> int:
        """Returns the offset after all messages that were handed over; negative at first."""
        self._check(self.api.position(self.handle, self._partitions))
        return int(self._partitions.contents.elements[0].offset)

    def _position(self, fetched: int) -> int:
        """Returns the client's own position, which must agree with the messages.

        It is -1 while the client's position may still be that of the read before.
        """
        position = self.position()
        self._begun = self._begun or fetched > 0 or position < 0
        if not self._begun:
            return -1
        if self.state[fields.TOPIC_SEEN] != 0 and position < self.state[fields.DUE]:
            raise self._bug(
                f"librdkafka's position in {self.tp} is {position}, and it gave the message before"
                f" {self.state[fields.DUE]}"
            )
        return position

    def _events(self, fetched: int) -> list[Event]:
        events = []
        for address in self.messages[:fetched].tolist():
            message = MessageHead.from_address(address)
            if message.err != 0:
                error_text = self.api.message_errstr(address)
                events.append(
                    (
                        KafkaError(message.err, error_text.decode(errors="replace")),
                        max(message.offset, 0),
                    )
                )
        return events

    def _bug(self, message: str) -> BugError:
        return BugError(
            message,
            "read",
            "Nothing was committed. Report a bug in the reader.",
            self.tp.topic,
            self.tp.partition,
        )

    def _release(self) -> None:
        self.turn += 1
        passes.release(self._calls, self.messages, AT_ONCE)

    def batches(self, count: int, turn: int) -> Iterator[pa.RecordBatch]:
        for first, end in self._pieces(count):
            if turn != self.turn:
                raise self._bug(f"messages of {self.tp} were taken after they were destroyed")
            yield rows_to_batch(
                self._calls, self.tp, self.messages, self._rows, first, end, self._scratch
            )

    def _pieces(self, count: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges of rows to copy at once.

        Rows that aren't copied yet exist only in librdkafka's memory.
        """
        if self.state[fields.BYTES] <= PIECE_BYTES:
            ends = np.full(count, self.state[fields.BYTES])
        else:
            ends = np.cumsum(self._rows[list(fields.SIZES), :count].sum(axis=0))
        first = copied_bytes = 0
        while first < count:
            end = max(
                int(np.searchsorted(ends, copied_bytes + PIECE_BYTES, side="right")), first + 1
            )
            yield first, end
            first, copied_bytes = end, int(ends[end - 1])

    def _create(self, properties: Mapping[str, Any]) -> int:
        """Makes a client, which owns its configuration from then on."""
        conf = self.api.conf_new()
        try:
            return self._configure(conf, properties)
        except Exception:  # not after an interrupt: then the client may own it already
            self.api.conf_destroy(conf)
            raise

    def _configure(self, conf: int, properties: Mapping[str, Any]) -> int:
        api, error_buffer = self.api, ctypes.create_string_buffer(TEXT_SIZE)
        for name, value in {**properties, "log.queue": True}.items():
            if api.conf_set(conf, name.encode(), _text(value), error_buffer, TEXT_SIZE) != 0:
                # this code has no public name
                code = KafkaError._INVALID_ARG
                raise KafkaException(KafkaError(code, error_buffer.value.decode(errors="replace")))
        api.conf_set_error_cb(conf, self._callbacks[0])
        api.conf_set_log_cb(conf, self._callbacks[1])
        if self._token_source is not None:
            api.conf_set_oauthbearer_token_refresh_cb(conf, self._callbacks[2])
            api.conf_enable_sasl_queue(conf, 1)
        handle = api.new(CONSUMER, conf, error_buffer, TEXT_SIZE)
        if handle is None:
            raise KafkaException(
                KafkaError(api.last_error(), error_buffer.value.decode(errors="replace"))
            )
        if self._token_source is not None:
            api.sasl_background_callbacks_enable(handle)
        return int(handle)

    def _give_token(self, handle: int, _config: bytes, _opaque: object) -> None:
        """Gives librdkafka a token, or the reason why there is none; it asks again then.

        Called in librdkafka's own thread.
        """
        assert self._token_source is not None, "librdkafka asks only if there is a source"
        error_buffer = ctypes.create_string_buffer(TEXT_SIZE)
        try:
            token, expiry, principal, extensions = self._token_source()
        except WindrowError as error:
            self.api.oauthbearer_set_token_failure(handle, error.message.encode())
            return
        pairs = [text.encode() for pair in extensions.items() for text in pair]
        code = self.api.oauthbearer_set_token(
            handle,
            token.encode(),
            round(expiry * 1000),
            principal.encode(),
            (ctypes.c_char_p * len(pairs))(*pairs),
            len(pairs),
            error_buffer,
            TEXT_SIZE,
        )
        if code != 0:
            self.api.oauthbearer_set_token_failure(handle, error_buffer.value)

    def _check(self, code: int) -> None:
        if code != 0:
            raise KafkaException(KafkaError(code, self.api.err2str(code).decode(errors="replace")))

    def _error(self, _handle: int, code: int, reason: bytes, _opaque: object) -> None:
        self._on_error(KafkaError(code, reason.decode(errors="replace")))

    def _log(self, handle: int, level: int, facility: bytes, line: bytes) -> None:
        words = (part.decode(errors="replace") for part in (facility, self.api.name(handle), line))
        LOG.log(_LEVELS[level], "%s [%s] %s", *words)


def rows_to_batch(
    calls: fields.Ints,
    tp: TopicPartition,
    messages: fields.Ints,
    rows: fields.Ints,
    first: int,
    end: int,
    scratch: fields.Ints,
) -> pa.RecordBatch:
    """Returns some rows as a batch, and destroys their messages."""
    part = rows[:, first:end]
    headers = _headers(calls, rows, first, end, scratch)
    keys, values = _Binaries(part[fields.KEY_SIZE]), _Binaries(part[fields.VALUE_SIZE])
    passes.move(calls, messages, rows, first, end, keys.address, values.address)
    epochs = part[fields.LEADER_EPOCH].astype(np.int32)
    missing_epochs = epochs < 0
    return columns_to_batch(
        tp,
        part[fields.OFFSET].copy(),
        part[fields.TIMESTAMP].copy(),
        part[fields.TIMESTAMP_TYPE].astype(np.int8),
        keys.array(part[fields.KEY] != 0),
        values.array(part[fields.VALUE] != 0),
        headers,
        pa.array(epochs, mask=missing_epochs if missing_epochs.any() else None),
    )


class _Binaries:
    """A column of binaries with these sizes; its bytes at `address` are filled in later."""

    def __init__(self, sizes: fields.Ints) -> None:
        self._ends = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(sizes, out=self._ends[1:])
        self._data = pa.allocate_buffer(int(self._ends[-1]))
        self.address = self._data.address

    def array(self, present: npt.NDArray[np.bool_]) -> pa.Array:
        return _binary(self._ends, self._data, present)


def _binary(ends: npt.NDArray[np.int32], data: pa.Buffer, present: npt.NDArray[Any]) -> pa.Array:
    """Makes a column of binaries; it is null where `present` is 0."""
    nulls = len(present) - int(np.count_nonzero(present))
    bits = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(pa.binary(), len(present), [bits, pa.py_buffer(ends), data], nulls)


def _headers(
    calls: fields.Ints, rows: fields.Ints, first: int, end: int, scratch: fields.Ints
) -> pa.Array:
    part = rows[:, first:end]
    list_ends = np.zeros(end - first + 1, np.int32)
    np.cumsum(part[fields.HEADER_COUNT], out=list_ends[1:])
    total = int(list_ends[-1])
    name_ends, value_ends, present = (
        np.zeros(total + 1, np.int32),
        np.zeros(total + 1, np.int32),
        np.zeros(total, np.uint8),
    )
    names, values = (
        pa.allocate_buffer(int(part[size].sum()))
        for size in (fields.HEADER_NAMES_SIZE, fields.HEADER_VALUES_SIZE)
    )
    if total:
        passes.copy_headers(
            calls,
            rows,
            first,
            end,
            name_ends,
            names.address,
            value_ends,
            values.address,
            present,
            scratch,
        )
    raw_names, raw_values = (
        _binary(name_ends, names, np.ones(total, np.uint8)),
        _binary(value_ends, values, present),
    )
    try:
        texts = raw_names.cast(pa.string())
    except pa.ArrowInvalid:
        return _headers_or_marks(list_ends, raw_names.to_pylist(), raw_values.to_pylist())
    pairs = pa.StructArray.from_arrays([texts, raw_values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(list_ends), pairs, type=HEADERS)


def _headers_or_marks(
    ends: npt.NDArray[np.int32], names: list[bytes], values: list[bytes | None]
) -> pa.Array:
    """Returns the headers.

    A message with a header name that isn't UTF-8 gets UNREADABLE_HEADERS instead, so that it
    doesn't block its window.
    """
    headers: list[HeaderList | None] = []
    for first, end in pairwise(ends.tolist()):
        try:
            texts = [name.decode() for name in names[first:end]]
            headers.append(list(zip(texts, values[first:end], strict=True)))
        except UnicodeDecodeError:
            headers.append(UNREADABLE_HEADERS)
    return headers_to_array(headers)


def _text(value: object) -> bytes | None:
    """Returns a property's value in the form that librdkafka takes."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return None if value is None else str(value).encode()
