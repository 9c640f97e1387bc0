"""What a pass over messages keeps in mind: numbers in one array, for a compiled
function can't change a number of its caller's.

`ENTRIES` of the tape are written; `OBJECTS` have been opened, and `MESSAGES` begun,
ever: so each has a number of its own; `REQUIRED_SEEN` columns that must be there were
in the message; `KEYS_MASK` is how the hashes of its keys are indexed; `SPACES` is how
many there are, and `SPARE` where there is room for a name behind all names. Behind them
stand the frames of what is open, and behind these how many items each space has, now
and before the message. Space 0 has the rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windrow.ingest.formats.json.strict import MAX_DEPTH

ENTRIES, OBJECTS, MESSAGES, REQUIRED_SEEN, KEYS_MASK, SPACES, SPARE = range(7)

FRAMES = 8
FRAME = 8
NODE, CLOSE, OBJECT, INDEX, ITEM, BEGIN, FIELD, TEXT_NODE = range(8)
"""What stands at which place of a frame.

`NODE`: whose value is open, or `UNKNOWN`; `CLOSE`: the bracket that closes it;
`OBJECT`: its own number; `INDEX`: which value of its node it is; `ITEM`: which value of
its children's nodes is the next one; `BEGIN`: where its items begin, or its text;
`FIELD`: where in the tables it stands which field is expected; `TEXT_NODE`: whose value
it is as a text, or `UNKNOWN`.
"""
UNKNOWN = -1
"""The node of what no column is for."""

ITEMS = FRAMES + FRAME * MAX_DEPTH


def fresh_state(spaces: int) -> npt.NDArray[np.int64]:
    """Before any message."""
    state = np.zeros(ITEMS + 2 * spaces, np.int64)
    state[SPACES] = spaces
    return state


def room_for_keys(length: int) -> int:
    """Places for the hashes of keys in so many bytes: a power of two, at least twice as
    many as keys.

    One with its value has five bytes.
    """
    room = 64
    while room < length // 2:
        room *= 2
    return room
