"""Compiled pass over the bytes of all messages: takes those that are certainly rows.

It carries out a program (program.py), writes the values as entries (shared/arrow_arrays.py), and
leaves every message that it isn't certain of to the strict decoder. It is a loop over
instructions and never recursive. It reads each byte a bounded number of times: an item
of a block has at least one byte, and what has no byte is no instruction.

The state of a message being scanned:

- `pos`, `end`: the next byte, and the end of the message. Nothing from `end` on is read.
  `pos` is -1 once the message isn't taken; every function below may assume that it isn't.
- `pc`: the number of the next instruction; `row`: the place of its numbers.
- `frame`: the place of the innermost open frame, or the one before the first. A frame
  is an open array, map or call (`program.FRAME`); arrays and maps are left, and calls
  return, in the order in which they were opened.
- `index`: which value of its node comes next: the row's number, or the item's in the
  innermost space that is open.
- `entry`: the next entry. `state[ENTRIES]` changes only when the message is
  taken, so the entries of another message are overwritten.
- `budget`: what the other items of the message may still cost (shared/budget.py).

Functions return -1 for a place if the message isn't taken.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.avro.fit import INT_BYTES, LONG_BYTES
from windrow.ingest.formats.avro.program import (
    ARRAY,
    BEGIN,
    BLOCK_END,
    CALL,
    COST,
    COUNT,
    DECIMAL_OCTETS,
    END,
    ENUM,
    FIRST,
    FIXED_ANY,
    FRAME,
    FRAMES,
    INDEX,
    INSTANT_OCTETS,
    INSTRUCTION,
    ITEMS,
    KEYED,
    LOOP,
    MAP_NUMBER,
    MAPS,
    NEXT,
    NODE,
    OCTETS_ANY,
    OCTETS_TEXT,
    OP,
    PRESENT,
    REMAINING,
    RETURN,
    SPACE,
    UNION,
    VARINT_FLOAT,
    WIDTH,
)
from windrow.ingest.formats.avro.scalars import (
    enum,
    integer,
    octets,
    scan_fixed,
    scan_zoned,
    varint,
    wide,
)
from windrow.ingest.formats.shared.budget import budget
from windrow.ingest.formats.shared.entries import put
from windrow.ingest.formats.shared.octets import EDGES, is_utf8
from windrow.ingest.formats.shared.onepass import ENTRIES, SPACES, room_for_keys
from windrow.ingest.formats.shared.seen import KEYS_MASK, MESSAGES, hash_of, is_first
from windrow.ingest.native.compiling import OCTETS, compiled, inlined, int64, memory, part, uint8

_LOWEST = -(1 << 63)

_room_for_keys, _budget = part(room_for_keys), part(budget)


@part
def is_new(data, pos, n, end, number, state, keys):
    """Returns whether a key of n bytes is new in the map of this number; notes the key.

    The keys of all maps of a message share one table of hashes, so two keys with the
    same hash count as equal: then the strict decoder decides.
    """
    return is_first(hash_of(data, pos, n, end, number), state[MESSAGES], state[KEYS_MASK], keys)


@inlined
def open_items(row, frame, index, numbers, state):
    """Fills the frame of an array or a map that begins.

    It is filled as at the last item of a block, so that its `LOOP`, which comes next,
    reads the head of the first block.
    """
    state[MAPS] += 1
    state[frame + REMAINING] = 1
    state[frame + BLOCK_END] = -1
    state[frame + BEGIN] = state[ITEMS + numbers[np.uintp(row + SPACE)]]
    state[frame + INDEX] = index
    state[frame + MAP_NUMBER] = state[MAPS]


@inlined
def read_key(data, pos, end, row, frame, node, index, numbers, state, entries, entry, keys):
    """Reads a map's key. Returns the place after it, or -1, and the next entry."""
    pos, n = octets(data, pos, end)
    if pos < 0 or not is_utf8(data, pos, pos + n):
        return -1, entry
    if node >= 0:
        if not is_new(data, pos, n, end, state[frame + MAP_NUMBER], state, keys):
            return -1, entry
        entry = put(entries, entry, numbers[np.uintp(row + COUNT)], index, pos << 32 | n << 1)
    return pos + n, entry


@inlined
def next_item(
    data, pos, end, row, pc, frame, budget, node, index, numbers, state, entries, entry, keys
):
    """Goes on to the next item of an array or a map, or leaves it after the last one.

    The item before it, if any, is read. Returns the place, or -1, and `pc`, `frame`,
    `budget`, `index` and `entry` to go on with. When it is called, `pc` is the
    instruction after the loop.
    """
    state[frame + REMAINING] -= 1
    if state[frame + REMAINING] == 0:
        pos, ended = next_block(data, pos, end, frame, numbers[np.uintp(row + KEYED)], state)
        if ended:
            if node >= 0:
                items = state[ITEMS + numbers[np.uintp(row + SPACE)]] - state[frame + BEGIN]
                entry = put(entries, entry, node, state[frame + INDEX], items << 1)
            return pos, pc, frame - FRAME, budget, state[frame + INDEX], entry
        if pos < 0:
            return -1, pc, frame, budget, index, entry
    if node >= 0:
        space = ITEMS + numbers[np.uintp(row + SPACE)]
        index = state[space]
        state[space] += 1
        budget -= numbers[np.uintp(row + COST)]
        if budget < 0:
            return -1, pc, frame, budget, index, entry
    if numbers[np.uintp(row + KEYED)] == 1:
        pos, entry = read_key(
            data, pos, end, row, frame, node, index, numbers, state, entries, entry, keys
        )
    return pos, numbers[np.uintp(row + FIRST)], frame, budget, index, entry


@inlined
def message(data, pos, end, begin, budget, numbers, state, entries, keys):
    """Scans one message; returns whether it is a row.

    If it isn't, the caller restores the counts of items.
    """
    pc, frame, index, entry = begin, FRAMES - FRAME, state[ITEMS], state[ENTRIES]
    while pos >= 0:
        row = pc * WIDTH
        op, node = numbers[np.uintp(row + OP)], numbers[np.uintp(row + NODE)]
        pc = numbers[np.uintp(row + NEXT)]
        if op <= VARINT_FLOAT:
            pos, entry = integer(
                data, pos, end, row, op, node, index, numbers, state, entries, entry
            )
        elif op <= OCTETS_ANY:
            pos, n = octets(data, pos, end)
            if pos < 0 or (op == OCTETS_TEXT and not is_utf8(data, pos, pos + n)):
                return False
            if node >= 0:
                entry = put(entries, entry, node, index, pos << 32 | n << 1)
            pos += n
        elif op <= FIXED_ANY:
            pos, entry = scan_fixed(data, pos, end, row, op, node, index, numbers, entries, entry)
        elif op == UNION:
            pos, branch = varint(data, pos, end, INT_BYTES)
            if pos < 0 or branch < 0 or branch >= numbers[np.uintp(row + COUNT)]:
                return False
            pc = numbers[np.uintp(numbers[np.uintp(row + FIRST)] + branch)]
        elif op == ENUM:
            pos, entry = enum(data, pos, end, row, node, index, numbers, entries, entry)
        elif op == LOOP:
            pos, pc, frame, budget, index, entry = next_item(
                data,
                pos,
                end,
                row,
                pc,
                frame,
                budget,
                node,
                index,
                numbers,
                state,
                entries,
                entry,
                keys,
            )
        elif op <= CALL:
            frame += FRAME
            if frame >= ITEMS:
                return False
            if op == ARRAY:
                open_items(row, frame, index, numbers, state)
            else:
                state[frame + INSTRUCTION] = pc
                pc = numbers[np.uintp(row + FIRST)]
        elif op == PRESENT:
            if node >= 0:
                entry = put(entries, entry, node, index, 0)
        elif op == DECIMAL_OCTETS:
            pos, entry = wide(data, pos, end, row, node, index, numbers, entries, entry)
        elif op == INSTANT_OCTETS:
            pos, entry = scan_zoned(
                data, pos, end, row, node, index, numbers, state, entries, entry
            )
        elif op == RETURN:
            pc = state[frame + INSTRUCTION]
            frame -= FRAME
        elif op == END and pos == end:
            state[ENTRIES] = entry
            return True
        else:
            return False
    return False


@part
def next_block(data, pos, end, frame, keyed, state):
    """Reads the head of an array's or map's next block.

    Returns the place after it, or -1, and whether it was the end of all blocks. The block
    before it, if any, is read, and must end where its own head said.
    """
    if state[frame + BLOCK_END] >= 0 and state[frame + BLOCK_END] != pos:
        return -1, False
    pos, count = varint(data, pos, end, LONG_BYTES)
    if pos < 0 or count == 0:
        return pos, pos >= 0
    state[frame + BLOCK_END] = -1
    if count < 0:
        pos, size = varint(data, pos, end, LONG_BYTES)
        if pos < 0 or size < 0 or size > end - pos or count == _LOWEST:
            return -1, False
        count = -count
        state[frame + BLOCK_END] = pos + size
    if keyed == 2:
        count = 1  # the items have no bytes: what follows is the next block's head
    elif count > end - pos:
        return -1, False
    state[frame + REMAINING] = count
    return pos, False


@part
def message_or_nothing(data, pos, end, begin, budget, numbers, state, entries, keys):
    """Scans one message; returns whether it is a row. If not, the state is as before it."""
    # Two loops over the spaces are written out here, and in the scanners of the other
    # formats: as functions of their own they make an Avro pass slower.
    spaces = state[SPACES]
    for space in range(ITEMS, ITEMS + spaces):
        state[space + spaces] = state[space]
    state[MESSAGES] += 1
    state[KEYS_MASK] = _room_for_keys(end - pos) - 1
    if message(data, pos, end, begin, budget, numbers, state, entries, keys):
        state[ITEMS] += 1
        return True
    for space in range(ITEMS, ITEMS + spaces):
        state[space] = state[space + spaces]
    return False


@compiled(
    (
        OCTETS,
        EDGES,
        EDGES,
        int64,
        int64[::1],
        int64[::1],
        int64[::1],
        int64[::1],
        uint8[::1],
    )
)
def scan(data, begins, ends, begin, numbers, state, entries, keys, verdicts):
    """Scans the messages between `begins` and `ends`; notes in `verdicts` which are rows.

    `begin`: the program's first instruction.
    """
    begin_at, end_at, verdicts_at = memory(begins), memory(ends), memory(verdicts)
    data_at, numbers_at, state_at, entries_at, keys_at = (
        memory(data),
        memory(numbers),
        memory(state),
        memory(entries),
        memory(keys),
    )
    for i in range(len(begins)):
        pos, end = np.int64(begin_at[i]), np.int64(end_at[i])
        cost_budget = _budget(end - pos)
        verdicts_at[i] = message_or_nothing(
            data_at, pos, end, begin, cost_budget, numbers_at, state_at, entries_at, keys_at
        )
