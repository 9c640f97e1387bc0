"""Labels: instants or sequence numbers, never both in one pipeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.model.label import Label, is_later, label_text, number_of

T = datetime(2026, 1, 5, tzinfo=UTC)
INSTANTS = st.integers(0, 10**11).map(lambda milliseconds: T + timedelta(milliseconds=milliseconds))
NUMBERS = st.integers(0, 10**9 - 1)


@given(st.one_of(st.tuples(INSTANTS, INSTANTS), st.tuples(NUMBERS, NUMBERS)))
def test_labels_of_a_kind_are_in_order(pair: tuple[Label, Label]) -> None:
    """Of two labels of one pipeline exactly one is later, or they are equal; numbers' texts are in the same order."""
    one, other = pair
    assert [is_later(one, other), one == other, is_later(other, one)].count(True) == 1
    if isinstance(one, int):
        assert is_later(one, other) == (label_text(one) > label_text(other))


def test_instants_and_numbers_are_in_no_order() -> None:
    """Neither of an instant and a number is later."""
    assert not is_later(T, 3)
    assert not is_later(3, T)
    assert is_later(T + timedelta(microseconds=1), T)
    assert is_later(4, 3)


def test_only_a_number_is_one() -> None:
    """A sequence number is itself; an instant is refused, not read as one."""
    assert number_of(0) == 0
    with pytest.raises(TypeError, match="2026-01-05T00:00:00Z is no sequence number"):
        number_of(T)
