"""Debezium's mark for a value that a change left unchanged and the database didn't send.

PostgreSQL doesn't send unchanged large values (TOAST), and Oracle doesn't send unchanged LOBs.
The mark is a text, written in the form of the column's type.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.shared.buffers import octets_of
from windrow.ingest.schema.dtypes import map_type

Unavailable = Literal["keep", "dead", "null"]
"""Treatment of a marked value.

- `keep`: the table keeps its own value.
- `dead`: the message is a dead letter.
- `null`: the value is null.
"""

NOT_SENT = (
    "Expected a value, got Debezium's mark for one that the change left alone (decode.unavailable)"
)
MARK = "__debezium_unavailable_value"
_BYTES = MARK.encode()
_TEXTS = pa.array([MARK, base64.b64encode(_BYTES).decode(), _BYTES.hex(), f'{{"{MARK}":"{MARK}"}}'])
"""Forms of the mark in a text column.

They are the mark, its bytes as base64 or hex (`binary.handling.mode`), and the JSON of an
hstore.
"""
_LENGTHS = frozenset(pc.binary_length(_TEXTS).to_pylist())
_ITEMS = pa.concat_arrays(
    [
        _TEXTS,
        pa.array(
            [str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))]
        ),
    ]
)
"""Forms of the mark in a list of texts.

The last one is the UUID that Java makes of the mark's bytes. It marks an array of UUIDs.
"""


def unavailable(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Returns a mask of the values that are the mark; None if no value is."""
    kind = values.type
    if pa.types.is_string(kind):
        _, begins, ends = octets_of(values)
        lengths = ends - begins
        is_long = lengths.max(initial=0) >= min(_LENGTHS)
        may_be = is_long and any((lengths == length).any() for length in _LENGTHS)
        return _mask_or_none(pc.is_in(values, _TEXTS)) if may_be else None
    if pa.types.is_binary(kind):
        return _mask_or_none(pc.fill_null(pc.equal(values, _BYTES), False))
    if pa.types.is_map(kind):
        return unavailable(pa.ListArray.from_arrays(values.offsets, values.keys))
    if not pa.types.is_list(kind):
        return None
    if map_type(kind) is not None:
        return unavailable(pa.ListArray.from_arrays(values.offsets, values.values.field("key")))
    if pa.types.is_integer(kind.value_type):
        return _of_numbers(values)
    if pa.types.is_date32(kind.value_type):
        return _of_numbers(pa.ListArray.from_arrays(values.offsets, values.values.view(pa.int32())))
    items = values.flatten()
    inside = (
        _mask_or_none(pc.is_in(items, _ITEMS))
        if pa.types.is_string(items.type)
        else unavailable(items)
    )
    if inside is None:
        return None
    mask = np.zeros(len(values), np.bool_)
    mask[pc.list_parent_indices(values).to_numpy()[inside]] = True
    mask &= pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False) == 1
    return mask


def _mask_or_none(matches: pa.BooleanArray) -> npt.NDArray[np.bool_] | None:
    mask: npt.NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False)
    return mask if mask.any() else None


def _of_numbers(values: pa.ListArray) -> npt.NDArray[np.bool_] | None:
    """Returns a mask of the lists of numbers that are the mark's bytes; None if no list is."""
    mask = (
        pc.fill_null(pc.equal(pc.list_value_length(values), len(_BYTES)), False)
        .to_numpy(zero_copy_only=False)
        .copy()
    )
    for index in np.flatnonzero(mask):
        mask[index] = values[index].as_py() == list(_BYTES)
    return mask if mask.any() else None
