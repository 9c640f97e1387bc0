"""Random logs in the in-memory broker, and a backfill over them: resolve, freeze, plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from hypothesis import strategies as st

from windrow.ingest.ledger.sql import SqlLedger
from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.grid import window_at
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.source import Source, Topics
from windrow.ingest.ports.broker import Stamps
from windrow.ingest.source.enumerator.resolve import resolve
from windrow.ingest.source.enumerator.splits import make_plan
from windrow.ingest.testing.broker import MemoryBroker

HOUR = 3_600_000
FIRST = datetime(2026, 1, 5, tzinfo=UTC)
START = int(FIRST.timestamp() * 1000)
LABELS = [FIRST + timedelta(hours=h) for h in range(9)]
PIPELINE = "things"
TOPIC = "things"
SOURCE = Source(Topics((TOPIC,)))

Event = tuple[int, str]
"""A timestamp in epoch milliseconds, and how the message is written: plain, committed or
aborted.
"""


class ShortChunks(MemoryBroker):
    """The in-memory broker with chunks of 7 messages, so that short logs have many chunks."""

    def stamps(self, tp: TopicPartition, start: int, stop: int) -> Iterator[Stamps]:
        """Yields the same messages in short chunks."""
        for chunk in super().stamps(tp, start, stop):
            for i in range(0, len(chunk.offsets), 7):
                yield Stamps(
                    chunk.offsets[i : i + 7], chunk.timestamps[i : i + 7], chunk.epochs[i : i + 7]
                )


def logs(max_events: int = 120) -> st.SearchStrategy[list[Event]]:
    """Returns a strategy for logs with rising timestamps over a day.

    They also have late, future and unstamped messages, idle hours, and transactions that are
    committed or aborted.
    """
    step = st.sampled_from([20_000, 60_000, 300_000, 300_000, 300_000, 3 * HOUR])
    aside = st.sampled_from([0] * 12 + [-40_000, -6 * HOUR, -HOUR, HOUR, 3 * HOUR, 10**12, None])
    fate = st.sampled_from(["plain"] * 6 + ["committed", "aborted"])
    events = st.lists(st.tuples(step, aside, fate), max_size=max_events).map(_events)
    # a log whose visible messages have no timestamp would be refused
    return events.filter(
        lambda log: not log or any(s >= 0 and fate != "aborted" for s, fate in log)
    )


def _events(steps: Sequence[tuple[int, int | None, str]]) -> list[Event]:
    clock = accumulate(step for step, _, _ in steps)
    return [
        (-1 if aside is None else START + clock_time + aside, fate)
        for clock_time, (_, aside, fate) in zip(clock, steps, strict=True)
    ]


def healthy(max_events: int = 150) -> st.SearchStrategy[list[Event]]:
    """Returns a strategy for logs whose timestamps only rise, without transactions."""
    return st.lists(
        st.sampled_from([1, 20_000, 300_000, 300_000, 2 * HOUR]), max_size=max_events
    ).map(lambda steps: _events([(s, 0, "plain") for s in steps]))


def write(
    broker: MemoryBroker, tp: TopicPartition, events: Sequence[Event]
) -> list[tuple[int, int]]:
    """Appends the events, and returns offset and timestamp of those that become visible."""
    visible = []
    for stamp, fate in events:
        if fate == "plain":
            visible.append((broker.produce(tp, b"", timestamp=stamp), stamp))
            continue
        transaction = broker.transaction()
        offset = broker.produce(tp, b"", timestamp=stamp, transaction=transaction)
        if fate == "committed":
            transaction.commit()
            visible.append((offset, stamp))
        else:
            transaction.abort()
    return visible


def by_definition(visible: Sequence[tuple[int, int]], label: datetime) -> int | None:
    """Returns a label's cut by the definition of the settled rule, as an offset.

    The first label cuts before all messages without a timestamp, if there is no stamped message
    before.
    """
    label_millis, stamps_before = int(label.timestamp() * 1000), []
    for j, (offset, stamp) in enumerate(visible):
        following = visible[j : j + 20]
        if stamp >= label_millis and 2 * sum(s < label_millis for _, s in following) <= len(
            following
        ):
            return offset if label != FIRST or any(s >= 0 for s in stamps_before) else 0
        stamps_before.append(stamp)
    return None


def resolved(
    broker: MemoryBroker,
    label: datetime,
    lower: Boundary | None = None,
    upper: Boundary | None = None,
    source: Source = SOURCE,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Boundary]:
    """Returns the label's boundary, and the boundaries of other labels that the same search
    found.

    It doesn't wait for open transactions.
    """
    return resolve(
        broker, source, label, "hourly", FIRST, lower, upper, progress, wait_for_open=False
    )


def resolve_alone(
    broker: MemoryBroker,
    label: datetime,
    lower: Boundary | None = None,
    upper: Boundary | None = None,
    source: Source = SOURCE,
) -> Boundary:
    """Returns the label's boundary, resolved but not frozen."""
    return next(b for b in resolved(broker, label, lower, upper, source) if b.label == label)


def freeze(
    broker: MemoryBroker, ledger: SqlLedger, label: datetime, source: Source = SOURCE
) -> Boundary:
    """Returns the label's frozen boundary, as the pipeline does."""
    frozen = ledger.boundary(PIPELINE, label)
    if frozen is not None:
        return frozen
    candidates = resolved(broker, label, *ledger.neighbours(PIPELINE, label), source)
    return next(b for b in ledger.freeze(PIPELINE, candidates) if b.label == label)


def plan(broker: MemoryBroker, ledger: SqlLedger, hour: int, source: Source = SOURCE) -> Plan:
    """Returns the frozen plan of the window from the label `hour` to the next."""
    window = window_at(PIPELINE, "hourly", LABELS[hour])
    frozen = ledger.plan(window)
    if frozen is not None:
        return frozen
    start, stop = (
        freeze(broker, ledger, LABELS[hour], source),
        freeze(broker, ledger, LABELS[hour + 1], source),
    )
    return ledger.freeze_plans([make_plan(window, start, stop, "memory")])[0]


def offset(boundary: Boundary, tp: TopicPartition) -> int | None:
    """Returns the boundary's offset; None for an unknown topic-partition."""
    mark = boundary.cut(tp)
    return None if mark is None else mark.offset
