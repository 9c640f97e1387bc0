"""The pass that writes texts behind each other, row by row. Compiled, because it looks at every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from ingest.compiled.making import compiled
from ingest.compiled.pointers import copy_bytes, int32_at, int64_at

Ints = npt.NDArray[np.int64]

DATA, ENDS, WIDTH, LENGTH = range(4)
"""What is told of a part: the address of its bytes; of an array that of the end before its first value, and the bytes of an end (4 or 8);
of a text that is the same in each row 0 instead, and its length."""

_INTS = types.int64[::1]
_TABLE = types.int64[:, ::1]
_NOTHING = types.void


@compiled(_NOTHING(_TABLE, _INTS, types.int64))
def join(parts: Any, ends: Ints, out: int) -> None:
    """Write all parts of a row behind each other, row for row.

    Args:
        parts: see `DATA`.
        ends: gets where each row begins, and the last one ends.
        out: the address of room for them all.
    """
    at = np.int64(0)
    for row in range(len(ends) - 1):
        ends[row] = at
        for number in range(parts.shape[0]):
            width, source, length = parts[number, WIDTH], parts[number, DATA], parts[number, LENGTH]
            if width == 4:
                begin: Any = np.int64(int32_at(parts[number, ENDS] + 4 * row))
                source, length = source + begin, np.int64(int32_at(parts[number, ENDS] + 4 * row + 4)) - begin
            elif width == 8:
                begin = int64_at(parts[number, ENDS] + 8 * row)
                source, length = source + begin, int64_at(parts[number, ENDS] + 8 * row + 8) - begin
            copy_bytes(source, length, out + at)
            at += length
    ends[len(ends) - 1] = at
