"""Compiled pass over the bytes of all messages: takes those that are certainly rows.

It goes by tables of fields (tables.py), writes the values as entries (shared/arrow_arrays.py),
and leaves every message that it isn't certain of to the strict decoder. If a field comes
again, its later value counts, as Protobuf demands. The pass is a loop over fields and never
recursive: messages inside a message are on a stack of frames. It reads each byte a bounded
number of times.

The state of a message being scanned:

- `at`: the next byte. It is -1 once the message isn't taken; every function below may
  assume that it isn't.
- `end`, `table`: the end and the table of the innermost message that is open. Nothing
  from `end` on is read.
- `frame`: the place of the innermost open frame, or the one before the first. A frame
  keeps the state of the message around (`tables.FRAME`) until the message inside ends.
- `index`: which value of its nodes the innermost open message is: the row's number, or an
  item's.
- `bits`: which of the fields that have bits have come in the innermost open message.
- `entry`: the next entry. `state[ENTRIES]` changes only when the message is
  taken, so the entries of another message are overwritten.
- `left`: what the other items of the message may still cost (shared/budget.py);
  `inner_left`: what its other messages inside may still cost (budget.py).
- `row`: the place of the numbers of the field being read; `op`: its operation.

Functions return -1 for a place if the message isn't taken.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.protobuf.budget import inner_budget
from windrow.ingest.formats.protobuf.scalars import instant, passed_over, raw, sized, tag
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
"""Encodings of unsigned numbers of 64 bits: the pass reads those from 2**63 on as negative."""

_room_for_keys, _budget = part(room_for_keys), part(budget)
_inner_budget = part(inner_budget)


@inlined
def field_of(numbers, table, number):
    """Returns the place of a field's row by its number; or UNKNOWN, DOUBTFUL or UNCOUNTED."""
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
        other = numbers[np.uintp(begin + 2 * middle)]
        if other == number:
            return numbers[np.uintp(begin + 2 * middle + 1)]
        if other < number:
            low = middle + 1
        else:
            high = middle
    return unknown


@inlined
def open_lists(inner_spaces, spaces, numbers, state):
    """Notes where the lists and maps of a new row, or of a new item, begin: all are empty."""
    for i in range(numbers[np.uintp(inner_spaces)]):
        space = numbers[np.uintp(inner_spaces + 1 + i)]
        state[np.uintp(ITEMS + 2 * spaces + space)] = state[np.uintp(ITEMS + space)]


@inlined
def next_item(row, spaces, numbers, state):
    """Counts one more item of a list or map; returns which value of its nodes it is."""
    at = np.uintp(ITEMS + numbers[np.uintp(row + SPACE)])
    index = state[at]
    state[at] += 1
    open_lists(numbers[np.uintp(row + INNER_SPACES)], spaces, numbers, state)
    return index


@inlined
def put_length(row, index, spaces, numbers, state, entries, entry):
    """Writes the length that a list or map has by now. Returns the next entry."""
    space = numbers[np.uintp(row + SPACE)]
    items = state[np.uintp(ITEMS + space)] - state[np.uintp(ITEMS + 2 * spaces + space)]
    return put(entries, entry, numbers[np.uintp(row + LENGTHS)], index, items << 1)


@inlined
def value(data, at, end, row, op, index, frame, numbers, state, entries, entry):
    """Scans one value, other than a message; its tag is read.

    Returns the place after it, or -1, and the next entry.
    """
    kind, node = numbers[np.uintp(row + KIND)], numbers[np.uintp(row + NODE)]
    if kind == SIZED:
        at, n = sized(data, at, end)
        if at < 0:
            return -1, entry
        if op == INSTANT:
            sure, number, cut = instant(data, at, at + n, numbers[np.uintp(row + LOW)] == 1)
            entry = put(entries, entry, node, index, number)
            return at + n if sure else -1, put(entries, entry, 0, state[ITEMS], 1) if cut else entry
        if op != OCTETS_ANY and not is_utf8(data, at, at + n):
            return -1, entry
        if op == KEY:
            state[frame + FRAME_KEY] = at << 32 | n << 1
        if node >= 0:
            entry = put(entries, entry, node, index, at << 32 | n << 1)
        return at + n, entry
    at, number = raw(data, at, end, kind)
    if at < 0:
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
        return at, put(entries, entry, node, index, 0 if signless else number >> 63)
    elif op != BITS:  # a number within the column's bounds, so there is a node
        if number < 0 and kind in SIGNLESS:
            return -1, entry
        if number < numbers[np.uintp(row + LOW)] or number > numbers[np.uintp(row + HIGH)]:
            return -1, entry
        factor = numbers[np.uintp(row + FACTOR)]
        if op == DIVIDED:
            if number % factor:
                if factor > 0:
                    return -1, entry
                # an entry of the row's node notes that a value was truncated
                entry = put(entries, entry, 0, state[ITEMS], 1)
            number //= abs(factor)
        else:
            number = np.float64(number).view(np.int64) if op == NUMBER_FLOAT else number * factor
    return at, put(entries, entry, node, index, number) if node >= 0 else entry


@inlined
def values(data, at, end, row, op, index, frame, left, spaces, numbers, state, entries, entry):
    """Scans the values that are packed up to `end`; there is at least one.

    Returns the place after them, or -1, the rest of the budget, and the next entry.
    """
    listed = numbers[np.uintp(row + LENGTHS)] >= 0
    while True:
        own = index
        if listed and at < end:
            own = next_item(row, spaces, numbers, state)
            left -= numbers[np.uintp(row + COST)]
            if left < 0:
                return -1, left, entry
        at, entry = value(data, at, end, row, op, own, frame, numbers, state, entries, entry)
        if at < 0 or at >= end:
            return at, left, entry


@part
def packed(data, at, end, row, op, index, frame, left, spaces, numbers, state, entries, entry):
    """Scans packed values, which may be none, and writes the length of their list.

    Returns the same as `values`.
    """
    if at < end:
        at, left, entry = values(
            data, at, end, row, op, index, frame, left, spaces, numbers, state, entries, entry
        )
    if at >= 0 and numbers[np.uintp(row + LENGTHS)] >= 0:
        entry = put_length(row, index, spaces, numbers, state, entries, entry)
    return at, left, entry


@inlined
def entered(at, own, table, end, index, bits, row, frame, numbers, state, entries, entry):
    """Fills the frame of a message inside, and writes that the message is present.

    `own`: which value of its nodes the message is; the other arguments are the state of
    the message around it. Returns the next entry.
    """
    state[frame + FRAME_TABLE], state[frame + FRAME_END] = table, end
    state[frame + FRAME_INDEX], state[frame + FRAME_BITS] = index, bits
    keyed = numbers[np.uintp(numbers[np.uintp(row + INNER)] + KEYED)] >= 0
    state[frame + FRAME_LENGTHS] = numbers[np.uintp(row + LENGTHS)] if keyed else -1
    state[frame + FRAME_PARENT], state[frame + FRAME_KEY] = index, at << 32
    node = numbers[np.uintp(row + NODE)]
    if node >= 0:
        for _ in range(numbers[np.uintp(row + FACTOR)]):
            entry = put(entries, entry, node, own, 0)
    return entry


@inlined
def may_end(data, end, table, frame, bits, numbers, state, keys):
    """Returns whether the innermost open message may end here.

    It must have all required fields. An entry of a map must also have a key that is new
    in the map: two keys with the same hash count as equal.
    """
    needs = numbers[np.uintp(table + NEEDS)]
    if bits & needs != needs:
        return False
    if frame < FRAMES or state[frame + FRAME_LENGTHS] < 0:
        return True
    key, map_of = (
        state[frame + FRAME_KEY],
        state[frame + FRAME_LENGTHS] << 32 | state[frame + FRAME_PARENT],
    )
    own = hash_of(data, key >> 32, (key & 0xFFFF_FFFF) >> 1, end, map_of)
    return is_first(own, state[MESSAGES], state[KEYS_MASK], keys)


@inlined
def message(
    data, at, end, table, inner_spaces, left, inner_left, spaces, numbers, state, entries, keys
):
    """Scans one message; returns 0 if it isn't a row, else `TAKEN` or `IGNORING`.

    If it isn't, the caller restores the counts of items.
    """
    frame, index, bits, entry = FRAMES - FRAME, state[ITEMS], 0, state[ENTRIES]
    columnless = 0  # negative once a field has come that no column is for
    open_lists(inner_spaces, spaces, numbers, state)
    while at >= 0:
        if at == end:
            if not may_end(data, end, table, frame, bits, numbers, state, keys):
                return 0
            if frame < FRAMES:
                state[ENTRIES] = entry
                return IGNORING if columnless < 0 else TAKEN
            end, table = state[frame + FRAME_END], state[frame + FRAME_TABLE]
            index, bits = state[frame + FRAME_INDEX], state[frame + FRAME_BITS]
            frame -= FRAME
            continue
        at, head = tag(data, at, end)
        row, wire = field_of(numbers, table, head >> 3), head & 7
        if row < 0:
            columnless = -1 if row == UNKNOWN else columnless
            at = passed_over(data, at, end, wire) if at >= 0 and row != DOUBTFUL else -1
            continue
        op = numbers[np.uintp(row + OP)]
        if op == STRICT or bits & numbers[np.uintp(row + ONCE)]:
            return 0
        columnless |= numbers[np.uintp(row + NODE)] & numbers[np.uintp(row + LENGTHS)]
        if wire != numbers[np.uintp(row + WIRE)]:
            if wire == 2 and numbers[np.uintp(row + REPEATED)]:
                at, n = sized(data, at, end)
                if at >= 0:
                    at, left, entry = packed(
                        data,
                        at,
                        at + n,
                        row,
                        op,
                        index,
                        frame,
                        left,
                        spaces,
                        numbers,
                        state,
                        entries,
                        entry,
                    )
            else:  # where a column is for the field, the strict decoder refuses the message
                read = numbers[np.uintp(row + NODE)] >= 0 or numbers[np.uintp(row + LENGTHS)] >= 0
                keyed = numbers[np.uintp(table + KEYED)] >= 0
                at = -1 if read or keyed else passed_over(data, at, end, wire)
            continue
        bits |= numbers[np.uintp(row + SETS)]
        inner_left -= numbers[np.uintp(row + MESSAGE_COST)]
        own = index
        if numbers[np.uintp(row + LENGTHS)] >= 0:
            own = next_item(row, spaces, numbers, state)
            left -= numbers[np.uintp(row + COST)]
            entry = put_length(row, index, spaces, numbers, state, entries, entry)
        if inner_left < 0 or left < 0:
            return 0
        if op != MESSAGE:
            at, entry = value(data, at, end, row, op, own, frame, numbers, state, entries, entry)
            continue
        at, n = sized(data, at, end)
        frame += FRAME
        if frame >= ITEMS:
            return 0
        entry = entered(
            at, own, table, end, index, bits, row, frame, numbers, state, entries, entry
        )
        table, end, index, bits = numbers[np.uintp(row + INNER)], at + n, own, 0
    return 0


@part
def message_or_nothing(data, at, end, table, inner_spaces, left, numbers, state, entries, keys):
    """Scans one message as `message` does. If it isn't a row, the state is as before it."""
    # the loops are written out as in Avro's scanner
    spaces = state[SPACES]
    for space in range(ITEMS, ITEMS + spaces):
        state[space + spaces] = state[space]
    state[MESSAGES] += 1
    state[KEYS_MASK] = _room_for_keys(end - at) - 1
    inner_left = _inner_budget(end - at)
    taken = message(
        data, at, end, table, inner_spaces, left, inner_left, spaces, numbers, state, entries, keys
    )
    if taken:
        state[ITEMS] += 1
        return taken
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
def scan(data, begins, ends, table, inner_spaces, numbers, state, entries, keys, taken):
    """Scans the messages between `begins` and `ends`; notes in `taken` which are rows.

    It also notes there which of these have fields that no column is for.

    `table`, `inner_spaces`: the tables' `root` and `inner_spaces`.
    """
    begin_at, end_at, taken_at = memory(begins), memory(ends), memory(taken)
    data_at, numbers_at, state_at, entries_at, keys_at = (
        memory(data),
        memory(numbers),
        memory(state),
        memory(entries),
        memory(keys),
    )
    for i in range(len(begins)):
        at, end = np.int64(begin_at[i]), np.int64(end_at[i])
        left = _budget(end - at)
        taken_at[i] = message_or_nothing(
            data_at, at, end, table, inner_spaces, left, numbers_at, state_at, entries_at, keys_at
        )
