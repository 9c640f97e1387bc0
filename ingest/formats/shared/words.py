"""Eight bytes at a time, as one number of 64 bits whose lowest byte comes first. Compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, none, uint64
from numba.core.cgutils import true_bit

from windrow.ingest.native.making import CHECKED, inlined, intrinsic, part

_U = np.uint64
_ONES = _U(0x0101_0101_0101_0101)
_TOPS = _U(0x8080_8080_8080_8080)
_QUOTES, _BACKSLASHES, _SPACES = (_ONES * _U(c) for c in b'"\\ ')


@intrinsic
def trailing_zeros(_: Any, value: Any) -> Any:
    """Bits below the lowest one that is set, of a number that isn't 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], true_bit)

    return uint64(uint64), code


@intrinsic
def leading_zeros(_: Any, value: Any) -> Any:
    """Bits above the highest one that is set, of a number that isn't 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], true_bit)

    return uint64(uint64), code


@intrinsic
def _stored(_: Any, data: Any, at: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(uint64).as_pointer()
        builder.store(
            arguments[2], builder.bitcast(builder.gep(arguments[0], [arguments[1]]), word), align=1
        )
        return context.get_dummy_value()

    return none(data, int64, uint64), code


@part
def _taken_apart(data, at, word):
    for i in range(8):
        data[at + i] = word >> _U(8 * i) & _U(255)


put_word = _taken_apart if CHECKED else _stored
"""Eight bytes to a place, where there must be room for all of them."""


@inlined
def first_special(word):
    """At which of the bytes stands the first quote, backslash, control character or
    part of a wide character; 8 if there is none.

    A byte is found by the borrow that subtracting makes of it (H. S. Warren, Hacker's
    Delight, 6-1); false finds lie above a true one only.
    """
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = (
        (quotes - _ONES) & ~quotes
        | (backslashes - _ONES) & ~backslashes
        | (word - _SPACES) & ~word
        | word
    )
    found &= _TOPS
    return 8 if found == _U(0) else np.int64(trailing_zeros(found) >> _U(3))
