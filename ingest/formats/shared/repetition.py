"""Bounds of what is repeated for each row of a message: its key, headers and envelope."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FREE, SHARE, MOST = 1 << 16, 32, 1 << 28
"""Bounds in bytes of the memory that the rows of one message take beyond the message's size.

Key, headers and envelope are repeated for each row except the first. The repetitions may take
`FREE` bytes plus `SHARE` bytes for each byte of the message, but at most `MOST`.

So the rows of a batch fit into an Arrow array of texts, which holds 2 GB. The worst case is a
batch of messages of some 900 bytes, made to be as expensive as possible. A batch has 16 MB and
its last message; its rows take 1.7 GB then.
"""


def max_repeated_bytes(message_sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the bytes that repetitions may take, for messages of these sizes."""
    return np.minimum(FREE + SHARE * message_sizes, MOST)


def key_and_header_sizes(messages: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns the bytes of the key and the headers of each message."""
    headers = messages.column("headers")
    entries, parents = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    of_headers = byte_sizes(entries.field("key")) + byte_sizes(entries.field("value"))
    return byte_sizes(messages.column("key")) + np.bincount(
        parents, of_headers, messages.num_rows
    ).astype(np.int64)


def byte_sizes(values: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the bytes of each value; a value that is neither text nor bytes counts as 8."""
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return np.full(len(values), 8, np.int64)
    lengths: npt.NDArray[np.int64] = (
        pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    )
    return lengths
