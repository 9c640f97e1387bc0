"""Messages of librdkafka become batches of the schema, also in cases that are rare on real
Kafka.
"""

from __future__ import annotations

import numpy as np
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.source.reader.confluent import to_batch
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.schema.messages import MESSAGES
from windrow.ingest.source.reader.batches import byte_ends, first_later, header_ends

TP = TopicPartition("t", 3)
BLOB = st.none() | st.binary(max_size=5)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=2), BLOB), max_size=3)


def test_a_message_without_a_timestamp() -> None:
    """A message without a timestamp, by its type or by its value, has null; 1970 isn't null.

    The type may change within a batch.
    """
    stamps = [
        (TIMESTAMP_CREATE_TIME, 5),
        (TIMESTAMP_NOT_AVAILABLE, 0),
        (TIMESTAMP_CREATE_TIME, -1),
        (TIMESTAMP_LOG_APPEND_TIME, 0),
    ]
    batch = to_batch(
        TP,
        [
            Message(topic="t", partition=3, offset=o, timestamp=stamp)
            for o, stamp in enumerate(stamps)
        ],
    )
    assert batch.column("timestamp").cast("int64").to_pylist() == [5, None, None, 0]
    assert batch.column("timestamp_type").to_pylist() == [
        "CreateTime",
        "NoTimestampType",
        "CreateTime",
        "LogAppendTime",
    ]
    assert batch.column("timestamp").type == MESSAGES.field("timestamp").type


@given(st.lists(st.tuples(BLOB, BLOB, HEADERS, st.integers(-1, 9)), min_size=1, max_size=20))
def test_any_messages(
    messages: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]],
) -> None:
    """Keys, values, headers and epochs are unchanged, null and empty differ, and running sizes
    are right.
    """
    given_in = [
        Message(
            topic="t",
            partition=3,
            offset=7 + n,
            key=key,
            value=value,
            headers=headers,
            leader_epoch=epoch,
            timestamp=(1, n),
        )
        for n, (key, value, headers, epoch) in enumerate(messages)
    ]
    batch = to_batch(TP, given_in)
    batch.validate(full=True)
    assert batch.schema.equals(MESSAGES)
    rows = batch.to_pylist()
    assert [(r["topic"], r["partition"], r["offset"]) for r in rows] == [
        ("t", 3, 7 + n) for n in range(len(messages))
    ]
    assert [(r["key"], r["value"], r["leader_epoch"]) for r in rows] == [
        (key, value, None if epoch == -1 else epoch) for key, value, _, epoch in messages
    ]
    assert [[(h["key"], h["value"]) for h in r["headers"]] for r in rows] == [
        headers or [] for _, _, headers, _ in messages
    ]
    sizes = [len(key or b"") + len(value or b"") for key, value, _, _ in messages]
    assert byte_ends(batch).tolist() == np.cumsum(sizes).tolist()
    assert byte_ends(batch.slice(1)).tolist() == np.cumsum(sizes[1:]).tolist()
    header_sizes = [
        sum(len(name.encode()) + len(value or b"") for name, value in headers or [])
        for _, _, headers, _ in messages
    ]
    assert header_ends(batch).tolist() == np.cumsum(header_sizes).tolist()
    assert header_ends(batch.slice(1)).tolist() == np.cumsum(header_sizes[1:]).tolist()


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [([2, 3, 3], None), ([3, 4, 9], 1), ([4], 0), ([-1, -1], None), ([-1, 4], 1)],
)
def test_the_first_message_of_a_later_leader(epochs: list[int], expected: int | None) -> None:
    """The first row with a later epoch is found.

    Messages without an epoch, and a split without one, don't count.
    """
    batch = to_batch(
        TP,
        [
            Message(topic="t", partition=3, offset=n, leader_epoch=epoch)
            for n, epoch in enumerate(epochs)
        ],
    )
    assert first_later(batch, 3) == expected
    assert first_later(batch, None) is None
