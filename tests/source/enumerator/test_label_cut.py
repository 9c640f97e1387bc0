"""The settled rule: equal to its definition, monotone in the label, and independent of the
chunks of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.ports.broker import Stamps
from windrow.ingest.source.enumerator.label_cut import cut_may_precede, find_cuts

HOUR = 3_600_000


def by_definition(stamps: Sequence[int], label: int) -> int | None:
    """Returns a label's cut by the definition: the first message from which at least half of
    the next 20 are at or after the label.

    The 20 include the message itself.
    """
    for j, stamp in enumerate(stamps):
        following = stamps[j : j + 20]
        if stamp >= label and 2 * sum(s < label for s in following) <= len(following):
            return j
    return None


def make_chunks(stamps: Sequence[int], cuts: Sequence[int]) -> Iterator[Stamps]:
    """Yields a log with gaps between offsets (3, 6, 9, ...), in chunks that end at `cuts`; some
    may be empty.
    """
    edges = [0, *sorted(c % (len(stamps) + 1) for c in cuts), len(stamps)]
    for a, b in pairwise(edges):
        offsets = np.arange(a, b, dtype=np.int64) * 3 + 3
        yield Stamps(
            offsets,
            np.array(stamps[a:b], np.int64),
            np.array([i % 3 - 1 for i in range(a, b)], np.int32),
        )


def found_cuts(
    stamps: Sequence[int], labels: Sequence[int], cuts: Sequence[int] = ()
) -> list[int | None]:
    """Returns the cuts of `find_cuts` as indices."""
    got = [p.offset // 3 - 1 for p in find_cuts(make_chunks(stamps, cuts), labels)]
    return [*got, *([None] * (len(labels) - len(got)))]


SMALL = st.lists(st.integers(-1, 8), max_size=70)
ASIDE = st.sampled_from([0] * 12 + [-6 * HOUR, -HOUR, HOUR, 3 * HOUR, 10**13, None])


def rising_stamps(steps: list[tuple[int, int | None]]) -> list[int]:
    """Returns timestamps around a clock that advances by each step."""
    clock = accumulate(step for step, _ in steps)
    return [
        -1 if aside is None else max(0, clock_time + aside)
        for clock_time, (_, aside) in zip(clock, steps, strict=True)
    ]


LIVELY = st.lists(st.tuples(st.integers(0, HOUR // 4), ASIDE), max_size=150).map(rising_stamps)
CUTS = st.lists(st.integers(0, 200), max_size=6)


@given(st.one_of(SMALL, SMALL.map(sorted)), st.lists(st.integers(0, 9), max_size=8), CUTS)
def test_dense_logs_settle_by_definition(
    stamps: list[int], labels: list[int], cuts: list[int]
) -> None:
    """With many equal timestamps, many labels and any chunks, each label gets the cut of the
    definition.
    """
    labels.sort()
    assert found_cuts(stamps, labels, cuts) == [by_definition(stamps, label) for label in labels]


@given(LIVELY, CUTS)
def test_hourly_logs_settle_by_definition(stamps: list[int], cuts: list[int]) -> None:
    """With late, future and unstamped messages around a rising clock, each hour is cut as the
    definition says.
    """
    labels = list(range(0, 41 * HOUR, HOUR))
    assert found_cuts(stamps, labels, cuts) == [by_definition(stamps, label) for label in labels]


@given(LIVELY, st.integers(0, 40 * HOUR), st.integers(0, 40 * HOUR))
def test_cuts_rise_with_labels(stamps: list[int], first_label: int, second_label: int) -> None:
    """A later label never cuts before an earlier one.

    So one pass answers all labels, and clamping is rare.
    """
    low, high = (by_definition(stamps, label) for label in sorted((first_label, second_label)))
    assert high is None or (low is not None and low <= high)


@given(LIVELY, st.integers(1, 40 * HOUR), st.integers(0, 150))
def test_a_proven_cut_is_the_whole_logs(stamps: list[int], label: int, start: int) -> None:
    """If the rest of a log proves the label's cut, no message right before the log start could
    be the cut.
    """
    rest = stamps[start:]
    if cut_may_precede(np.array(rest[:19], np.int64), label):
        return
    assert by_definition([label, *rest], label) != 0


@given(SMALL, st.integers(0, 9))
def test_doubt_covers_a_cut_at_the_log_start(stamps: list[int], label: int) -> None:
    """A label that cuts at the first message that is left proves nothing."""
    if by_definition(stamps, label) == 0:
        assert cut_may_precede(np.array(stamps[:19], np.int64), label)


def test_the_epoch_of_the_message_is_kept_and_a_missing_one_is_none() -> None:
    """A mark gets the leader epoch of the settled message. librdkafka's -1 becomes None."""
    first, second = find_cuts(make_chunks([5, 6], []), [5, 6])
    assert (first.leader_epoch, second.leader_epoch) == (None, 0)


@pytest.mark.parametrize("first", [20, 21, 40])
def test_nothing_is_read_beyond_the_answer(first: int) -> None:
    """Chunks after the deciding one aren't read: a healthy partition costs one short read of at
    least twenty messages.
    """

    def chunks() -> Iterator[Stamps]:
        yield from make_chunks([7] * first, [])
        raise AssertionError

    assert [p.offset for p in find_cuts(chunks(), [7])] == [3]


def test_a_message_stamped_in_2099_cuts_no_earlier_hour() -> None:
    """A message with a timestamp in the far future cuts no earlier hour, though Kafka's answer
    for every later label is that message.
    """
    stamps = [10**13 if i == 3 else i * HOUR // 100 for i in range(4000)]
    labels = [h * HOUR for h in range(1, 40)]
    assert found_cuts(stamps, labels) == [h * 100 for h in range(1, 40)]


# --- edges of the rule

LABEL = 5
LATER, BEFORE = 9, 0


@pytest.mark.parametrize("edge", [5, 6, 23, 24, 25, 44])
def test_a_candidate_waits_for_the_twentieth_message(edge: int) -> None:
    """A candidate is decided by its twentieth message: half of 20 is enough, wherever a chunk
    ends.

    Ten of the 19 messages from the sixth on are below the label; the 20th isn't.
    """
    stamps = [BEFORE] * 5 + [LATER] + [BEFORE] * 10 + [LATER] * 38
    assert found_cuts(stamps, [LABEL], [edge]) == [5]


@pytest.mark.parametrize(("below", "cut"), [(9, 0), (10, 0), (11, 12)])
def test_half_of_twenty_may_lie_below(below: int, cut: int) -> None:
    """A message with ten of twenty below the label is the cut; with eleven it isn't."""
    assert found_cuts([LATER] + [BEFORE] * below + [LATER] * 30, [LABEL]) == [cut]


@pytest.mark.parametrize(
    ("stamps", "cut"),
    [
        ([9], 0),
        ([9, 0], 0),
        ([9, 0, 0], None),
        ([9, 0, 0, 9], 0),
        ([0], None),
        ([], None),
        ([0, 9, 0], 1),
        ([0, 9, 0, 0], None),
    ],
)
def test_at_the_logs_end_fewer_are_asked(stamps: list[int], cut: int | None) -> None:
    """At the log's end, at least half of the remaining messages decide."""
    assert found_cuts(stamps, [LABEL]) == [cut]


def test_only_twenty_are_asked() -> None:
    """Only twenty messages decide; later ones don't count."""
    assert found_cuts([LATER] * 10 + [BEFORE] * 10 + [BEFORE] * 30, [LABEL]) == [0]
    assert found_cuts([LATER] * 9 + [BEFORE] * 11 + [LATER] * 60, [LABEL]) == [20]


def test_a_message_at_the_label_is_its_cut() -> None:
    """A message at the label is its cut.

    One message may be the cut of many labels up to its timestamp.
    """
    assert found_cuts([5] * 25, [4, 5, 6]) == [0, 0, None]
    assert found_cuts([5] * 25 + [7] * 25, [5, 6, 7]) == [0, 25, 25]


@pytest.mark.parametrize("candidates", [1, 2, 9, 10, 73, 74])
def test_the_first_candidate_that_settles_is_taken(candidates: int) -> None:
    """The first candidate that settles is taken, after any number of candidates that don't."""
    stamps = ([LATER] + [BEFORE] * 19) * candidates + [LATER] * 20
    assert found_cuts(stamps, [LABEL]) == [20 * candidates]
    assert found_cuts(stamps, [LABEL], [7, 20 * candidates + 3]) == [20 * candidates]


def test_an_unstamped_message_is_before_every_label() -> None:
    """A message without a timestamp is never a cut, not even for label 0."""
    assert found_cuts([-1] * 3 + [0] * 20, [0]) == [3]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ([], True),
        ([0], True),
        ([0, 0], False),
        ([0] * 10 + [9] * 9, True),
        ([0] * 11 + [9] * 8, False),
    ],
)
def test_what_is_left_shows_a_cut_or_not(first: list[int], expected: bool) -> None:
    """Of the twenty messages, the one before the log start counts itself, and half may be below
    the label.
    """
    assert cut_may_precede(np.array(first, np.int64), LABEL) is expected


def test_of_what_is_left_nineteen_are_asked() -> None:
    """Nineteen of the messages that are left decide. A message at the label isn't below it."""
    assert cut_may_precede(np.array([0] * 10 + [9] * 9 + [0] * 9, np.int64), LABEL)
    assert cut_may_precede(np.array([0] * 10 + [LABEL] * 9, np.int64), LABEL)


def test_a_log_of_no_chunks_cuts_nothing() -> None:
    """A log without chunks has no cut."""
    assert list(find_cuts([], [LABEL])) == []
