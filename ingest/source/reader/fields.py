"""The layout of the arrays that the compiled passes over messages read and write."""

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
"""The functions of librdkafka that the passes call, without the prefix `rd_kafka_`.

If the address of the last function is 0, no message is destroyed.
"""

NUMBER, VALUE, VALUE_SIZE, KEY, KEY_SIZE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, LEADER_EPOCH = range(9)
HEADERS, HEADER_COUNT, HEADER_NAMES_SIZE, HEADER_VALUES_SIZE = range(9, 13)
SIZES = VALUE_SIZE, KEY_SIZE, HEADER_NAMES_SIZE, HEADER_VALUES_SIZE
FIELDS = 13
"""The number of fields of a message. Each field is an array, so that a column is contiguous.

The fields are the message's number among the messages that were handed over, addresses
(0: null), sizes, and the values of columns.
"""

ERR, TOPIC, PARTITION, DUE, STOP, EVENTS, WRONG, TOPIC_SEEN, BYTES = range(9)
STATE = 9
"""The number of words in the state of the pass `look`, which describes each word."""

SCRATCH = 4
"""The number of words to which functions of librdkafka write their results."""

LARGEST = 2**31 - 1
"""The largest size in bytes: Kafka's own sizes are 32-bit."""

Ints = npt.NDArray[np.int64]
