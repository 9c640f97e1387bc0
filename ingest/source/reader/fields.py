"""What the compiled passes over messages are told, and what they tell: places in arrays
of numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CALLS = (
    "message_timestamp",
    "message_leader_epoch",
    "message_headers",
    "header_cnt",
    "header_get_all",
    "message_destroy",
)
"""Functions of librdkafka, without their prefix.

A zero in the place of the last one's address: nothing is destroyed.
"""

NUMBER, VALUE, VALUE_SIZE, KEY, KEY_SIZE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, LEADER_EPOCH = range(9)
HEADERS, HEADER_COUNT, HEADER_NAMES_SIZE, HEADER_VALUES_SIZE = range(9, 13)
SIZES = VALUE_SIZE, KEY_SIZE, HEADER_NAMES_SIZE, HEADER_VALUES_SIZE
FIELDS = 13
"""What is known of a message that was looked at: its number among those that were
handed over; addresses (0: null) and sizes; columns.

One array for each, so that a column is copied from one place.
"""

ERR, TOPIC, PARTITION, DUE, STOP, EVENTS, WRONG, TOPIC_SEEN, BYTES = range(9)
STATE = 9
"""What `look` is told, and what it tells: see there."""

SCRATCH = 4
"""Words that the functions of librdkafka write their answers to."""

LARGEST = 2**31 - 1
"""Bytes: Kafka's own sizes are 32-bit."""

Ints = npt.NDArray[np.int64]
