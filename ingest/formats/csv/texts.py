"""The texts that the pass found, their doubled quotes made one. Compiled."""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint8

from windrow.ingest.formats.shared.spread import copy_octets
from windrow.ingest.native.making import OCTETS, compiled, memory


@compiled((OCTETS, int64, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, quote, values, present, offsets, letters):
    """All texts behind each other.

    `letters` has room for eight bytes more, which are written to in between.
    """
    source, target, size = memory(data), memory(letters), len(data)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        at, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if not values_at[i] & 1:
            copy_octets(source, at, size, target, begin, end)
            continue
        while begin < end:
            target[begin] = source[at]
            at += 2 if source[at] == quote else 1
            begin += 1
