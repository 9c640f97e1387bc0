"""The settled rule: equal to its definition, monotone in the label, indifferent to how the log is cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingest.plan.settle import settle, would_settle_before
from ingest.ports.broker import Stamps

HOUR = 3_600_000


def by_definition(stamps: Sequence[int], label: int) -> int | None:
    """The rule word by word: the first message from which on at least half of the next 20, itself among them, are at or after the label."""
    for j, stamp in enumerate(stamps):
        asked = stamps[j : j + 20]
        if stamp >= label and 2 * sum(s < label for s in asked) <= len(asked):
            return j
    return None


def chunked(stamps: Sequence[int], cuts: Sequence[int]) -> Iterator[Stamps]:
    """A log with gaps between offsets (3, 6, 9, ...), in chunks that end at `cuts`; some may be empty."""
    edges = [0, *sorted(c % (len(stamps) + 1) for c in cuts), len(stamps)]
    for a, b in pairwise(edges):
        offsets = np.arange(a, b, dtype=np.int64) * 3 + 3
        yield Stamps(offsets, np.array(stamps[a:b], np.int64), np.array([i % 3 - 1 for i in range(a, b)], np.int32))


def found(stamps: Sequence[int], labels: Sequence[int], cuts: Sequence[int] = ()) -> list[int | None]:
    """What `settle` says, as indices."""
    got = [p.offset // 3 - 1 for p in settle(chunked(stamps, cuts), labels)]
    return [*got, *([None] * (len(labels) - len(got)))]


SMALL = st.lists(st.integers(-1, 8), max_size=70)
ASIDE = st.sampled_from([0] * 12 + [-6 * HOUR, -HOUR, HOUR, 3 * HOUR, 10**13, None])


def rising(steps: list[tuple[int, int | None]]) -> list[int]:
    """Timestamps around a clock that goes on by each step."""
    clock = accumulate(step for step, _ in steps)
    return [-1 if aside is None else max(0, at + aside) for at, (_, aside) in zip(clock, steps, strict=True)]


LIVELY = st.lists(st.tuples(st.integers(0, HOUR // 4), ASIDE), max_size=150).map(rising)
CUTS = st.lists(st.integers(0, 200), max_size=6)


@given(st.one_of(SMALL, SMALL.map(sorted)), st.lists(st.integers(0, 9), max_size=8), CUTS)
def test_dense_logs_settle_by_definition(stamps: list[int], labels: list[int], cuts: list[int]) -> None:
    """Many equal timestamps, many labels at once, any chunks: each label gets what the definition gives it alone."""
    labels.sort()
    assert found(stamps, labels, cuts) == [by_definition(stamps, label) for label in labels]


@given(LIVELY, CUTS)
def test_hourly_logs_settle_by_definition(stamps: list[int], cuts: list[int]) -> None:
    """Late, future and unstamped messages around a rising clock: each hour is cut where the definition cuts it."""
    labels = list(range(0, 41 * HOUR, HOUR))
    assert found(stamps, labels, cuts) == [by_definition(stamps, label) for label in labels]


@given(LIVELY, st.integers(0, 40 * HOUR), st.integers(0, 40 * HOUR))
def test_cuts_rise_with_labels(stamps: list[int], one: int, two: int) -> None:
    """A later label never cuts before an earlier one: what lets one pass answer all labels, and clamping be a rare correction."""
    low, high = (by_definition(stamps, label) for label in sorted((one, two)))
    assert high is None or (low is not None and low <= high)


@given(LIVELY, st.integers(1, 40 * HOUR), st.integers(0, 150))
def test_a_proven_cut_is_the_whole_logs(stamps: list[int], label: int, start: int) -> None:
    """Where what is left of a log shows the label's cut, no message right before the log start could have been the cut."""
    rest = stamps[start:]
    if would_settle_before(np.array(rest[:19], np.int64), label):
        return
    assert by_definition([label, *rest], label) != 0


@given(SMALL, st.integers(0, 9))
def test_doubt_covers_a_cut_at_the_log_start(stamps: list[int], label: int) -> None:
    """A label that cuts at the very first message left proves nothing."""
    if by_definition(stamps, label) == 0:
        assert would_settle_before(np.array(stamps[:19], np.int64), label)


def test_the_epoch_of_the_message_is_kept_and_a_missing_one_is_none() -> None:
    """The leader epoch of the settled message goes into the mark; librdkafka's -1 does not."""
    first, second = settle(chunked([5, 6], []), [5, 6])
    assert (first.leader_epoch, second.leader_epoch) == (None, 0)


def test_nothing_is_read_beyond_the_answer() -> None:
    """The chunks after the one that decides stay unread: a healthy partition costs one short read."""

    def chunks() -> Iterator[Stamps]:
        yield from chunked([7] * 40, [])
        raise AssertionError

    assert [p.offset for p in settle(chunks(), [7])] == [3]


def test_a_message_stamped_in_2099_cuts_no_earlier_hour() -> None:
    """One message in the far future among healthy ones is passed by, though Kafka names it for every later label."""
    stamps = [10**13 if i == 3 else i * HOUR // 100 for i in range(4000)]
    labels = [h * HOUR for h in range(1, 40)]
    assert found(stamps, labels) == [h * 100 for h in range(1, 40)]
