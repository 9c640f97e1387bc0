"""Texts of a batch that are looked up once because they are all the same, or letters."""

from __future__ import annotations

import pyarrow as pa
import pytest

from windrow.ingest.formats.cdc.arrays import as_letters, without_repeats


@pytest.mark.parametrize(
    ("texts", "shown", "letters"),
    [
        (["orders", "orders", "orders"], ["orders"], None),
        (["a", "a"], ["a"], b"aa"),
        (["c", "u", "d"], ["c", "u", "d"], b"cud"),
        (["ab", "ac"], ["ab", "ac"], None),
        (["aab", "aba"], ["aab", "aba"], None),
        (["ab", "a", "bab"], ["ab", "a", "bab"], None),
        (["é", "é"], ["é"], None),
        (["", ""], [""], None),
        (["c", None], ["c", None], None),
        ([None, None], [None, None], None),
        (["a", "", "bc"], ["a", "", "bc"], None),
        ([], [], b""),
    ],
)
def test_texts_are_told_apart(
    texts: list[str | None], shown: list[str | None], letters: bytes | None
) -> None:
    """Only texts that are all the same are one, and only texts of one byte are letters.

    A slice of an array says the same as its texts alone.
    """
    whole = pa.array(["x", *texts, "yz"], pa.string())
    for array in (pa.array(texts, pa.string()), whole.slice(1, len(texts))):
        found = as_letters(array)
        assert without_repeats(array).to_pylist() == shown
        assert (None if found is None else found.tobytes()) == letters
