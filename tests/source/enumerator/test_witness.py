"""Witnesses: each mark has a leader epoch whose messages reach the mark, and after which none
below it was written.
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
from windrow.ingest.model.tiling import clamp
from windrow.ingest.source.enumerator.micro_batch_ends import first_boundary, next_batch
from windrow.ingest.source.enumerator.positions import positions
from windrow.ingest.testing.broker import MemoryBroker

T0 = TopicPartition("things", 0)
NAMES = Topics((T0.topic,))


def fill(broker: MemoryBroker, count: int, hour: float = 0) -> None:
    """Produces messages of an hour."""
    for _ in range(count):
        broker.produce(T0, b"", timestamp=START + int(hour * 3_600_000))


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker with ten messages of the first leader, and ten of the second."""
    broker = MemoryBroker()
    broker.create_topic(T0.topic)
    fill(broker, 10)
    broker.elect(T0)
    fill(broker, 10)
    return broker


@pytest.mark.parametrize("start", [Earliest(), Latest(), GroupOffsets("g"), Given(((T0, 6),))])
def test_a_position_has_a_witness(broker: MemoryBroker, start: Initializer) -> None:
    """Every start position has the newest leader's epoch, under which the log reached at least
    that position.
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
    """Returns the end of the next batch, as it would be frozen."""
    cut = next_batch(
        broker, Source(NAMES, Earliest(), on_loss=on_loss), lower, label, max_records, 1
    )
    return None if cut is None else clamp(cut, lower, None)


def test_where_a_batch_takes_nothing_the_older_witness_stays(broker: MemoryBroker) -> None:
    """A topic-partition from which a batch takes nothing keeps its older epoch: a newer one
    would hide a cut meanwhile.
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
        for m in (second.by_tp()[T0], clamp(second, first, None).by_tp()[T0])
    ] == [(20, 1)] * 2


def test_an_end_below_the_newest_boundary_is_no_empty_batch(broker: MemoryBroker) -> None:
    """A log that ends below the newest boundary is refused, and doesn't count as an empty batch."""
    lower = first_boundary(broker, Source(NAMES, Latest()), 0)
    broker.truncate(T0, 15)
    with pytest.raises(CutOffError, match="ends at offset 15 now, below 20") as refused:
        batch(broker, lower, 1)
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (T0.topic, 0, 20)
    assert batch(broker, lower, 1, on_loss="skip") is None


def test_an_open_transaction_cuts_nothing_off(broker: MemoryBroker) -> None:
    """A stable end below a boundary that was cut with read_uncommitted is no loss, because the
    log reaches the boundary.
    """
    broker.produce(T0, b"", transaction=broker.transaction())
    fill(broker, 3)
    lower = first_boundary(broker.with_isolation("read_uncommitted"), Source(NAMES, Latest()), 0)
    assert (lower.marks[0].offset, broker.stable_ends([T0])[T0].offset) == (24, 20)
    assert batch(broker, lower, 1) is None


def test_an_end_below_the_lower_neighbour_is_no_empty_window(broker: MemoryBroker) -> None:
    """A log that ends below the lower neighbour is refused.

    With on_loss: skip the window ends at the neighbour, with its epoch.
    """
    lower = resolve_alone(broker, LABELS[1])
    assert (lower.marks[0].offset, lower.marks[0].leader_epoch) == (20, 1)
    broker.truncate(T0, 15)
    with pytest.raises(CutOffError, match="ends at offset 15 now, below 20"):
        resolve_alone(broker, LABELS[2], lower)
    skipping = clamp(
        resolve_alone(broker, LABELS[2], lower, source=Source(NAMES, on_loss="skip")), lower, None
    )
    assert (skipping.marks[0].offset, skipping.marks[0].origin, skipping.marks[0].leader_epoch) == (
        20,
        "clamped",
        1,
    )


def boundary(hour: int, offset: int, epoch: int | None) -> Boundary:
    """Returns a boundary of one topic-partition."""
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
    """Marks at one offset share the older epoch, and a mark that is moved to its neighbour
    takes the neighbour's epoch.
    """
    moved = clamp(
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
    """After any elections and deletions, a mark that the log reaches is never reported as lost."""
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
                    clamp(
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
