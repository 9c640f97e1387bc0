"""Start marks: new topics begin where `start` says, and topics that leave and come back go on
where they stopped.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from tests.source.enumerator.logs import (
    HOUR,
    LABELS,
    START,
    TOPIC,
    Event,
    ShortChunks,
    by_definition,
    freeze,
    logs,
    offset,
    plan,
    resolve_alone,
    write,
)
from windrow.ingest.ledger.sql import SqlLedger, open_ledger
from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.source import (
    AtLabel,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Joining,
    Latest,
    Partitions,
    Pattern,
    Source,
    Topics,
)
from windrow.ingest.model.tiling import clamp, offset_ranges
from windrow.ingest.testing.broker import MemoryBroker

HOURS = range(len(LABELS) - 1)
NEW = "new"
N0 = TopicPartition(NEW, 0)
BOTH = Source(Topics((TOPIC, NEW)))
TILES = settings(max_examples=examples(15))
pytestmark = pytest.mark.usefixtures("short_scans")


def fresh(folder: Path) -> SqlLedger:
    """Returns a ledger that no example has used."""
    return open_ledger(tempfile.mktemp(".db", dir=folder))


def steady(broker: MemoryBroker, tp: TopicPartition, hours: int) -> None:
    """Writes 100 messages an hour, from the first label on."""
    write(broker, tp, [(START + i * HOUR // 100, "plain") for i in range(100 * hours)])


def ranges(plans: list[Plan], tp: TopicPartition) -> list[tuple[int, int, int]]:
    """Returns hour, start and stop of each split of a topic-partition."""
    return [(h, s.start, s.stop) for h, p in enumerate(plans) for s in p.splits if s.tp == tp]


def assert_tiled(plans: list[Plan]) -> None:
    """Asserts that each window goes on where the one before ended, per topic-partition, and
    that no offset is read twice.
    """
    read = Counter((s.tp, o) for p in plans for s in p.splits for o in range(s.start, s.stop))
    assert not read or max(read.values()) == 1
    for earlier, later in pairwise(plans):
        assert earlier.stop == later.start
        ends, goes_on = earlier.stop.by_tp(), offset_ranges(later.start, later.stop)
        assert all(
            mark.offset == (goes_on[tp][0].offset if tp in goes_on else 0)
            for tp, mark in ends.items()
        )


EVERYTHING = st.sampled_from(
    [
        Topics((TOPIC, NEW)),
        Pattern(".*"),
        Partitions((TopicPartition(TOPIC, 0), N0, TopicPartition(NEW, 1))),
    ]
)
FIRST_ONLY = st.sampled_from(
    [Topics((TOPIC,)), Pattern(TOPIC), Partitions((TopicPartition(TOPIC, 0),))]
)


@TILES
@given(logs(), logs(), st.data(), st.randoms(use_true_random=False))
def test_windows_tile_whatever_is_selected_when(
    folder: Path,
    first_log: list[Event],
    second_log: list[Event],
    data: st.DataObject,
    rand: random.Random,
) -> None:
    """Windows tile in a backfill of any order while topics come, go and come back, and
    partitions are added.

    A topic that is selected all along is read completely.
    """
    broker, ledger, t0 = ShortChunks(), fresh(folder), TopicPartition(TOPIC, 0)
    broker.create_topic(TOPIC, 1)
    broker.create_topic(NEW, 2)
    visible = [o for o, _ in write(broker, t0, first_log)]
    write(broker, N0, second_log)
    start: Initializer = data.draw(
        st.sampled_from(
            [AtLabel(), Earliest(), Latest(), Given(((N0, len(second_log) // 2),), "latest")]
        )
    )
    for hour in rand.sample(HOURS, len(HOURS)):
        selection = data.draw(st.one_of(FIRST_ONLY, EVERYTHING))
        if data.draw(st.integers(0, 4)) == 0:
            visible += [o for o, _ in write(broker, t0, first_log[:20])]
            write(broker, TopicPartition(NEW, 1), second_log[:20])
        if data.draw(st.integers(0, 9)) == 0 and broker.topic(TOPIC).partitions == 1:
            broker.add_partitions(TOPIC, 2)
            write(broker, TopicPartition(TOPIC, 1), second_log)
        plan(broker, ledger, hour, Source(selection, start))
    plans = [plan(broker, ledger, hour) for hour in HOURS]
    assert_tiled(plans)
    low, high = offset(plans[0].start, t0), offset(plans[-1].stop, t0)
    assert low is not None
    assert high is not None
    read = {o for _, a, b in ranges(plans, t0) for o in range(a, b)}
    assert {o for o in visible if low <= o < high} == read & set(visible)
    assert read == set(range(low, high))


@TILES
@given(
    logs(),
    logs(),
    st.sampled_from(HOURS[2:]),
    st.sampled_from(["start", "window"]),
    st.randoms(use_true_random=False),
)
def test_a_new_topic_begins_where_the_first_label_cuts_it(
    folder: Path,
    first_log: list[Event],
    second_log: list[Event],
    since: int,
    joining: Joining,
    rand: random.Random,
) -> None:
    """A new topic begins as if it had been there from the first window on, or with `joining:
    window` at its own first window.

    This holds for any order of later windows.
    """
    broker, ledger = ShortChunks(), fresh(folder)
    broker.create_topic(TOPIC, 1)
    write(broker, TopicPartition(TOPIC, 0), first_log)
    for hour in rand.sample(range(since), since):
        plan(broker, ledger, hour)
    broker.create_topic(NEW, 1)
    visible = write(broker, N0, second_log)
    both = Source(Topics((TOPIC, NEW)), joining=joining)
    for hour in rand.sample(range(since, len(HOURS)), len(HOURS) - since):
        plan(broker, ledger, hour, both)
    plans = [plan(broker, ledger, hour, both) for hour in HOURS]
    assert_tiled(plans)
    end = broker.stable_ends([N0])[N0].offset
    begin = 0 if joining == "start" else since
    low, high = (by_definition(visible, LABELS[h]) for h in (begin, len(HOURS)))
    expected = list(range(end if low is None else low, end if high is None else high))
    assert [o for _, a, b in ranges(plans, N0) for o in range(a, b)] == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (AtLabel(), [(5, 20, 600), (6, 600, 700), (7, 700, 800)]),
        (Earliest(), [(5, 20, 600), (6, 600, 700), (7, 700, 800)]),
        (Latest(), [(5, 20, 600), (6, 600, 700), (7, 700, 800)]),
        (Given(((N0, 650),)), [(6, 650, 700), (7, 700, 800)]),
        (Given(((N0, 550),)), [(5, 550, 600), (6, 600, 700), (7, 700, 800)]),
        (
            Given(((TopicPartition(TOPIC, 0), 0),), "latest"),
            [(5, 20, 600), (6, 600, 700), (7, 700, 800)],
        ),
        (GroupOffsets("nobody", "latest"), [(5, 20, 600), (6, 600, 700), (7, 700, 800)]),
    ],
)
def test_start_marks_respect_start(
    folder: Path, start: Initializer, expected: list[tuple[int, int, int]]
) -> None:
    """A topic that was added at hour 5 begins where `start` says for the first label.

    For `latest` that is the log's start, because the topic was empty at the first label.
    """
    broker, ledger = MemoryBroker(), fresh(folder)
    for name in (TOPIC, NEW):
        broker.create_topic(name, 1)
        steady(broker, TopicPartition(name, 0), 8)
    broker.delete_records(N0, 20)
    plan(broker, ledger, 4)
    both = Source(Topics((TOPIC, NEW)), start)
    for hour in (6, 5, 1, 7):
        plan(broker, ledger, hour, both)
    plans = [plan(broker, ledger, hour, both) for hour in HOURS]
    assert_tiled(plans)
    assert ranges(plans, N0) == expected
    assert ranges(plans, TopicPartition(TOPIC, 0)) == [(h, 100 * h, 100 * (h + 1)) for h in HOURS]


def test_a_topic_that_comes_back_goes_on_where_it_stopped(folder: Path) -> None:
    """A topic that the spec doesn't name for a while is carried on.

    Then one window has all messages since.
    """
    broker, ledger = MemoryBroker(), fresh(folder)
    for name in (TOPIC, NEW):
        broker.create_topic(name, 1)
        steady(broker, TopicPartition(name, 0), 8)
    both = Source(Pattern(".*"), Latest())
    plans = [
        plan(broker, ledger, hour, Source(Topics((TOPIC,))) if hour in (3, 4) else both)
        for hour in HOURS
    ]
    assert ranges(plans, N0) == [
        (0, 0, 100),
        (1, 100, 200),
        (2, 200, 300),
        (5, 300, 600),
        (6, 600, 700),
        (7, 700, 800),
    ]
    (mark,) = (m for m in freeze(broker, ledger, LABELS[4]).marks if m.tp == N0)
    assert (mark.offset, mark.origin) == (300, "removed")


def test_a_dropped_topic_is_carried_on(folder: Path) -> None:
    """With on_removed: drop the other topics go on, and boundaries keep the offset of the
    removed one.
    """
    broker, ledger = MemoryBroker(), fresh(folder)
    for name in (TOPIC, NEW):
        broker.create_topic(name, 1)
        steady(broker, TopicPartition(name, 0), 3)
    both = Source(Topics((TOPIC, NEW)), on_removed="drop")
    plan(broker, ledger, 0, both)
    broker.delete_topic(NEW)
    planned = plan(broker, ledger, 1, both)
    assert [s.topic for s in planned.splits] == [TOPIC]
    assert [(m.offset, m.origin) for m in planned.stop.marks if m.topic == NEW] == [
        (100, "removed")
    ]


def test_each_boundary_of_a_far_look_says_where_a_new_topic_begins() -> None:
    """Each boundary of a full pass has the start of a new topic, because any of them may be
    frozen first.

    Only one is kept.
    """
    broker = ShortChunks()
    for name in (TOPIC, NEW):
        broker.create_topic(name, 1)
    write(
        broker,
        TopicPartition(TOPIC, 0),
        [(START + 100 * HOUR if i == 0 else START + i * HOUR // 100, "plain") for i in range(800)],
    )
    steady(broker, N0, 8)
    lower = resolve_alone(broker, LABELS[2])
    source = Source(Topics((TOPIC, NEW)))
    third, fourth = (resolve_alone(broker, LABELS[h], lower, None, source) for h in (3, 4))
    assert [b.offset for b in (*third.start_marks, *fourth.start_marks)] == [0, 0]
    moved = clamp(third, lower, None)
    assert [b.offset for b in moved.start_marks] == [0]
    assert clamp(fourth, moved, None).start_marks == ()
    assert isinstance(moved, Boundary)


def test_a_new_topic_with_an_expired_beginning_is_doubted(folder: Path) -> None:
    """A new topic whose log begins after the label before is doubted: first messages of its
    first window may be gone.

    A position isn't doubted, nor are messages that were deleted before the topic joined.
    """
    broker, ledger = MemoryBroker(), fresh(folder)
    for name in (TOPIC, NEW):
        broker.create_topic(name, 1)
        steady(broker, TopicPartition(name, 0), 8)
    broker.delete_records(N0, 550)
    lower = freeze(broker, ledger, LABELS[5])
    for start, origin in ((AtLabel(), "log_start"), (Earliest(), "position")):
        (begin,) = resolve_alone(
            broker, LABELS[6], lower, None, Source(Topics((TOPIC, NEW)), start)
        ).start_marks
        assert (begin.offset, begin.origin) == (550, origin)
    (begin,) = resolve_alone(
        broker, LABELS[7], freeze(broker, ledger, LABELS[6]), None, BOTH
    ).start_marks
    assert (begin.offset, begin.origin) == (550, "position")
