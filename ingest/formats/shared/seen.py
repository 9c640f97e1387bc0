"""Table of the hashes of the keys that a message has had so far.

Compiled. All messages share one table. An entry of another message counts as empty.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.compiling import below, part, word_at

_U = np.uint64
HASH_STEP = _U(0x9E3779B97F4A7C15)

MESSAGES, KEYS_MASK = range(2, 4)
"""Places in the state of a pass with keys, after the places of every pass (`onepass.py`).

- `MESSAGES`: the number of messages that the pass has ever begun. It numbers each message,
  so that entries that other messages made in the table of keys don't count.
- `KEYS_MASK`: the mask that turns a hash into a place in the table of keys.
"""

MOST_PROBES = 100
"""Limit of the search for an equal key, in steps.

The table is more than half empty, so only crafted keys reach this limit.
"""


@part
def is_first(key_hash, message, mask, keys):
    """Adds a hash, and returns whether the message hasn't had it yet.

    Also returns False if the search takes more than `MOST_PROBES` steps.
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
    """Returns the hash of a key and of the number of the map or object that has the key.

    The hash is easy to forge. So where equal hashes matter, the bytes are compared, or the
    message is left to the strict decoder.

    Args:
        data: the bytes.
        pos: the index of the key's first byte.
        n: the number of bytes of the key.
        end: the index up to which memory may be read.
        number: the number of the map or object.
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
