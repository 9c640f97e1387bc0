"""Compiled pass over the bytes of all JSON messages: it takes the messages that are certainly rows.

It is never recursive.

A message is taken if all of this is certain:

- It is one object in UTF-8 by the grammar of RFC 8259. Some formats also take a bare value as
  the only column.
- None of its objects has a key twice.
- Each value has exactly its column's type.

The pass leaves any other message to the strict decoder, for instance one with a number of 20
digits, a decimal with an exponent, or two keys with the same hash.

Each byte is read a bounded number of times, in any message: fields are found by the hashes of
their names, and the search for an equal key gives up after `MOST_PROBES` steps.

The pass writes values as entries of (node, index in its space) and value, in the order of the
message. If a message isn't taken, the counts of entries and of items are reset to their values
before the message. So the verdict on a message doesn't depend on other messages.

The functions share their arguments:

- `data`: the bytes of all messages.
- `pos`, `end`: indexes into `data`. `end` is the end of the message: no byte from there on is
  read.
- `tables`: the columns as numbers (`layout.Tables`).
- `names`: the bytes of all names, followed by room for one more name.
- `room`: the memory of `names`, writable.
- `others`: whether a message may have fields that no column is for.
- `state`: counters, frames and counts of items (`layout.py`, `shared/seen.py`).
- `frame`: the place in `state` of the innermost open object or array.
- `entries`: the entries; `state[ENTRIES]` counts them.
- `keys`: a hash table of keys that aren't fields of a struct. Each is paired with the number
  of its message.

A returned index of -1 means that the message isn't certain. Then the message's entries are
discarded, so the function may leave the state inconsistent.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.json.layout import (
    AFTER,
    BEGIN,
    CLOSE,
    FIELD,
    FIRST,
    FRAME,
    FRAMES,
    HIGH,
    IGNORED,
    INDEX,
    INNER,
    ITEM,
    ITEMS,
    KIND,
    LENGTH,
    LOOKUP,
    LOW,
    MASK,
    MEMBER,
    NAME,
    NODE,
    OBJECT,
    OBJECTS,
    PLAIN,
    REQUIRED,
    REQUIRED_SEEN,
    REST_BYTES,
    REST_NODE,
    SEEN,
    SPARE,
    START,
    TEXT_NODE,
    UNKNOWN,
    WIDTH,
)
from windrow.ingest.formats.json.rest_scan import keep_member
from windrow.ingest.formats.json.scalars import put, scalar, skip_value
from windrow.ingest.formats.json.text import QUOTE, blank, same, text_end, unescape
from windrow.ingest.formats.shared.budget import budget, rest_budget
from windrow.ingest.formats.shared.entries import copy_octets
from windrow.ingest.formats.shared.nodes import LIST, STRUCT, TEXT
from windrow.ingest.formats.shared.octets import EDGES, byte
from windrow.ingest.formats.shared.onepass import ENTRIES, IGNORING, SPACES, TAKEN, room_for_keys
from windrow.ingest.formats.shared.seen import KEYS_MASK, MESSAGES, is_first
from windrow.ingest.formats.shared.seen import hash_of as name_hash
from windrow.ingest.native.compiling import (
    OCTETS,
    boolean,
    compiled,
    inlined,
    int32,
    int64,
    memory,
    part,
    uint8,
)

_COMMA, _COLON, _OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT = b",:[]{"
_LAST_FRAME = ITEMS - FRAME

_room_for_keys, _budget, _rest_budget = part(room_for_keys), part(budget), part(rest_budget)
KEY_HASH_STEP = np.uint64(0x9FB21C651E98DF25)


@inlined
def read_message(data, pos, end, names, room, others, tables, state, entries, keys):
    """Reads a message; returns whether it is a row. The caller checks for required columns.

    It is a loop instead of a recursion. Each step closes the innermost object or array, or
    reads a member of it: an item, or a key and its value. At the start of a step

    - `pos` is after an opening bracket, a closing bracket, or a value;
    - `frame` is the innermost open object or array; the outermost one is at `FRAMES`;
    - `empty` is True directly after an opening bracket, where no comma precedes a member;
    - the entries and the counts of items include every value before `pos`.
    """
    pos = blank(data, pos, end)
    if pos < end and byte(data, pos) != _OPEN_OBJECT and tables[LOW]:
        return read_alone(data, pos, end, tables, state, entries)
    if pos >= end or byte(data, pos) != _OPEN_OBJECT:
        return False
    frame, empty = FRAMES, True
    open_frame(_OPEN_OBJECT, pos, 0, state[ITEMS], frame, tables, state, entries)
    pos += 1
    while True:
        pos = blank(data, pos, end)
        if pos >= end:
            return False
        c = byte(data, pos)
        if c == state[frame + CLOSE]:
            close_frame(data, pos, frame, tables, state, entries)
            pos, frame, empty = pos + 1, frame - FRAME, False
            if frame < FRAMES:
                return blank(data, pos, end) == end
            continue
        if not empty:
            if c != _COMMA:
                return False
            pos = blank(data, pos + 1, end)
            if pos >= end:
                return False
        pos, child = read_member(
            data, pos, end, frame, names, room, others, tables, state, entries, keys
        )
        if pos < 0:
            return False
        c = byte(data, pos)
        empty = c | 32 == _OPEN_OBJECT  # `[` with this bit is `{`
        if empty:
            if frame == _LAST_FRAME or not open_frame(
                c, pos, child, state[frame + ITEM], frame + FRAME, tables, state, entries
            ):
                return False
            pos, frame = pos + 1, frame + FRAME
            if c == _OPEN_ARRAY and child != UNKNOWN:
                item = tables[child * WIDTH + FIRST]
                kind = tables[item * WIDTH + KIND]
                if kind < STRUCT and (kind != TEXT or not tables[item * WIDTH + LOW]):
                    pos, empty = scalar_items(
                        data,
                        pos,
                        end,
                        item,
                        ITEMS + tables[child * WIDTH + INNER],
                        tables,
                        state,
                        entries,
                    )
        elif child == UNKNOWN:
            pos = skip_value(data, pos, end)
            keep_member(data, pos, frame, tables, state, entries)
        else:
            pos = scalar(data, pos, end, tables, entries, state, child, state[frame + ITEM])
        if pos < 0:
            return False


@part
def read_alone(data, pos, end, tables, state, entries):
    """Reads a document that is no object as the only column; returns whether it is a row."""
    state[REQUIRED_SEEN] = tables[tables[FIRST] * WIDTH + REQUIRED]
    pos = scalar(data, pos, end, tables, entries, state, tables[FIRST], state[ITEMS])
    return pos >= 0 and blank(data, pos, end) == end


@inlined
def open_frame(bracket, pos, node, index, frame, tables, state, entries):
    """Opens an object or array of a node; returns whether the node takes it.

    The place `frame` must be free. If the node takes the object or array as a text, the
    node is stored as `TEXT_NODE`. The members are then skipped like fields without a column.
    A list or a map has no entry yet, because its length is only known at its end.
    """
    state[frame + TEXT_NODE] = UNKNOWN
    if node != UNKNOWN:
        kind = tables[node * WIDTH + KIND]
        if kind < STRUCT:
            if kind != TEXT or not tables[node * WIDTH + LOW]:
                return False
            state[frame + TEXT_NODE] = node
            state[frame + BEGIN] = pos
            node = UNKNOWN
        else:
            if (kind == LIST) != (bracket == _OPEN_ARRAY) and not (
                kind == LIST and tables[node * WIDTH + LOW]
            ):
                return False
            if kind == STRUCT:
                put(entries, state, node, index, 0)
            state[frame + BEGIN] = state[ITEMS + tables[node * WIDTH + INNER]]
    state[OBJECTS] += 1
    state[frame + NODE] = node
    state[frame + CLOSE] = bracket + 2
    state[frame + OBJECT] = state[OBJECTS]
    state[frame + INDEX] = index
    state[frame + ITEM] = index
    state[frame + FIELD] = node * WIDTH + START
    return True


@inlined
def scalar_items(data, pos, end, node, space, tables, state, entries):
    """Reads all items of a list of values that are neither objects nor arrays.

    `pos` is after the opening bracket. The caller closes the list.

    Returns:
        The index after the last item and white space, where the closing bracket must be,
        or -1; and whether the list is empty.
    """
    pos = blank(data, pos, end)
    if pos < end and byte(data, pos) == _CLOSE_ARRAY:
        return pos, True
    while pos < end:
        index = state[space]
        state[space] += 1
        pos = scalar(data, pos, end, tables, entries, state, node, index)
        if pos < 0:
            break
        pos = blank(data, pos, end)
        if pos >= end or byte(data, pos) != _COMMA:
            return pos, False
        pos = blank(data, pos + 1, end)
    return -1, False


@inlined
def close_frame(data, pos, frame, tables, state, entries):
    """Writes the entry of an object or array that is closed by the bracket at `pos`.

    A list's or map's entry has its length, in the layout of a string's length. An object or
    array that is taken as a text has an entry with its index and its length in bytes. The
    caller drops the frame.
    """
    node = state[frame + NODE]
    if node == UNKNOWN:
        if state[frame + TEXT_NODE] != UNKNOWN:
            begin = state[frame + BEGIN]
            put(
                entries,
                state,
                state[frame + TEXT_NODE],
                state[frame + INDEX],
                begin << 32 | (pos + 1 - begin) << 1,
            )
        else:
            keep_member(data, pos + 1, frame - FRAME, tables, state, entries)
    elif tables[node * WIDTH + KIND] != STRUCT:
        items = state[ITEMS + tables[node * WIDTH + INNER]] - state[frame + BEGIN]
        put(entries, state, node, state[frame + INDEX], items << 1)


@inlined
def read_member(data, pos, end, frame, names, room, others, tables, state, entries, keys):
    """Reads the item or field at `pos`, up to its value. `pos` must be before `end`.

    Returns:
        The index where the value begins, which is before `end`, or -1; and the value's
        node, or `UNKNOWN` if no column is for it.
    """
    node = state[frame + NODE]
    if state[frame + CLOSE] == _CLOSE_ARRAY:
        if node == UNKNOWN:
            return pos, UNKNOWN
        next_item(frame, tables, state)
        return pos, tables[node * WIDTH + FIRST]
    if byte(data, pos) != QUOTE:
        return -1, UNKNOWN
    if node != UNKNOWN and tables[node * WIDTH + KIND] == STRUCT:
        pos, child = read_field(data, pos + 1, end, frame, names, room, others, tables, state, keys)
    else:
        pos, child = read_key(data, pos + 1, end, frame, names, room, tables, state, entries, keys)
    if pos < 0:
        return -1, UNKNOWN
    pos = blank(data, pos, end)
    if pos >= end or byte(data, pos) != _COLON:
        return -1, UNKNOWN
    pos = blank(data, pos + 1, end)
    return pos if pos < end else -1, child


@inlined
def next_item(frame, tables, state):
    """Counts an item of the open list or map, and sets the frame's `ITEM` to its index."""
    space = ITEMS + tables[state[frame + NODE] * WIDTH + INNER]
    state[frame + ITEM] = state[space]
    state[space] += 1


@part
def key_text(data, pos, end, names, room, state):
    """Reads the key whose first character is at `pos`.

    If the key has escapes, it is copied to `room` at `state[SPARE]` with the escapes
    replaced.

    Returns:
        The index of its closing quote, or -1; its length and its hash, both with the
        escapes replaced; and whether it has escapes.
    """
    closing, saved_bytes = text_end(data, pos, end)
    if closing < 0:
        return -1, 0, 0, False
    n = closing - pos - saved_bytes
    if saved_bytes == 0:
        return closing, n, name_hash(data, pos, n, end, 0), False
    unescape(data, pos, room, state[SPARE], state[SPARE] + n)
    return closing, n, name_hash(names, state[SPARE], n, state[SPARE] + n, 0), True


@inlined
def read_field(data, pos, end, frame, names, room, others, tables, state, keys):
    """Reads the name of a struct's field, whose first character is at `pos`.

    The frame's node must be a struct. The name is first compared with the field that came
    here last time. So messages with the same order of fields need no search. A field that
    this object already had isn't certain (`SEEN`).

    Returns:
        The index after the closing quote, or -1; and the field's node, or `UNKNOWN` if no
        column is for it.
    """
    expected = state[frame + FIELD]
    child = tables[expected]
    row = child * WIDTH
    n = tables[row + LENGTH]
    if (
        tables[row + PLAIN]
        and pos + n < end
        and byte(data, pos + n) == QUOTE
        and same(data, pos, end, names, tables[row + NAME], n)
    ):
        pos += n + 1
    else:
        state[MEMBER] = pos
        closing, n, name, escaped = key_text(data, pos, end, names, room, state)
        if closing < 0:
            return -1, UNKNOWN
        if escaped:
            child = child_named(
                names, state[SPARE], state[SPARE] + n, n, name, state[frame + NODE], names, tables
            )
        else:
            child = child_named(data, pos, end, n, name, state[frame + NODE], names, tables)
        pos = closing + 1
        if child == UNKNOWN:
            state[IGNORED] |= tables[state[frame + NODE] * WIDTH + HIGH]
            return pos if others and is_new(name, frame, state, keys) else -1, UNKNOWN
        tables[expected] = child
        row = child * WIDTH
    if tables[row + SEEN] == state[frame + OBJECT]:
        return -1, UNKNOWN
    tables[row + SEEN] = state[frame + OBJECT]
    state[frame + FIELD] = row + AFTER
    state[REQUIRED_SEEN] += tables[row + REQUIRED]
    return pos, child


@part
def child_named(data, pos, end, n, name, node, names, tables):
    """Finds the child of a struct whose name is the `n` bytes at `pos`, with the hash `name`.

    Returns `UNKNOWN` if no child has this name.
    """
    lookup, mask = tables[node * WIDTH + LOOKUP], tables[node * WIDTH + MASK]
    slot = name & mask
    while tables[lookup + 2 * slot] >= 0:
        child = tables[lookup + 2 * slot]
        row = child * WIDTH
        if (
            tables[lookup + 2 * slot + 1] == name
            and tables[row + LENGTH] == n
            and same(data, pos, end, names, tables[row + NAME], n)
        ):
            return child
        slot = (slot + 1) & mask
    return UNKNOWN


@part
def read_key(data, pos, end, frame, names, room, tables, state, entries, keys):
    """Reads a key whose first character is at `pos`, of an object that isn't a struct.

    The object is a map, or a list that is written as an object, or no column is for it. The
    key of a map or list gets an entry.

    Returns:
        The index after the key's closing quote, or -1; and the node of the key's value.
    """
    closing, n, name, escaped = key_text(data, pos, end, names, room, state)
    if closing < 0 or not is_new(name, frame, state, keys):
        return -1, UNKNOWN
    node = state[frame + NODE]
    if node == UNKNOWN:
        return closing + 1, UNKNOWN
    next_item(frame, tables, state)
    child = tables[node * WIDTH + FIRST]
    if tables[node * WIDTH + KIND] == LIST:
        put(entries, state, child, state[frame + ITEM], 0)
        child = tables[child * WIDTH + FIRST]
    put(entries, state, child, state[frame + ITEM], pos << 32 | n << 1 | escaped)
    return closing + 1, child + 1


@part
def is_new(name, frame, state, keys):
    """Returns whether the object hasn't had a key with this hash yet.

    The keys of all objects of a message share one table.
    """
    mixed = np.uint64(name ^ state[frame + OBJECT]) * KEY_HASH_STEP
    key_hash = np.int64(mixed ^ mixed >> np.uint64(32))
    return is_first(key_hash, state[MESSAGES], state[KEYS_MASK], keys)


@part
def take_message(data, pos, end, names, room, others, required, tables, state, entries, keys):
    """Takes a message as a row, or resets the counts of items and entries.

    Returns:
        0 if the message isn't taken, else `TAKEN` or `IGNORING`.
    """
    # The loops aren't functions of their own, which would make the pass slower.
    written, spaces, cost = state[ENTRIES], state[SPACES], 0
    for space in range(ITEMS, ITEMS + spaces):
        state[space + spaces] = state[space]
    state[MESSAGES] += 1
    state[REQUIRED_SEEN] = state[IGNORED] = state[REST_BYTES] = 0
    state[KEYS_MASK] = _room_for_keys((end - pos) // 2) - 1
    if (
        read_message(data, pos, end, names, room, others, tables, state, entries, keys)
        and state[REQUIRED_SEEN] == required
    ):
        for space in range(ITEMS + 1, ITEMS + spaces):
            cost += (state[space] - state[space + spaces]) * state[space + 2 * spaces]
        if cost <= _budget(end - pos) and state[REST_BYTES] <= _rest_budget(end - pos):
            if state[REST_BYTES]:
                space = ITEMS + tables[state[REST_NODE] * WIDTH + INNER]
                count = state[space] - state[space + spaces]
                put(entries, state, state[REST_NODE], state[ITEMS], count << 1)
            state[ITEMS] += 1
            return IGNORING if state[IGNORED] else TAKEN
    state[ENTRIES] = written
    for space in range(ITEMS, ITEMS + spaces):
        state[space] = state[space + spaces]
    return 0


@compiled(
    (
        OCTETS,
        EDGES,
        EDGES,
        OCTETS,
        uint8[::1],
        boolean,
        int64,
        int64[::1],
        int64[::1],
        int64[::1],
        int64[::1],
        uint8[::1],
    )
)
def scan(data, begins, ends, names, room, others, required, tables, state, entries, keys, verdicts):
    """Takes the messages that are certainly rows.

    Args:
        data: the bytes of all messages.
        begins: the index at which each message begins.
        ends: the index at which each message ends.
        names: the bytes of all names, followed by room for one more name.
        room: the memory of `names`, writable.
        others: whether a message may have fields that no column is for.
        required: the number of required columns.
        tables: the columns as numbers.
        state: the state of the pass; written.
        entries: the entries; written.
        keys: the table of keys; written.
        verdicts: 0, `TAKEN` or `IGNORING` for each message; written.
    """
    begin_at, end_at, verdicts_at = memory(begins), memory(ends), memory(verdicts)
    data_at, names_at, room_at, keys_at = memory(data), memory(names), memory(room), memory(keys)
    tables_at, state_at, entries_at = memory(tables), memory(state), memory(entries)
    for i in range(len(begins)):
        verdicts_at[i] = take_message(
            data_at,
            np.int64(begin_at[i]),
            np.int64(end_at[i]),
            names_at,
            room_at,
            others,
            required,
            tables_at,
            state_at,
            entries_at,
            keys_at,
        )


@compiled((OCTETS, int64, int64))
def hash_of(octets, pos, n):
    """Returns the hash of `n` bytes that the pass computes for a name."""
    return name_hash(memory(octets), pos, n, pos + n, 0)


@compiled((OCTETS, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, values, present, offsets, texts):
    """Copies all strings, one directly after the other, with their escapes replaced.

    `texts` has eight spare bytes at its end, because bytes are copied eight at a time.
    """
    source, target, size = memory(data), memory(texts), len(data)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        pos, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if values_at[i] & 1:
            unescape(source, pos, target, begin, end)
            continue
        copy_octets(source, pos, size, target, begin, end)
