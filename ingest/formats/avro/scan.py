"""Compiled pass over the bytes of all Avro messages: it takes the messages that are certainly rows.

It executes a program (`program.py`), and writes the values as entries (`shared/entries.py`). It
leaves every message that it isn't certain about to the strict decoder. It is a loop over
instructions, and never recursive. It reads each byte a bounded number of times: each item of a
block has at least one byte, and a type without bytes has no instruction.

The state of a message being scanned:

- `pos`: the index of the next byte. It is -1 once the message isn't taken; no function is
  called with -1.
- `end`: the end of the message. No byte from there on is read.
- `pc`: the number of the next instruction.
- `row`: the place of the current instruction's numbers.
- `frame`: the place of the innermost open frame, or the place before the first frame. Each open
  array, map and call has a frame (`program.FRAME`). The innermost one is closed first.
- `index`: the index of the next value among the values of its node: the row's number, or the
  item's number in the innermost open space.
- `entry`: the index of the next entry. `state[ENTRIES]` only changes when the message is taken,
  so the entries of a message that isn't taken are overwritten.
- `text`: the end of the texts that were copied. A text is copied at once where much of a message
  is passed over, since the columns are made of less memory then.
- `budget`: the bytes that the next items of the message may cost (`shared/budget.py`).

A returned index of -1 means that the message isn't taken.
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
    SKIP,
    SPACE,
    TEXTS,
    TIME_OCTETS,
    UNION,
    VARINT_FLOAT,
    WIDTH,
)
from windrow.ingest.formats.avro.scalars import (
    enum,
    integer,
    octets,
    scan_fixed,
    scan_time_text,
    skip_run,
    varint,
    wide,
)
from windrow.ingest.formats.shared.budget import budget
from windrow.ingest.formats.shared.entries import copy_octets, put
from windrow.ingest.formats.shared.octets import EDGES, is_utf8
from windrow.ingest.formats.shared.onepass import ENTRIES, SPACES, room_for_keys
from windrow.ingest.formats.shared.seen import KEYS_MASK, MESSAGES, hash_of, is_first
from windrow.ingest.native.compiling import OCTETS, compiled, inlined, int64, memory, part, uint8

_LOWEST = -(1 << 63)

_room_for_keys, _budget = part(room_for_keys), part(budget)


@part
def is_new(data, pos, n, end, number, state, keys):
    """Returns whether a key of `n` bytes is new in the map with this number; notes the key.

    The keys of all maps of a message share one table of hashes. Two keys with the same hash
    count as equal, so the strict decoder decides about their message.
    """
    return is_first(hash_of(data, pos, n, end, number), state[MESSAGES], state[KEYS_MASK], keys)


@inlined
def open_items(row, frame, index, numbers, state):
    """Fills the frame of an array or a map that begins.

    It gets the state after the last item of a block. So its `LOOP`, the next instruction,
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
    """Reads a map's key; returns the index after it, or -1, and the index of the next entry."""
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
    """Opens the next item of an array or a map, or closes the array or map after its last item.

    The previous item has been read. `pc` is the instruction after the loop.

    Returns:
        The next `pos`, or -1; and the next `pc`, `frame`, `budget`, `index` and `entry`.
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
def put_octets(data, pos, end, n, row, node, index, numbers, entries, entry, texts, text):
    """Writes the entry of a text or of bytes, which are copied if the program says so.

    Returns:
        The index of the next entry, and the end of the texts that were copied.
    """
    if not numbers[np.uintp(row + COUNT)]:
        return put(entries, entry, node, index, pos << 32 | n << 1), text
    copy_octets(data, pos, end, texts, text, text + n)
    return put(entries, entry, node, index, text << 32 | n << 1 | 1), text + n


@inlined
def message(data, pos, end, begin, budget, numbers, state, entries, keys, texts):
    """Scans a message; returns whether it is a row.

    If it isn't a row, the caller restores the counts of items.
    """
    pc, frame, index = begin, FRAMES - FRAME, state[ITEMS]
    entry, text = state[ENTRIES], state[TEXTS]
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
                entry, text = put_octets(
                    data, pos, end, n, row, node, index, numbers, entries, entry, texts, text
                )
            pos += n
        elif op <= FIXED_ANY:
            pos, entry = scan_fixed(data, pos, end, row, op, node, index, numbers, entries, entry)
        elif op == SKIP:
            pos = skip_run(
                data,
                pos,
                end,
                numbers[np.uintp(row + FIRST)],
                numbers[np.uintp(row + COUNT)],
                numbers,
            )
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
        elif op == TIME_OCTETS:
            pos, entry = scan_time_text(
                data, pos, end, row, node, index, numbers, state, entries, entry
            )
        elif op == RETURN:
            pc = state[frame + INSTRUCTION]
            frame -= FRAME
        elif op == END and pos == end:
            state[ENTRIES], state[TEXTS] = entry, text
            return True
        else:
            return False
    return False


@part
def next_block(data, pos, end, frame, keyed, state):
    """Reads the head of an array's or map's next block.

    The previous block has been read. If its head has its size, it must end at this size.

    Returns:
        The index after the head, or -1; and whether the head is the end of all blocks.
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
        count = 1  # The items have no bytes, so the next block's head follows.
    elif count > end - pos:
        return -1, False
    state[frame + REMAINING] = count
    return pos, False


@part
def message_or_nothing(data, pos, end, begin, budget, numbers, state, entries, keys, texts):
    """Scans a message; returns whether it is a row. If it isn't, resets the state."""
    # The two loops over the spaces are repeated in the scanners of the other formats. As
    # functions of their own they make an Avro pass slower.
    spaces = state[SPACES]
    for space in range(ITEMS, ITEMS + spaces):
        state[space + spaces] = state[space]
    state[MESSAGES] += 1
    state[KEYS_MASK] = _room_for_keys(end - pos) - 1
    if message(data, pos, end, begin, budget, numbers, state, entries, keys, texts):
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
        uint8[::1],
    )
)
def scan(data, begins, ends, begin, numbers, state, entries, keys, texts, verdicts):
    """Takes the messages that are certainly rows.

    Args:
        data: the bytes of all messages.
        begins: the index at which each message begins.
        ends: the index at which each message ends.
        begin: the number of the program's first instruction.
        numbers: the program's numbers.
        state: the state of the pass; written.
        entries: the entries; written.
        keys: the table of keys; written.
        texts: the bytes of symbols, and of texts that are copied; written.
        verdicts: whether each message is a row; written.
    """
    begin_at, end_at, verdicts_at = memory(begins), memory(ends), memory(verdicts)
    data_at, numbers_at, state_at, entries_at, keys_at, texts_at = (
        memory(data),
        memory(numbers),
        memory(state),
        memory(entries),
        memory(keys),
        memory(texts),
    )
    for i in range(len(begins)):
        pos, end = np.int64(begin_at[i]), np.int64(end_at[i])
        cost_budget = _budget(end - pos)
        verdicts_at[i] = message_or_nothing(
            data_at,
            pos,
            end,
            begin,
            cost_budget,
            numbers_at,
            state_at,
            entries_at,
            keys_at,
            texts_at,
        )
