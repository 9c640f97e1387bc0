"""Headers of messages, a whole column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def last_values(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Of each message the value of its last header of a name; null where it has none."""
    entries, messages = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    places = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    last = np.full(len(headers), -1, np.int64)
    last[messages[places]] = places  # of several the last one is written last
    return entries.field("value").take(pa.array(last, mask=last < 0))
