"""Batches are gathered up to their limits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.source.reader.batches import Gatherer


@given(
    batches=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), max_size=8),
    rows_max=st.integers(1, 12),
    bytes_max=st.integers(1, 60),
)
def test_rows_stay_in_order_and_within_the_bounds(
    batches: list[list[int]], rows_max: int, bytes_max: int
) -> None:
    """Rows keep their order, a batch above the limit of bytes is a single row, and no batch had
    room for the next row.
    """
    gatherer, out = Gatherer(rows_max, bytes_max), []
    for sizes in batches:
        out += gatherer.add(
            pa.record_batch({"size": pa.array(sizes, pa.int64())}), np.cumsum(sizes)
        )
    out += gatherer.rest()
    sizes_of_batches = [batch.column("size").to_pylist() for batch in out]
    assert [size for sizes in sizes_of_batches for size in sizes] == [
        size for sizes in batches for size in sizes
    ]
    assert all(len(sizes) == 1 or sum(sizes) <= bytes_max for sizes in sizes_of_batches)
    assert all(0 < len(sizes) <= rows_max for sizes in sizes_of_batches)
    full = pairwise(sizes_of_batches)
    assert all(
        len(sizes) == rows_max or sum(sizes) + next_sizes[0] > bytes_max
        for sizes, next_sizes in full
    )
    assert not list(gatherer.rest())
