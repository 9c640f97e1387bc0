"""The newest messages of some topics, within bounds: what a look at them is guessed
from, or judged by.
"""

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
"""How many messages at a log's start say when it begins."""

MOST_BYTES = 16 << 20
"""No more is sampled in all, but for the rest of one batch."""


class Sample(msgspec.Struct, frozen=True):
    """The newest messages of each topic-partition (`MESSAGES`), of which topics, and
    when the log begins; None: unknown.
    """

    topics: tuple[str, ...]
    messages: pa.Table
    begins: datetime | None


def sample_topics(
    broker: Broker,
    reader: Callable[[ReadPlan], Reader],
    selection: Selection,
    most: int,
    on_removed: OnRemoved = "fail",
) -> Sample:
    """The newest messages of each topic-partition, at most so many.

    Raises:
        SpecError: there is no such topic.
        UnreachableError: the cluster doesn't answer.
    """
    discovered = discover(broker, selection, None, on_removed)
    plan = ReadPlan(
        discovered.cluster_id,
        {name: info.topic_id for name, info in discovered.topics.items()},
        "skip",
    )
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
        if not read_until(reader(plan), split, enough):
            break
    stamps = [
        moment
        for tp, start, end in filled
        if (moment := _first_moment(broker, tp, start, end)) is not None
    ]
    return Sample(tuple(discovered.topics), pa.concat_tables(batches), min(stamps, default=None))


def _first_moment(broker: Broker, tp: TopicPartition, start: int, end: int) -> datetime | None:
    """When a log begins: the earliest of its first messages' timestamps, but for those
    a day and more before the middle one.
    """
    first: list[int] = []
    for chunk in broker.stamps(tp, start, min(end, start + FIRST)):
        first += [stamp for stamp in chunk.timestamps.tolist() if stamp >= 0]
    stamps = pa.array(sorted(first), pa.timestamp("ms", tz="UTC"))
    known: list[datetime] = stamps.filter(in_calendar(stamps)).to_pylist()
    if not known:
        return None
    middle = known[len(known) // 2]
    return next(moment for moment in known if middle - moment < timedelta(days=1))
