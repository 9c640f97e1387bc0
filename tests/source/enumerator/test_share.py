"""The share of each topic-partition in a micro-batch: fair and exact, and no topic-partition
waits for ever.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.source.enumerator.micro_batch_ends import fair

TPS = [TopicPartition("t", i) for i in range(9)]
WAITING = st.lists(st.integers(0, 40), min_size=1, max_size=9).map(
    lambda counts: dict(zip(TPS, counts, strict=False))
)


@given(WAITING, st.one_of(st.none(), st.integers(1, 200)), st.integers(0, 50))
def test_shares_are_exact_and_max_min_fair(
    waiting: dict[TopicPartition, int], limit: int | None, turn: int
) -> None:
    """Shares add up to the limit, and none exceeds its waiting offsets.

    A share smaller than another by more than one takes all its offsets.
    """
    shares = fair(waiting, limit, turn)
    assert sum(shares.values()) == min(
        sum(waiting.values()), sum(waiting.values()) if limit is None else limit
    )
    assert shares.keys() == waiting.keys()
    assert all(0 <= shares[tp] <= waiting[tp] for tp in waiting)
    largest_share = max(shares.values())
    assert all(shares[tp] == waiting[tp] or shares[tp] >= largest_share - 1 for tp in waiting)
    assert shares == fair(dict(reversed(waiting.items())), limit, turn)


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 100), st.data())
def test_whoever_waits_is_served(count: int, limit: int, turn: int, data: st.DataObject) -> None:
    """A waiting topic-partition is served within as many turns as there are topic-partitions."""
    served, patient = 0, data.draw(st.sampled_from(TPS[:count]))
    for t in range(turn, turn + count):
        waiting = {tp: data.draw(st.integers(0, 3)) for tp in TPS[:count]} | {patient: 5}
        served += fair(waiting, limit, t)[patient]
    assert served > 0


A, B, C = TPS[:3]


@pytest.mark.parametrize(
    ("waiting", "limit", "turn", "expected"),
    [
        ([3, 4, 5], None, 0, [3, 4, 5]),
        ([3, 4, 5], 12, 0, [3, 4, 5]),
        ([3, 4, 5], 11, 0, [3, 4, 4]),
        ([9, 1, 9], 9, 0, [4, 1, 4]),
        ([9, 1, 9], 10, 1, [4, 1, 5]),
        ([9, 1, 9], 10, 0, [5, 1, 4]),
        ([9, 9, 9], 2, 0, [1, 1, 0]),
        ([9, 9, 9], 2, 1, [1, 0, 1]),
        ([9, 9, 9], 2, 2, [0, 1, 1]),
        ([9, 9, 9], 1, 2, [0, 0, 1]),
        ([0, 0, 9], 4, 0, [0, 0, 4]),
        ([2, 9, 9], 7, 0, [2, 3, 2]),
        ([3, 9, 9], 9, 0, [3, 3, 3]),
    ],
)
def test_shares(waiting: list[int], limit: int | None, turn: int, expected: list[int]) -> None:
    """The rest of small topic-partitions is divided among the others.

    An indivisible rest goes round, from the turn's topic-partition on.
    """
    assert fair(dict(zip((A, B, C), waiting, strict=True)), limit, turn) == dict(
        zip((A, B, C), expected, strict=True)
    )


def test_the_first_turn_is_0() -> None:
    """The first turn is 0."""
    assert fair({B: 5, A: 5}, 1) == {A: 1, B: 0}
