"""Compiled pass over the bytes of all CSV lines: it takes the lines that are certainly rows.

A line is split by the grammar in `lines.py`. A line with an escape isn't taken. The values are
written as entries (`shared/entries.py`). If a line isn't taken, the next line overwrites its
entries. Each byte is read a bounded number of times.

The state only changes after a whole row:

- `state[ENTRIES]`: the number of entries of the taken lines.
- `state[ROWS]`: the number of rows so far, which is the index of the row that is being read.

The functions share their arguments:

- `data`: the bytes of all lines.
- `pos`, `end`: indexes into `data`. `end` is the end of the line or field: no byte from there
  on is read.
- `entry`: the index of the next entry.

A returned False, or an index of -1, means that the line isn't taken.
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
    """Returns the end of the line's last field, which is before a line break."""
    if end > pos and byte(data, end - 1) == _LF:
        end -= 1
        if end > pos and byte(data, end - 1) == _CR:
            end -= 1
    return end


@inlined
def bare_end(data, pos, end, delimiter, escape):
    """Returns the end of the bare field at `pos`: its delimiter, or the end of the line.

    Returns -1 if the field has a line break or an escape.
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
    """Finds the closing quote of the field whose opening quote is before `pos`.

    Returns:
        The index of the closing quote, or -1 if there is no closing quote or the field has
        an escape; and the number of doubled quotes before it.
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
    """Reads the field from `pos` to `end` as a value of its column, and writes its entry.

    The entry of a text has the text's index in the bytes (upper half), its length, and whether
    it has doubled quotes (lowest bit). A doubled quote has the length 1.

    Returns:
        Whether the field certainly is a value of the column; and the index of the next
        entry.
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
    """Reads a decimal, boolean, date or timestamp, and writes its entry; returns as `value`."""
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
    # An entry of the document's node marks the row as truncated.
    return pos == end, put(entries, entry, 0, index, 1) if is_cut else entry


@inlined
def line(data, pos, end, delimiter, quote, escape, null, has_null, fields, count, state, entries):
    """Takes the line from `pos` to `end`; returns whether it is a row.

    Each step reads a field. At its start `pos` is the first byte of the field, or `end` for
    an empty last field. The entries of the fields before are written from `state[ENTRIES]`
    on. `state[ENTRIES]` and `state[ROWS]` only change after a whole row.
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
    """Takes the lines that are certainly rows.

    Args:
        data: the bytes of all lines.
        begins: the index at which each line begins.
        ends: the index at which each line ends.
        delimiter: the byte between fields.
        quote: the byte around quoted fields; -1 if there is none.
        escape: the byte before escaped characters; -1 if there is none.
        null: the bytes of the bare field that is null.
        has_null: whether `null` counts.
        fields: the numbers of each column, see `decoder.KIND`.
        count: the number of columns.
        state: the state of the pass; written.
        entries: the entries; written.
        verdicts: whether each line is a row; written.
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
    """Copies all texts, one directly after the other, with one quote for each doubled quote.

    `texts` has eight spare bytes at its end, because bytes are copied eight at a time.
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
