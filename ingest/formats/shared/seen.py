"""Which keys of a message were there before, by their hashes: one table for all
messages, whose entries count for their own.

Compiled.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.making import below, part, word_at

_U = np.uint64
_HASH_STEP = _U(0x9E3779B97F4A7C15)

MOST_PROBES = 100
"""Steps of the search for an equal key.

By chance it never takes so many: the table is kept more than half empty.
"""


@part
def is_first(own, message, mask, keys):
    """Whether a message has not had this hash yet; from now on it has.

    Also not where the search takes too long.
    """
    place = own & mask
    for _ in range(MOST_PROBES):
        if keys[2 * place] != message:
            keys[2 * place] = message
            keys[2 * place + 1] = own
            return True
        if keys[2 * place + 1] == own:
            return False
        place = (place + 1) & mask
    return False


@part
def hash_of(data, at, n, end, number):
    """A hash of n bytes from `at` on, and of a number: whose key it is.

    `end`: up to there memory may be read.
    """
    h = _U(n) ^ _U(number) * _HASH_STEP
    while n > 0:
        if at + 8 <= end:
            word = word_at(data, at) & below(min(n, 8))
        else:
            word = _U(0)
            for i in range(min(n, 8)):
                word |= _U(data[at + i]) << _U(8 * i)
        h = (h ^ word) * _HASH_STEP
        h ^= h >> _U(29)
        at, n = at + 8, n - 8
    h *= _HASH_STEP
    return np.int64(h ^ h >> _U(32))
