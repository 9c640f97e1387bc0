"""What verification asks of a Kafka table: the control topic says where a window's messages lie, and they are read back."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka as ck
import pyarrow as pa
from confluent_kafka import KafkaException

from ingest.errors import RefusedError, UnreachableError
from ingest.kafka.client import admin_properties, consumer_properties
from ingest.kafka.clients import CLIENTS
from ingest.kafka.codes import END, PASSING
from ingest.model.receipt import Committed
from ingest.model.window import Window
from ingest.ports.sink import RowsHeld, Unreadable
from ingest.schema.metadata import TYPES
from ingest.sinks.kafka.control import DO_DAMAGED, Held, OffsetSpan, arrived, headers_of
from ingest.sinks.kafka.texts import LOADS, back, back_from_header

if TYPE_CHECKING:
    from ingest.sinks.kafka.sink import KafkaSink

_MOST = 1000
_POLL_SECONDS = 0.1


class KafkaAudit:
    """`ports.sink.Audit` by reading the topics. Memory: some messages, and their places."""

    keyed = None

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink

    @property
    def metadata(self) -> Mapping[str, str]:
        """See `ports.sink.Audit.metadata`."""
        return self._sink.metadata

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """See `ports.sink.Audit.receipts`. A window of which a part is published is told as one that can't be read."""
        return iter(self._sink.in_control(_every) or ())

    def windows(self) -> set[str]:
        """See `ports.sink.Audit.windows`; by the control topic, for others may write into a target topic."""
        found = self._sink.in_control(
            lambda held: {key for key, kept in held.windows.items() if kept.splits} | {k for k, s in held.splits.items() if s}
        )
        return found or set()

    def rows_held(self, window: Window) -> list[RowsHeld]:
        """See `ports.sink.Audit.rows_held`."""
        names = [self.metadata[name] for name in ("topic", "partition", "offset")]
        offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
        for message in self._messages(window):
            topic, partition, offset = (message[name] or b"" for name in names)
            offsets[topic.decode(), int(partition)].append(int(offset))
        return sorted(RowsHeld(*tp, len(seen), len(set(seen)), min(seen), max(seen)) for tp, seen in offsets.items())

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`.

        Raises:
            RefusedError: besides, the messages' form doesn't hold all columns.
        """
        form, schema = self._sink.form, self._sink.schema
        if form.primary_key or form.value.format != "json" or set(form.value.columns) != set(schema.names):
            what = "the messages don't hold all columns of their rows, so rows can't be read back from them"
            raise RefusedError(what, "check", "Leave --deep out: it compares tables, and JSON values that have all columns.")
        batch: list[tuple[bytes, Mapping[str, bytes | None]]] = []
        for message in self._messages(window):
            batch.append((message[""] or b"", message))
            if len(batch) == _MOST:
                yield self._rows(batch, window)
                batch = []
        if batch:
            yield self._rows(batch, window)

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Audit.restore`: the receipt is the commit, so there is only the comparison."""
        del dry_run
        committed = self._sink.look(window)
        if committed is None or self._sink.receipt_text(committed.receipt) != text:
            raise RefusedError(f"the commit of window {window.key} named another receipt, or there is none", "check", "Look again.")

    def _rows(self, batch: Sequence[tuple[bytes, Mapping[str, bytes | None]]], window: Window) -> pa.RecordBatch:
        schema = self._sink.schema
        try:
            values = [LOADS(value) for value, _ in batch]
            columns = {f.name: pa.array([back(value[f.name], f.type) for value in values], f.type) for f in schema}
            for name, column in self.metadata.items():
                if name != "window":
                    columns[column] = pa.array([back_from_header(headers[column], TYPES[name]) for _, headers in batch], TYPES[name])
        except (ValueError, TypeError, KeyError, ArithmeticError, pa.ArrowException) as error:
            what = f"a message of window {window.key} isn't what was published: {type(error).__name__}"
            raise RefusedError(
                what, "check", "Something else wrote it under the window's headers, or the schema has changed since."
            ) from None
        columns[self.metadata["window"]] = pa.repeat(window.key, len(batch))
        return pa.RecordBatch.from_pydict(columns)

    def _messages(self, window: Window) -> Iterator[Mapping[str, bytes | None]]:
        """The headers of a window's messages, and their values under an empty name."""
        places = self._sink.in_control(lambda held: _places(held, window.key)) or {}
        admin = admin_properties(self._sink.reach.servers, self._sink.reach.client)
        consumer = consumer_properties(self._sink.reach.servers, self._sink.reach.client)
        header, key = self.metadata["window"], window.key.encode()
        for place in places.values():
            with CLIENTS.of(admin).consumers(consumer).one() as one:
                for message in _read(one, place, self._sink.patience):
                    headers = dict(headers_of(message))
                    if headers.get(header) == key:
                        yield {**headers, "": message.value()}


def _filled(held: Held) -> set[str]:
    return {key for key, kept in held.windows.items() if kept.splits} | {key for key, splits in held.splits.items() if splits}


def _every(held: Held) -> list[Committed | Unreadable]:
    """Each window's receipt, or what is the matter with it."""
    damaged = [Unreadable(key, what, DO_DAMAGED) for key, what in held.damaged.items()]
    open_ = [
        Unreadable(
            key, f"{len(splits)} of its splits are published, and the window isn't committed yet", "Run the window again: it goes on."
        )
        for key, splits in held.splits.items()
        if splits and key not in held.windows and key not in held.damaged
    ]
    whole = [kept.committed for key, kept in held.windows.items() if key not in held.damaged]
    return [*sorted(whole, key=lambda c: c.receipt.window), *damaged, *open_]


def _places(held: Held, window: str) -> dict[tuple[str, int], OffsetSpan]:
    """Per target topic-partition from where to where a window's messages lie."""
    kept = held.windows.get(window)
    splits = held.splits.get(window, {}).values() if kept is None else kept.splits
    found: dict[tuple[str, int], OffsetSpan] = {}
    for place in (place for split in splits for place in split.places):
        at = (place.topic, place.partition)
        seen = found.get(at, place)
        found[at] = OffsetSpan(*at, min(seen.first, place.first), max(seen.last, place.last))
    return found


def _read(consumer: ck.Consumer, place: OffsetSpan, patience: float) -> Iterator[ck.Message]:
    """The committed messages between two offsets.

    Raises:
        RefusedError: the first is not there any more.
        UnreachableError: nothing comes for a while.
    """
    low, _ = consumer.get_watermark_offsets(ck.TopicPartition(place.topic, place.partition), timeout=patience)
    if low > place.first:
        what = f"{place.topic}[{place.partition}] begins at {low}, the window's messages at {place.first}: retention took them"
        raise RefusedError(what, "check", "Nothing is wrong with the window if readers had them in time. Lengthen the topic's retention.")
    consumer.assign([ck.TopicPartition(place.topic, place.partition, place.first)])
    position, moved = place.first, time.monotonic()
    while position <= place.last:
        for message in arrived(consumer, _POLL_SECONDS):
            position, moved = _passed(message, position), time.monotonic()
            if message.error() is None and cast("int", message.offset()) <= place.last:
                yield message
        if time.monotonic() - moved > patience:
            what = f"{place.topic}[{place.partition}] can't be read to {place.last}, only to {position}"
            raise UnreachableError(what, "check", "Look whether its broker runs, and whether a transaction is open there.")


def _passed(message: ck.Message, position: int) -> int:
    error: Any = message.error()
    if error is None:
        return cast("int", message.offset()) + 1
    if error.code() == END:
        return max(position, cast("int", message.offset()))
    if error.code() not in PASSING:
        raise KafkaException(error)
    return position
