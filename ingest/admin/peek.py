"""A look into the topics that touches neither ledger nor table: messages between two
positions, to the screen or to a file of one's own.

Both ends become integers once, before the first message is read, and an end beyond what
is decided is moved there: a look at a live topic ends (Flink's bounded source waits for
a stopping offset that nobody may ever write, FLINK-33466).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from windrow.ingest.admin.files import iso_instant, payload, write_file
from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import AtLabel, Given, Initializer, Source
from windrow.ingest.ports.broker import Broker, OffsetAndEpoch
from windrow.ingest.ports.reader import Reader, ReadPlan, Take, read_until
from windrow.ingest.schema.messages import MESSAGES, in_calendar
from windrow.ingest.source.enumerator.positions import positions
from windrow.ingest.source.enumerator.topics import Discovered, discover

PRINTED = ("topic-partition", "offset", "timestamp", "key", "value", "headers")
"""The columns of `printable`."""

Messages = Callable[[Take], None]
"""Reads, and gives away one batch of messages after the other."""

_SHOWN = 200


def peek(
    broker: Broker,
    reader_of: Callable[[ReadPlan], Reader],
    source: Source,
    start: Initializer,
    stop: Initializer,
    limit: int | None,
) -> Messages:
    """The messages from `start` to `stop`, one topic-partition after the other in
    order, as `MESSAGES` batches.

    Asks the cluster when it is called; what it returns reads. What is visible is for
    broker and reader, which must have the same isolation level, to say.

    Args:
        broker: where the positions are asked.
        reader_of: makes the reader of a split.
        source: its selection says what is read; its own start doesn't matter.
        start: where each topic-partition begins.
        stop: where each ends, exclusive. Offsets that are given outside the log mean
            its nearer end; one at or below the start, nothing.
        limit: at most so many messages in all, the first ones in order; no batch is
            read beyond the one that holds the last. None: all.

    Raises:
        SpecError: there is no such topic, or no answer for a position; or a position is
            `AtLabel`, which is for windows.
        OpenTransactionError: a start, or a group's committed offset, lies behind a
            transaction that is still open.
        DataLossError: a start lies below the log start; while reading, retention came
            first.
    """
    if isinstance(start, AtLabel) or isinstance(stop, AtLabel):
        raise SpecError(
            "A label is no position to look from",
            "plan",
            "Use earliest, latest, a timestamp, a group or offsets.",
        )
    discovered = discover(broker, source.selection, None, source.on_removed)
    plan = ReadPlan(
        discovered.cluster_id,
        {name: info.topic_id for name, info in discovered.topics.items()},
        "fail",
    )
    return partial(_read, reader_of, plan, _splits(broker, discovered, start, stop), limit)


def _splits(
    broker: Broker, discovered: Discovered, start: Initializer, stop: Initializer
) -> list[Split]:
    begins = positions(broker, start, discovered.tps)
    ends = broker.stable_ends(discovered.tps)
    stops = positions(broker, _inside(broker, stop, ends), discovered.tps)
    ranges = [(tp, begins[tp], min(stops[tp].offset, ends[tp].offset)) for tp in discovered.tps]
    return [
        Split(tp.topic, tp.partition, begin.offset, end, begin.leader_epoch)
        for tp, begin, end in ranges
        if begin.offset < end
    ]


def _inside(
    broker: Broker, stop: Initializer, ends: dict[TopicPartition, OffsetAndEpoch]
) -> Initializer:
    """Given offsets moved into the log: as a start those outside are a mistake or a
    loss, as a stop they say enough.
    """
    if not isinstance(stop, Given):
        return stop
    asked = [(tp, offset) for tp, offset in stop.offsets if tp in ends]
    starts = broker.log_starts([tp for tp, _ in asked])
    return msgspec.structs.replace(
        stop,
        offsets=tuple((tp, min(max(offset, starts[tp]), ends[tp].offset)) for tp, offset in asked),
    )


def _read(
    reader_of: Callable[[ReadPlan], Reader],
    plan: ReadPlan,
    splits: Sequence[Split],
    limit: int | None,
    take: Take,
) -> None:
    """Split by split, up to the limit."""
    left = limit

    def enough(batch: pa.RecordBatch) -> bool:
        nonlocal left
        take(batch if left is None else batch.slice(0, left))
        left = None if left is None else left - min(left, batch.num_rows)
        return left == 0

    for split in splits:
        if left == 0 or not read_until(reader_of(plan), split, enough):
            return


# --------------------------------------------------------------------------------------------------


def write_messages(messages: Messages, path: Path) -> int:
    """Write messages to a file (`ingest.admin.files`); how many.

    A Parquet file has the columns of `MESSAGES`.

    Raises:
        SpecError: it can't lie there, or be of that form.
    """
    return write_file(path, MESSAGES, documents, messages)


def documents(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Messages as JSON has them, under the names of `MESSAGES`.

    The timestamp is an ISO instant with milliseconds, outside the years 1 to 9999 epoch
    milliseconds; headers are a list of `{"key", "value"}` in order; keys and values are
    text where the bytes are UTF-8, else `{"base64": "..."}`, which no text can be taken
    for; null where there is none.
    """
    return [message | payload(message) for message in _messages(batch)]


def _messages(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """As Python values; timestamps as text, for a datetime doesn't hold all that Kafka does."""
    stamps = batch.column("timestamp")
    plain = batch.set_column(
        batch.schema.get_field_index("timestamp"), "timestamp", stamps.cast(pa.int64())
    )
    return [
        message
        | {"timestamp": iso_instant(message["timestamp"]) if inside else message["timestamp"]}
        for message, inside in zip(plain.to_pylist(), in_calendar(stamps).to_pylist(), strict=True)
    ]


# --------------------------------------------------------------------------------------------------


def printable(batch: pa.RecordBatch) -> list[tuple[str, ...]]:
    """Per message the texts of `PRINTED`, for people: long ones cut, and escaped, so
    that no control character reaches a terminal.
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
    """Text where it is printable text, else escaped."""
    if value is None:
        return "null"
    cut = value[:_SHOWN]
    text = cut if isinstance(cut, str) else cut.decode(errors="backslashreplace")
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escaped + ("..." if len(value) > _SHOWN else "")
