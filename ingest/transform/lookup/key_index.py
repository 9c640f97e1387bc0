"""An index of keys that lives longer than one batch of rows."""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np
import numpy.typing as npt
import polars as pl

_NUMBER = "\x03"
"""The number of a key: no column of a table has this name."""


class KeyIndex:
    """Distinct keys without nulls, numbered from 0 in the order in which they are added.

    A key is found by binary search for its hash, and then compared. A join would hash all keys
    of the index anew for each batch of rows.
    """

    def __init__(self, none: pl.DataFrame) -> None:
        self._keys = none
        self._hashes = np.zeros(0, np.uint64)
        self._numbers = np.zeros(0, np.int64)

    def add(self, keys: pl.DataFrame) -> None:
        """Adds keys that it doesn't have, each of them once."""
        self._keys = pl.concat([self._keys, keys], rechunk=True)
        hashes = np.concatenate([self._hashes, keys.hash_rows().to_numpy()])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        new = np.arange(len(self._numbers), len(order))
        self._numbers = np.append(self._numbers, new)[order]

    def find(self, keys: pl.DataFrame) -> npt.NDArray[np.int64]:
        """Returns the number of each key; -1 of one that it doesn't have, or that has a null."""
        found = np.full(keys.height, -1, np.int64)
        if self._keys.is_empty():
            return found
        hashes = keys.hash_rows().to_numpy()
        order = np.argsort(hashes)  # neighbours are searched for in the same memory
        at = np.empty(len(order), np.int64)
        at[order] = np.searchsorted(self._hashes, hashes[order])
        at = np.minimum(at, len(self._hashes) - 1)
        numbers = self._numbers[at]
        known = self._keys[numbers]
        same = reduce(and_, (known[name] == keys[name] for name in keys.columns))
        alike, equal = self._hashes[at] == hashes, same.fill_null(value=False).to_numpy()
        found[equal] = numbers[equal]
        other = np.flatnonzero(alike & ~equal)  # two keys have one hash, or a key has a null
        if other.size:
            numbered = self._keys.with_row_index(_NUMBER)
            joined = keys[other].join(numbered, keys.columns, how="left", maintain_order="left")
            found[other] = joined[_NUMBER].cast(pl.Int64).fill_null(-1).to_numpy()
        return found
