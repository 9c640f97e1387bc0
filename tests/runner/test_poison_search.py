"""The search for messages that kill their process, on death sentences that are made up."""

from __future__ import annotations

import signal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.runner.poison_search import (
    Death,
    UnprovenError,
    death_of,
    find_batch_end,
    find_killers,
)
from windrow.ingest.runner.trial_process import DECODING

STOP = 40
OFFSETS = st.integers(0, STOP - 1)


class Trials:
    """Processes that read batch after batch, and die of killers.

    Attributes:
        killers: the offsets that kill.
        together: pairs of offsets that kill if one batch has both.
        batch_starts: the first offsets of batches.
        deaths_left: how many processes die at all; None: all that meet a killer.
        alone: the ranges of one offset that killed.
    """

    def __init__(
        self,
        killers: set[int],
        batch_starts: set[int] = frozenset(),  # type: ignore[assignment]
        together: set[tuple[int, int]] = frozenset(),  # type: ignore[assignment]
        deaths_left: int | None = None,
    ) -> None:
        """Remembers the killers."""
        self.killers, self.together, self.batch_starts = killers, together, batch_starts
        self.deaths_left = deaths_left
        self.alone: list[int] = []

    def __call__(self, start: int, stop: int) -> Death | None:
        """Decodes a range; see `DeathIn`."""
        edges = sorted({start, stop, *(s for s in self.batch_starts if start < s < stop)})
        for low, high in pairwise(edges):
            batch = set(range(low, high))
            if (batch & self.killers or any({*pair} <= batch for pair in self.together)) and (
                self.deaths_left is None or self.deaths_left > 0
            ):
                if self.deaths_left is not None:
                    self.deaths_left -= 1
                if stop - start == 1:
                    self.alone.append(start)
                return Death(low, high, "value", "signal 9")
        return None


@given(st.sets(OFFSETS), st.sets(OFFSETS), OFFSETS)
def test_all_killers_are_found(killers: set[int], batch_starts: set[int], start: int) -> None:
    """Of any number of killers in any batches each is found, in order, after two deaths alone."""
    trials = Trials(killers, batch_starts)
    expected = sorted(killer for killer in killers if killer >= start)
    assert [offset for offset, _ in find_killers(trials, start, STOP)] == expected
    assert all(trials.alone.count(killer) >= 2 for killer in expected)


@given(st.sets(st.tuples(OFFSETS, OFFSETS).filter(lambda p: p[0] < p[1]), min_size=1))
def test_a_message_that_kills_only_beside_another_is_not_proven(
    together: set[tuple[int, int]],
) -> None:
    """Messages that kill together, and never alone, are not found; the error names their batch."""
    trials = Trials(set(), together=together)
    with pytest.raises(UnprovenError, match=r"offsets 0 to 39 .* none of them did so twice alone"):
        list(find_killers(trials, 0, STOP))
    assert not trials.alone


@given(OFFSETS, st.integers(1, 5))
def test_one_death_alone_is_no_proof(killer: int, deaths: int) -> None:
    """A message is found only if it killed twice alone, however often it killed with others."""
    trials, found = Trials({killer}, deaths_left=deaths), list[int]()
    try:
        found.extend(offset for offset, _ in find_killers(trials, 0, STOP))
    except UnprovenError:
        assert found == []
    assert bool(found) == (trials.alone.count(killer) >= 2)


def test_the_last_death_counts_towards_no_other_offset() -> None:
    """A message that stops to kill after its first death alone is not found."""
    trials = Trials({7}, deaths_left=2)
    with pytest.raises(UnprovenError):
        list(find_killers(trials, 7, 8))


@given(OFFSETS, st.integers(1, STOP))
def test_the_end_of_an_unreadable_batch(first: int, length: int) -> None:
    """The last offset of a batch of which any offset kills is found."""
    last = min(first + length, STOP) - 1
    trials = Trials(set(range(first, last + 1)))
    assert find_batch_end(trials, first, STOP) == last


def test_a_process_that_is_killed_from_outside_proves_nothing() -> None:
    """SIGKILL is no proof, because a kernel that is short of memory sends it."""
    with pytest.raises(UnprovenError, match=r"offsets 3 to 5 was killed from outside .* 4 GiB"):
        death_of(4 << 30, DECODING, 3, 6, -signal.SIGKILL)
    assert death_of(4 << 30, DECODING, 3, 6, -signal.SIGABRT) == Death(
        3, 6, "value", "signal 6, Aborted"
    )
