"""Functions that read a value that is neither object nor array, and write its entry.

Compiled. `scan.py` explains the arguments. `pos` is the index of the value's first byte, and
is less than `end`. Each function returns the index after the value. -1 means that the value
isn't certain: then the message isn't taken, and its entries are discarded.
"""

from __future__ import annotations

import numpy as np

from windrow.ingest.formats.json.layout import FACTOR, HIGH, ITEMS, KIND, LOW, REQUIRED, WIDTH
from windrow.ingest.formats.json.text import QUOTE, text_end
from windrow.ingest.formats.shared.entries import put as put_entry
from windrow.ingest.formats.shared.instants import day, epoch, instant
from windrow.ingest.formats.shared.nodes import BOOL, DAY, EPOCH, FLOAT32, INSTANT, TEXT, WIDE
from windrow.ingest.formats.shared.numbers import decimal, number, numeric, read_unscaled
from windrow.ingest.formats.shared.octets import FALSE, TRUE, byte, literal_end
from windrow.ingest.formats.shared.onepass import ENTRIES
from windrow.ingest.native.compiling import inlined, part

_NULL = np.frombuffer(b"null", np.uint8)
_LETTER_T, _LETTER_F, _LETTER_N = b"tfn"


@inlined
def put(entries, state, node, index, value):
    """Writes one value of 64 bits, of any kind, as the next entry."""
    state[ENTRIES] = put_entry(entries, state[ENTRIES], node, index, value)


@part
def skip_value(data, pos, end):
    """Skips a value that no column is for."""
    c = byte(data, pos)
    if c == QUOTE:
        pos, _ = text_end(data, pos + 1, end)
        return pos + 1 if pos >= 0 else -1
    if c == _LETTER_T:
        return literal_end(data, pos, end, TRUE)
    if c == _LETTER_F:
        return literal_end(data, pos, end, FALSE)
    if c == _LETTER_N:
        return literal_end(data, pos, end, _NULL)
    pos, _, _, _, _ = number(data, pos, end)
    return pos


@inlined
def scalar(data, pos, end, tables, entries, state, node, index):
    """Reads a value of a node, and writes its entry; null has no entry.

    Also returns -1 for objects and arrays.
    """
    row, c = node * WIDTH, byte(data, pos)
    kind = tables[np.uintp(row + KIND)]
    if c == _LETTER_N:
        return -1 if tables[np.uintp(row + REQUIRED)] else literal_end(data, pos, end, _NULL)
    if kind == TEXT:
        return _text(data, pos, end, entries, state, node, index) if c == QUOTE else -1
    if kind <= FLOAT32:
        return _number(data, pos, end, tables, entries, state, node, index, kind)
    if kind <= WIDE:
        return _decimal(data, pos, end, tables, entries, state, node, index, kind)
    if kind == BOOL:
        pos = literal_end(data, pos, end, TRUE if c == _LETTER_T else FALSE)
        put(entries, state, node, index, np.int64(c == _LETTER_T))
        return pos
    if kind > DAY:
        return -1
    return _moment(data, pos, end, tables, entries, state, node, index, kind)


@part
def _moment(data, pos, end, tables, entries, state, node, index, kind):
    """Reads a date or a timestamp.

    A truncated timestamp also gets an entry of the document's node, at the message's row.
    """
    form, truncates = (
        tables[np.uintp(node * WIDTH + LOW)],
        tables[np.uintp(node * WIDTH + HIGH)] == 1,
    )
    quoted = byte(data, pos) == QUOTE
    if quoted == (kind == EPOCH):
        return -1
    is_cut = False
    if kind == EPOCH:
        pos, value, is_cut = epoch(data, pos, end, form, truncates)
    elif kind == INSTANT:
        pos, value, is_cut = instant(data, pos + 1, end, form == 1, truncates)
    else:
        pos, value = day(data, pos + 1, end)
    if pos < 0 or (quoted and (pos >= end or byte(data, pos) != QUOTE)):
        return -1
    put(entries, state, node, index, value)
    if is_cut:
        put(entries, state, 0, state[ITEMS], 1)
    return pos + quoted


@inlined
def _text(data, pos, end, entries, state, node, index):
    """Reads a string.

    The entry's value is the string's index in the bytes (upper half), its length with the
    escapes replaced, and whether it has escapes (lowest bit).
    """
    closing, saved_bytes = text_end(data, pos + 1, end)
    if closing < 0:
        return -1
    length = closing - pos - 1 - saved_bytes
    put(entries, state, node, index, (pos + 1) << 32 | length << 1 | (saved_bytes > 0))
    return closing + 1


@inlined
def _number(data, pos, end, tables, entries, state, node, index, kind):
    row = node * WIDTH
    pos, value = numeric(
        data, pos, end, kind, tables[np.uintp(row + LOW)], tables[np.uintp(row + HIGH)]
    )
    if pos >= 0:
        put(entries, state, node, index, value)
    return pos


@part
def _decimal(data, pos, end, tables, entries, state, node, index, kind):
    quoted = byte(data, pos) == QUOTE
    precision, scale = tables[np.uintp(node * WIDTH + LOW)], tables[np.uintp(node * WIDTH + HIGH)]
    power = tables[np.uintp(node * WIDTH + FACTOR)]
    if power and quoted:
        pos, high, low = read_unscaled(data, pos + 1, end, precision, power)
    else:
        pos, high, low = decimal(data, pos + quoted, end, precision, scale)
    if pos < 0 or (quoted and (pos >= end or byte(data, pos) != QUOTE)):
        return -1
    put(entries, state, node, index, np.int64(low))
    if kind == WIDE:
        put(entries, state, node, index, np.int64(high))
    return pos + quoted
