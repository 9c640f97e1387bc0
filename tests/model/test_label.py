"""Labels: instants or sequence numbers, never both in one pipeline.

Each has one text form. The texts of numbers sort as the numbers do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.model.boundary import (
    Label,
    instant,
    is_later,
    label_text,
    number_of,
    require_label,
)

EAST = timezone(timedelta(hours=2))
T = datetime(2026, 1, 5, tzinfo=UTC)
INSTANTS = st.integers(0, 10**11).map(lambda milliseconds: T + timedelta(milliseconds=milliseconds))
NUMBERS = st.integers(0, 10**9 - 1)


@given(st.one_of(st.tuples(INSTANTS, INSTANTS), st.tuples(NUMBERS, NUMBERS)))
def test_labels_of_a_kind_are_in_order(pair: tuple[Label, Label]) -> None:
    """Two labels of a kind are equal, or exactly one is later.

    The texts of numbers are in the same order.
    """
    first, second = pair
    assert [is_later(first, second), first == second, is_later(second, first)].count(True) == 1
    if isinstance(first, int):
        assert is_later(first, second) == (label_text(first) > label_text(second))


def test_instants_and_numbers_are_in_no_order() -> None:
    """Neither an instant nor a number is later than the other."""
    assert not is_later(T, 3)
    assert not is_later(3, T)
    assert is_later(T + timedelta(microseconds=1), T)
    assert is_later(4, 3)


def test_only_a_number_is_one() -> None:
    """`number_of` returns a sequence number, and refuses an instant."""
    assert number_of(0) == 0
    with pytest.raises(TypeError, match="2026-01-05T00:00:00Z is no sequence number"):
        number_of(T)


def test_the_text_of_an_instant() -> None:
    """The text of an instant is in UTC with a Z, and has a fraction only if it isn't zero."""
    assert instant(datetime(2026, 1, 2, 5, tzinfo=EAST)) == "2026-01-02T03:00:00Z"
    assert instant(datetime(2026, 1, 2, 3, 0, 0, 5, tzinfo=UTC)) == "2026-01-02T03:00:00.000005Z"


def test_the_text_of_a_label() -> None:
    """The text of a label is an instant, or a batch's number with nine digits."""
    assert label_text(datetime(2026, 1, 2, 3, tzinfo=UTC)) == "2026-01-02T03:00:00Z"
    assert [label_text(7), label_text(123_456_789)] == ["batch-000000007", "batch-123456789"]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (-1, "^start must not be negative: -1$"),
        (
            datetime(2026, 1, 2),  # noqa: DTZ001
            r"^start must be an aware datetime in UTC, not datetime.datetime\(2026",
        ),
        (datetime(2026, 1, 2, tzinfo=EAST), "^start must be an aware datetime in UTC, not "),
    ],
)
def test_what_is_no_label_is_refused(label: int | datetime, words: str) -> None:
    """An invalid label raises ValueError with the field's name."""
    with pytest.raises(ValueError, match=words):
        require_label("start", label)


def test_what_is_a_label_is_not() -> None:
    """A valid label is a number from 0, or an instant in UTC under any name."""
    for label in (
        0,
        1,
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 2, tzinfo=timezone(timedelta(0), "Z")),
    ):
        require_label("start", label)


def test_later_is_not_the_same() -> None:
    """`is_later` is false for equal labels and for labels of two kinds."""
    first, second = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
    assert [is_later(a, b) for a, b in ((second, first), (first, first), (first, second))] == [
        True,
        False,
        False,
    ]
    assert [is_later(a, b) for a, b in ((2, 1), (1, 1), (1, 2))] == [True, False, False]
