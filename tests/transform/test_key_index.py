"""An index of keys."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.transform.lookup.step import KeyIndex

_FEW: dict[Any, list[Any]] = {
    pl.String: ["", "a", "ä", "a customer whose key is long"],
    pl.Int64: [0, -1, 2**63 - 1],
    pl.Binary: [b"", b"\0", b"\xff"],
    pl.Boolean: [False, True],
    pl.Date: [date.min, date(2026, 1, 5)],
    pl.Datetime("us", "UTC"): [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 5, tzinfo=UTC)],
    pl.Decimal(38, 2): [Decimal("0.00"), Decimal("-1.50")],
}


@pytest.mark.parametrize("hashes", [2**64 - 1, 2, 1])
@given(data=st.data(), types=st.lists(st.sampled_from(list(_FEW)), min_size=1, max_size=2))
def test_finds_what_a_dict_finds(hashes: int, data: st.DataObject, types: list[Any]) -> None:
    """The index finds each added key's number, even if hashes collide, and no other key."""
    schema = {f"k{number}": kind for number, kind in enumerate(types)}
    key = st.tuples(*(st.sampled_from([None, *_FEW[kind]]) for kind in types))
    index, numbers = KeyIndex(pl.DataFrame(schema=schema)), dict[Any, int]()
    hashed = pl.DataFrame.hash_rows
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pl.DataFrame, "hash_rows", lambda frame: hashed(frame) % hashes)
        for keys in data.draw(st.lists(st.lists(key), max_size=4)):
            frame = pl.DataFrame(keys, schema, orient="row")
            key_numbers = index.find(frame)
            assert key_numbers.tolist() == [numbers.get(row, -1) for row in keys]
            new = frame.filter(key_numbers < 0).drop_nulls().unique()
            index.add(new)
            numbers |= {row: len(numbers) + position for position, row in enumerate(new.rows())}
