"""Samples the newest messages of topics, for `windrow infer` and its check."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import pyarrow as pa

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.model.source import OnRemoved, Selection
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan, read_until
from windrow.ingest.schema.messages import MESSAGES, in_calendar
from windrow.ingest.source.enumerator.topics import discover

FIRST = 20
"""Number of messages at a log's start that are read for the time at which it begins."""

MOST_BYTES = 16 << 20
"""Most bytes in a sample, apart from the rest of its last batch."""


class Sample(msgspec.Struct, frozen=True):
    """A sample: its topics, the messages (`MESSAGES`), and the time at which the log begins.

    The time is None if it is unknown for one of the logs.
    """

    topics: tuple[str, ...]
    messages: pa.Table
    begins: datetime | None


def sample_topics(
    broker: Broker,
    reader_of: Callable[[ReadPlan], Reader],
    selection: Selection,
    most: int,
    on_removed: OnRemoved = "fail",
) -> Sample:
    """Reads the newest messages of each topic-partition. `most`: most messages of each.

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
        Split(tp.topic, tp.partition, max(start, end - most), end) for tp, start, end in filled
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
    """The time at which a log begins: the earliest timestamp of its first messages.

    Timestamps that are a day or more before the median are ignored.
    """
    first: list[int] = []
    for chunk in broker.stamps(tp, start, min(end, start + FIRST)):
        first += [stamp for stamp in chunk.timestamps.tolist() if stamp >= 0]
    stamps = pa.array(sorted(first), pa.timestamp("ms", tz="UTC"))
    known: list[datetime] = stamps.filter(in_calendar(stamps)).to_pylist()
    if not known:
        return None
    median = known[len(known) // 2]
    return next(instant for instant in known if median - instant < timedelta(days=1))
