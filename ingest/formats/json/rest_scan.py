"""Function that notes what no column is for, where rows keep it (`unknown: keep`).

Compiled. `scan.py` explains the arguments.
"""

from __future__ import annotations

from windrow.ingest.formats.json.layout import (
    BEGIN,
    CLOSE,
    FACTOR,
    FIRST,
    FRAME,
    FRAMES,
    HIGH,
    INNER,
    ITEM,
    ITEMS,
    KIND,
    MEMBER,
    NODE,
    REST_BYTES,
    REST_NODE,
    UNCERTAIN,
    UNKNOWN,
    WIDTH,
)
from windrow.ingest.formats.json.scalars import put
from windrow.ingest.formats.json.text import QUOTE
from windrow.ingest.formats.shared.nodes import LIST, STRUCT
from windrow.ingest.formats.shared.octets import byte
from windrow.ingest.native.compiling import part

_BACKSLASH, _SLASH, _TILDE, _CLOSE_ARRAY = b"\\/~]"


@part
def keep_member(data, pos, frame, tables, state, entries):
    """Writes the entries of a member that no column is for, as an item of the node `REST_NODE`.

    The item is the object's node, the index in the list around the object, and the member's
    bytes from its name on. It isn't certain if the object is in two lists or in a map, or if the
    name isn't the same in a pointer.

    Args:
        data: the bytes of all messages.
        pos: the index after the member.
        frame: the place in `state` of the object.
        tables: the columns as numbers.
        state: the state; written.
        entries: the entries; written.
    """
    rest, node, begin = state[REST_NODE], state[frame + NODE], state[MEMBER]
    if rest == 0 or node == UNKNOWN or tables[node * WIDTH + HIGH] == 0:
        return
    item, name = -1, begin
    for above in range(FRAMES, frame, FRAME):
        kind = tables[state[above + NODE] * WIDTH + KIND]
        if kind == LIST and item < 0 and state[above + CLOSE] == _CLOSE_ARRAY:
            item = state[above + ITEM] - state[above + BEGIN]
        elif kind != STRUCT:
            state[REST_BYTES] = UNCERTAIN
    while byte(data, name) not in (QUOTE, _BACKSLASH, _SLASH, _TILDE):
        name += 1
    if byte(data, name) != QUOTE:
        state[REST_BYTES] = UNCERTAIN
    struct, space = tables[rest * WIDTH + FIRST], ITEMS + tables[rest * WIDTH + INNER]
    object_node, index = tables[struct * WIDTH + FIRST], state[space]
    state[space] += 1
    put(entries, state, struct, index, 0)
    put(entries, state, object_node, index, node)
    if item >= 0:
        put(entries, state, object_node + 1, index, item)
    put(entries, state, object_node + 2, index, begin << 32 | (pos - begin) << 1)
    state[REST_BYTES] += pos - begin + tables[node * WIDTH + FACTOR]
