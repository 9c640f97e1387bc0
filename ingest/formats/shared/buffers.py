"""A batch of messages as the arrays that compiled passes take."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


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
