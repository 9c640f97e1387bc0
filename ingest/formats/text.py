"""Bytes that should be UTF-8, a whole column at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


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
