"""What verification asks of a Kafka table: the control topic says where a window's
messages lie, and they are read back.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka as ck
import pyarrow as pa

from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.kafka.client import admin_properties, consumer_properties
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import END, PASSING
from windrow.ingest.kafka.retry import APART_SECONDS, POLL_SECONDS, TIMES
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import OWNER, PUBLISHED, PublishedRows, RowsHeld, Unreadable
from windrow.ingest.schema.checksum import row_hashes, text
from windrow.ingest.schema.metadata_fields import TYPES
from windrow.ingest.sinks.kafka.control import (
    DO_DELETED,
    Held,
    OffsetSpan,
    PublishedSplit,
    arrived,
    headers_of,
)
from windrow.ingest.sinks.kafka.encoder import HEADER
from windrow.ingest.sinks.kafka.texts import LOADS, back, back_from_header
from windrow.ingest.sinks.kafka.topics import Readable
from windrow.ingest.sinks.window_table import read_receipt

if TYPE_CHECKING:
    from windrow.ingest.sinks.kafka.sink import KafkaSink

Seen = tuple[Mapping[str, bytes | None], ck.Message]
"""A message, and its headers by their names."""

_MOST = 1000

DO_MADE_ANEW = (
    "Its readers may have had the messages, which can't be put back in their place. To publish its"
    " windows again, begin a pipeline with another id, topic and control topic; later windows of"
    " this one can be run all the same."
)
"""What to do about a target topic that isn't the one that windows were published to."""


class KafkaAudit:
    """`ports.sink.Audit` by reading the topics. Memory: some messages, and their places."""

    keyed = None

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink
        self._readable: Mapping[tuple[str, int], Readable] = {}
        self._gone: set[tuple[str, int]] = set()

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._sink.metadata

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """A window of which a part is published is told as one that can't be read."""
        return iter(_every(self._held()))

    def windows(self) -> set[str]:
        """By the control topic, for others may write into a target topic."""
        held = self._held()
        whole = {key for key, kept in held.windows.items() if kept.splits}
        return whole | {key for key, splits in held.splits.items() if splits}

    def _held(self) -> Held:
        return self._sink.control.read() or Held()

    def rows_held(self, window: Window) -> list[RowsHeld]:
        names = [self.metadata[name] for name in ("topic", "partition", "offset")]
        offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
        for headers, _ in self._messages(window):
            try:
                topic, partition, offset = (headers[name] or b"" for name in names)
                offsets[topic.decode(), int(partition)].append(int(offset))
            except (KeyError, ValueError) as error:
                raise _altered(window, error) from None
        return sorted(
            RowsHeld(*tp, len(seen), len(set(seen)), min(seen), max(seen))
            for tp, seen in offsets.items()
        )

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.sink.Audit.contents`.

        Raises:
            RefusedError: besides, the messages' form doesn't hold all columns: ask for
                `published` then.
        """
        if not self._has_rows:
            raise RefusedError(
                "rows can't be read back from the messages", "check", "Ask for what was published."
            )
        return (self._rows(batch, window) for batch in _batched(self._messages(window)))

    def published(self, window: Window) -> PublishedRows | None:
        """Of the messages, but for their times, which the topic may set."""
        if self._has_rows:
            return None
        splits = _splits(self._held(), window.key)
        noted = {
            (s.topic, s.partition, s.start): text(sum(int(one, 16) for one in s.same.split("+")))
            for s in splits
        }
        return PublishedRows(
            noted, (self._hashed(batch, window) for batch in _batched(self._messages(window)))
        )

    def replaced(self) -> bool:
        sink = self._sink
        if not sink.options.primary_key:
            return False
        return len(sink.topics.uncompacted()) < len(sink.options.topics)

    @property
    def _has_rows(self) -> bool:
        """Whether rows can be made of messages again."""
        encoder, names = self._sink.encoder, self._sink.schema.names
        return (
            not encoder.primary_key
            and encoder.value.format == "json"
            and set(encoder.value.columns) == set(names)
        )

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """Of a receipt that is lost the messages tell where its splits are, if all of them are there.

        Raises:
            RefusedError: besides, the topics don't have all rows of the window.
        """  # noqa: E501
        key, receipt = window.key, from_json(text, Receipt)
        held = self._held()
        known = held.windows.get(key) if key not in held.damaged else None
        if receipt.window != window or (known is not None and known.text != text):
            raise RefusedError(
                f"the commit of window {key} named another receipt", "check", "Look again."
            )
        if not held.is_bound and not dry_run:
            self._sink.bind_again(receipt)
        if known is None:
            splits = self._published_splits(receipt)
            if not dry_run:
                self._sink.put_back(receipt, text, splits)

    def _published_splits(self, receipt: Receipt) -> tuple[PublishedSplit, ...]:
        """What the target topics have of each split of a window, found by reading all of them.

        Raises:
            RefusedError: it isn't what the receipt counts.
        """
        places: dict[int, dict[tuple[str, int], OffsetSpan]] = defaultdict(dict)
        rows, same, splits = Counter[int](), Counter[int](), receipt.plan.splits
        in_order = sorted(range(len(splits)), key=splits.__getitem__)
        begins = [(splits[n].topic, splits[n].partition, splits[n].start) for n in in_order]
        for (topic, partition), log in self._sink.topics.readable().items():
            span = OffsetSpan(topic, partition, log.start, log.stable - 1)
            for batch in (
                _batched(self._of_window(span, receipt.window)) if log.start < log.stable else ()
            ):
                hashed = self._hashed(batch, receipt.window).to_pylist()
                for (_, message), one in zip(batch, hashed, strict=True):
                    n = in_order[
                        max(
                            0,
                            bisect_right(begins, (one["topic"], one["partition"], one["offset"]))
                            - 1,
                        )
                    ]
                    at = cast("int", message.offset())
                    first = (
                        places[n]
                        .get((topic, partition), OffsetSpan(topic, partition, at, at))
                        .first
                    )
                    places[n][topic, partition] = OffsetSpan(topic, partition, first, at)
                    rows[n] += 1
                    same[n] += one["hash"]
        wanted = {n: c.rows + c.deletes for n, c in enumerate(receipt.splits) if c.rows + c.deletes}
        capabilities, there, counted = (
            self._sink.capabilities,
            sum(rows.values()),
            sum(wanted.values()),
        )
        if (
            rows != Counter(wanted)
            and not capabilities.allows(lost=any(rows[n] < wanted[n] for n in wanted))
            and not self.replaced()
        ):
            raise RefusedError(
                f"the topics have {there} of the {counted} rows of window {receipt.window.key}",
                "check",
                "Retention took the others, or a log was cut off. Windows behind it can be run"
                f" without it; windrow run SPEC --window {receipt.window.key} --again publishes all"
                " of its rows once more.",
            )
        return tuple(
            PublishedSplit(
                receipt.window.key,
                n,
                receipt.digest,
                s.topic,
                s.partition,
                s.start,
                s.stop,
                rows[n],
                text(same[n]),
                c.checksums.rows,
                receipt.attempt,
                tuple(places[n].values()),
            )
            for n, (s, c) in enumerate(zip(splits, receipt.splits, strict=True))
            if n in wanted
        )

    def _hashed(self, batch: Sequence[Seen], window: Window) -> pa.RecordBatch:
        """As staged messages are summed up: see `stage.ArrowWriter`."""
        encoder, names = (
            self._sink.encoder,
            [self.metadata[name] for name in ("topic", "partition", "offset")],
        )
        try:
            topics, *numbers = (
                [(headers[name] or b"").decode() for headers, _ in batch] for name in names
            )
            partitions, offsets = (
                pa.array(map(int, n), kind)
                for n, kind in zip(numbers, (pa.int32(), pa.int64()), strict=True)
            )
            read = {name: [headers[name] for headers, _ in batch] for name in encoder.headers}
        except (KeyError, ValueError, ArithmeticError, pa.ArrowException) as error:
            raise _altered(window, error) from None
        columns: dict[str, Any] = {
            "offset": offsets,
            "topic": [None if encoder.topic is None else message.topic() for _, message in batch],
            "key": [message.key() for _, message in batch],
            "value": [message.value() for _, message in batch],
            **{f"{HEADER}{name}": values for name, values in read.items()},
        }
        schema = pa.schema([field for field in encoder.schema if field.name not in encoder.own])
        hashes = row_hashes(
            pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema)
        )
        return pa.RecordBatch.from_arrays(
            [pa.array(topics, pa.string()), partitions, offsets, pa.array(hashes)], schema=PUBLISHED
        )

    def _rows(self, batch: Sequence[Seen], window: Window) -> pa.RecordBatch:
        schema = self._sink.schema
        try:
            values = [LOADS(message.value() or b"") for _, message in batch]
            columns = {
                f.name: pa.array([back(value[f.name], f.type) for value in values], f.type)
                for f in schema
            }
            for name, column in self.metadata.items():
                if name != "window":
                    columns[column] = pa.array(
                        [back_from_header(headers[column], TYPES[name]) for headers, _ in batch],
                        TYPES[name],
                    )
        except (ValueError, TypeError, KeyError, ArithmeticError, pa.ArrowException) as error:
            raise _altered(window, error) from None
        columns[self.metadata["window"]] = pa.repeat(window.key, len(batch))
        return pa.RecordBatch.from_pydict(columns)

    def _messages(self, window: Window) -> Iterator[Seen]:
        """A window's messages."""
        places = _places(self._held(), window.key)
        for place in places.values():
            self._refuse_gone(place)
            yield from self._of_window(place, window)

    def _refuse_gone(self, place: OffsetSpan) -> None:
        """See that a log has the offsets between which messages of a window are.

        That it ends below is believed when it is told again.

        Raises:
            RefusedError: it doesn't; says what took them.
        """
        at = place.topic, place.partition
        for seconds in (0.0, *[APART_SECONDS] * (TIMES - 1)):
            if at not in self._gone and (
                at not in self._readable or self._readable[at].end <= place.last
            ):
                time.sleep(seconds)
                try:
                    self._readable = self._sink.topics.readable()
                except SpecError as error:
                    raise RefusedError(error.what, "check", DO_MADE_ANEW) from None
        found = self._readable.get(at)
        where, lies = (
            f"{place.topic}[{place.partition}]",
            f"the window's messages were at {place.first} to {place.last}",
        )
        if found is None or found.end <= place.last:
            # told again and again: other windows' messages needn't be waited for, too
            self._gone.add(at)
            end = "isn't there any more" if found is None else f"ends at {found.end}"
            raise RefusedError(
                f"{where} {end}, and {lies}: the topic was made anew, or its end was cut off",
                "check",
                DO_MADE_ANEW,
            )
        if found.start > place.first:
            what = f"{where} begins at {found.start}, and {lies}: retention took them"
            raise RefusedError(
                what,
                "check",
                "Nothing is wrong with the window if readers had them in time. Lengthen the topic's"
                " retention.",
            )

    def _read(self, consumer: ck.Consumer, place: OffsetSpan) -> Iterator[ck.Message]:
        """The committed messages between two offsets.

        Raises:
            SpecError, UnreachableError: they can't be read; or nothing comes for a while.
        """
        consumer.assign([ck.TopicPartition(place.topic, place.partition, place.first)])
        position, moved = place.first, time.monotonic()
        while position <= place.last:
            for message in arrived(consumer, POLL_SECONDS):
                position, moved = self._passed(message, place.topic, position), time.monotonic()
                if message.error() is None and cast("int", message.offset()) <= place.last:
                    yield message
            if time.monotonic() - moved > self._sink.patience:
                what = (
                    f"{place.topic}[{place.partition}] can't be read to {place.last}, only to"
                    f" {position}"
                )
                raise UnreachableError(
                    what,
                    "check",
                    "Look whether its broker runs, and whether a transaction is open there.",
                )

    def _passed(self, message: ck.Message, topic: str, position: int) -> int:
        error = message.error()
        if error is None:
            return cast("int", message.offset()) + 1
        if error.code() == END:
            return max(position, cast("int", message.offset()))
        if error.code() not in PASSING:
            raise self._sink.topics.named(topic, error)
        return position

    def _of_window(self, place: OffsetSpan, window: Window) -> Iterator[Seen]:
        """The messages of a window between two offsets."""
        admin = admin_properties(self._sink.reach.servers, self._sink.reach.client)
        consumer = consumer_properties(self._sink.reach.servers, self._sink.reach.client)
        header, key = self.metadata["window"], window.key.encode()
        with CLIENTS.of(admin).consumers(consumer).one(place.topic) as one:
            for message in self._read(one, place):
                headers = dict(headers_of(message))
                if headers.get(header) == key:
                    yield headers, message


def _batched(messages: Iterator[Seen]) -> Iterator[Sequence[Seen]]:
    while batch := list(islice(messages, _MOST)):
        yield batch


def _altered(window: Window, error: Exception) -> RefusedError:
    what = f"a message of window {window.key} isn't what was published: {type(error).__name__}"
    return RefusedError(
        what,
        "check",
        "Something else wrote it under the window's headers, or the schema has changed since.",
    )


def _splits(held: Held, window: str) -> Collection[PublishedSplit]:
    """What was published of a window."""
    kept = held.windows.get(window)
    return held.splits.get(window, {}).values() if kept is None else kept.splits


def _every(held: Held) -> list[Committed | Unreadable]:
    """Each window's receipt, or what is the matter with it."""
    deleted = [] if held.deleted is None else [Unreadable(OWNER, held.deleted, DO_DELETED)]
    open_ = [
        Unreadable(
            key,
            f"{len(splits)} of its splits are published, and the window isn't committed yet",
            "Run the window again: it goes on.",
        )
        for key, splits in held.splits.items()
        if splits and key not in held.committed()
    ]
    return [*map(read_receipt, held.receipts()), *deleted, *open_]


def _places(held: Held, window: str) -> dict[tuple[str, int], OffsetSpan]:
    """Per target topic-partition from where to where a window's messages lie."""
    found: dict[tuple[str, int], OffsetSpan] = {}
    for place in (place for split in _splits(held, window) for place in split.places):
        at = (place.topic, place.partition)
        seen = found.get(at, place)
        found[at] = OffsetSpan(*at, min(seen.first, place.first), max(seen.last, place.last))
    return found
