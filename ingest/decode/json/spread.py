"""From the tape, on which the values stand in the order in which they came, to the stretches of their nodes. Compiled."""

from __future__ import annotations

import numpy as np
from numba import int32, int64, uint8

from ingest.compiled.making import OCTETS, compiled, memory, word_at
from ingest.decode.json.layout import KIND, SPACE, WIDE, WIDTH
from ingest.decode.json.text import unescape
from ingest.decode.json.words import put_word

_LENGTH = 0xFFFF_FFFF
"""The bits of a string's, list's or map's value that hold its length, times two."""


@compiled((int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1]))
def spread(tape, entries, tables, counts, bases, values, present):
    """Bring the tape's entries to the stretches of their nodes."""
    tape_at, tables_at, bases_at, values_at, present_at = memory(tape), memory(tables), memory(bases), memory(values), memory(present)
    entry = 0
    while entry < entries:
        node, index = tape_at[2 * entry] >> 32, tape_at[2 * entry] & 0xFFFF_FFFF
        at = bases_at[node] + index
        values_at[at] = tape_at[2 * entry + 1]
        present_at[at] = 1
        entry += 1
        if tables_at[node * WIDTH + KIND] == WIDE:
            values_at[at + counts[tables_at[node * WIDTH + SPACE]]] = tape_at[2 * entry + 1]
            entry += 1


@compiled((int64[::1], uint8[::1], int32[::1]))
def add_lengths(values, present, offsets):
    """Where each string, list or map begins, and the last one ends."""
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    end = offsets_at[0] = 0
    for i in range(len(values)):
        end += (values_at[i] & _LENGTH) >> 1 if present_at[i] else 0
        offsets_at[i + 1] = end


@compiled((OCTETS, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, values, present, offsets, letters):
    """All strings behind each other, their escapes replaced. `letters` has room for eight bytes more, which are written to in between."""
    source, target, size = memory(data), memory(letters), len(data)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        at, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if values_at[i] & 1:
            unescape(source, at, target, begin, end)
            continue
        while begin < end and at + 8 <= size:
            put_word(target, begin, word_at(source, at))
            at, begin = at + 8, begin + 8
        while begin < end:
            target[begin] = source[at]
            at, begin = at + 1, begin + 1
