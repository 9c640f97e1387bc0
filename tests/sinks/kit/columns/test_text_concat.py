"""Joining texts row by row: the result is that of Arrow's own function."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.sinks.kit.columns.text_concat import TEXT, concat_texts

TEXTS = st.one_of(st.none(), st.text(max_size=20))
KINDS = st.sampled_from([pa.string(), TEXT])


@st.composite
def parts_of(draw: st.DrawFn) -> list[pa.Array | str]:
    """Draws columns of one length, each a slice of a longer one, and texts between them."""
    rows, skipped = draw(st.integers(0, 12)), draw(st.integers(0, 3))
    columns = st.tuples(
        st.lists(TEXTS, min_size=skipped + rows + 2, max_size=skipped + rows + 2), KINDS
    )
    drawn = [*draw(st.lists(st.one_of(columns, st.text(max_size=10)), max_size=6)), draw(columns)]
    return [
        part if isinstance(part, str) else pa.array(*part).slice(skipped, rows) for part in drawn
    ]


@given(parts_of())
def test_rows_are_those_that_arrow_joins(parts: list[pa.Array | str]) -> None:
    """Joined rows are those of Arrow's function, whatever slices, widths and nulls the texts
    have.
    """
    joined = concat_texts(*parts)
    joined.validate(full=True)
    assert joined.type == TEXT
    wide = [pa.scalar(part, TEXT) if isinstance(part, str) else part.cast(TEXT) for part in parts]
    expected = pc.binary_join_element_wise(*wide, pa.scalar("", TEXT))
    assert joined.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("size", range(20))
def test_no_byte_is_lost_or_read_beyond_the_end_of_a_text(size: int) -> None:
    """Texts of every length around eight bytes, which are copied at once, are joined exactly."""
    column = pa.array(["abcdefghijklmnopqrstuvwxyz"[:size], "", "z" * size])
    assert concat_texts("<", column, "|", column, ">").to_pylist() == [
        f"<{text}|{text}>" for text in column.to_pylist()
    ]
