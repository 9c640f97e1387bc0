"""Partitioners: how the partition of each message is chosen."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Partitioner = Literal["default", "key-hash", "fixed", "round-robin", "source", "function"]

Numbers = npt.NDArray[np.int32]

BY_CLIENT = -1
"""In place of a partition: the client chooses one by the key."""

BY_KEY = "murmur2"
"""librdkafka's name for the partitioner of `key-hash`, which Java's clients have, too.

All messages whose key is null go to the same partition.
"""

PARTITION = "partition"
"""Column of staged messages with the partition that the user's function chose."""


def partitions(
    how: Partitioner, rows: int, first: int, split: int, source: int, count: int
) -> Numbers:
    """Returns the partitions of consecutive messages, where no function chooses them.

    Args:
        how: the partitioner.
        rows: number of messages.
        first: number of messages of the same split before these.
        split: number of the split in the plan.
        source: the partition that the messages were read from.
        count: number of partitions of the target topic.
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
