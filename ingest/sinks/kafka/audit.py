"""Verification of a Kafka table: reads back the messages of windows.

The control topic says at which offsets the messages of a window are.
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

from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, format_count
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
from windrow.ingest.sinks.kafka.control_topic import headers_of, poll_messages
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
    waiting_for,
)

Seen = tuple[Origin, Mapping[str, bytes | None], ck.Message]
"""A message's origin, all of its headers by name, and the message itself."""

_BATCH_MESSAGES = 1000


class KafkaAudit:
    """`ports.sink.Audit` of a Kafka table. In memory: some messages, and the control topic."""

    keyed = None
    lists = ()

    def __init__(self, table: KafkaTable) -> None:
        self._table = table

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._table.metadata

    def receipts(self) -> Iterator[Committed | Unreadable]:
        """Yields all receipts; a window with published splits but no receipt is unreadable."""
        control = self._control()
        spans = {s for key in control.splits for s in _spans(control, key)}
        return iter(_all_receipts(control, self._table.topics.find_deleted(spans)))

    def windows(self) -> set[str]:
        """Returns the windows of the control topic, because others may write to a target topic."""
        control = self._control()
        committed_keys = {key for key, committed in control.windows.items() if committed.splits}
        return committed_keys | {key for key, splits in control.splits.items() if splits}

    def _control(self) -> ControlState:
        return self._table.control.read() or ControlState()

    def rows_held(self, window: Window) -> list[RowsHeld]:
        offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
        for origin, _, _ in self.messages(window):
            offsets[origin.topic, origin.partition].append(origin.offset)
        return sorted(
            RowsHeld(
                *tp,
                len(split_offsets),
                len(set(split_offsets)),
                min(split_offsets),
                max(split_offsets),
            )
            for tp, split_offsets in offsets.items()
        )

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Reads rows back from messages (`ports.sink.Audit.contents`).

        Raises:
            RefusedError: also if messages don't have all columns of a row; `published` has
                their checksums instead.
        """
        if not self._has_rows:
            raise RefusedError(
                "rows can't be read back from the messages",
                "check",
                "Compare the checksums of messages.",
            )
        return (self._rows(batch, window) for batch in _batches(self.messages(window)))

    def published(self, window: Window) -> PublishedRows | None:
        """Returns checksums of messages, without their times, which the topic may set."""
        if self._has_rows:
            return None
        splits = _splits(self._control(), window.key)
        noted = {
            (s.topic, s.partition, s.start): checksum_text(
                sum(int(part, 16) for part in s.same.split("+"))
            )
            for s in splits
        }
        return PublishedRows(
            noted, (self._hash_messages(batch, window) for batch in _batches(self.messages(window)))
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
        for span in _spans(self._control(), window.key):
            log = self._logs[0].get((span.topic, span.partition))
            if log is not None and log.start > span.first:
                return (
                    f"{span.topic}[{span.partition}] begins at {log.start}, and the window's"
                    f" messages were at {span.first} to {span.last}: retention deleted them."
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
        """Restores a receipt, and the records of its splits, which it makes from the messages.

        Raises:
            RefusedError: also if the topics don't have all rows of the window.
        """
        key, receipt = window.key, from_json(text, Receipt)
        control = self._control()
        committed = control.windows.get(key) if key not in control.damaged else None
        if receipt.window != window or (committed is not None and committed.text != text):
            raise RefusedError(
                f"the commit of window {key} named another receipt", "check", "Look again."
            )
        if not control.is_bound and not dry_run:
            self._restore_owner(receipt)
        if committed is None:
            splits = self._published_splits(receipt)
            if not dry_run:
                self._restore_receipt(receipt, text, splits)

    def _restore_owner(self, receipt: Receipt) -> None:
        """Restores the control topic, and the record of its owner, from a receipt."""
        self._table.topics.make_control()
        owner = TableOwner(receipt.window.pipeline, receipt.ledger, receipt.grid)

        def make_lost_records(control: ControlState) -> list[Record]:
            return [] if control.is_bound else [owner_record(owner, control.start)]

        write_records(self._table, owner.pipeline, make_lost_records)

    def _restore_receipt(
        self, receipt: Receipt, text: str, splits: tuple[PublishedSplit, ...]
    ) -> None:
        key = receipt.window.key
        attempt = None if self._table.options.delivery == "exactly-once" else receipt.attempt

        def make_lost_records(control: ControlState) -> list[Record]:
            if key in control.windows.keys() - control.damaged.keys():
                return []
            return [*receipt_records(key, text, splits, attempt)]

        write_records(self._table, receipt.window.pipeline, make_lost_records)

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
            for batch in _batches(self._read_window(span, receipt.window)):
                hashed = self._hash_messages(batch, receipt.window)["hash"].to_pylist()
                for (origin, _, message), row in zip(batch, hashed, strict=True):
                    split_ranges = ranges[origin.topic, origin.partition]
                    n = next(
                        (n for first, end, n in split_ranges if first <= origin.offset < end), -1
                    )
                    offset = cast("int", message.offset())
                    known_span = places[n].get((topic, partition))
                    places[n][topic, partition] = msgspec.structs.replace(
                        span, first=offset if known_span is None else known_span.first, last=offset
                    )
                    rows[n] += 1
                    same[n] += row
        expected_rows = {
            n: c.rows + c.deletes for n, c in enumerate(receipt.splits) if c.rows + c.deletes
        }
        has_lost_rows = any(rows[n] < expected_rows[n] for n in expected_rows)
        allows = self._table.capabilities.allows(loss=has_lost_rows)
        compacted = self._table.options.primary_key and self.may_lack(receipt.window)
        if rows != Counter(expected_rows) and not allows and not compacted:
            raise RefusedError(
                f"the topics have {sum(rows.values())} of the"
                f" {format_count(sum(expected_rows.values()), 'row')} of window"
                f" {receipt.window.key}",
                "check",
                "Retention deleted the others, a log lost its end, or a topic isn't in sink.topics"
                " any more: then name it there again. Later windows can be run without this one, if"
                " no window is left after windrow rebind SPEC;"
                f" windrow run SPEC --window {receipt.window.key} --again publishes all of its rows"
                " once more."
                if has_lost_rows
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
            if n in expected_rows
        )

    def _hash_messages(self, batch: Sequence[Seen], window: Window) -> pa.RecordBatch:
        """Computes checksums of messages, as `stage.ArrowWriter` did before they were sent."""
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
            raise _altered_error(window, error) from None
        _, _, topics, partitions, offsets, _ = zip(*(o for o, _, _ in batch), strict=True)
        published_columns = dict(
            zip(PUBLISHED.names, (topics, partitions, offsets, hashes), strict=True)
        )
        return pa.RecordBatch.from_pydict(published_columns, PUBLISHED)

    def _rows(self, batch: Sequence[Seen], window: Window) -> pa.RecordBatch:
        schema = self._table.schema
        getters: dict[str, Callable[[Seen], bytes | None]] = {
            "topic": lambda seen_message: seen_message[0].topic.encode(),
            "partition": lambda seen_message: b"%d" % seen_message[0].partition,
            "offset": lambda seen_message: b"%d" % seen_message[0].offset,
            "timestamp": lambda seen_message: seen_message[0].millis.encode() or None,
            "window": lambda _: window.key.encode(),
        }
        try:
            row = pa.struct(list(schema))
            values = [parse_json(message.value() or b"", row) for _, _, message in batch]
            columns = {f.name: pa.array([v[f.name] for v in values], f.type) for f in schema}
            for name, column in self.metadata.items():
                say = getters.get(name, lambda seen_message, column=column: seen_message[1][column])
                columns[column] = pa.array(
                    [from_header(say(seen_message), TYPES[name]) for seen_message in batch],
                    TYPES[name],
                )
        except (ValueError, TypeError, KeyError, ArithmeticError, pa.ArrowException) as error:
            raise _altered_error(window, error) from None
        return pa.RecordBatch.from_pydict(columns)

    def messages(self, window: Window) -> Iterator[Seen]:
        """Reads a window's messages."""
        readable, missing_spans = self._logs
        for span in _spans(self._control(), window.key):
            if span in missing_spans:
                raise RefusedError(missing_spans[span], "check", DO_MADE_ANEW)
            log = readable.get((span.topic, span.partition))
            start = span.first if log is None else max(span.first, log.start)
            yield from self._read_window(msgspec.structs.replace(span, first=start), window)

    def outside(self, pipeline: str, newest: int | None = None) -> Mapping[str, int]:
        """Counts messages at offsets that no record covers (`ports.sink.PublishedAudit`).

        The logs' ends are asked for before the control topic is read. So the control topic has
        the records of all messages below those ends, or an open transaction hides these
        records. Then the control topic is read to its end.
        """
        (logs, _), control, outside = self._logs, self._control(), Counter[str]()
        if not control.is_complete:
            control = self._table.control.read(to_end=True) or control
        spans = {key: _spans(control, key) for key in control.windows.keys() | control.splits}
        for (topic, partition), log in logs.items():
            start = log.start if newest is None else max(log.start, log.stable - newest)
            span = OffsetSpan(topic, partition, start, log.stable - 1)
            for origin, _, message in self._read_span(span):
                offset = cast("int", message.offset())
                if origin.pipeline == pipeline and not any(
                    (s.topic, s.partition) == (topic, partition) and s.first <= offset <= s.last
                    for s in spans.get(origin.window, ())
                ):
                    outside[origin.window] += 1
        return outside

    @cached_property
    def _logs(self) -> tuple[Mapping[tuple[str, int], Readable], Mapping[OffsetSpan, str]]:
        """The readable part of the target topics, and the spans that windows have lost.

        The cluster is asked once for all windows, so that bad news is waited for only once.
        """
        control = self._control()
        spans = {s for key in control.windows.keys() | control.splits for s in _spans(control, key)}
        # a topic may have been removed from the spec since
        names, topics = {*self._table.options.topics, *(s.topic for s in spans)}, self._table.topics
        try:
            return topics.readable(names), topics.find_deleted(spans)
        except SpecError as error:
            raise RefusedError(error.message, "check", error.advice) from None

    def _read(self, consumer: ck.Consumer, span: OffsetSpan) -> Iterator[ck.Message]:
        """Reads the committed messages between two offsets.

        Raises:
            SpecError, UnreachableError: the messages can't be read, or none arrives for
                `PATIENCE_SECONDS`.
        """
        consumer.assign([ck.TopicPartition(span.topic, span.partition, span.first)])
        position = span.first
        while position <= span.last:
            for message in _poll_until_some(consumer, span, position):
                position = self._next_position(message, span.topic, position)
                if message.error() is None and cast("int", message.offset()) <= span.last:
                    yield message

    def _next_position(self, message: ck.Message, topic: str, position: int) -> int:
        """Returns the offset to read next, after a message or an event was taken."""
        error = message.error()
        if error is None:
            return cast("int", message.offset()) + 1
        if error.code() == END:
            return max(position, cast("int", message.offset()))
        if error.code() not in PASSING:
            raise self._table.topics.error_for(topic, error)
        return position

    def _read_window(self, span: OffsetSpan, window: Window) -> Iterator[Seen]:
        """Reads the messages of a window between two offsets."""
        window_origin = (window.pipeline, window.key)
        return (
            seen_message
            for seen_message in self._read_span(span)
            if seen_message[0][:2] == window_origin
        )

    def _read_span(self, span: OffsetSpan) -> Iterator[Seen]:
        """Reads the messages with an origin between two offsets."""
        if span.last < span.first:
            return
        cluster = self._table.connection
        admin = admin_properties(cluster.servers, cluster.client)
        consumer = consumer_properties(cluster.servers, cluster.client)
        with CLIENTS.of(admin).consumers(consumer).lend(span.topic) as open_consumer:
            for message in self._read(open_consumer, span):
                headers = dict(headers_of(message))
                origin = origin_of(headers)
                if origin is not None:
                    yield origin, headers, message


def _batches(messages: Iterator[Seen]) -> Iterator[Sequence[Seen]]:
    while batch := list(islice(messages, _BATCH_MESSAGES)):
        yield batch


def _altered_error(window: Window, error: Exception) -> RefusedError:
    """Makes the error for a message that can't be read as a message of the window."""
    return RefusedError(
        f"a message of window {window.key} isn't what was published: {type(error).__name__}",
        "check",
        "Another program wrote it with the origin of one of them, or the schema has changed since.",
    )


def _splits(control: ControlState, window: str) -> Collection[PublishedSplit]:
    """Returns the records of a window's published splits."""
    committed = control.windows.get(window)
    return control.splits.get(window, {}).values() if committed is None else committed.splits


def _all_receipts(
    control: ControlState, missing_spans: Mapping[OffsetSpan, str]
) -> list[Committed | Unreadable]:
    """Returns each window's receipt, or why it can't be read.

    Args:
        control: the state of the table.
        missing_spans: the spans that are gone, each with the reason
            (`SinkTopics.find_deleted`).
    """
    deleted = [] if control.deleted is None else [Unreadable(OWNER, control.deleted, DO_DELETED)]
    open_ = list[Unreadable]()
    for key, splits in control.splits.items():
        if splits and key not in control.committed():
            published = format_count(len(splits), "split")
            message = f"a run published {published} of the window, and didn't commit it"
            advice = "Run the window again: it publishes the rest."
            for reason in (
                missing_spans[span] for span in _spans(control, key) if span in missing_spans
            ):
                message, advice = f"{message}; what was published is gone: {reason}", DO_MADE_ANEW
                break
            open_.append(Unreadable(key, message, advice))
    return [*map(read_receipt, control.receipts()), *deleted, *open_]


def _spans(control: ControlState, window: str) -> list[OffsetSpan]:
    """Returns the first and last offset of a window's messages in each topic-partition."""
    merged_spans: dict[tuple[str, int, str], OffsetSpan] = {}
    for span in (span for split in _splits(control, window) for span in split.places):
        log_key = (span.topic, span.partition, span.topic_id)
        merged = merged_spans.get(log_key, span)
        merged_spans[log_key] = msgspec.structs.replace(
            span, first=min(merged.first, span.first), last=max(merged.last, span.last)
        )
    return list(merged_spans.values())


def _poll_until_some(
    consumer: ck.Consumer, span: OffsetSpan, position: int
) -> Sequence[ck.Message]:
    """Returns the next messages and events; logs a message if there are none for a while.

    Raises:
        UnreachableError: none arrives for `PATIENCE_SECONDS`.
    """
    deadline, log = time.monotonic() + PATIENCE_SECONDS, f"{span.topic}[{span.partition}]"
    with waiting_for(f"messages of {log} from offset {position} on"):
        while time.monotonic() < deadline:
            if messages := poll_messages(consumer, POLL_SECONDS):
                return messages
    raise UnreachableError(
        f"{log} can't be read to {span.last}, only to {position}",
        "check",
        "Check whether its broker runs, and whether a transaction is open in it, then run this"
        " again.",
    )
