"""Compiled pass over all Protobuf messages: it takes the messages that are certainly rows.

It reads fields by tables (`tables.py`), and writes the values as entries (`shared/entries.py`).
It leaves every message that it isn't certain about to the strict decoder. If a field is
repeated in a message, its last value counts, which Protobuf requires. The pass is a loop over
fields, and never recursive: inner messages are on a stack of frames. It reads each byte a
bounded number of times.

The state of a message being scanned:

- `pos`: the index of the next byte. It is -1 once the message isn't taken; no function is
  called with -1.
- `end`: the end of the innermost open message. No byte from there on is read.
- `table`: the table of the innermost open message.
- `frame`: the place of the innermost open frame, or the place before the first frame. A frame
  keeps the state of the outer message (`tables.FRAME`) until the inner message ends.
- `index`: the index of the innermost open message among the values of its nodes: the row's
  number, or an item's number.
- `bits`: the bits of the fields that the innermost open message has had.
- `entry`: the index of the next entry. `state[ENTRIES]` only changes when the message is taken,
  so the entries of a message that isn't taken are overwritten.
- `cost_budget`: the bytes that the next items of the message may cost (`shared/budget.py`).
- `message_budget`: the bytes that the next inner messages may cost (`budget.py`).
- `row`: the place of the numbers of the field being read.
- `op`: the operation of the field being read.

A returned index of -1 means that the message isn't taken.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.protobuf.budget import inner_budget
from windrow.ingest.formats.protobuf.scalars import instant, passed_over, raw, read_length, tag
from windrow.ingest.formats.protobuf.tables import (
    BITS,
    COST,
    DENSE,
    DENSE_AT,
    DIVIDED,
    DOUBTFUL,
    FACTOR,
    FIXED64,
    FRAME,
    FRAME_BITS,
    FRAME_END,
    FRAME_INDEX,
    FRAME_KEY,
    FRAME_LENGTHS,
    FRAME_PARENT,
    FRAME_TABLE,
    FRAMES,
    HIGH,
    INNER,
    INNER_SPACES,
    INSTANT,
    ITEMS,
    KEY,
    KEYED,
    KIND,
    LENGTHS,
    LOW,
    MESSAGE,
    MESSAGE_COST,
    NEEDS,
    NO_VALUE,
    NODE,
    NUMBER_FLOAT,
    NUMBER_WIDE,
    OCTETS_ANY,
    ONCE,
    OP,
    REPEATED,
    SETS,
    SIZED,
    SPACE,
    SPARSE,
    SPARSE_AT,
    STRICT,
    TABLE,
    UINT64,
    UNKNOWN,
    WIRE,
)
from windrow.ingest.formats.shared.budget import budget
from windrow.ingest.formats.shared.entries import put
from windrow.ingest.formats.shared.octets import EDGES, is_utf8
from windrow.ingest.formats.shared.onepass import ENTRIES, IGNORING, SPACES, TAKEN, room_for_keys
from windrow.ingest.formats.shared.seen import KEYS_MASK, MESSAGES, hash_of, is_first
from windrow.ingest.native.compiling import OCTETS, compiled, inlined, int64, memory, part, uint8

SIGNLESS = (UINT64, FIXED64)
"""Encodings of unsigned numbers of 64 bits. The pass reads numbers from 2**63 on as negative."""

_room_for_keys, _budget = part(room_for_keys), part(budget)
_inner_budget = part(inner_budget)


@inlined
def field_of(numbers, table, number):
    """Returns the place of a field's row, by its number; or UNKNOWN, DOUBTFUL or UNCOUNTED."""
    if number < numbers[np.uintp(table + DENSE)]:
        return numbers[np.uintp(numbers[np.uintp(table + DENSE_AT)] + number)]
    return sparse_field(numbers, table, number)


@part
def sparse_field(numbers, table, number):
    """Returns the place of the row of a field with a large number, by binary search."""
    begin, low, high = numbers[np.uintp(table + SPARSE_AT)], 0, numbers[np.uintp(table + SPARSE)]
    unknown = numbers[np.uintp(begin + 2 * high)]
    while low < high:
        middle = (low + high) >> 1
        middle_number = numbers[np.uintp(begin + 2 * middle)]
        if middle_number == number:
            return numbers[np.uintp(begin + 2 * middle + 1)]
        if middle_number < number:
            low = middle + 1
        else:
            high = middle
    return unknown


@inlined
def open_lists(inner_spaces, spaces, numbers, state):
    """Notes where the lists and maps of a new row or a new item begin. They are empty."""
    for i in range(numbers[np.uintp(inner_spaces)]):
        space = numbers[np.uintp(inner_spaces + 1 + i)]
        state[np.uintp(ITEMS + 2 * spaces + space)] = state[np.uintp(ITEMS + space)]


@inlined
def next_item(row, spaces, numbers, state):
    """Counts an item of a list or map; returns its index among the values of its nodes."""
    counter = np.uintp(ITEMS + numbers[np.uintp(row + SPACE)])
    index = state[counter]
    state[counter] += 1
    open_lists(numbers[np.uintp(row + INNER_SPACES)], spaces, numbers, state)
    return index


@inlined
def put_length(row, index, spaces, numbers, state, entries, entry):
    """Writes the present length of a list or map; returns the index of the next entry."""
    space = numbers[np.uintp(row + SPACE)]
    items = state[np.uintp(ITEMS + space)] - state[np.uintp(ITEMS + 2 * spaces + space)]
    return put(entries, entry, numbers[np.uintp(row + LENGTHS)], index, items << 1)


@inlined
def value(data, pos, end, row, op, index, frame, numbers, state, entries, entry):
    """Scans a value that isn't a message, after its tag.

    Returns:
        The index after the value, or -1; and the index of the next entry.
    """
    kind, node = numbers[np.uintp(row + KIND)], numbers[np.uintp(row + NODE)]
    if kind == SIZED:
        pos, n = read_length(data, pos, end)
        if pos < 0:
            return -1, entry
        if op == INSTANT:
            is_exact, number, is_cut = instant(
                data, pos, pos + n, numbers[np.uintp(row + LOW)] == 1
            )
            entry = put(entries, entry, node, index, number)
            return pos + n if is_exact else -1, put(
                entries, entry, 0, state[ITEMS], 1
            ) if is_cut else entry
        if op != OCTETS_ANY and not is_utf8(data, pos, pos + n):
            return -1, entry
        if op == KEY:
            state[frame + FRAME_KEY] = pos << 32 | n << 1
        if node >= 0:
            entry = put(entries, entry, node, index, pos << 32 | n << 1)
        return pos + n, entry
    pos, number = raw(data, pos, end, kind)
    if pos < 0:
        return -1, entry
    if op == TABLE:
        if number < numbers[np.uintp(row + LOW)] or number > numbers[np.uintp(row + HIGH)]:
            return -1, entry
        number = numbers[
            np.uintp(numbers[np.uintp(row + FACTOR)] + number - numbers[np.uintp(row + LOW)])
        ]
        if number == NO_VALUE:
            return -1, entry
    elif op == NUMBER_WIDE:
        signless = kind in SIGNLESS
        if number < 0 and signless and not numbers[np.uintp(row + LOW)]:
            return -1, entry
        entry = put(entries, entry, node, index, number)
        return pos, put(entries, entry, node, index, 0 if signless else number >> 63)
    elif op != BITS:  # A number with the column's bounds always has a node.
        if number < 0 and kind in SIGNLESS:
            return -1, entry
        if number < numbers[np.uintp(row + LOW)] or number > numbers[np.uintp(row + HIGH)]:
            return -1, entry
        factor = numbers[np.uintp(row + FACTOR)]
        if op == DIVIDED:
            if number % factor:
                if factor > 0:
                    return -1, entry
                # An entry of the document's node marks the row as truncated.
                entry = put(entries, entry, 0, state[ITEMS], 1)
            number //= abs(factor)
        else:
            number = np.float64(number).view(np.int64) if op == NUMBER_FLOAT else number * factor
    return pos, put(entries, entry, node, index, number) if node >= 0 else entry


@inlined
def values(
    data, pos, end, row, op, index, frame, cost_budget, spaces, numbers, state, entries, entry
):
    """Scans the packed values up to `end`; there is at least one value.

    Returns:
        The index after the values, or -1; the rest of the budget; and the index of the next
        entry.
    """
    listed = numbers[np.uintp(row + LENGTHS)] >= 0
    while True:
        value_index = index
        if listed and pos < end:
            value_index = next_item(row, spaces, numbers, state)
            cost_budget -= numbers[np.uintp(row + COST)]
            if cost_budget < 0:
                return -1, cost_budget, entry
        pos, entry = value(
            data, pos, end, row, op, value_index, frame, numbers, state, entries, entry
        )
        if pos < 0 or pos >= end:
            return pos, cost_budget, entry


@part
def scan_packed(
    data, pos, end, row, op, index, frame, cost_budget, spaces, numbers, state, entries, entry
):
    """Scans packed values, if there are any, and writes the length of their list.

    Returns:
        The same as `values`.
    """
    if pos < end:
        pos, cost_budget, entry = values(
            data,
            pos,
            end,
            row,
            op,
            index,
            frame,
            cost_budget,
            spaces,
            numbers,
            state,
            entries,
            entry,
        )
    if pos >= 0 and numbers[np.uintp(row + LENGTHS)] >= 0:
        entry = put_length(row, index, spaces, numbers, state, entries, entry)
    return pos, cost_budget, entry


@inlined
def enter_message(
    pos, value_index, table, end, index, bits, row, frame, numbers, state, entries, entry
):
    """Fills the frame of an inner message, and writes that the message is present.

    `value_index` is the index of the inner message among the values of its nodes. The other
    arguments are the state of the outer message.

    Returns:
        The index of the next entry.
    """
    state[frame + FRAME_TABLE], state[frame + FRAME_END] = table, end
    state[frame + FRAME_INDEX], state[frame + FRAME_BITS] = index, bits
    keyed = numbers[np.uintp(numbers[np.uintp(row + INNER)] + KEYED)] >= 0
    state[frame + FRAME_LENGTHS] = numbers[np.uintp(row + LENGTHS)] if keyed else -1
    state[frame + FRAME_PARENT], state[frame + FRAME_KEY] = index, pos << 32
    node = numbers[np.uintp(row + NODE)]
    if node >= 0:
        for _ in range(numbers[np.uintp(row + FACTOR)]):
            entry = put(entries, entry, node, value_index, 0)
    return entry


@inlined
def may_end(data, end, table, frame, bits, numbers, state, keys):
    """Returns whether the innermost open message may end here.

    It must have all required fields. An entry of a map must also have a key that is new in
    the map. Two keys with the same hash count as equal.
    """
    needed_bits = numbers[np.uintp(table + NEEDS)]
    if bits & needed_bits != needed_bits:
        return False
    if frame < FRAMES or state[frame + FRAME_LENGTHS] < 0:
        return True
    key, map_of = (
        state[frame + FRAME_KEY],
        state[frame + FRAME_LENGTHS] << 32 | state[frame + FRAME_PARENT],
    )
    key_hash = hash_of(data, key >> 32, (key & 0xFFFF_FFFF) >> 1, end, map_of)
    return is_first(key_hash, state[MESSAGES], state[KEYS_MASK], keys)


@inlined
def message(
    data,
    pos,
    end,
    table,
    inner_spaces,
    cost_budget,
    message_budget,
    spaces,
    numbers,
    state,
    entries,
    keys,
):
    """Scans a message; returns 0 if it isn't a row, else `TAKEN` or `IGNORING`.

    If it isn't a row, the caller restores the counts of items.
    """
    frame, index, bits, entry = FRAMES - FRAME, state[ITEMS], 0, state[ENTRIES]
    columnless = 0  # negative once the message has had a field that no column is for
    open_lists(inner_spaces, spaces, numbers, state)
    while pos >= 0:
        if pos == end:
            if not may_end(data, end, table, frame, bits, numbers, state, keys):
                return 0
            if frame < FRAMES:
                state[ENTRIES] = entry
                return IGNORING if columnless < 0 else TAKEN
            end, table = state[frame + FRAME_END], state[frame + FRAME_TABLE]
            index, bits = state[frame + FRAME_INDEX], state[frame + FRAME_BITS]
            frame -= FRAME
            continue
        pos, head = tag(data, pos, end)
        row, wire = field_of(numbers, table, head >> 3), head & 7
        if row < 0:
            columnless = -1 if row == UNKNOWN else columnless
            pos = passed_over(data, pos, end, wire) if pos >= 0 and row != DOUBTFUL else -1
            continue
        op = numbers[np.uintp(row + OP)]
        if op == STRICT or bits & numbers[np.uintp(row + ONCE)]:
            return 0
        columnless |= numbers[np.uintp(row + NODE)] & numbers[np.uintp(row + LENGTHS)]
        if wire != numbers[np.uintp(row + WIRE)]:
            if wire == 2 and numbers[np.uintp(row + REPEATED)]:
                pos, n = read_length(data, pos, end)
                if pos >= 0:
                    pos, cost_budget, entry = scan_packed(
                        data,
                        pos,
                        pos + n,
                        row,
                        op,
                        index,
                        frame,
                        cost_budget,
                        spaces,
                        numbers,
                        state,
                        entries,
                        entry,
                    )
            else:  # If a column is for the field, the strict decoder refuses the message.
                read = numbers[np.uintp(row + NODE)] >= 0 or numbers[np.uintp(row + LENGTHS)] >= 0
                keyed = numbers[np.uintp(table + KEYED)] >= 0
                pos = -1 if read or keyed else passed_over(data, pos, end, wire)
            continue
        bits |= numbers[np.uintp(row + SETS)]
        message_budget -= numbers[np.uintp(row + MESSAGE_COST)]
        value_index = index
        if numbers[np.uintp(row + LENGTHS)] >= 0:
            value_index = next_item(row, spaces, numbers, state)
            cost_budget -= numbers[np.uintp(row + COST)]
            entry = put_length(row, index, spaces, numbers, state, entries, entry)
        if message_budget < 0 or cost_budget < 0:
            return 0
        if op != MESSAGE:
            pos, entry = value(
                data, pos, end, row, op, value_index, frame, numbers, state, entries, entry
            )
            continue
        pos, n = read_length(data, pos, end)
        frame += FRAME
        if frame >= ITEMS:
            return 0
        entry = enter_message(
            pos, value_index, table, end, index, bits, row, frame, numbers, state, entries, entry
        )
        table, end, index, bits = numbers[np.uintp(row + INNER)], pos + n, value_index, 0
    return 0


@part
def message_or_nothing(
    data, pos, end, table, inner_spaces, cost_budget, numbers, state, entries, keys
):
    """Scans a message; returns the same as `message`. If it isn't a row, resets the state."""
    # The loops aren't functions of their own, which would make the pass slower.
    spaces = state[SPACES]
    for space in range(ITEMS, ITEMS + spaces):
        state[space + spaces] = state[space]
    state[MESSAGES] += 1
    state[KEYS_MASK] = _room_for_keys(end - pos) - 1
    message_budget = _inner_budget(end - pos)
    verdict = message(
        data,
        pos,
        end,
        table,
        inner_spaces,
        cost_budget,
        message_budget,
        spaces,
        numbers,
        state,
        entries,
        keys,
    )
    if verdict:
        state[ITEMS] += 1
        return verdict
    for space in range(ITEMS, ITEMS + spaces):
        state[space] = state[space + spaces]
    return 0


@compiled(
    (
        OCTETS,
        EDGES,
        EDGES,
        int64,
        int64,
        int64[::1],
        int64[::1],
        int64[::1],
        int64[::1],
        uint8[::1],
    )
)
def scan(data, begins, ends, table, inner_spaces, numbers, state, entries, keys, verdicts):
    """Takes the messages that are certainly rows.

    Args:
        data: the bytes of all messages.
        begins: the index at which each message begins.
        ends: the index at which each message ends.
        table: `FieldTables.root`.
        inner_spaces: `FieldTables.inner_spaces`.
        numbers: `FieldTables.numbers`.
        state: the state of the pass; written.
        entries: the entries; written.
        keys: the table of keys; written.
        verdicts: 0, `TAKEN` or `IGNORING` for each message; written.
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
            data_at,
            pos,
            end,
            table,
            inner_spaces,
            cost_budget,
            numbers_at,
            state_at,
            entries_at,
            keys_at,
        )
