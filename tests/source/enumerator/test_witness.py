"""Every mark has its witness: a leader epoch whose messages reached at least to it, and
after which none below it was written.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source.enumerator.logs import FIRST, LABELS, START, resolve_alone
from windrow.ingest.errors import CutOffError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition, TopicSeen
from windrow.ingest.model.source import (
    AtLabel,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Latest,
    OnLoss,
    Source,
    Topics,
)
from windrow.ingest.model.tiling import clamped
from windrow.ingest.source.enumerator.micro_batch_ends import first_boundary, next_batch
from windrow.ingest.source.enumerator.positions import positions
from windrow.ingest.testing.broker import MemoryBroker

T0 = TopicPartition("things", 0)
NAMES = Topics((T0.topic,))


def fill(broker: MemoryBroker, count: int, hour: float = 0) -> None:
    """Messages of an hour."""
    for _ in range(count):
        broker.produce(T0, b"", timestamp=START + int(hour * 3_600_000))


@pytest.fixture
def broker() -> MemoryBroker:
    """Ten messages of the first leader, ten of the second."""
    broker = MemoryBroker()
    broker.create_topic(T0.topic)
    fill(broker, 10)
    broker.elect(T0)
    fill(broker, 10)
    return broker


@pytest.mark.parametrize("start", [Earliest(), Latest(), GroupOffsets("g"), Given(((T0, 6),))])
def test_a_position_has_a_witness(broker: MemoryBroker, start: Initializer) -> None:
    """Wherever a pipeline begins: the newest leader's epoch, for the log reached at
    least there under it.
    """
    broker.commit_group("g", {T0: 12})
    broker.delete_records(T0, 3)
    assert positions(broker, start, broker.stable_ends([T0]))[T0].leader_epoch == 1


def batch(
    broker: MemoryBroker,
    lower: Boundary,
    label: int,
    max_records: int | None = None,
    on_loss: OnLoss = "fail",
) -> Boundary | None:
    """The end of the next batch, as it would be frozen."""
    cut = next_batch(
        broker, Source(NAMES, Earliest(), on_loss=on_loss), lower, label, max_records, 1
    )
    return None if cut is None else clamped(cut, lower, None)


def test_where_a_batch_takes_nothing_the_older_witness_stays(broker: MemoryBroker) -> None:
    """Of a topic-partition that has to wait, the newer one would not know that the log
    was cut off meanwhile.
    """
    broker.create_topic("other")
    other_tp = TopicPartition("other", 0)
    source = Source(Topics(("other", T0.topic)), Earliest())
    lower = first_boundary(broker, source, 0)
    first = next_batch(broker, source, lower, 1, None, 1)
    assert first is not None
    broker.truncate(T0, 10)
    fill(broker, 10)
    broker.produce(other_tp, b"")
    second = next_batch(broker, source, first, 2, None, 1)
    assert second is not None
    assert [
        (m.offset, m.leader_epoch)
        for m in (second.by_tp()[T0], clamped(second, first, None).by_tp()[T0])
    ] == [(20, 1)] * 2


def test_an_end_below_the_newest_boundary_is_no_empty_batch(broker: MemoryBroker) -> None:
    """A log that was cut off is refused, not waited for."""
    lower = first_boundary(broker, Source(NAMES, Latest()), 0)
    broker.truncate(T0, 15)
    with pytest.raises(CutOffError, match="ends at offset 15 now, below 20") as refused:
        batch(broker, lower, 1)
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (T0.topic, 0, 20)
    assert batch(broker, lower, 1, on_loss="skip") is None


def test_an_open_transaction_cuts_nothing_off(broker: MemoryBroker) -> None:
    """The stable end may lie below a boundary that was cut at read_uncommitted: the log
    reaches it all the same.
    """
    broker.produce(T0, b"", transaction=broker.transaction())
    fill(broker, 3)
    lower = first_boundary(broker.at("read_uncommitted"), Source(NAMES, Latest()), 0)
    assert (lower.marks[0].offset, broker.stable_ends([T0])[T0].offset) == (24, 20)
    assert batch(broker, lower, 1) is None


def test_an_end_below_the_lower_neighbour_is_no_empty_window(broker: MemoryBroker) -> None:
    """Of hours too: refused; under skip it cuts where the neighbour does, with the
    neighbour's witness.
    """
    lower = resolve_alone(broker, LABELS[1])
    assert (lower.marks[0].offset, lower.marks[0].leader_epoch) == (20, 1)
    broker.truncate(T0, 15)
    with pytest.raises(CutOffError, match="ends at offset 15 now, below 20"):
        resolve_alone(broker, LABELS[2], lower)
    skipping = clamped(
        resolve_alone(broker, LABELS[2], lower, source=Source(NAMES, on_loss="skip")), lower, None
    )
    assert (skipping.marks[0].offset, skipping.marks[0].how, skipping.marks[0].leader_epoch) == (
        20,
        "clamped",
        1,
    )


def boundary(hour: int, offset: int, epoch: int | None) -> Boundary:
    """A boundary of one topic-partition."""
    return Boundary.of(
        FIRST + timedelta(hours=hour),
        "c",
        [TopicSeen("t", "id", 1)],
        [Mark("t", 0, offset, "end", epoch)],
    )


@pytest.mark.parametrize(
    ("mark", "lower", "upper", "expected"),
    [
        # the log may have been cut off and grown again between the two
        ((5, 7), (5, 6), None, (5, 6)),
        ((5, 6), None, (5, 4), (5, 4)),
        ((5, None), (5, 6), None, (5, 6)),
        ((5, 7), (5, None), None, (5, 7)),
        ((5, 7), (4, 6), (6, 8), (5, 7)),
        ((3, 7), (5, 6), None, (5, 6)),
        ((9, 7), None, (5, 6), (5, 6)),
    ],
)
def test_marks_at_one_offset_share_the_older_witness(
    mark: tuple[int, int | None],
    lower: tuple[int, int | None] | None,
    upper: tuple[int, int | None] | None,
    expected: tuple[int, int],
) -> None:
    """And a mark that is moved to its neighbour takes over that one's."""
    moved = clamped(
        boundary(2, *mark),
        None if lower is None else boundary(1, *lower),
        None if upper is None else boundary(3, *upper),
    )
    assert (moved.marks[0].offset, moved.marks[0].leader_epoch) == expected


@given(
    st.lists(
        st.tuples(st.sampled_from(["fill", "elect", "batch", "delete", "hour"]), st.integers(1, 9)),
        max_size=30,
    )
)
def test_no_witness_tells_of_a_loss_where_nothing_was_lost(steps: list[tuple[str, int]]) -> None:
    """Whatever leaders and retention do: of every mark that the log still reaches, its
    epoch's messages still end at or above it.
    """
    broker, clock = MemoryBroker(), 0
    broker.create_topic(T0.topic)
    batches, hours = [first_boundary(broker, Source(NAMES, Earliest()), 0)], list[Boundary]()
    for step, n in steps:
        match step:
            case "fill":
                fill(broker, n, clock)
            case "elect":
                broker.elect(T0)
            case "delete":
                broker.delete_records(
                    T0, min(broker.ends([T0])[T0], broker.log_starts([T0])[T0] + n)
                )
            case "batch":
                cut = batch(broker, batches[-1], len(batches), n)
                batches += [] if cut is None else [cut]
            case _:
                clock += 1
                lower = hours[-1] if hours else None
                source = Source(NAMES, AtLabel())
                hours.append(
                    clamped(
                        resolve_alone(broker, FIRST + timedelta(hours=clock), lower, None, source),
                        lower,
                        None,
                    )
                )
        for mark in [m for b in (*batches, *hours) for m in b.marks]:
            assert mark.leader_epoch is not None
            if mark.offset >= broker.log_starts([T0])[T0]:
                assert broker.end_of_epoch(T0, mark.leader_epoch) >= mark.offset
                below, _ = broker.fetch(T0, broker.log_starts([T0])[T0], mark.offset, 10_000)
                assert all(e.epoch <= mark.leader_epoch for e in below)
