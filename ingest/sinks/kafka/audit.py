"""Verification of a Kafka table: reads back the messages of windows.

The control topic says where the messages of a window are.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, cast

import confluent_kafka as ck
import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, counted
from windrow.ingest.kafka.client_properties import admin_properties, consumer_properties
from windrow.ingest.kafka.error_codes import END, PASSING
from windrow.ingest.kafka.shared_clients import CLIENTS
from windrow.ingest.kafka.timeouts import PATIENCE_SECONDS, POLL_SECONDS
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.sink import OWNER, PUBLISHED, PublishedRows, RowsHeld, Unreadable
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.sinks.kafka.control_records import (
    DO_DELETED,
    ControlState,
    OffsetSpan,
    PublishedSplit,
    Record,
    owner_record,
    receipt_records,
)
from windrow.ingest.sinks.kafka.control_topic import arrived, headers_of
from windrow.ingest.sinks.kafka.encoder import HEADER, Origin, origin_of
from windrow.ingest.sinks.kafka.header_values import from_header
from windrow.ingest.sinks.kafka.store import write_records
from windrow.ingest.sinks.kafka.table import KafkaTable
from windrow.ingest.sinks.kafka.topics import DO_MADE_ANEW, Readable
from windrow.ingest.sinks.kit import (
    checksum_text,
    hash_rows,
    parse_json,
    read_receipt,
)

Seen = tuple[Origin, Mapping[str, bytes | None], ck.Message]
"""A message with its origin, and with all of its headers by name."""

_BATCH_MESSAGES = 1000


class KafkaAudit:
    """`ports.sink.Audit` of a Kafka table. Memory: some messages, and the control topic."""

    keyed = None
    lists = ()

    def __init__(self, table: KafkaTable) -> None:
        self._table = table

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._table.metadata

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """Yields all receipts; a window with published splits and no receipt is unreadable."""
        control = self._control()
        spans = {s for key in control.splits for s in _spans(control, key)}
        return iter(_every(control, self._table.topics.gone(spans)))

    def windows(self) -> set[str]:
        """Returns windows by the control topic: others may write to a target topic."""
        control = self._control()
        whole = {key for key, kept in control.windows.items() if kept.splits}
        return whole | {key for key, splits in control.splits.items() if splits}

    def _control(self) -> ControlState:
        return self._table.control.read() or ControlState()

    def rows_held(self, window: Window) -> list[RowsHeld]:
        offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
        for origin, _, _ in self.messages(window):
            offsets[origin.topic, origin.partition].append(origin.offset)
        return sorted(
            RowsHeld(*tp, len(seen), len(set(seen)), min(seen), max(seen))
            for tp, seen in offsets.items()
        )

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Reads rows back from messages (`ports.sink.Audit.contents`).

        Raises:
            RefusedError: besides, messages don't have all columns of a row; `published`
                has their checksums.
        """
        if not self._has_rows:
            raise RefusedError(
                "rows can't be read back from the messages",
                "check",
                "Compare the checksums of messages.",
            )
        return (self._rows(batch, window) for batch in _batched(self.messages(window)))

    def published(self, window: Window) -> PublishedRows | None:
        """Checksums of messages, without their times, which the topic may set."""
        if self._has_rows:
            return None
        splits = _splits(self._control(), window.key)
        noted = {
            (s.topic, s.partition, s.start): checksum_text(
                sum(int(one, 16) for one in s.same.split("+"))
            )
            for s in splits
        }
        return PublishedRows(
            noted, (self._hashed(batch, window) for batch in _batched(self.messages(window)))
        )

    def unfinished(self) -> Mapping[str, Sequence[Split]]:
        return {
            key: [Split(s.topic, s.partition, s.start, s.stop) for s in splits.values()]
            for key, splits in self._control().splits.items()
        }

    def may_lack(self, window: Window) -> str | None:
        table = self._table
        if table.options.primary_key and len(table.topics.uncompacted()) < len(
            table.options.topics
        ):
            return "Kafka compacts the topic: it keeps only the last message of each key."
        for place in _spans(self._control(), window.key):
            log = self._logs[0].get((place.topic, place.partition))
            if log is not None and log.start > place.first:
                return (
                    f"{place.topic}[{place.partition}] begins at {log.start}, and the window's"
                    f" messages were at {place.first} to {place.last}: retention deleted them."
                    " Nothing is wrong if readers have read them in time; else lengthen the"
                    " topic's retention."
                )
        return None

    @property
    def _has_rows(self) -> bool:
        """True if messages have all columns of a row."""
        encoder, names = self._table.encoder, self._table.schema.names
        return (
            not encoder.options.primary_key
            and encoder.options.value.format == "json"
            and set(encoder.options.value.columns) == set(names)
        )

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        """Restores a receipt, with the records of its splits, which the messages give.

        Raises:
            RefusedError: besides, the topics don't have all rows of the window.
        """
        key, receipt = window.key, from_json(text, Receipt)
        control = self._control()
        known = control.windows.get(key) if key not in control.damaged else None
        if receipt.window != window or (known is not None and known.text != text):
            raise RefusedError(
                f"the commit of window {key} named another receipt", "check", "Look again."
            )
        if not control.is_bound and not dry_run:
            self._restore_owner(receipt)
        if known is None:
            splits = self._published_splits(receipt)
            if not dry_run:
                self._restore_receipt(receipt, text, splits)

    def _restore_owner(self, receipt: Receipt) -> None:
        """Restores the control topic, and the record of its owner, from a receipt."""
        self._table.topics.make_control()
        owner = TableOwner(receipt.window.pipeline, receipt.ledger, receipt.grid)

        def lost(control: ControlState) -> list[Record]:
            return [] if control.is_bound else [owner_record(owner, control.start)]

        write_records(self._table, owner.pipeline, lost)

    def _restore_receipt(
        self, receipt: Receipt, text: str, splits: tuple[PublishedSplit, ...]
    ) -> None:
        key = receipt.window.key
        attempt = None if self._table.options.delivery == "exactly-once" else receipt.attempt

        def lost(control: ControlState) -> list[Record]:
            if key in control.windows.keys() - control.damaged.keys():
                return []
            return [*receipt_records(key, text, splits, attempt)]

        write_records(self._table, receipt.window.pipeline, lost)

    def _published_splits(self, receipt: Receipt) -> tuple[PublishedSplit, ...]:
        """Makes the records of a window's splits by reading all target topics.

        Raises:
            RefusedError: the topics don't have as many messages as the receipt counts.
        """
        places: dict[int, dict[tuple[str, int], OffsetSpan]] = defaultdict(dict)
        rows, same, splits = Counter[int](), Counter[int](), receipt.plan.splits
        ranges: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for n, s in enumerate(splits):
            ranges[s.topic, s.partition].append((s.start, s.stop, n))
        for (topic, partition), log in self._table.topics.readable().items():
            span = OffsetSpan(topic, partition, log.start, log.stable - 1, log.topic_id)
            for batch in _batched(self._of_window(span, receipt.window)):
                hashed = self._hashed(batch, receipt.window)["hash"].to_pylist()
                for (origin, _, message), row in zip(batch, hashed, strict=True):
                    own = ranges[origin.topic, origin.partition]
                    n = next((n for first, end, n in own if first <= origin.offset < end), -1)
                    at = cast("int", message.offset())
                    known = places[n].get((topic, partition))
                    places[n][topic, partition] = msgspec.structs.replace(
                        span, first=at if known is None else known.first, last=at
                    )
                    rows[n] += 1
                    same[n] += row
        wanted = {n: c.rows + c.deletes for n, c in enumerate(receipt.splits) if c.rows + c.deletes}
        lost = any(rows[n] < wanted[n] for n in wanted)
        allows = self._table.capabilities.allows(lost=lost)
        compacted = self._table.options.primary_key and self.may_lack(receipt.window)
        if rows != Counter(wanted) and not allows and not compacted:
            raise RefusedError(
                f"the topics have {sum(rows.values())} of the"
                f" {counted(sum(wanted.values()), 'row')} of window"
                f" {receipt.window.key}",
                "check",
                "Retention deleted the others, a log lost its end, or a topic isn't in sink.topics"
                " any more: then name it there again. Later windows can be run without this one, if"
                " no window is left after windrow rebind SPEC;"
                f" windrow run SPEC --window {receipt.window.key} --again publishes all of its rows"
                " once more."
                if lost
                else "Some were published twice, or another program wrote with the window's"
                " origins; neither can be taken back. Later windows can be run without this one.",
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
                checksum_text(same[n]),
                c.checksums.rows,
                receipt.attempt,
                tuple(places[n].values()),
            )
            for n, (s, c) in enumerate(zip(splits, receipt.splits, strict=True))
            if n in wanted
        )

    def _hashed(self, batch: Sequence[Seen], window: Window) -> pa.RecordBatch:
        """Computes the checksums of messages, as `stage.ArrowWriter` does before they are sent."""
        encoder = self._table.encoder
        columns: dict[str, Any] = {
            "topic": [
                None if encoder.options.topic_column is None else m.topic() for _, _, m in batch
            ],
            "key": [message.key() for _, _, message in batch],
            "value": [message.value() for _, _, message in batch],
        }
        schema = pa.schema(
            [field for field in encoder.schema if field.name not in encoder.attempt_columns]
        )
        try:
            for name in schema.names:
                if name.startswith(HEADER):
                    columns[name] = [headers[name.removeprefix(HEADER)] for _, headers, _ in batch]
            hashes = hash_rows(pa.RecordBatch.from_pydict(columns, schema))
        except (KeyError, pa.ArrowException) as error:
            raise _altered(window, error) from None
        _, _, topics, partitions, offsets, _ = zip(*(o for o, _, _ in batch), strict=True)
        made = dict(zip(PUBLISHED.names, (topics, partitions, offsets, hashes), strict=True))
        return pa.RecordBatch.from_pydict(made, PUBLISHED)

    def _rows(self, batch: Sequence[Seen], window: Window) -> pa.RecordBatch:
        schema = self._table.schema
        said: dict[str, Callable[[Seen], bytes | None]] = {
            "topic": lambda seen: seen[0].topic.encode(),
            "partition": lambda seen: b"%d" % seen[0].partition,
            "offset": lambda seen: b"%d" % seen[0].offset,
            "timestamp": lambda seen: seen[0].millis.encode() or None,
            "window": lambda _: window.key.encode(),
        }
        try:
            row = pa.struct(list(schema))
            values = [parse_json(message.value() or b"", row) for _, _, message in batch]
            columns = {f.name: pa.array([v[f.name] for v in values], f.type) for f in schema}
            for name, column in self.metadata.items():
                say = said.get(name, lambda seen, column=column: seen[1][column])
                columns[column] = pa.array(
                    [from_header(say(seen), TYPES[name]) for seen in batch], TYPES[name]
                )
        except (ValueError, TypeError, KeyError, ArithmeticError, pa.ArrowException) as error:
            raise _altered(window, error) from None
        return pa.RecordBatch.from_pydict(columns)

    def messages(self, window: Window) -> Iterator[Seen]:
        """Reads a window's messages."""
        readable, gone = self._logs
        for place in _spans(self._control(), window.key):
            if place in gone:
                raise RefusedError(gone[place], "check", DO_MADE_ANEW)
            log = readable.get((place.topic, place.partition))
            start = place.first if log is None else max(place.first, log.start)
            yield from self._of_window(msgspec.structs.replace(place, first=start), window)

    def outside(self, pipeline: str, newest: int | None = None) -> Mapping[str, int]:
        """Counts messages that lie where no record says (`PublishedAudit`).

        The logs' ends are asked before the control topic is read: records come with their
        messages, or before them a run's open transaction.
        """
        (logs, _), control, outside = self._logs, self._control(), Counter[str]()
        if not control.is_complete:
            control = self._table.control.read(to_end=True) or control
        spans = {key: _spans(control, key) for key in control.windows.keys() | control.splits}
        for (topic, partition), log in logs.items():
            start = log.start if newest is None else max(log.start, log.stable - newest)
            span = OffsetSpan(topic, partition, start, log.stable - 1)
            for origin, _, message in self._within(span):
                at = cast("int", message.offset())
                if origin.pipeline == pipeline and not any(
                    (s.topic, s.partition) == (topic, partition) and s.first <= at <= s.last
                    for s in spans.get(origin.window, ())
                ):
                    outside[origin.window] += 1
        return outside

    @cached_property
    def _logs(self) -> tuple[Mapping[tuple[str, int], Readable], Mapping[OffsetSpan, str]]:
        """What can be read of the target topics, and what all windows have lost of them.

        Asked once for all windows, so that bad news is waited for once.
        """
        control = self._control()
        spans = {s for key in control.windows.keys() | control.splits for s in _spans(control, key)}
        # a topic may have been taken out of the spec since
        names, topics = {*self._table.options.topics, *(s.topic for s in spans)}, self._table.topics
        try:
            return topics.readable(names), topics.gone(spans)
        except SpecError as error:
            raise RefusedError(error.what, "check", error.do) from None

    def _read(self, consumer: ck.Consumer, place: OffsetSpan) -> Iterator[ck.Message]:
        """Reads the committed messages between two offsets.

        Raises:
            SpecError, UnreachableError: they can't be read, or none arrives for
                `PATIENCE_SECONDS`.
        """
        consumer.assign([ck.TopicPartition(place.topic, place.partition, place.first)])
        position, moved = place.first, time.monotonic()
        while position <= place.last:
            for message in arrived(consumer, POLL_SECONDS):
                position, moved = self._passed(message, place.topic, position), time.monotonic()
                if message.error() is None and cast("int", message.offset()) <= place.last:
                    yield message
            if time.monotonic() - moved > PATIENCE_SECONDS:
                raise UnreachableError(
                    f"{place.topic}[{place.partition}] can't be read to {place.last}, only to"
                    f" {position}",
                    "check",
                    "Check whether its broker runs, and whether a transaction is open in it.",
                )

    def _passed(self, message: ck.Message, topic: str, position: int) -> int:
        """Returns the offset to read next, once a message or an event was taken."""
        error = message.error()
        if error is None:
            return cast("int", message.offset()) + 1
        if error.code() == END:
            return max(position, cast("int", message.offset()))
        if error.code() not in PASSING:
            raise self._table.topics.error_for(topic, error)
        return position

    def _of_window(self, span: OffsetSpan, window: Window) -> Iterator[Seen]:
        """Reads the messages of a window between two offsets."""
        own = (window.pipeline, window.key)
        return (seen for seen in self._within(span) if seen[0][:2] == own)

    def _within(self, span: OffsetSpan) -> Iterator[Seen]:
        """Reads the messages with an origin between two offsets."""
        if span.last < span.first:
            return
        cluster = self._table.connection
        admin = admin_properties(cluster.servers, cluster.client)
        consumer = consumer_properties(cluster.servers, cluster.client)
        with CLIENTS.of(admin).consumers(consumer).one(span.topic) as one:
            for message in self._read(one, span):
                headers = dict(headers_of(message))
                origin = origin_of(headers)
                if origin is not None:
                    yield origin, headers, message


def _batched(messages: Iterator[Seen]) -> Iterator[Sequence[Seen]]:
    while batch := list(islice(messages, _BATCH_MESSAGES)):
        yield batch


def _altered(window: Window, error: Exception) -> RefusedError:
    """Makes the error for a message that can't be read as one of the window's."""
    return RefusedError(
        f"a message of window {window.key} isn't what was published: {type(error).__name__}",
        "check",
        "Another program wrote it with the origin of one of them, or the schema has changed since.",
    )


def _splits(control: ControlState, window: str) -> Collection[PublishedSplit]:
    """Returns the records of a window's published splits."""
    kept = control.windows.get(window)
    return control.splits.get(window, {}).values() if kept is None else kept.splits


def _every(control: ControlState, gone: Mapping[OffsetSpan, str]) -> list[Committed | Unreadable]:
    """Returns each window's receipt, or why it can't be read. `gone`: see `SinkTopics.gone`."""
    deleted = [] if control.deleted is None else [Unreadable(OWNER, control.deleted, DO_DELETED)]
    open_ = list[Unreadable]()
    for key, splits in control.splits.items():
        if splits and key not in control.committed():
            published = counted(len(splits), "split")
            what = f"a run published {published} of the window, and didn't commit it"
            do = "Run the window again: it publishes the rest."
            for why in (gone[span] for span in _spans(control, key) if span in gone):
                what, do = f"{what}; what was published is gone: {why}", DO_MADE_ANEW
                break
            open_.append(Unreadable(key, what, do))
    return [*map(read_receipt, control.receipts()), *deleted, *open_]


def _spans(control: ControlState, window: str) -> list[OffsetSpan]:
    """Returns the first and last offset of a window's messages per topic-partition."""
    found: dict[tuple[str, int, str], OffsetSpan] = {}
    for span in (span for split in _splits(control, window) for span in split.places):
        at = (span.topic, span.partition, span.topic_id)
        seen = found.get(at, span)
        found[at] = msgspec.structs.replace(
            span, first=min(seen.first, span.first), last=max(seen.last, span.last)
        )
    return list(found.values())
