"""The strings of JSON that the pass found, their escapes replaced. Compiled."""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint8

from windrow.ingest.formats.json.text import unescape
from windrow.ingest.formats.shared.spread import copy_octets
from windrow.ingest.native.making import OCTETS, compiled, memory


@compiled((OCTETS, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, values, present, offsets, letters):
    """All strings behind each other, their escapes replaced.

    `letters` has room for eight bytes more, which are written to in between.
    """
    source, target, size = memory(data), memory(letters), len(data)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        at, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if values_at[i] & 1:
            unescape(source, at, target, begin, end)
            continue
        copy_octets(source, at, size, target, begin, end)
