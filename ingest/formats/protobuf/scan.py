"""One pass over the bytes of all messages: what is certainly a row is written down, all
else is left alone.

Compiled, and never recursive.

It goes by tables of fields (tables.py); messages inside a message stand on a stack.
What it finds it writes to a tape (shared/gather.py), where a field that comes again
takes the place of the one before, as Protobuf wants it. Of a message that isn't taken
the tape is wound back, so that nothing of it is left and none of its neighbours moves.
Each byte is looked at a bounded number of times.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.protobuf.scalars import instant, passed_over, raw, sized, tag
from windrow.ingest.formats.protobuf.tables import (
    BITS,
    COST,
    DENSE,
    DENSE_AT,
    DIVIDED,
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
    INSTANT,
    ITEMS,
    KEY,
    KEYED,
    KIDS,
    KIND,
    LENGTHS,
    LOW,
    MESSAGE,
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
    WEIGHT,
    WIRE,
)
from windrow.ingest.formats.protobuf.weight import FREE as FREE_WEIGHT
from windrow.ingest.formats.protobuf.weight import SHARE as WEIGHT_SHARE
from windrow.ingest.formats.protobuf.weight import SMALL
from windrow.ingest.formats.shared.octets import EDGES, is_utf8
from windrow.ingest.formats.shared.onepass import ENTRIES, SPACES
from windrow.ingest.formats.shared.rewind import (
    KEYS_MASK,
    MESSAGES,
    begin_message,
    end_message,
)
from windrow.ingest.formats.shared.seen import hash_of, is_first
from windrow.ingest.formats.shared.spread import put
from windrow.ingest.native.making import OCTETS, compiled, inlined, int64, memory, part, uint8

SIGNLESS = (UINT64, FIXED64)
"""Kinds of numbers of which a negative one is a large one here."""


@inlined
def field_of(numbers, table, number):
    """Where a field stands among the numbers, by its number; or UNKNOWN, or DOUBTFUL."""
    if number < numbers[np.uintp(table + DENSE)]:
        return numbers[np.uintp(numbers[np.uintp(table + DENSE_AT)] + number)]
    return rare_field(numbers, table, number)


@part
def rare_field(numbers, table, number):
    """The same of one that isn't found by its number alone."""
    begin, low, high = numbers[np.uintp(table + SPARSE_AT)], 0, numbers[np.uintp(table + SPARSE)]
    unknown = numbers[np.uintp(begin + 2 * high)]
    while low < high:
        middle = (low + high) >> 1
        there = numbers[np.uintp(begin + 2 * middle)]
        if there == number:
            return numbers[np.uintp(begin + 2 * middle + 1)]
        if there < number:
            low = middle + 1
        else:
            high = middle
    return unknown


@inlined
def opened(kids, spaces, numbers, state):
    """The lists of a new row, or of a new item, are empty."""
    for i in range(numbers[np.uintp(kids)]):
        space = numbers[np.uintp(kids + 1 + i)]
        state[np.uintp(ITEMS + 2 * spaces + space)] = state[np.uintp(ITEMS + space)]


@inlined
def next_item(row, spaces, numbers, state):
    """Which value of its nodes the next item of a list or map is."""
    at = np.uintp(ITEMS + numbers[np.uintp(row + SPACE)])
    index = state[at]
    state[at] += 1
    opened(numbers[np.uintp(row + KIDS)], spaces, numbers, state)
    return index


@inlined
def length(row, index, spaces, numbers, state, tape, entry):
    """Write down how long the list or map is by now."""
    space = numbers[np.uintp(row + SPACE)]
    items = state[np.uintp(ITEMS + space)] - state[np.uintp(ITEMS + 2 * spaces + space)]
    return put(tape, entry, numbers[np.uintp(row + LENGTHS)], index, items << 1)


@inlined
def value(data, at, end, row, op, index, frame, numbers, state, tape, entry):
    """Of one value, without its tag: behind it, or -1; and where the next entry goes."""
    kind, node = numbers[np.uintp(row + KIND)], numbers[np.uintp(row + NODE)]
    if kind == SIZED:
        at, n = sized(data, at, end)
        if at < 0:
            return -1, entry
        if op == INSTANT:
            sure, number, cut = instant(data, at, at + n, numbers[np.uintp(row + LOW)] == 1)
            entry = put(tape, entry, node, index, number)
            return at + n if sure else -1, put(tape, entry, 0, state[ITEMS], 1) if cut else entry
        if op != OCTETS_ANY and not is_utf8(data, at, at + n):
            return -1, entry
        if op == KEY:
            state[frame + FRAME_KEY] = at << 32 | n << 1
        if node >= 0:
            entry = put(tape, entry, node, index, at << 32 | n << 1)
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
        entry = put(tape, entry, node, index, number)
        return at, put(tape, entry, node, index, 0 if signless else number >> 63)
    elif op != BITS:  # the column's bounds: it has a node
        if number < 0 and kind in SIGNLESS:
            return -1, entry
        if number < numbers[np.uintp(row + LOW)] or number > numbers[np.uintp(row + HIGH)]:
            return -1, entry
        factor = numbers[np.uintp(row + FACTOR)]
        if op == DIVIDED:
            if number % factor:
                if factor > 0:
                    return -1, entry
                # the message's node says that it was truncated
                entry = put(tape, entry, 0, state[ITEMS], 1)
            number //= abs(factor)
        else:
            number = np.float64(number).view(np.int64) if op == NUMBER_FLOAT else number * factor
    return at, put(tape, entry, node, index, number) if node >= 0 else entry


@inlined
def values(data, at, end, row, op, index, frame, left, spaces, numbers, state, tape, entry):
    """Of values that are packed up to `end`: behind them, or -1; what is left of the
    budget; where the next entry goes.
    """
    listed = numbers[np.uintp(row + LENGTHS)] >= 0
    while True:
        own = index
        if listed and at < end:
            own = next_item(row, spaces, numbers, state)
            left -= numbers[np.uintp(row + COST)]
            if left < 0:
                return -1, left, entry
        at, entry = value(data, at, end, row, op, own, frame, numbers, state, tape, entry)
        if at < 0 or at >= end:
            return at, left, entry


@part
def packed(data, at, end, row, op, index, frame, left, spaces, numbers, state, tape, entry):
    """The same of all that lies packed from `at` to `end`, and how long their list is then."""
    if at < end:
        at, left, entry = values(
            data, at, end, row, op, index, frame, left, spaces, numbers, state, tape, entry
        )
    if at >= 0 and numbers[np.uintp(row + LENGTHS)] >= 0:
        entry = length(row, index, spaces, numbers, state, tape, entry)
    return at, left, entry


@inlined
def entered(at, own, table, end, index, bits, row, frame, numbers, state, tape, entry):
    """Keep in mind what is around a message inside, and say that it is there; where the
    next entry goes.
    """
    state[frame + FRAME_TABLE], state[frame + FRAME_END] = table, end
    state[frame + FRAME_INDEX], state[frame + FRAME_BITS] = index, bits
    keyed = numbers[np.uintp(numbers[np.uintp(row + INNER)] + KEYED)] >= 0
    state[frame + FRAME_LENGTHS] = numbers[np.uintp(row + LENGTHS)] if keyed else -1
    state[frame + FRAME_PARENT], state[frame + FRAME_KEY] = index, at << 32
    node = numbers[np.uintp(row + NODE)]
    if node >= 0:
        for _ in range(numbers[np.uintp(row + FACTOR)]):
            entry = put(tape, entry, node, own, 0)
    return entry


@inlined
def may_end(data, end, table, frame, bits, numbers, state, keys):
    """Whether a message, or one inside, has all that it needs at its end; an entry of a
    map, a key that is new.
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
def message(data, at, end, table, kids, left, weight, spaces, numbers, state, tape, keys):
    """Whether the message is a row."""
    frame, index, bits, entry = FRAMES - FRAME, state[ITEMS], 0, state[ENTRIES]
    opened(kids, spaces, numbers, state)
    while at >= 0:
        if at == end:
            if not may_end(data, end, table, frame, bits, numbers, state, keys):
                return False
            if frame < FRAMES:
                state[ENTRIES] = entry
                return True
            end, table = state[frame + FRAME_END], state[frame + FRAME_TABLE]
            index, bits = state[frame + FRAME_INDEX], state[frame + FRAME_BITS]
            frame -= FRAME
            continue
        at, head = tag(data, at, end)
        row, wire = field_of(numbers, table, head >> 3), head & 7
        if row < 0:
            at = passed_over(data, at, end, wire) if at >= 0 and row == UNKNOWN else -1
            continue
        op = numbers[np.uintp(row + OP)]
        if op == STRICT or bits & numbers[np.uintp(row + ONCE)]:
            return False
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
                        tape,
                        entry,
                    )
            else:
                at = (
                    passed_over(data, at, end, wire) if numbers[np.uintp(table + KEYED)] < 0 else -1
                )
            continue
        bits |= numbers[np.uintp(row + SETS)]
        weight -= numbers[np.uintp(row + WEIGHT)]
        own = index
        if numbers[np.uintp(row + LENGTHS)] >= 0:
            own = next_item(row, spaces, numbers, state)
            left -= numbers[np.uintp(row + COST)]
            entry = length(row, index, spaces, numbers, state, tape, entry)
        if weight < 0 or left < 0:
            return False
        if op != MESSAGE:
            at, entry = value(data, at, end, row, op, own, frame, numbers, state, tape, entry)
            continue
        at, n = sized(data, at, end)
        frame += FRAME
        if frame >= ITEMS:
            return False
        entry = entered(at, own, table, end, index, bits, row, frame, numbers, state, tape, entry)
        table, end, index, bits = numbers[np.uintp(row + INNER)], at + n, own, 0
    return False


@part
def message_or_nothing(data, at, end, table, kids, left, numbers, state, tape, keys):
    """Whether the message is a row. If not, all is as it was before."""
    begin_message(state, ITEMS, end - at)
    weight = FREE_WEIGHT + WEIGHT_SHARE * (end - at) if end - at > SMALL else 1 << 62
    spaces = state[SPACES]
    taken = message(data, at, end, table, kids, left, weight, spaces, numbers, state, tape, keys)
    return end_message(state, ITEMS, taken)


@compiled(
    (
        OCTETS,
        EDGES,
        EDGES,
        int64,
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
def scan(data, begins, ends, table, kids, free, share, numbers, state, tape, keys, taken):
    """Write down the messages between `begins` and `ends` that are certainly rows, and
    say in `taken` which.

    `table`, `kids`: `root` and `kids` of the tables; `free`, `share`: what a message's
    items may cost, and how much more for each byte.
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
        left = free + share * (end - at)
        taken_at[i] = message_or_nothing(
            data_at, at, end, table, kids, left, numbers_at, state_at, tape_at, keys_at
        )
