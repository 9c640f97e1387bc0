"""Loops of the checksum over numbers, bytes and elements.

Compiled. The module `checksum` defines their results.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.native.compiling import (
    OCTETS,
    below,
    compiled,
    inlined,
    int64,
    memory,
    types,
    uint64,
    void,
    word_at,
)
from windrow.ingest.schema.checksum import GOLDEN

_U = np.uint64
_GOLDEN, _A, _B = _U(GOLDEN), _U(0xBF58476D1CE4E5B9), _U(0x94D049BB133111EB)
_LENGTH = _U(0xD6E8FEB86659FD93)

_HASHES = types.Array(uint64, 1, "C", readonly=True)
_LENGTHS = types.Array(int64, 1, "C", readonly=True)


@inlined
def _mix_cell(x):
    x *= _A
    x ^= x >> _U(32)
    return x * _B


@inlined
def _mix(x):
    x ^= x >> _U(30)
    x *= _A
    x ^= x >> _U(27)
    x *= _B
    return x ^ (x >> _U(31))


@compiled(void(uint64[::1], _HASHES, uint64, OCTETS))
def add_cells(sums, hashes, key, present):
    """Adds a column's cells to the sums of the rows.

    Args:
        sums: the sum of each row; written.
        hashes: the hash of each value.
        key: the key of the column's name.
        present: 0 for each null, 1 for any other value; empty if there are no nulls.
    """
    for i in range(len(sums)):
        if len(present) == 0 or present[i]:
            sums[i] += _mix_cell(hashes[i] + key)


@compiled(void(uint64[::1]))
def mix(hashes):
    """Mixes each number, in place."""
    for i in range(len(hashes)):
        hashes[i] = _mix(hashes[i])


@compiled(void(OCTETS, _LENGTHS, uint64[::1]))
def hash_texts(data, ends, hashes):
    """Hashes texts: text `i` has the bytes from `ends[i]` to `ends[i + 1]`."""
    octets, size = memory(data), len(data)
    for i in range(len(hashes)):
        position, end = ends[i], ends[i + 1]
        text_hash, salt = _LENGTH * _U(end - position), _GOLDEN
        while position + 8 <= end:
            text_hash += _mix_cell(word_at(octets, position) + salt)
            position, salt = position + 8, salt + _GOLDEN
        if position < end:
            word = _U(0)
            if position + 8 <= size:
                word = word_at(octets, position) & below(end - position)
            else:
                for j in range(end - position):
                    word |= _U(octets[position + j]) << _U(8 * j)
            text_hash += _mix_cell(word + salt)
        hashes[i] = text_hash


@compiled(void(_LENGTHS, _HASHES, OCTETS, uint64[::1]))
def hash_lists(lengths, elements, present, hashes):
    """Hashes lists.

    Args:
        lengths: the length of each list.
        elements: the hashes of the elements of all lists, one list after the other.
        present: 0 for each null element, 1 for any other; empty if there are no nulls.
        hashes: the hash of each list; written.
    """
    position = 0
    for i in range(len(hashes)):
        list_hash, salt = _LENGTH * _U(lengths[i]), _GOLDEN
        for _ in range(lengths[i]):
            if len(present) == 0 or present[position]:
                list_hash += _mix_cell(elements[position] + salt)
            position, salt = position + 1, salt + _GOLDEN
        hashes[i] = list_hash


@compiled(void(_LENGTHS, _HASHES, uint64[::1]))
def hash_maps(lengths, entries, hashes):
    """Hashes maps.

    Args:
        lengths: the number of entries of each map.
        entries: the hashes of the entries of all maps, one map after the other.
        hashes: the hash of each map; written.
    """
    position = 0
    for i in range(len(hashes)):
        map_hash = _LENGTH * _U(lengths[i])
        for _ in range(lengths[i]):
            map_hash += _mix(entries[position])
            position += 1
        hashes[i] = map_hash
