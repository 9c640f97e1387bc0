"""Reads messages between two positions of the topics, to the screen or to a file.

Neither the ledger nor the table is used. Both positions are resolved to offsets once,
before the first message is read. A stop above the stable end is moved to the stable end. So
peek ends even on a topic that is being written. (Flink's bounded source waits for a
stopping offset that may never be written, FLINK-33466.)

The module also samples the newest messages of topics, for `windrow infer` and its check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest.admin.export import iso_instant, payload, write_file
from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import AtLabel, Given, Initializer, OnRemoved, Selection, Source
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch
from windrow.ingest.ports.reader import Reader, ReadPlan, Take, read_until
from windrow.ingest.schema.messages import MESSAGES, in_calendar
from windrow.ingest.source.enumerator.positions import positions
from windrow.ingest.source.enumerator.topics import Discovered, discover

PRINTED = ("topic-partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of `printable`."""

Messages = Callable[[Take], None]
"""A function that reads messages, and passes one batch after the other to its argument."""

_SHOWN = 200


def peek(
    broker: Broker,
    reader_of: Callable[[ReadPlan], Reader],
    source: Source,
    start: Initializer,
    stop: Initializer,
    limit: int | None,
) -> Messages:
    """Resolves the positions, and returns a function that reads the messages between them.

    It reads one topic-partition after the other, in order, as `MESSAGES` batches.

    Args:
        broker: resolves the positions. It must have the readers' isolation level.
        reader_of: makes a reader of splits.
        source: its selection says which topics are read; its start is not used.
        start: the first offset of each topic-partition.
        stop: the offset after the last one. An offset outside the log means the nearer end
            of the log. If it isn't above the start, there are no messages.
        limit: the maximum number of messages in total. No batch is read after the limit is
            reached. None: all.

    Raises:
        SpecError: there is no such topic; a position can't be resolved; or a position is
            `AtLabel`, which is for windows.
        OpenTransactionError: a start, or a group's committed offset, is after the begin of
            an open transaction.
        DataLossError: a start is below the log start, or retention moves the log start
            above it while messages are read.
    """
    if isinstance(start, AtLabel) or isinstance(stop, AtLabel):
        raise SpecError(
            "A window's label can't be a position of peek",
            "plan",
            "Use earliest, latest, a timestamp, a group or offsets.",
        )
    discovered = discover(broker, source.selection, None, source.on_removed)
    reader = reader_of(discovered.read_plan("fail"))
    return partial(_read, reader, _splits(broker, discovered, start, stop), limit)


def _splits(
    broker: Broker, discovered: Discovered, start: Initializer, stop: Initializer
) -> list[Split]:
    ends = broker.stable_ends(discovered.tps)
    begins = positions(broker, start, ends)
    stops = positions(broker, _in_log(broker, stop, ends), ends)
    ranges = [(tp, begins[tp], min(stops[tp].offset, ends[tp].offset)) for tp in discovered.tps]
    return [
        Split(tp.topic, tp.partition, begin.offset, end, begin.leader_epoch)
        for tp, begin, end in ranges
        if begin.offset < end
    ]


def _in_log(
    broker: Broker, stop: Initializer, ends: dict[TopicPartition, OffsetAndEpoch]
) -> Initializer:
    """Moves given offsets outside the log to the nearer end of the log.

    This is only for stops. A start outside the log is a mistake or a loss.
    """
    if not isinstance(stop, Given):
        return stop
    requested_offsets = [(tp, offset) for tp, offset in stop.offsets if tp in ends]
    starts = broker.log_starts([tp for tp, _ in requested_offsets])
    return msgspec.structs.replace(
        stop,
        offsets=tuple(
            (tp, min(max(offset, starts[tp]), ends[tp].offset)) for tp, offset in requested_offsets
        ),
    )


def _read(reader: Reader, splits: Sequence[Split], limit: int | None, take: Take) -> None:
    """Reads split by split, up to the limit."""
    remaining_rows = limit

    def enough(batch: pa.RecordBatch) -> bool:
        nonlocal remaining_rows
        take(batch if remaining_rows is None else batch.slice(0, remaining_rows))
        remaining_rows = (
            None if remaining_rows is None else remaining_rows - min(remaining_rows, batch.num_rows)
        )
        return remaining_rows == 0

    for split in splits:
        if remaining_rows == 0 or not read_until(reader, split, enough):
            return


# --------------------------------------------------------------------------------------------------


def write_messages(messages: Messages, path: Path) -> int:
    """Writes messages to a file (`ingest.admin.export`); returns their number.

    A Parquet file has the columns of `MESSAGES`.

    Raises:
        SpecError: the file name has another ending, or its folder doesn't exist.
    """
    return write_file(path, MESSAGES, documents, messages)


def documents(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Converts messages to JSON documents with the names of `MESSAGES`.

    The timestamp is an ISO instant with milliseconds, or epoch milliseconds if it is
    outside the years 1 to 9999. Headers are a list of `{"key", "value"}` in order. Keys and
    values are text if the bytes are UTF-8, else `{"base64": "..."}`. A missing key or value
    is null.
    """
    return [message | payload(message) for message in _messages(batch)]


def _messages(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Converts messages to Python values.

    Timestamps become text, because a datetime can't represent all of Kafka's timestamps.
    """
    stamps = batch.column("timestamp")
    plain = batch.set_column(
        batch.schema.get_field_index("timestamp"), "timestamp", stamps.cast(pa.int64())
    )
    return [
        message
        | {"timestamp": iso_instant(message["timestamp"]) if in_range else message["timestamp"]}
        for message, in_range in zip(
            plain.to_pylist(), in_calendar(stamps).to_pylist(), strict=True
        )
    ]


# --------------------------------------------------------------------------------------------------


def printable(batch: pa.RecordBatch) -> list[tuple[str, ...]]:
    """Returns the texts of `PRINTED` for each message.

    Long texts are cut. Control characters are escaped, so that none reaches a terminal.
    """
    return [
        (
            f"{m['topic']}[{m['partition']}]",
            str(m["offset"]),
            "none" if m["timestamp"] is None else str(m["timestamp"]),
            _shown(m["key"]),
            _shown(m["value"]),
            ", ".join(f"{_shown(h['key'])}: {_shown(h['value'])}" for h in m["headers"]),
        )
        for m in _messages(batch)
    ]


def _shown(value: bytes | str | None) -> str:
    """Returns the beginning of a text, with unprintable characters escaped."""
    if value is None:
        return "null"
    cut = value[:_SHOWN]
    text = cut if isinstance(cut, str) else cut.decode(errors="backslashreplace")
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escaped + ("..." if len(value) > _SHOWN else "")


FIRST = 20
"""The number of messages at a log's start that the begin of the log is estimated from."""

MOST_BYTES = 16 << 20
"""The maximum size of a sample in bytes. Its last batch may exceed it."""


@dataclass(frozen=True)
class Sample:
    """A sample of messages.

    Attributes:
        topics: the topics.
        messages: the messages (`MESSAGES`).
        begins: the time at which the earliest log begins; None if it is unknown for one of
            the logs.
    """

    topics: tuple[str, ...]
    messages: pa.Table
    begins: datetime | None


def sample_topics(
    broker: Broker,
    reader_of: Callable[[ReadPlan], Reader],
    selection: Selection,
    max_messages: int,
    on_removed: OnRemoved = "fail",
) -> Sample:
    """Reads the newest messages of each topic-partition.

    Args:
        broker: the cluster.
        reader_of: makes a reader of splits.
        selection: the topics.
        max_messages: the maximum number of messages of each topic-partition.
        on_removed: the reaction to a topic that was deleted.

    Raises:
        SpecError: there is no such topic.
        UnreachableError: the cluster doesn't answer.
    """
    discovered = discover(broker, selection, None, on_removed)
    reader = reader_of(discovered.read_plan("skip"))
    starts, ends = broker.log_starts(discovered.tps), broker.stable_ends(discovered.tps)
    filled = [
        (tp, starts[tp], ends[tp].offset) for tp in discovered.tps if starts[tp] < ends[tp].offset
    ]
    splits = [
        Split(tp.topic, tp.partition, max(start, end - max_messages), end)
        for tp, start, end in filled
    ]
    batches, size = [MESSAGES.empty_table()], 0

    def enough(batch: pa.RecordBatch) -> bool:
        nonlocal size
        batches.append(pa.Table.from_batches([batch]))
        size += int(batch.nbytes)
        return size >= MOST_BYTES

    for split in splits:
        if not read_until(reader, split, enough):
            break
    begins = [begin_of_log(broker, tp, start, end) for tp, start, end in filled]
    begin = None if None in begins else min(filter(None, begins), default=None)
    return Sample(tuple(discovered.topics), pa.concat_tables(batches), begin)


def begin_of_log(broker: Broker, tp: TopicPartition, start: int, end: int) -> datetime | None:
    """Returns the time at which a log begins: the earliest timestamp of its first messages.

    Timestamps that are a day or more before the median are ignored.
    """
    first: list[int] = []
    for chunk in broker.stamps(tp, start, min(end, start + FIRST)):
        first += [stamp for stamp in chunk.timestamps.tolist() if stamp >= 0]
    stamps = pa.array(sorted(first), pa.timestamp("ms", tz="UTC"))
    timestamps: list[datetime] = stamps.filter(in_calendar(stamps)).to_pylist()
    if not timestamps:
        return None
    median = timestamps[len(timestamps) // 2]
    return next(instant for instant in timestamps if median - instant < timedelta(days=1))
