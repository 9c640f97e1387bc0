"""One pass over the bytes of all lines: writes certain rows, and leaves the rest.

Compiled.

A line is taken apart by the grammar in `lines.py`, without escapes: a line with one
isn't taken. Its values are written as entries (`shared/arrow_arrays.py`). If a line isn't
taken, the next one writes over its entries. Each byte is read a bounded number of
times.

State, which only a whole row changes:

- `state[ENTRIES]`: entries, all of them of taken lines.
- `state[ROWS]`: rows so far, which is the index of the row that is being read.

What the functions share: `data` are the bytes of all lines, `pos` and `end` are indexes
in them, and `end` is the end of the line or field: no byte from there on is read.
`entry` is where the next entry goes. A line that isn't taken gives False,
or the index -1.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.csv.decoder import HIGH, KIND, LOW, REQUIRED, ROWS, WIDTH
from windrow.ingest.formats.shared.entries import copy_octets, put
from windrow.ingest.formats.shared.instants import day, epoch, instant
from windrow.ingest.formats.shared.nodes import BOOL, EPOCH, FLOAT32, INSTANT, TEXT, WIDE
from windrow.ingest.formats.shared.numbers import decimal, numeric
from windrow.ingest.formats.shared.octets import (
    EDGES,
    FALSE,
    TRUE,
    byte,
    is_utf8,
    literal_end,
)
from windrow.ingest.formats.shared.onepass import ENTRIES
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

_LF, _CR = 10, 13
_BOM = np.frombuffer(b"\xef\xbb\xbf", np.uint8)


@inlined
def without_line_end(data, pos, end):
    """End of the line's last field: before the line break, if the line has one."""
    if end > pos and byte(data, end - 1) == _LF:
        end -= 1
        if end > pos and byte(data, end - 1) == _CR:
            end -= 1
    return end


@inlined
def bare_end(data, pos, end, delimiter, escape):
    """End of the bare field at `pos`: its delimiter, or the end of the line.

    -1 if a line break or an escape is in it.
    """
    while pos < end:
        c = byte(data, pos)
        if c == delimiter:
            return pos
        if c in (_LF, _CR, escape):
            return -1
        pos += 1
    return pos


@inlined
def quoted_end(data, pos, end, quote, escape):
    """Closing quote of a field, and the number of doubled quotes before it.

    `pos` is behind the opening quote. The quote's index is -1 if nothing closes the
    field, or an escape is in it.
    """
    doubled_quotes = 0
    while pos < end:
        c = byte(data, pos)
        if c == escape:
            return -1, doubled_quotes
        if c == quote:
            if pos + 1 >= end or byte(data, pos + 1) != quote:
                return pos, doubled_quotes
            doubled_quotes, pos = doubled_quotes + 1, pos + 1
        pos += 1
    return -1, doubled_quotes


@inlined
def value(data, pos, end, doubled_quotes, node, index, fields, entries, entry):
    """Reads the field from `pos` to `end` as a value of its column, and writes it.

    Returns whether it certainly is one, and where the next entry goes. A text's value
    is its place, its length without doubled quotes, and whether it has any.
    """
    row = (node - 1) * WIDTH
    kind = fields[np.uintp(row + KIND)]
    if kind == TEXT:
        return is_utf8(data, pos, end), put(
            entries,
            entry,
            node,
            index,
            pos << 32 | (end - pos - doubled_quotes) << 1 | (doubled_quotes > 0),
        )
    if doubled_quotes:
        return False, entry
    low, high = fields[np.uintp(row + LOW)], fields[np.uintp(row + HIGH)]
    if kind <= FLOAT32:
        number_end, number = numeric(data, pos, end, kind, low, high)
        return number_end == end, put(entries, entry, node, index, number)
    return rare_value(data, pos, end, node, index, kind, low, high, entries, entry)


@part
def rare_value(data, pos, end, node, index, kind, low, high, entries, entry):
    """Reads a decimal, a boolean, a date or a timestamp, as `value` does."""
    if kind <= WIDE:
        pos, upper, lower = decimal(data, pos, end, low, high)
        entry = put(entries, entry, node, index, np.int64(lower))
        if kind == WIDE:
            entry = put(entries, entry, node, index, np.int64(upper))
        return pos == end, entry
    if kind == BOOL:
        right = literal_end(data, pos, end, TRUE) == end
        is_exact = right or literal_end(data, pos, end, FALSE) == end
        return is_exact, put(entries, entry, node, index, np.int64(right))
    is_cut = False
    if kind == EPOCH:
        pos, number, is_cut = epoch(data, pos, end, low, high == 1)
    elif kind == INSTANT:
        pos, number, is_cut = instant(data, pos, end, low == 1, high == 1)
    else:
        pos, number = day(data, pos, end)
    entry = put(entries, entry, node, index, number)
    # the document's node says that it was truncated
    return pos == end, put(entries, entry, 0, index, 1) if is_cut else entry


@inlined
def line(data, pos, end, delimiter, quote, escape, null, has_null, fields, count, state, entries):
    """Takes the line from `pos` to `end`; returns whether it is a row.

    Each step reads one field. It may assume that `pos` is the first byte of the field,
    or `end` for an empty last one, and that all fields before are written behind
    `state[ENTRIES]`. Only a whole row moves `state[ENTRIES]` and `state[ROWS]`.
    """
    if end < pos or literal_end(data, pos, end, _BOM) >= 0:
        return False
    end, entry = without_line_end(data, pos, end), state[ENTRIES]
    for node in range(1, count + 1):
        field_end = literal_end(data, pos, end, null) if has_null else -1
        if field_end >= 0 and (field_end == end or byte(data, field_end) == delimiter):
            is_exact = fields[np.uintp((node - 1) * WIDTH + REQUIRED)] == 0
        else:
            begin, doubled_quotes = pos, 0
            if pos < end and byte(data, pos) == quote:
                begin = pos + 1
                closing, doubled_quotes = quoted_end(data, begin, end, quote, escape)
                field_end = closing + 1
                if closing >= 0 and field_end < end and byte(data, field_end) != delimiter:
                    return False
            else:
                closing = field_end = bare_end(data, pos, end, delimiter, escape)
            if closing < 0:
                return False
            is_exact, entry = value(
                data, begin, closing, doubled_quotes, node, state[ROWS], fields, entries, entry
            )
        if not is_exact or (field_end == end) != (node == count):
            return False
        pos = field_end + 1
    state[ENTRIES] = entry
    state[ROWS] += 1
    return True


@compiled(
    (
        OCTETS,
        EDGES,
        EDGES,
        int64,
        int64,
        int64,
        OCTETS,
        boolean,
        int64[::1],
        int64,
        int64[::1],
        int64[::1],
        uint8[::1],
    )
)
def scan(
    data,
    begins,
    ends,
    delimiter,
    quote,
    escape,
    null,
    has_null,
    fields,
    count,
    state,
    entries,
    verdicts,
):
    """Takes the lines between `begins` and `ends` that are certainly rows.

    `verdicts` says which lines these are. `delimiter`, `quote`, `escape`: bytes; -1: no
    byte has this meaning. `null`: the bare field that is null, if `has_null`. `fields`:
    see `decoder.py`.
    """
    begin_at, end_at, verdicts_at = memory(begins), memory(ends), memory(verdicts)
    data_at, fields_at, state_at, entries_at = (
        memory(data),
        memory(fields),
        memory(state),
        memory(entries),
    )
    for i in range(len(begins)):
        pos, end = np.int64(begin_at[i]), np.int64(end_at[i])
        verdicts_at[i] = line(
            data_at,
            pos,
            end,
            delimiter,
            quote,
            escape,
            null,
            has_null,
            fields_at,
            count,
            state_at,
            entries_at,
        )


@compiled((OCTETS, int64, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, quote, values, present, offsets, texts):
    """Copies all texts behind each other, a quote for each doubled one.

    `texts` has room for eight bytes more, which are written to in between.
    """
    source, target, size = memory(data), memory(texts), len(data)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        pos, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if not values_at[i] & 1:
            copy_octets(source, pos, size, target, begin, end)
            continue
        while begin < end:
            target[begin] = source[pos]
            pos += 2 if source[pos] == quote else 1
            begin += 1
