"""Into which partition of its topic each message goes. Pure."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Partitioner = Literal["default", "key-hash", "fixed", "round-robin", "source", "function"]

Numbers = npt.NDArray[np.int32]

BY_CLIENT = -1
"""The client chooses, by the key."""

BY_KEY = "murmur2"
"""What librdkafka calls the way of `key-hash`: that of Java's clients.

Messages whose key is null go to one partition, not to any.
"""

PARTITION = "partition"
"""The column of staged messages that says what a user's function chose."""


def partitions(
    how: Partitioner, rows: int, first: int, split: int, source: int, count: int
) -> Numbers:
    """Of messages that stand one behind the other, where no function has chosen.

    Args:
        how: what the spec says.
        rows: how many messages.
        first: how many of their split came before them.
        split: the number of their split in the plan.
        source: the partition that they were read from.
        count: how many partitions their topic has.
    """
    if how == "round-robin":
        return ((np.arange(rows) + first + split) % count).astype(np.int32)
    chosen = {
        "default": BY_CLIENT,
        "key-hash": BY_CLIENT,
        "fixed": split % count,
        "source": source % count,
    }[how]
    return np.full(rows, chosen, np.int32)
