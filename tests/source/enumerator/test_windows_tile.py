"""Windows tile: every visible offset below the last boundary is in exactly one window, for any
log, order and concurrency.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from tests.source.enumerator.logs import (
    FIRST,
    LABELS,
    TOPIC,
    Event,
    ShortChunks,
    healthy,
    logs,
    offset,
    plan,
    resolve_alone,
    write,
)
from windrow.ingest.errors import DataLossError
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.source import Pattern, Source
from windrow.ingest.model.tiling import offset_ranges
from windrow.ingest.source.data_loss import refuse_lost
from windrow.ingest.testing.broker import MemoryBroker

HOURS = range(len(LABELS) - 1)
TILES = settings(max_examples=examples(20))
pytestmark = pytest.mark.usefixtures("short_scans")


def fresh(folder: Path) -> str:
    """Returns the path of a ledger that no example has used."""
    return tempfile.mktemp(".db", dir=folder)


def read(broker: MemoryBroker, planned: Plan) -> list[tuple[TopicPartition, int]]:
    """Returns every visible offset of a plan, or raises an error if some are gone."""
    tps = [s.tp for s in planned.splits]
    refuse_lost(planned, broker.log_starts(tps))
    return [
        (s.tp, o)
        for s in planned.splits
        for chunk in broker.stamps(s.tp, s.start, s.stop)
        for o in chunk.offsets.tolist()
    ]


def assert_tiled(plans: Sequence[Plan]) -> None:
    """Asserts that each window begins where the one before ended, per topic-partition, and none
    is negative.
    """
    for earlier, later in pairwise(plans):
        assert earlier.stop == later.start
        assert all(
            low.offset <= high.offset
            for low, high in offset_ranges(later.start, later.stop).values()
        )
        assert all(later.stop.cut(m.tp) is not None for m in later.start.marks)


@TILES
@given(
    st.lists(logs(), min_size=1, max_size=2),
    st.lists(logs(40), max_size=2),
    st.randoms(use_true_random=False),
)
def test_a_concurrent_backfill_in_random_order_tiles(
    folder: Path, old: list[list[Event]], new: list[list[Event]], rand: random.Random
) -> None:
    """Windows of four concurrent runs in any order tile, while partitions and messages are
    added.

    Each run has its own connection to the ledger's file.
    """
    broker, visible = ShortChunks(), []
    broker.create_topic(TOPIC, len(old))
    for i, events in enumerate(old):
        visible += [
            (TopicPartition(TOPIC, i), o)
            for o, _ in write(broker, TopicPartition(TOPIC, i), events)
        ]
    path, order = fresh(folder), rand.sample(HOURS, len(HOURS))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda hour: plan(broker, open_ledger(path), hour), order[:4]))
        if new:
            broker.add_partitions(TOPIC, len(old) + len(new))
        for i, events in enumerate([*([[]] * len(old)), *new]):
            visible += [
                (TopicPartition(TOPIC, i), o)
                for o, _ in write(broker, TopicPartition(TOPIC, i), events)
            ]
        list(pool.map(lambda hour: plan(broker, open_ledger(path), hour), order[4:]))
    plans = [plan(broker, open_ledger(path), hour) for hour in HOURS]
    assert_tiled(plans)
    first, last = plans[0].start, plans[-1].stop
    expected = Counter(
        (tp, o) for tp, o in visible if (offset(first, tp) or 0) <= o < (offset(last, tp) or 0)
    )
    assert Counter(message for p in plans for message in read(broker, p)) == expected


@TILES
@given(st.lists(healthy(), min_size=1, max_size=2), st.data())
def test_retention_in_between_is_an_error_or_harmless(
    folder: Path, partitions: list[list[Event]], data: st.DataObject
) -> None:
    """If messages are deleted between windows, each window that commits has read every message
    of its hour.
    """
    broker, ledger = ShortChunks(), open_ledger(fresh(folder))
    broker.create_topic(TOPIC, len(partitions))
    tps = [TopicPartition(TOPIC, i) for i in range(len(partitions))]
    written = [
        (tp, *visible)
        for tp, events in zip(tps, partitions, strict=True)
        for visible in write(broker, tp, events)
    ]
    for hour in data.draw(st.permutations(HOURS)):
        if data.draw(st.integers(0, 3)) == 0:
            tp = data.draw(st.sampled_from(tps))
            broker.delete_records(tp, data.draw(st.integers(0, len(partitions[tp.partition]))))
        try:
            got = set(read(broker, plan(broker, ledger, hour)))
        except DataLossError:
            continue
        low, high = (int(LABELS[h].timestamp() * 1000) for h in (hour, hour + 1))
        assert got == {(tp, o) for tp, o, stamp in written if low <= stamp < high}


@TILES
@given(logs(), logs(), st.data(), st.randoms(use_true_random=False))
def test_a_topic_that_joins_is_read_whole(
    folder: Path, old: list[Event], new: list[Event], data: st.DataObject, rand: random.Random
) -> None:
    """A topic that joins is read completely and once, from the first label's cut on, for any
    order of windows.
    """
    broker, ledger, joins = ShortChunks(), open_ledger(fresh(folder)), TopicPartition("joins", 0)
    broker.create_topic(TOPIC, 1)
    write(broker, TopicPartition(TOPIC, 0), old)
    frozen_hours = data.draw(st.lists(st.sampled_from(HOURS[:-1]), min_size=1, unique=True))
    for hour in frozen_hours:
        plan(broker, ledger, hour)
    broker.create_topic(joins.topic, 1)
    visible = write(broker, joins, new)
    pattern = Source(Pattern(".*"))
    for hour in rand.sample(HOURS, len(HOURS)):
        plan(broker, ledger, hour, pattern)
    plans = [plan(broker, ledger, hour) for hour in HOURS]
    assert_tiled(plans)
    begin = offset(resolve_alone(broker, LABELS[0], source=pattern), joins)
    end = offset(plans[-1].stop, joins)
    assert begin is not None
    assert end is not None
    read_of = Counter(
        read_offset for p in plans for tp, read_offset in read(broker, p) if tp == joins
    )
    assert read_of == Counter(o for o, _ in visible if begin <= o < end)
    assert not read_of or min(h for h in HOURS if plans[h].stop.by_tp().get(joins)) > max(
        frozen_hours
    )


def test_a_partition_that_appears_later_is_read_from_0_by_one_window(folder: Path) -> None:
    """A partition that appears later is read from 0 by the first window whose end lists it."""
    broker, ledger = MemoryBroker(), open_ledger(fresh(folder))
    start = int(FIRST.timestamp() * 1000)
    broker.create_topic(TOPIC, 1)
    write(broker, TopicPartition(TOPIC, 0), [(start + i * 360_000, "plain") for i in range(90)])
    plan(broker, ledger, 3)
    broker.add_partitions(TOPIC, 2)
    write(broker, TopicPartition(TOPIC, 1), [(start + i * 360_000, "plain") for i in range(90)])
    plan(broker, ledger, 7)
    plan(broker, ledger, 1)
    ranges = [
        (h, s.start, s.stop)
        for h in HOURS
        for s in plan(broker, ledger, h).splits
        if s.partition == 1
    ]
    assert ranges == [(4, 0, 50), (5, 50, 60), (6, 60, 70), (7, 70, 80)]
