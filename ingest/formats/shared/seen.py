"""Keys that a message has had, by their hashes.

Compiled. All messages share one table: entries of other messages count as empty.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.compiling import below, part, word_at

_U = np.uint64
HASH_STEP = _U(0x9E3779B97F4A7C15)

MESSAGES, KEYS_MASK = range(2, 4)
"""Two places in the state of a pass with keys, after those of every pass (`onepass.py`).

- `MESSAGES`: how many messages were begun, ever. So each message has a number of its
  own, and entries of the table of keys that other messages made don't count.
- `KEYS_MASK`: the mask that makes a place in the table of keys of a hash.
"""

MOST_PROBES = 100
"""Steps of the search for an equal key.

By chance it never takes so many: the table is more than half empty.
"""


@part
def is_first(key_hash, message, mask, keys):
    """Returns whether a message has not had this hash yet, and adds it.

    Also False if the search takes too long.
    """
    slot = key_hash & mask
    for _ in range(MOST_PROBES):
        if keys[2 * slot] != message:
            keys[2 * slot] = message
            keys[2 * slot + 1] = key_hash
            return True
        if keys[2 * slot + 1] == key_hash:
            return False
        slot = (slot + 1) & mask
    return False


@part
def hash_of(data, pos, n, end, number):
    """Hash of n bytes from `pos` on, and of the number of the map or object that has the key.

    `end`: memory may be read up to this index. Where equal hashes matter, the bytes are
    compared, or the message is left to the strict decoder: so nothing depends on hashes that
    are hard to forge.
    """
    h = _U(n) ^ _U(number) * HASH_STEP
    while n > 0 and pos + 8 <= end:
        h = (h ^ (word_at(data, pos) & below(min(n, 8)))) * HASH_STEP
        h ^= h >> _U(29)
        pos, n = pos + 8, n - 8
    while n > 0:
        word = _U(0)
        for i in range(min(n, 8)):
            word |= _U(data[pos + i]) << _U(8 * i)
        h = (h ^ word) * HASH_STEP
        h ^= h >> _U(29)
        pos, n = pos + 8, n - 8
    h *= HASH_STEP
    return np.int64(h ^ h >> _U(32))
