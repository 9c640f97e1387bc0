"""The strings and bytes that the pass found, and the symbols of enums. Compiled."""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint8

from windrow.ingest.formats.shared.spread import copy_octets
from windrow.ingest.native.making import OCTETS, compiled, memory


@compiled((OCTETS, OCTETS, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, symbols, values, present, offsets, letters):
    """All of them behind each other: a value whose lowest bit is set lies among the symbols.

    `letters` has room for eight bytes more.
    """
    data_at, symbols_at, target = memory(data), memory(symbols), memory(letters)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        at, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if values_at[i] & 1:
            copy_octets(symbols_at, at, len(symbols), target, begin, end)
        else:
            copy_octets(data_at, at, len(data), target, begin, end)
