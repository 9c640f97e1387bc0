"""One pass over the bytes of all messages: what is certainly a row is written down, all
else is left alone.

Compiled, and never recursive.

It carries out a program (program.py). What it finds it writes to a tape
(shared/gather.py); of a message that isn't taken the tape is wound back, so that
nothing of it is left and none of its neighbours moves. Each byte is looked at a bounded
number of times: an item of a block has a byte at least, and whatever has none is no
instruction.
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
from windrow.ingest.formats.avro.scalars import enum, fixed, integer, octets, varint, wide, zoned
from windrow.ingest.formats.shared.octets import EDGES, is_utf8
from windrow.ingest.formats.shared.onepass import ENTRIES
from windrow.ingest.formats.shared.rewind import (
    KEYS_MASK,
    MESSAGES,
    begin_message,
    end_message,
)
from windrow.ingest.formats.shared.seen import hash_of, is_first
from windrow.ingest.formats.shared.spread import put
from windrow.ingest.native.making import OCTETS, compiled, inlined, int64, memory, part, uint8

_LOWEST = -(1 << 63)


@part
def is_new(data, at, n, end, number, state, keys):
    """Whether the map has not had this key yet; the keys of all maps of a message share
    one table.
    """
    return is_first(hash_of(data, at, n, end, number), state[MESSAGES], state[KEYS_MASK], keys)


@inlined
def opened(row, frame, index, numbers, state):
    """An array or a map is open."""
    state[MAPS] += 1
    state[frame + REMAINING] = 1
    state[frame + BLOCK_END] = -1
    state[frame + BEGIN] = state[ITEMS + numbers[np.uintp(row + SPACE)]]
    state[frame + INDEX] = index
    state[frame + MAP_NUMBER] = state[MAPS]


@inlined
def key(data, at, end, row, frame, node, index, numbers, state, tape, entry, keys):
    """Of a map's key: behind it, or -1; and where the next entry goes."""
    at, n = octets(data, at, end)
    if at < 0 or not is_utf8(data, at, at + n):
        return -1, entry
    if node >= 0:
        if not is_new(data, at, n, end, state[frame + MAP_NUMBER], state, keys):
            return -1, entry
        entry = put(tape, entry, numbers[np.uintp(row + COUNT)], index, at << 32 | n << 1)
    return at + n, entry


@inlined
def next_item(
    data, at, end, row, pc, frame, budget, node, index, numbers, state, tape, entry, keys
):
    """Into the next item of an array or a map, or out of it: where that is, or -1; the
    instruction, the frame and the rest there.
    """
    state[frame + REMAINING] -= 1
    if state[frame + REMAINING] == 0:
        at, ended = next_block(data, at, end, frame, numbers[np.uintp(row + KEYED)], state)
        if ended:
            if node >= 0:
                items = state[ITEMS + numbers[np.uintp(row + SPACE)]] - state[frame + BEGIN]
                entry = put(tape, entry, node, state[frame + INDEX], items << 1)
            return at, pc, frame - FRAME, budget, state[frame + INDEX], entry
        if at < 0:
            return -1, pc, frame, budget, index, entry
    if node >= 0:
        space = ITEMS + numbers[np.uintp(row + SPACE)]
        index = state[space]
        state[space] += 1
        budget -= numbers[np.uintp(row + COST)]
        if budget < 0:
            return -1, pc, frame, budget, index, entry
    if numbers[np.uintp(row + KEYED)] == 1:
        at, entry = key(data, at, end, row, frame, node, index, numbers, state, tape, entry, keys)
    return at, numbers[np.uintp(row + FIRST)], frame, budget, index, entry


@inlined
def message(data, at, end, begin, budget, numbers, state, tape, keys):
    """Whether the message is a row."""
    pc, frame, index, entry = begin, FRAMES - FRAME, state[ITEMS], state[ENTRIES]
    while at >= 0:
        row = pc * WIDTH
        op, node = numbers[np.uintp(row + OP)], numbers[np.uintp(row + NODE)]
        pc = numbers[np.uintp(row + NEXT)]
        if op <= VARINT_FLOAT:
            at, entry = integer(data, at, end, row, op, node, index, numbers, state, tape, entry)
        elif op <= OCTETS_ANY:
            at, n = octets(data, at, end)
            if at < 0 or (op == OCTETS_TEXT and not is_utf8(data, at, at + n)):
                return False
            if node >= 0:
                entry = put(tape, entry, node, index, at << 32 | n << 1)
            at += n
        elif op <= FIXED_ANY:
            at, entry = fixed(data, at, end, row, op, node, index, numbers, tape, entry)
        elif op == UNION:
            at, branch = varint(data, at, end, INT_BYTES)
            if at < 0 or branch < 0 or branch >= numbers[np.uintp(row + COUNT)]:
                return False
            pc = numbers[np.uintp(numbers[np.uintp(row + FIRST)] + branch)]
        elif op == ENUM:
            at, entry = enum(data, at, end, row, node, index, numbers, tape, entry)
        elif op == LOOP:
            at, pc, frame, budget, index, entry = next_item(
                data,
                at,
                end,
                row,
                pc,
                frame,
                budget,
                node,
                index,
                numbers,
                state,
                tape,
                entry,
                keys,
            )
        elif op <= CALL:
            frame += FRAME
            if frame >= ITEMS:
                return False
            if op == ARRAY:
                opened(row, frame, index, numbers, state)
            else:
                state[frame + INSTRUCTION] = pc
                pc = numbers[np.uintp(row + FIRST)]
        elif op == PRESENT:
            if node >= 0:
                entry = put(tape, entry, node, index, 0)
        elif op == DECIMAL_OCTETS:
            at, entry = wide(data, at, end, row, node, index, numbers, tape, entry)
        elif op == INSTANT_OCTETS:
            at, entry = zoned(data, at, end, row, node, index, numbers, state, tape, entry)
        elif op == RETURN:
            pc = state[frame + INSTRUCTION]
            frame -= FRAME
        elif op == END and at == end:
            state[ENTRIES] = entry
            return True
        else:
            return False
    return False


@part
def next_block(data, at, end, frame, keyed, state):
    """Behind the head of an array's or map's next block, or -1; and whether that is the
    end of all of them.
    """
    if state[frame + BLOCK_END] >= 0 and state[frame + BLOCK_END] != at:
        return -1, False
    at, count = varint(data, at, end, LONG_BYTES)
    if at < 0 or count == 0:
        return at, at >= 0
    state[frame + BLOCK_END] = -1
    if count < 0:
        at, size = varint(data, at, end, LONG_BYTES)
        if at < 0 or size < 0 or size > end - at or count == _LOWEST:
            return -1, False
        count = -count
        state[frame + BLOCK_END] = at + size
    if keyed == 2:
        count = 1  # none of them has a byte: the next thing is a block again
    elif count > end - at:
        return -1, False
    state[frame + REMAINING] = count
    return at, False


@part
def message_or_nothing(data, at, end, begin, budget, numbers, state, tape, keys):
    """Whether the message is a row. If not, all is as it was before."""
    begin_message(state, ITEMS, end - at)
    taken = message(data, at, end, begin, budget, numbers, state, tape, keys)
    return end_message(state, ITEMS, taken)


@compiled(
    (
        OCTETS,
        EDGES,
        EDGES,
        int64,
        int64,
        int64,
        int64[::1],
        int64[::1],
        int64[::1],
        int64[::1],
        uint8[::1],
    )
)
def scan(data, begins, ends, begin, free, share, numbers, state, tape, keys, taken):
    """Write down the messages between `begins` and `ends` that are certainly rows, and
    say in `taken` which.

    `begin`: the program's first instruction; `free`, `share`: what a message's items
    may cost, and how much more for each of its bytes.
    """
    begin_at, end_at, taken_at = memory(begins), memory(ends), memory(taken)
    data_at, numbers_at, state_at, tape_at, keys_at = (
        memory(data),
        memory(numbers),
        memory(state),
        memory(tape),
        memory(keys),
    )
    for i in range(len(begins)):
        at, end = np.int64(begin_at[i]), np.int64(end_at[i])
        budget = free + share * (end - at)
        taken_at[i] = message_or_nothing(
            data_at, at, end, begin, budget, numbers_at, state_at, tape_at, keys_at
        )
