"""Micro-batches tile: every offset from `start` on is in exactly one, and no batch has more
than asked for.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from windrow.ingest.errors import DataLossError, IdentityError, SpecError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.source import Earliest, Given, Latest, Pattern, Source, Topics
from windrow.ingest.model.tiling import clamp, offset_ranges
from windrow.ingest.source.enumerator.micro_batch_ends import (
    first_boundary,
    last_boundary,
    next_batch,
)
from windrow.ingest.testing.broker import MemoryBroker

ALL = Source(Pattern("t.*"), Earliest())
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def broker_with(*counts: int) -> MemoryBroker:
    """Returns a broker with topic t and these numbers of messages per partition."""
    broker = MemoryBroker()
    broker.create_topic("t", len(counts))
    for p, count in enumerate(counts):
        fill(broker, TopicPartition("t", p), count)
    return broker


def fill(broker: MemoryBroker, tp: TopicPartition, count: int) -> None:
    """Produces messages."""
    for _ in range(count):
        broker.produce(tp, b"")


def batch_ranges(lower: Boundary, upper: Boundary | None) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the offset ranges of a batch that isn't empty."""
    assert upper is not None
    return {
        tp: (a.offset, b.offset)
        for tp, (a, b) in offset_ranges(lower, clamp(upper, lower, None)).items()
        if a.offset < b.offset
    }


@settings(max_examples=examples(50))
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 25)),
    st.integers(1, 5),
    st.data(),
)
def test_batches_tile_while_topics_and_partitions_come(
    counts: list[int], max_records: int | None, min_records: int, data: st.DataObject
) -> None:
    """Batches with messages, partitions and topics arriving in between contain each offset
    once, and none is too big.
    """
    broker, label = broker_with(*counts), 0
    lower = first_boundary(broker, ALL, 0)
    read: dict[TopicPartition, list[tuple[int, int]]] = {}
    for step in range(200):
        if step < 8:
            match data.draw(st.integers(0, 3)):
                case 0:
                    fill(broker, TopicPartition("t", 0), data.draw(st.integers(1, 20)))
                case 1:
                    broker.add_partitions("t", broker.topic("t").partitions + 1)
                    fill(broker, TopicPartition("t", broker.topic("t").partitions - 1), 3)
                case 2:
                    fill(broker, TopicPartition(broker.create_topic(f"t{step}", 1).topic, 0), 5)
        cut = next_batch(broker, ALL, lower, label + 1, max_records, min_records)
        if cut is None and step >= 8:
            break
        if cut is None:
            continue
        ranges = batch_ranges(lower, cut)
        assert max_records is None or sum(b - a for a, b in ranges.values()) <= max_records
        for tp, edges_of_batch in ranges.items():
            read.setdefault(tp, []).append(edges_of_batch)
        lower, label = clamp(cut, lower, None), label + 1
    tps = [
        TopicPartition(t.topic, p)
        for t in broker.topics(broker.names()).values()
        for p in range(t.partitions)
    ]
    unread_count = 0
    for tp, end in broker.stable_ends(tps).items():
        edges = [0, *(edge for edges_of_batch in read.get(tp, []) for edge in edges_of_batch)]
        # Each batch starts where the one before it stopped.
        assert all(a == b for a, b in zip(edges[0::2], edges[1::2], strict=False))
        unread_count += end.offset - edges[-1]
    assert unread_count < min_records


@settings(max_examples=examples(50))
@given(
    st.lists(st.tuples(*[st.integers(0, 20)] * 3), min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(1, 9),
    st.data(),
)
def test_batches_up_to_an_end_are_exactly_what_lies_before_it(
    logs: list[tuple[int, int, int]], max_records: int | None, min_records: int, data: st.DataObject
) -> None:
    """All batches up to an end are exactly [start, stop) of each topic-partition, for all
    sizes.

    This holds also if a log grows to its end and beyond meanwhile, and if partitions are added.
    """
    tps = [TopicPartition("t", p) for p in range(len(logs))]
    broker = broker_with(*(log_end for log_end, _, _ in logs))
    start = {tp: min(begin, log_end) for tp, (log_end, begin, _) in zip(tps, logs, strict=True)}
    end = {tp: start[tp] + length for tp, (_, _, length) in zip(tps, logs, strict=True)}
    source = Source(ALL.selection, Given(tuple(start.items())))
    lower = first_boundary(broker, source, 0)
    stop = last_boundary(broker, source, Given(tuple(end.items())), lower)
    source, read = msgspec.structs.replace(source, stop=stop), dict(start)
    for label in range(1, 400):
        if not stop.remaining_offsets(lower):
            break
        cut = next_batch(
            broker, source, lower, label, max_records, min(min_records, max_records or min_records)
        )
        if cut is None:
            for tp in tps:
                fill(broker, tp, data.draw(st.integers(1, 9)))
            broker.add_partitions("t", broker.topic("t").partitions + 1)
            fill(broker, TopicPartition("t", broker.topic("t").partitions - 1), 3)
            continue
        for tp, (a, b) in batch_ranges(lower, cut).items():
            assert a == read[tp]
            read[tp] = b
        lower = clamp(cut, lower, None)
    assert read == end
    assert next_batch(broker, source, lower, 999, max_records, 1) is None


def test_too_few_are_no_batch() -> None:
    """Fewer new offsets than min_records give no batch; without a new offset there is none."""
    broker = broker_with(2, 1)
    lower = first_boundary(broker, ALL, 0)
    assert next_batch(broker, ALL, lower, 1, None, 4) is None
    assert batch_ranges(lower, next_batch(broker, ALL, lower, 1, None, 3)) == {
        T0: (0, 2),
        T1: (0, 1),
    }
    assert (
        next_batch(
            broker, ALL, first_boundary(broker, Source(ALL.selection, Latest()), 0), 1, None, 0
        )
        is None
    )


@pytest.mark.parametrize(
    ("first_stamp", "is_cut"), [(-1, True), (0, True), (999, True), (1000, False), (5000, False)]
)
def test_too_few_are_a_batch_once_the_first_one_has_waited(first_stamp: int, is_cut: bool) -> None:
    """A topic-partition's first waiting message decides by its timestamp, not a later message,
    a marker, an aborted message, or a message before the boundary or the log's start.
    """
    broker = broker_with(3, 1)
    lower = first_boundary(broker, Source(ALL.selection, Given(((T0, 2), (T1, 1)))), 0)
    broker.delete_records(T0, 3)
    with suppress(RuntimeError), broker.transaction() as transaction:
        broker.produce(T1, b"", timestamp=0, transaction=transaction)
        raise RuntimeError
    moment = datetime.fromtimestamp(1, UTC)
    assert next_batch(broker, ALL, lower, 1, None, 100, moment) is None
    broker.produce(T1, b"", timestamp=first_stamp)
    broker.produce(T1, b"", timestamp=0)
    assert next_batch(broker, ALL, lower, 1, None, 100) is None
    assert (next_batch(broker, ALL, lower, 1, None, 100, moment) is not None) == is_cut


def test_the_first_boundary_is_where_start_says() -> None:
    """The first boundary's marks are the positions of `start`, in each topic-partition."""
    broker = broker_with(5, 3)
    given_source = Source(Topics(("t",)), Given(((T0, 4),), "latest"))
    assert [(m.offset, m.origin) for m in first_boundary(broker, given_source, 0).marks] == [
        (4, "position"),
        (3, "position"),
    ]


def test_an_offset_for_what_is_not_read_is_a_mistake() -> None:
    """A start offset for a topic that isn't read is refused."""
    with pytest.raises(SpecError, match=r"not read .*u\[0\]"):
        first_boundary(
            broker_with(1),
            Source(Topics(("t",)), Given(((TopicPartition("u", 0), 4),), "latest")),
            0,
        )


def test_a_batch_ends_at_the_stable_end() -> None:
    """A batch ends at the stable end, and its marks have the end's leader epoch.

    Without the epoch windrow can't notice a log whose end was cut off below the mark.
    """
    broker = broker_with(6, 0)
    broker.elect(T0)
    broker.produce(T0, b"", transaction=broker.transaction())
    lower = first_boundary(broker, ALL, 0)
    full_batch, bounded_batch = (
        next_batch(broker, ALL, lower, 1, None, 1),
        next_batch(broker, ALL, lower, 1, 4, 1),
    )
    assert full_batch is not None
    assert bounded_batch is not None
    assert [
        (m.offset, m.origin, m.leader_epoch) for m in (full_batch.marks[0], bounded_batch.marks[0])
    ] == [
        (6, "batch", 1),
        (4, "batch", 1),
    ]


@pytest.mark.parametrize(
    ("offset", "epoch", "expected_epoch"), [(4, 0, 1), (4, None, 1), (6, 0, 0), (6, None, 1)]
)
def test_the_leader_epoch_of_a_mark(offset: int, epoch: int | None, expected_epoch: int) -> None:
    """The leader epoch of a mark is that of the log's stable end.

    If the batch takes no offset of the topic-partition, the mark keeps the epoch of the
    lower boundary, if that has one: the older epoch detects more.
    """
    broker = broker_with(6, 1)
    broker.elect(T0)
    lower = Boundary.of(
        0,
        "memory",
        [TopicSeen("t", broker.topic("t").topic_id, 2)],
        [Mark("t", 0, offset, "batch", epoch), Mark("t", 1, 0, "batch")],
    )
    cut = next_batch(broker, ALL, lower, 1, None, 1)
    assert cut is not None
    assert (cut.marks[0].offset, cut.marks[0].leader_epoch) == (6, expected_epoch)


def test_a_log_that_ends_where_it_was_read_to_is_not_suspected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition without new messages isn't asked for its high watermark."""
    broker = broker_with(6, 1)
    lower = first_boundary(broker, Source(ALL.selection, Latest()), 0)
    monkeypatch.delattr(MemoryBroker, "ends")
    assert next_batch(broker, ALL, lower, 1, None, 1) is None


def test_a_new_topic_begins_where_start_says() -> None:
    """A new topic begins at its log's start, unless `start` says otherwise."""
    broker = broker_with(1)
    lower = first_boundary(broker, ALL, 0)
    broker.create_topic("tt", 1)
    fill(broker, TopicPartition("tt", 0), 9)
    broker.delete_records(TopicPartition("tt", 0), 4)
    assert batch_ranges(lower, next_batch(broker, ALL, lower, 1, None, 1))[
        TopicPartition("tt", 0)
    ] == (
        4,
        9,
    )


def test_a_topic_made_anew_is_refused() -> None:
    """A topic that was made again is refused, because its offsets don't continue the old ones."""
    broker = broker_with(1)
    lower = first_boundary(broker, ALL, 0)
    broker.recreate_topic("t")
    with pytest.raises(IdentityError, match="now has id"):
        next_batch(broker, ALL, lower, 1, None, 1)


def test_one_offset_is_a_batch() -> None:
    """One new offset is a batch if no minimum is given, or a minimum of 1."""
    lower = first_boundary(broker_with(0), ALL, 0)
    broker = broker_with(1)
    lower = Boundary.of(0, "memory", [TopicSeen("t", broker.topic("t").topic_id, 1)], lower.marks)
    assert batch_ranges(lower, next_batch(broker, ALL, lower, 1, None, 0)) == {T0: (0, 1)}
    assert batch_ranges(lower, next_batch(broker, ALL, lower, 1, None, 1)) == {T0: (0, 1)}
    assert next_batch(broker, ALL, lower, 1, None, 2) is None


def test_where_a_new_topic_begins_is_frozen_at_once() -> None:
    """The start of a new topic is frozen at once if it is the log's end, because that changes;
    the log's start can wait.
    """
    broker, source = broker_with(1), Source(ALL.selection, Latest())
    lower = first_boundary(broker, source, 0)
    broker.create_topic("tt", 1)
    joining_at_end = Source(ALL.selection, Latest(), joining="window")
    begun = next_batch(broker, joining_at_end, lower, 1, None, 1)
    assert begun is not None
    assert [(m.topic, m.offset, m.origin) for m in begun.start_marks] == [("tt", 0, "position")]
    assert next_batch(broker, source, lower, 1, None, 1) is None


def test_the_batchs_number_says_whose_turn_it_is() -> None:
    """If there isn't an offset for each topic-partition, the batch's number decides which one
    gets it.
    """
    broker = broker_with(1, 1)
    lower = Boundary.of(
        0,
        "memory",
        [TopicSeen("t", broker.topic("t").topic_id, 2)],
        [Mark("t", p, 0, "position") for p in (0, 1)],
    )
    assert [batch_ranges(lower, next_batch(broker, ALL, lower, n, 1, 1)) for n in (1, 2)] == [
        {T1: (0, 1)},
        {T0: (0, 1)},
    ]


def test_a_removed_topic_is_a_loss_or_let_go() -> None:
    """A removed topic that the newest boundary knows is a loss, or left out with on_removed:
    drop.
    """
    broker = broker_with(1)
    lower = first_boundary(broker, ALL, 0)
    broker.delete_topic("t")
    with pytest.raises(DataLossError, match="not in the cluster any more"):
        next_batch(broker, ALL, lower, 1, None, 1)
    assert (
        next_batch(broker, Source(ALL.selection, Earliest(), on_removed="drop"), lower, 1, None, 1)
        is None
    )


def test_a_mistaken_start_is_told_with_what_to_do() -> None:
    """A wrong start is refused at the stage `plan`, with the advice."""
    with pytest.raises(SpecError) as caught:
        first_boundary(
            broker_with(1),
            Source(Topics(("t",)), Given(((TopicPartition("u", 3), 4),), "latest")),
            0,
        )
    assert (caught.value.stage, caught.value.topic, caught.value.partition) == ("plan", "u", 3)
    assert caught.value.advice == "Remove it from source.start, or read it."
