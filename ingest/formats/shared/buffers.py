"""Bytes of messages, a whole column at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def octets_of(
    messages: pa.BinaryArray, skip: int = 0, *, null: int = 0
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The bytes of messages, and where each begins and ends.

    `skip`: bytes that are left out before each, if any; `null`: the length of what
    isn't there, -1 where no bytes are a message.
    """
    _, starts, data = messages.buffers()
    edges = np.frombuffer(starts, np.int32)[messages.offset : messages.offset + len(messages) + 1]
    begins, ends = edges[:-1], edges[1:]
    if messages.null_count:
        ends = np.where(
            messages.is_valid().to_numpy(zero_copy_only=False), ends, begins + np.int32(null)
        )
    return np.frombuffer(data or b"", np.uint8), begins + np.int32(skip) if skip else begins, ends


def last_values(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Of each message the value of its last header of a name; null where it has none."""
    entries, messages = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    places = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    last = np.full(len(headers), -1, np.int64)
    last[messages[places]] = places  # of several the last one is written last
    return entries.field("value").take(pa.array(last, mask=last < 0))


def as_text(values: pa.BinaryArray) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
    """The values as text, and which of them are none: these are null.

    Python judges where Arrow finds one that isn't UTF-8.
    """
    try:
        return values.cast(pa.string()), np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        wrong = np.array(
            [value is not None and not _is_text(value) for value in values.to_pylist()], np.bool_
        )
        return (
            pc.if_else(pa.array(wrong), pa.scalar(None, values.type), values).cast(pa.string()),
            wrong,
        )


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
