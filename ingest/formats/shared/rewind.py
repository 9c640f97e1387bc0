"""Begins a message in a compiled pass, and undoes it where the message isn't taken.

Compiled.
"""

from __future__ import annotations

from windrow.ingest.formats.shared.onepass import SPACES, room_for_keys
from windrow.ingest.native.making import inlined, part

MESSAGES, KEYS_MASK = range(2, 4)
"""Two numbers of the state, behind those of every pass (`shared.onepass`).

- `MESSAGES`: how many messages were begun, ever. So each message has a number of its
  own, and entries of the table of keys that other messages made don't count.
- `KEYS_MASK`: the mask that makes a place in the table of keys of a hash.
"""

_room_for_keys = part(room_for_keys)


@inlined
def begin_message(state, items, most_keys):
    """Begins a message: numbers it, and notes how many items each space has before it.

    `items`: where the state counts the items of the spaces; `most_keys`: how many keys
    the message may have at most.
    """
    spaces = state[SPACES]
    for space in range(items, items + spaces):
        state[space + spaces] = state[space]
    state[MESSAGES] += 1
    state[KEYS_MASK] = _room_for_keys(most_keys) - 1


@inlined
def end_message(state, items, taken):
    """Counts the row if the message was taken; otherwise restores the counts of items.

    Returns `taken`. What the message wrote to the tape behind the counted entries is
    overwritten by the next message.
    """
    if taken:
        state[items] += 1
        return True
    spaces = state[SPACES]
    for space in range(items, items + spaces):
        state[space] = state[space + spaces]
    return False
