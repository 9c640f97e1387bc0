"""What a pass over messages keeps in mind: numbers in one array, for a compiled
function can't change a number of its caller's.
"""

from __future__ import annotations

MAX_DEPTH = 60
"""Messages in one another that the pass takes; Protobuf's library takes a hundred."""

ENTRIES, MESSAGES, KEYS_MASK, SPACES = range(4)
"""What stands at which place of the state: entries of the tape; messages that were
begun, ever; how the hashes of keys are indexed; the spaces.
"""
FRAMES = 4
FRAME = 7
FRAME_TABLE, FRAME_END, FRAME_INDEX, FRAME_BITS, FRAME_PARENT, FRAME_LENGTHS, FRAME_KEY = range(
    FRAME
)
"""Of a message inside that is open: table, end, index and bits of the one around it; of
a map's entry also which value of its map it is, the map's node (-1: it is none that a
column is for), and where its key stands, as a text's value says it.
"""
ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Behind the frames: how many items each space has, now; the same before the message;
where the open list of each space begins.

Space 0 has the rows.
"""


def room_for_keys(length: int) -> int:
    """Places for the keys in so many bytes: a power of two, at least twice as many.

    An entry has two bytes.
    """
    room = 64
    while room < length:
        room *= 2
    return room
