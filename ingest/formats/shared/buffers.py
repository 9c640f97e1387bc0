"""Functions on the bytes of all messages of a column at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def octets_of(
    messages: pa.BinaryArray, skip: int = 0, *, null: int = 0
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns the bytes of all messages, and where each message begins and ends.

    Args:
        messages: the messages.
        skip: the number of bytes to skip at the start of each message.
        null: the length that a null gets; -1 distinguishes it from an empty message.
    """
    _, starts, data = messages.buffers()
    edges = np.frombuffer(starts, np.int32)[messages.offset : messages.offset + len(messages) + 1]
    begins, ends = edges[:-1], edges[1:]
    if messages.null_count:
        ends = np.where(
            messages.is_valid().to_numpy(zero_copy_only=False), ends, begins + np.int32(null)
        )
    return np.frombuffer(data or b"", np.uint8), begins + np.int32(skip) if skip else begins, ends


def as_text(values: pa.BinaryArray) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
    """Returns the values as text, and a mask of the values that aren't UTF-8.

    A value that isn't UTF-8 becomes null. Arrow checks all values at once. If one of them
    isn't UTF-8, Python checks each.
    """
    try:
        return values.cast(pa.string()), np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        invalid_mask = np.array(
            [value is not None and not _is_text(value) for value in values.to_pylist()], np.bool_
        )
        return (
            pc.if_else(pa.array(invalid_mask), pa.scalar(None, values.type), values).cast(
                pa.string()
            ),
            invalid_mask,
        )


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
