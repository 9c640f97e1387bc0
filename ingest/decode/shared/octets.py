"""The bytes of messages, as numbers and as characters. Compiled; positions are indexes of the batch's bytes, and -1 says: none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types, uint8

from ingest.compiled import inlined, part

OCTETS = types.Array(uint8, 1, "C", readonly=True)
"""Bytes that are only read: those of messages lie in Arrow's memory."""

EDGES = types.Array(types.int32, 1, "C", readonly=True)
"""Where messages begin or end."""


def octets_of(messages: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The bytes of all messages, and where each begins and ends; a null is none."""
    _, starts, data = messages.buffers()
    edges = np.frombuffer(starts, np.int32)[messages.offset : messages.offset + len(messages) + 1]
    begins, ends = edges[:-1], edges[1:]
    if messages.null_count:
        ends = np.where(messages.is_valid().to_numpy(zero_copy_only=False), ends, begins)
    return np.frombuffer(data or b"", np.uint8), begins, ends


@inlined
def byte(data, at):
    """One byte, as a number to reckon with. An index without a sign saves a look for a negative one."""
    return np.int64(data[np.uintp(at)])


@part
def character_end(data, at, end):
    """Behind a character of several bytes, by the table of RFC 3629: no surrogates, nothing longer than need be, nothing too large."""
    c = byte(data, at)
    if c < 0xC2 or c > 0xF4:
        return -1
    more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
    if at + more >= end:
        return -1
    second = byte(data, at + 1)
    least = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
    most = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
    if second < least or second > most:
        return -1
    for i in range(2, more + 1):
        if byte(data, at + i) & 0xC0 != 0x80:
            return -1
    return at + more + 1
