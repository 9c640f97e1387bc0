"""One pass over the bytes of all lines: what is certainly a row is written down, all
else is left alone.

Compiled.

A line is taken apart by the grammar in `lines.py`, but for escapes. What it finds it
writes to a tape (shared/gather.py), where the next line takes the place of one that
isn't taken. Each byte is looked at a bounded number of times.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.csv.decoder import HIGH, KIND, LOW, REQUIRED, ROWS, WIDTH
from windrow.ingest.formats.shared.instants import day, epoch, instant
from windrow.ingest.formats.shared.nodes import BOOL, EPOCH, FLOAT32, INSTANT, TEXT, WIDE
from windrow.ingest.formats.shared.numbers import decimal, numeric
from windrow.ingest.formats.shared.octets import EDGES, byte, is_utf8
from windrow.ingest.formats.shared.onepass import ENTRIES
from windrow.ingest.formats.shared.spread import copy_octets, put
from windrow.ingest.native.making import (
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
_TRUE, _FALSE = (np.frombuffer(letters, np.uint8) for letters in (b"true", b"false"))
_BOM = np.frombuffer(b"\xef\xbb\xbf", np.uint8)


@part
def begins_with(data, at, end, letters):
    """Whether these letters stand there."""
    if len(letters) > end - at:
        return False
    for i in range(len(letters)):  # numba has no generators here  # noqa: SIM110
        if byte(data, at + i) != letters[i]:
            return False
    return True


@inlined
def without_line_end(data, at, end):
    """Where the line's last field ends."""
    if end > at and byte(data, end - 1) == _LF:
        end -= 1
        if end > at and byte(data, end - 1) == _CR:
            end -= 1
    return end


@inlined
def bare_end(data, at, end, delimiter, escape):
    """Where a bare field ends, or -1."""
    while at < end:
        c = byte(data, at)
        if c == delimiter:
            return at
        if c in (_LF, _CR, escape):
            return -1
        at += 1
    return at


@inlined
def quoted_end(data, at, end, quote, escape):
    """Where the quote is that closes a field whose first character is at `at`, or -1;
    and how many doubled ones are in between.
    """
    doubled = 0
    while at < end:
        c = byte(data, at)
        if c == escape:
            return -1, doubled
        if c == quote:
            if at + 1 >= end or byte(data, at + 1) != quote:
                return at, doubled
            doubled, at = doubled + 1, at + 1
        at += 1
    return -1, doubled


@inlined
def value(data, at, end, doubled, node, index, fields, tape, entry):
    """Whether a field's text, from `at` to `end`, is certainly a value of its column,
    which is written down; where the next entry goes.
    """
    row = (node - 1) * WIDTH
    kind = fields[np.uintp(row + KIND)]
    if kind == TEXT:
        return is_utf8(data, at, end), put(
            tape, entry, node, index, at << 32 | (end - at - doubled) << 1 | (doubled > 0)
        )
    if doubled:
        return False, entry
    low, high = fields[np.uintp(row + LOW)], fields[np.uintp(row + HIGH)]
    if kind <= FLOAT32:
        behind, found = numeric(data, at, end, kind, low, high)
        return behind == end, put(tape, entry, node, index, found)
    return rare_value(data, at, end, node, index, kind, low, high, tape, entry)


@part
def rare_value(data, at, end, node, index, kind, low, high, tape, entry):
    """The same of a decimal, a boolean, a date or a timestamp."""
    if kind <= WIDE:
        at, upper, lower = decimal(data, at, end, low, high)
        entry = put(tape, entry, node, index, np.int64(lower))
        return at == end, put(tape, entry, node, index, np.int64(upper)) if kind == WIDE else entry
    if kind == BOOL:
        right = begins_with(data, at, end, _TRUE)
        sure = (
            end - at == len(_TRUE)
            if right
            else end - at == len(_FALSE) and begins_with(data, at, end, _FALSE)
        )
        return sure, put(tape, entry, node, index, np.int64(right))
    cut = False
    if kind == EPOCH:
        at, found, cut = epoch(data, at, end, low, high == 1)
    elif kind == INSTANT:
        at, found, cut = instant(data, at, end, low == 1, high == 1)
    else:
        at, found = day(data, at, end)
    entry = put(tape, entry, node, index, found)
    # the document's node says that it was truncated
    return at == end, put(tape, entry, 0, index, 1) if cut else entry


@inlined
def line(data, at, end, delimiter, quote, escape, null, has_null, fields, count, state, tape):
    """Whether the line is a row."""
    if end < at or begins_with(data, at, end, _BOM):
        return False
    end, entry = without_line_end(data, at, end), state[ENTRIES]
    for node in range(1, count + 1):
        behind = at + len(null)
        if (
            has_null
            and begins_with(data, at, end, null)
            and (behind == end or byte(data, behind) == delimiter)
        ):
            sure = fields[np.uintp((node - 1) * WIDTH + REQUIRED)] == 0
        else:
            begin, doubled = at, 0
            if at < end and byte(data, at) == quote:
                begin = at + 1
                closing, doubled = quoted_end(data, begin, end, quote, escape)
                behind = closing + 1
                if closing >= 0 and behind < end and byte(data, behind) != delimiter:
                    return False
            else:
                closing = behind = bare_end(data, at, end, delimiter, escape)
            if closing < 0:
                return False
            sure, entry = value(
                data, begin, closing, doubled, node, state[ROWS], fields, tape, entry
            )
        if not sure or (behind == end) != (node == count):
            return False
        at = behind + 1
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
    data, begins, ends, delimiter, quote, escape, null, has_null, fields, count, state, tape, taken
):
    """Write down the lines between `begins` and `ends` that are certainly rows, and say in `taken` which.

    `delimiter`, `quote`, `escape`: bytes, -1: there is none; `null`: what stands for
    null, if `has_null`; `fields`: see `decoder.py`.
    """  # noqa: E501
    begin_at, end_at, taken_at = memory(begins), memory(ends), memory(taken)
    data_at, fields_at, state_at, tape_at = (
        memory(data),
        memory(fields),
        memory(state),
        memory(tape),
    )
    for i in range(len(begins)):
        at, end = np.int64(begin_at[i]), np.int64(end_at[i])
        taken_at[i] = line(
            data_at,
            at,
            end,
            delimiter,
            quote,
            escape,
            null,
            has_null,
            fields_at,
            count,
            state_at,
            tape_at,
        )


@compiled((OCTETS, int64, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, quote, values, present, offsets, letters):
    """All texts behind each other.

    `letters` has room for eight bytes more, which are written to in between.
    """
    source, target, size = memory(data), memory(letters), len(data)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        at, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if not values_at[i] & 1:
            copy_octets(source, at, size, target, begin, end)
            continue
        while begin < end:
            target[begin] = source[at]
            at += 2 if source[at] == quote else 1
            begin += 1
