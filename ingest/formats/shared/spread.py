"""From the tape to the nodes' stretches.

Compiled. The tape has the values in the order in which they came; a stretch has those
of one node.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.making import (
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
"""Bits of a string's, list's or map's value that hold its length, times two."""


@inlined
def put(tape, entry, node, index, value):
    """Writes one value as an entry; returns where the next entry goes."""
    tape[np.uintp(2 * entry)] = node << 32 | index
    tape[np.uintp(2 * entry + 1)] = value
    return entry + 1


@compiled((int64[::1], int64, int64[::1], int64[::1], int64[::1], uint8[::1]))
def spread(tape, entries, behind, bases, values, present):
    """Brings the tape's entries to the stretches of their nodes.

    `behind`: how far behind a low half of a node the high one is; 0: it has none.
    """
    tape_at, behind_at, bases_at, values_at, present_at = (
        memory(tape),
        memory(behind),
        memory(bases),
        memory(values),
        memory(present),
    )
    entry = 0
    while entry < entries:
        node, index = tape_at[2 * entry] >> 32, tape_at[2 * entry] & 0xFFFF_FFFF
        at = bases_at[node] + index
        values_at[at] = tape_at[2 * entry + 1]
        present_at[at] = 1
        entry += 1
        if behind_at[node]:
            values_at[at + behind_at[node]] = tape_at[2 * entry + 1]
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
def copy_octets(source, at, size, target, begin, end):
    """Copies bytes from `at` on to those from `begin` to `end`, eight at a time.

    `size`: bytes of the source. The target has eight bytes more.
    """
    while begin < end and at + 8 <= size:
        put_word(target, begin, word_at(source, at))
        at, begin = at + 8, begin + 8
    while begin < end:
        target[begin] = source[at]
        at, begin = at + 1, begin + 1


@compiled((OCTETS, OCTETS, int64[::1], uint8[::1], int32[::1], uint8[::1]))
def copy_texts(data, symbols, values, present, offsets, letters):
    """Copies strings and bytes behind each other.

    Those whose lowest bit is set come from the symbols. `letters` has room for eight
    bytes more.
    """
    data_at, symbols_at, target = memory(data), memory(symbols), memory(letters)
    values_at, present_at, offsets_at = memory(values), memory(present), memory(offsets)
    for i in range(len(values)):
        if not present_at[i]:
            continue
        at, begin, end = values_at[i] >> 32, np.int64(offsets_at[i]), np.int64(offsets_at[i + 1])
        if values_at[i] & 1:
            copy_octets(symbols_at, at, len(symbols), target, begin, end)
        else:
            copy_octets(data_at, at, len(data), target, begin, end)
