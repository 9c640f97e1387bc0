"""Compiled passes that concatenate texts and format instants."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from windrow.ingest.native.compiling import compiled, part, types
from windrow.ingest.native.pointers import copy_bytes, int32_at, int64_at, put_byte_at

Ints = npt.NDArray[np.int64]

DATA, ENDS, WIDTH, LENGTH = range(4)
"""The columns of the table of parts.

- DATA: address of the part's bytes.
- ENDS: address of the offsets of a column; 0 for a text that is the same in each row.
- WIDTH: width of these offsets in bytes (4 or 8); 0 for such a text.
- LENGTH: length of such a text in bytes; 0 for a column.
"""

_INTS = types.int64[::1]
_READ: Any = types.Array(types.int64, 1, "C", readonly=True)
_TABLE = types.int64[:, ::1]
_NOTHING = types.void


@compiled(_NOTHING(_TABLE, _INTS, types.int64))
def join(parts: Any, ends: Ints, out: int) -> None:
    """Concatenates all parts of each row.

    Args:
        parts: the table of parts, see `DATA`.
        ends: receives the offsets of the rows.
        out: address of memory that is large enough for all rows.
    """
    position = np.int64(0)
    for row in range(len(ends) - 1):
        ends[row] = position
        for number in range(parts.shape[0]):
            width, source, length = parts[number, WIDTH], parts[number, DATA], parts[number, LENGTH]
            if width == 4:
                begin: Any = np.int64(int32_at(parts[number, ENDS] + 4 * row))
                source, length = (
                    source + begin,
                    np.int64(int32_at(parts[number, ENDS] + 4 * row + 4)) - begin,
                )
            elif width == 8:
                begin = int64_at(parts[number, ENDS] + 8 * row)
                source, length = source + begin, int64_at(parts[number, ENDS] + 8 * row + 8) - begin
            copy_bytes(source, length, out + position)
            position += length
    ends[len(ends) - 1] = position


@part
def _put_digits(address: int, value: Any, count: int) -> None:
    """Writes the last digits of a number."""
    for digit in range(count - 1, -1, -1):
        put_byte_at(address + digit, np.uint8(48 + value % 10))
        value //= 10


@compiled(_NOTHING(_READ, types.int64, types.int64))
def put_instants(micros: Ints, width: int, out: int) -> None:
    """Formats instants in ISO 8601 with six digits of a second: 26 bytes each.

    Calendar days are computed by Howard Hinnant's "chrono-Compatible Low-Level Date
    Algorithms", in which years begin in March.

    Args:
        micros: microseconds since 1970, in the years 1 to 9999.
        width: the distance in bytes from one instant to the next.
        out: the address of the first instant.
    """
    for row in range(len(micros)):
        address = out + row * width
        seconds = micros[row] // 1_000_000
        days = seconds // 86_400
        of_day = seconds - days * 86_400
        shifted = days + 719_468
        era = shifted // 146_097
        of_era = shifted - era * 146_097
        years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * years + years // 4 - years // 100)
        march = (5 * of_year + 2) // 153
        month = march + 3 if march < 10 else march - 9
        _put_digits(address, years + era * 400 + (1 if month <= 2 else 0), 4)
        put_byte_at(address + 4, np.uint8(45))
        _put_digits(address + 5, month, 2)
        put_byte_at(address + 7, np.uint8(45))
        _put_digits(address + 8, of_year - (153 * march + 2) // 5 + 1, 2)
        put_byte_at(address + 10, np.uint8(84))
        _put_digits(address + 11, of_day // 3600, 2)
        put_byte_at(address + 13, np.uint8(58))
        _put_digits(address + 14, of_day // 60 % 60, 2)
        put_byte_at(address + 16, np.uint8(58))
        _put_digits(address + 17, of_day % 60, 2)
        put_byte_at(address + 19, np.uint8(46))
        _put_digits(address + 20, micros[row] - seconds * 1_000_000, 6)
