"""Which keys of a message were there before, by their hashes: one table for all messages, whose entries count for their own. Compiled."""

from __future__ import annotations

from ingest.compiled.making import part

MOST_PROBES = 100
"""Steps of the search for an equal key. By chance it never takes so many: the table is kept more than half empty."""


@part
def is_first(own, message, mask, keys):
    """Whether a message has not had this hash yet; from now on it has. Also not where the search takes too long."""
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
