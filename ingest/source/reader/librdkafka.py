"""Messages by librdkafka itself, copied into Arrow's buffers by compiled code: no
Python object for a message.

confluent-kafka's consumer hands out neither its messages before they are objects nor
the client inside it, so this is a client of its own, made of the same properties. All
that librdkafka calls back is called while it is polled, in the thread that reads.
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

from windrow.ingest.errors import BugError
from windrow.ingest.kafka.capi import (
    CONSUMER,
    ERROR_CB,
    LOG_CB,
    TEXT_SIZE,
    Api,
    MessageHead,
    library,
)
from windrow.ingest.kafka.client import LOG
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
    Hear,
    Last,
    Start,
    goes_on,
)

passes = Compiled("windrow.ingest.source.reader.passes")

AT_ONCE = 16_384
"""Messages of one call: so many of the product's batches stay in the cache while they
are copied.
"""

PIECE_BYTES = 16 * 1024 * 1024
"""Keys, values and headers that are copied at once: more, where a single message has more."""

_LEVELS = (50, 50, 50, 40, 30, 20, 20, 10)
"""Python's for syslog's, as confluent-kafka has them."""

_CLOSED = 8  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE


def connect(properties: Mapping[str, Any], start: Start, hear: Hear) -> Fetcher:
    """Makes a client at its start: see `fetching.Fetching`.

    Raises:
        SpecError: the library of this environment can't be used.
    """
    return LibrdkafkaFetcher(library(), properties, start, hear)


class AssignedClient:
    """A consumer of librdkafka, assigned to one place. What it says is heard while it is polled."""

    def __init__(self, api: Api, properties: Mapping[str, Any], start: Start, hear: Hear) -> None:
        self._api = api
        self._hear = hear
        # kept: librdkafka has their addresses
        self._callbacks = ERROR_CB(self._error), LOG_CB(self._log)
        self._handle: int | None = self._made(properties)
        api.set_log_queue(self._handle, None)
        api.poll_set_consumer(self._handle)
        self._queue = api.queue_get_consumer(self._handle)
        self._places = api.topic_partition_list_new(1)
        try:
            self._assign(start)
        except KafkaException:
            self.close()
            raise

    def begin(self, start: Start, hear: Hear) -> None:
        """At another place; what was fetched before is never handed over, and must be
        destroyed before, as far as it was.
        """
        self._hear = hear
        self._api.topic_partition_list_destroy(self._places)
        self._places = self._api.topic_partition_list_new(1)
        self._assign(start)

    def listen(self, hear: Hear) -> None:
        """Somebody else hears what is said from now on."""
        self._hear = hear

    def _assign(self, start: Start) -> None:
        place = self._api.topic_partition_list_add(
            self._places, start.topic.encode(), start.partition
        )
        place.contents.offset = start.offset
        if start.leader_epoch is not None:
            self._api.topic_partition_set_leader_epoch(place, start.leader_epoch)
        self._refuse(self._api.assign(self._handle, self._places))

    def consume(self, messages: int, most: int, seconds: float) -> int:
        """Write the addresses of up to `most` messages to an address, with zero seconds
        those that are there; how many.
        """
        count = int(
            self._api.consume_batch_queue(self._queue, round(seconds * 1000), messages, most)
        )
        if count < 0:
            self._refuse(self._api.last_error())
        return count

    def position(self) -> int:
        """Behind all that was handed over; negative before the first message."""
        self._refuse(self._api.position(self._handle, self._places))
        return int(self._places.contents.elements[0].offset)

    def close(self) -> None:
        """Its messages must be destroyed before."""
        # an interrupt comes behind a call: who closes once more must not repeat it
        handle, self._handle = self._handle, None
        if handle is not None:
            self._api.consumer_close(handle)
            self._api.topic_partition_list_destroy(self._places)
            self._api.queue_destroy(self._queue)
            # else it would try again, for ever after a fatal error
            self._api.destroy_flags(handle, _CLOSED)

    def _made(self, properties: Mapping[str, Any]) -> int:
        conf = self._api.conf_new()
        try:
            return self._of(conf, properties)
        except Exception:  # not behind an interrupt: by then it may be the client's
            self._api.conf_destroy(conf)
            raise

    def _of(self, conf: int, properties: Mapping[str, Any]) -> int:
        """A client that owns its configuration from now on."""
        api, why = self._api, ctypes.create_string_buffer(TEXT_SIZE)
        for name, value in {**properties, "log.queue": True}.items():
            if api.conf_set(conf, name.encode(), _text(value), why, TEXT_SIZE) != 0:
                raise KafkaException(
                    KafkaError(KafkaError._INVALID_ARG, why.value.decode(errors="replace"))  # noqa: SLF001
                )  # public
        api.conf_set_error_cb(conf, self._callbacks[0])
        api.conf_set_log_cb(conf, self._callbacks[1])
        handle = api.new(CONSUMER, conf, why, TEXT_SIZE)
        if handle is None:
            raise KafkaException(KafkaError(api.last_error(), why.value.decode(errors="replace")))
        return int(handle)

    def _refuse(self, code: int) -> None:
        if code != 0:
            raise KafkaException(KafkaError(code, self._api.err2str(code).decode(errors="replace")))

    def _error(self, _handle: int, code: int, reason: bytes, _opaque: object) -> None:
        self._hear(KafkaError(code, reason.decode(errors="replace")))

    def _log(self, handle: int, level: int, facility: bytes, line: bytes) -> None:
        words = (part.decode(errors="replace") for part in (facility, self._api.name(handle), line))
        LOG.log(_LEVELS[level], "%s [%s] %s", *words)


class LibrdkafkaFetcher:
    """A `fetching.Fetcher`. `calls`: the addresses of `fields.CALLS` in the library."""

    def __init__(self, api: Api, properties: Mapping[str, Any], start: Start, hear: Hear) -> None:
        self._api = api
        self._calls = calls_of(api)
        # addresses of those that are ours to destroy, else 0: also after an interrupt
        self._messages = np.zeros(AT_ONCE, np.int64)
        self._rows = np.empty((fields.FIELDS, AT_ONCE), np.int64)
        self._scratch = np.zeros(fields.SCRATCH, np.int64)
        self._state = np.zeros(fields.STATE, np.int64)
        self._turn = 0  # of polls: the memory of one's messages is gone with the next
        self._expect(start)
        self._client: AssignedClient = AssignedClient(api, properties, start, hear)

    def begin(self, start: Start, hear: Hear) -> bool:
        self._release()
        if self._tp == TopicPartition(start.topic, start.partition) and goes_on(self._last, start):
            self._client.listen(hear)
            return True
        if not start.doubtful:
            self._expect(start)
            self._client.begin(start, hear)
        return not start.doubtful

    def _expect(self, start: Start) -> None:
        """Nothing but what can come from a start on."""
        self._tp, self._begun = TopicPartition(start.topic, start.partition), False
        self._last: Last | None = None
        self._state[[fields.TOPIC, fields.PARTITION, fields.DUE]] = 0, start.partition, start.offset

    def poll(self, wanted: int, stop: int) -> Fetched:
        self._release()
        fetched = self._consume(min(wanted, AT_ONCE))
        self._state[fields.STOP] = stop
        count = passes.look(
            self._calls, self._messages, fetched, self._rows, self._state, self._scratch
        )
        if self._state[fields.WRONG] or not self._of_the_topic():
            what = (
                f"librdkafka gave something that can't be the next message of {self._tp}, behind"
                f" offset {self._state[fields.DUE] - 1}"
            )
            raise BugError(
                what,
                "read",
                "Nothing was committed. Report a bug in the reader.",
                self._tp.topic,
                self._tp.partition,
            )
        events = self._events(fetched) if self._state[fields.EVENTS] else []
        self._last = self._last_of(count) if fetched else self._last
        return Fetched(count, self._position(fetched), events, self._batches(count, self._turn))

    def close(self) -> None:
        self._release()
        self._client.close()

    def _consume(self, most: int) -> int:
        """Those that are there.

        After a wait for the first there are more: an answer of the cluster comes as a whole.
        """
        at = self._messages.ctypes.data
        count = self._client.consume(at, most, 0)
        if count == 0:
            count = self._client.consume(at, 1, WAIT_SECONDS)
            if 0 < count < most:
                count += self._client.consume(at + 8, most - 1, 0)
        return count

    def _of_the_topic(self) -> bool:
        """Whether the messages are of the topic: asked once, then each is held against
        the first.
        """
        if self._state[fields.TOPIC] == 0 and self._state[fields.TOPIC_SEEN] != 0:
            self._state[fields.TOPIC] = self._state[fields.TOPIC_SEEN]
            return bool(
                self._api.topic_name(int(self._state[fields.TOPIC_SEEN])) == self._tp.topic.encode()
            )
        return True

    def _last_of(self, count: int) -> Last | None:
        """The last message, if nothing came behind it: no event, and no message that
        was left out.
        """
        if (
            not count
            or self._state[fields.EVENTS]
            or self._rows[fields.OFFSET, count - 1] + 1 != self._state[fields.DUE]
        ):
            return None
        return Last(
            int(self._rows[fields.OFFSET, count - 1]),
            int(self._rows[fields.LEADER_EPOCH, count - 1]),
        )

    def _position(self, fetched: int) -> int:
        """The client's own position is a second witness of where its messages end; for
        a moment it may be that of the read before.
        """
        position = self._client.position()
        self._begun = self._begun or fetched > 0 or position < 0
        if not self._begun:
            return -1
        if self._state[fields.TOPIC_SEEN] != 0 and position < self._state[fields.DUE]:
            what = (
                f"librdkafka stands at {position} after a message before {self._state[fields.DUE]}"
                f" of {self._tp}"
            )
            raise BugError(
                what,
                "read",
                "Nothing was committed. Report a bug in the reader.",
                self._tp.topic,
                self._tp.partition,
            )
        return position

    def _events(self, fetched: int) -> list[Event]:
        found = []
        for address in self._messages[:fetched].tolist():
            message = MessageHead.from_address(address)
            if message.err != 0:
                why = self._api.message_errstr(address)
                found.append(
                    (KafkaError(message.err, why.decode(errors="replace")), max(message.offset, 0))
                )
        return found

    def _release(self) -> None:
        self._turn += 1
        passes.release(self._calls, self._messages, AT_ONCE)

    def _batches(self, count: int, turn: int) -> Iterator[pa.RecordBatch]:
        for first, behind in self._pieces(count):
            if turn != self._turn:
                what = f"messages of {self._tp} were taken after they had been given back"
                raise BugError(
                    what,
                    "read",
                    "Nothing was committed. Report a bug in the reader.",
                    self._tp.topic,
                    self._tp.partition,
                )
            yield rows_to_batch(
                self._calls, self._tp, self._messages, self._rows, first, behind, self._scratch
            )

    def _pieces(self, count: int) -> Iterator[tuple[int, int]]:
        """Rows to copy at once: what is not copied yet lies in librdkafka's memory alone."""
        if self._state[fields.BYTES] <= PIECE_BYTES:
            ends = np.full(count, self._state[fields.BYTES])
        else:
            ends = np.cumsum(self._rows[list(fields.SIZES), :count].sum(axis=0))
        first = before = 0
        while first < count:
            behind = max(int(np.searchsorted(ends, before + PIECE_BYTES, side="right")), first + 1)
            yield first, behind
            first, before = behind, int(ends[behind - 1])


def calls_of(api: Api) -> fields.Ints:
    """What the passes are told of a library."""
    return np.array([api.address(name) for name in fields.CALLS], np.int64)


def rows_to_batch(
    calls: fields.Ints,
    tp: TopicPartition,
    messages: fields.Ints,
    rows: fields.Ints,
    first: int,
    behind: int,
    scratch: fields.Ints,
) -> pa.RecordBatch:
    """The messages of some rows, which are destroyed with that."""
    part = rows[:, first:behind]
    headers = _headers(calls, rows, first, behind, scratch)
    keys, values = _Binaries(part[fields.KEY_SIZE]), _Binaries(part[fields.VALUE_SIZE])
    passes.move(calls, messages, rows, first, behind, keys.address, values.address)
    epochs = part[fields.LEADER_EPOCH].astype(np.int32)
    without = epochs < 0
    return columns_to_batch(
        tp,
        part[fields.OFFSET].copy(),
        part[fields.TIMESTAMP].copy(),
        part[fields.TIMESTAMP_TYPE].astype(np.int8),
        keys.array(part[fields.KEY] != 0),
        values.array(part[fields.VALUE] != 0),
        headers,
        pa.array(epochs, mask=without if without.any() else None),
    )


class _Binaries:
    """A column of binaries of these sizes; at `address` its bytes are still to be filled in."""

    def __init__(self, sizes: fields.Ints) -> None:
        self._ends = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(sizes, out=self._ends[1:])
        self._data = pa.allocate_buffer(int(self._ends[-1]))
        self.address = self._data.address

    def array(self, present: npt.NDArray[np.bool_]) -> pa.Array:
        return _binary(self._ends, self._data, present)


def _binary(ends: npt.NDArray[np.int32], data: pa.Buffer, present: npt.NDArray[Any]) -> pa.Array:
    """`present`: not 0 where there is one, else it is null."""
    nulls = len(present) - int(np.count_nonzero(present))
    bits = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(pa.binary(), len(present), [bits, pa.py_buffer(ends), data], nulls)


def _headers(
    calls: fields.Ints, rows: fields.Ints, first: int, behind: int, scratch: fields.Ints
) -> pa.Array:
    part = rows[:, first:behind]
    list_ends = np.zeros(behind - first + 1, np.int32)
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
            behind,
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
    """The headers; a mark instead of a message's if a name is not UTF-8: it must not
    block the window.
    """
    found: list[HeaderList | None] = []
    for first, behind in pairwise(ends.tolist()):
        try:
            texts = [name.decode() for name in names[first:behind]]
            found.append(list(zip(texts, values[first:behind], strict=True)))
        except UnicodeDecodeError:
            found.append(UNREADABLE_HEADERS)
    return headers_to_array(found)


def _text(value: object) -> bytes | None:
    """A property's value as the library takes it."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return None if value is None else str(value).encode()
