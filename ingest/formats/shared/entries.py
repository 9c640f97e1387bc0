"""Entries: the output of a compiled pass, one for each value. Compiled.

An entry is (node, index in its space) and a value of 64 bits. Entries are in the order of the
values in the messages. `scatter` sorts them by node, so that the values of a node are
contiguous.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.compiling import (
    OCTETS,
    compiled,
    inlined,
    int32,
    int64,
    memory,
    put_word,
    uint8,
    word_at,
)

_LENGTH = 0xFFFF_FFFF
"""Bits that hold the length, times two, in the value of a string, list or map."""


@inlined
def put(entries, entry, node, index, value):
    """Writes one value as an entry; returns where the next entry goes."""
    entries[np.uintp(2 * entry)] = node << 32 | index
    entries[np.uintp(2 * entry + 1)] = value
    return entry + 1


@compiled((int64[::1], int64, int64[::1], int64[::1], int64[::1], uint8[::1]))
def scatter(entries, count, high_shifts, bases, values, present):
    """Writes the value of each entry to its node's part of `values`, and marks it present.

    Args:
        entries: the entries, two numbers each.
        count: the number of entries.
        high_shifts: for each node, the distance from a low half to its high half in
            `values`; 0 if its values have no high halves.
        bases: the index at which each node's part begins.
        values: the values of all nodes; written.
        present: 1 for each value that has an entry; written.
    """
    entries_at, high_shifts_at, bases_at, values_at, present_at = (
        memory(entries),
        memory(high_shifts),
        memory(bases),
        memory(values),
        memory(present),
    )
    entry = 0
    while entry < count:
        node, index = entries_at[2 * entry] >> 32, entries_at[2 * entry] & 0xFFFF_FFFF
        index_in_values = bases_at[node] + index
        values_at[index_in_values] = entries_at[2 * entry + 1]
        present_at[index_in_values] = 1
        entry += 1
        if high_shifts_at[node]:
            values_at[index_in_values + high_shifts_at[node]] = entries_at[2 * entry + 1]
            entry += 1


@compiled((int64[::1], uint8[::1], int32[::1]))
def add_lengths(values, present, offsets):
    """Writes where each string, list or map begins, and where the last one ends."""
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    end = offsets_at[0] = 0
    for i in range(len(values)):
        end += (values_at[i] & _LENGTH) >> 1 if present_at[i] else 0
        offsets_at[i + 1] = end


@inlined
def copy_octets(source, pos, size, target, begin, end):
    """Copies bytes of the source from `pos` on, eight at a time.

    Args:
        source: the bytes to copy from.
        pos: the first index to copy from.
        size: the number of bytes of the source.
        target: the bytes to copy to. It has eight spare bytes at its end.
        begin: the first index to copy to.
        end: the index after the last one to copy to.
    """
    while begin < end and pos + 8 <= size:
        put_word(target, begin, word_at(source, pos))
        pos, begin = pos + 8, begin + 8
    while begin < end:
        target[begin] = source[pos]
        pos, begin = pos + 1, begin + 1


@compiled((OCTETS, OCTETS, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, symbols, values, present, offsets, texts):
    """Copies strings and bytes values, one directly after the other, to `texts`.

    A value whose lowest bit is set is copied from `symbols`, any other from `data`. `texts`
    has eight spare bytes at its end.
    """
    data_at, symbols_at, target = memory(data), memory(symbols), memory(texts)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        pos, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if values_at[i] & 1:
            copy_octets(symbols_at, pos, len(symbols), target, begin, end)
        else:
            copy_octets(data_at, pos, len(data), target, begin, end)
