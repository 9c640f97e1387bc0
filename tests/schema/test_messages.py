"""Messages repeated for the rows that were made from them."""

from __future__ import annotations

import pyarrow as pa

from windrow.ingest.schema.messages import for_rows
from windrow.ingest.schema.metadata_arrays import columns
from windrow.ingest.testing.contracts.values import messages_with


def test_a_value_is_there_once_however_many_rows_it_became() -> None:
    """A message's value is in memory once, however many rows the message has.

    Otherwise the memory would be their product.
    """
    messages = messages_with(
        [b"x" * 1_000_000, None, b"yz"], [b"a", None, b"c"], [[("h", b"1")], [], []]
    )
    index = pa.array([0] * 10_000 + [1, 2, 2], pa.int64())
    row_messages = for_rows(messages, index)
    assert row_messages.num_rows == len(index)
    assert row_messages.nbytes < 3_000_000
    size, ordinal, key, offset, value = columns(
        ["value-size", "ordinal", "key", "offset", "value"], row_messages, "a1"
    )
    assert value.nbytes < 2_000_000
    assert value.drop_null().to_pylist() == [b"x" * 1_000_000, b"yz"]
    assert [value[i].is_valid for i in (0, 1, 10_000, 10_001, 10_002)] == [1, 0, 0, 1, 0]
    assert size.to_pylist() == [1_000_000] * 10_000 + [None, 2, 2]
    assert ordinal.to_pylist() == [*range(10_000), 0, 0, 1]
    assert (key.to_pylist()[-4:], offset.to_pylist()[-4:]) == (
        [b"a", None, b"c", b"c"],
        [0, 1, 2, 2],
    )
    assert columns(["headers"], row_messages, "a1")[0].to_pylist()[9_999:] == [
        [("h", b"1")],
        [],
        [],
        [],
    ]
