"""Parts of a window: the splits that share a transaction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.kafka.transactions import SMALL, TransactionalIds, chains
from windrow.ingest.testing.contracts.windows import window


def plan(*splits: tuple[int, int, int]) -> Any:
    return SimpleNamespace(splits=tuple(Split("t", *split) for split in splits))


def test_small_splits_share_a_transaction() -> None:
    """A part stays below a limit, and all splits of a topic-partition are in one part."""
    assert chains(plan((0, 0, 10), (1, 0, 10), (1, 10, 20))) == [[(0, 1, 2)]]
    half = SMALL * 2 // 3
    assert chains(plan((0, 0, half), (1, 0, half), (2, 0, 5))) == [[(0,)], [(1, 2)]]


def test_large_ones_follow_each_other() -> None:
    """Large splits of a topic-partition follow each other by offset, beside other
    topic-partitions.
    """
    assert chains(plan((0, SMALL, 2 * SMALL), (0, 0, SMALL), (1, 0, 5))) == [[(1,), (0,)], [(2,)]]


def test_each_split_is_in_one_transaction() -> None:
    """No split is left out, and none is in two parts."""
    splits = [
        (p, offset, offset + 30_000)
        for p in range(7)
        for offset in range(0, 30_000 * (p + 1), 30_000)
    ]
    numbers = [n for chain in chains(plan(*splits)) for part in chain for n in part]
    assert sorted(numbers) == list(range(len(splits)))
    assert chains(plan()) == []


def test_who_runs_beside_another_has_other_ids() -> None:
    """Parts of a window, and two tables of one pipeline, have different transactional ids,
    because one id would fence the other.
    """
    both = plan(*((p, 0, SMALL) for p in range(3)))
    both.window = window(0)
    ids = [
        id_
        for control in ("rows.control", "more.control")
        for id_ in TransactionalIds("windrow", control, pool=2).of_window(both)
    ]
    assert len(set(ids)) == len(ids) == 2 * 4
