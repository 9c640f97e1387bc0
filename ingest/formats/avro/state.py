"""What a pass over messages keeps in mind: numbers in one array, for a compiled
function can't change a number of its caller's.
"""

from __future__ import annotations

from windrow.ingest.formats.avro.strict import MAX_DEPTH

ENTRIES, MAPS, MESSAGES, KEYS_MASK, SPACES = range(5)
"""What stands at which place of the state: entries of the tape; maps that were opened
and messages that were begun, ever; how the hashes of keys are indexed; the spaces.
"""
FRAMES = 5
FRAME = 6
INSTRUCTION, REMAINING, BLOCK_END, BEGIN, INDEX, MAP_NUMBER = range(FRAME)
"""Of an array or map that is open, or a call: where it goes on; items that its block
still has, the one that is read among them; where its block ends, or -1; where its items
begin; which value of its node it is; its own number.
"""
ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Behind the frames: how many items each space has, now and before the message.

Space 0 has the rows.
"""


def room_for_keys(length: int) -> int:
    """Places for the keys in so many bytes: a power of two, at least twice as many.

    One with its value has two bytes.
    """
    room = 64
    while room < length:
        room *= 2
    return room
