"""Budget of one message: the memory that its items may take in the columns.

An item of a list or map may be one byte in the message and many values in the columns. An
example is a null struct of a hundred fields. Each item costs the memory of its values. A message
whose items cost more than the budget is refused, or is left to a decoder that needs less
memory.
"""

from __future__ import annotations

import pyarrow as pa

FREE, SHARE = 1 << 20, 32
"""Bytes that the items of any message may cost, and the bytes added for each of its bytes."""

OVER_BUDGET = f"Expected items of at most {SHARE} bytes for each byte of the message"
"""Detail of the refusal of a message whose items cost more than its budget."""

REST_SHARE, NAMELESS_SHARE, FREE_REST, MOST_REST = 16, 64, 64, 1 << 20
"""Bounds of what a row keeps.

They are the bytes for each byte of the message; the same where messages have no names, so that a
byte may be a field; the bytes that are added to any message; and the limit.
"""

_VALUE_BYTES = 9
"""Bytes of one value of a column in a pass: 64 bits, and a byte for whether it is present."""


def budget(size: int) -> int:
    """Returns the bytes that the items of a message of `size` bytes may cost."""
    return FREE + SHARE * size


def rest_budget(size: int, share: int = REST_SHARE) -> int:
    """Returns the bytes of the text that a row keeps of what no column is for.

    The text repeats the path of each field, so it could be much longer than the message.
    """
    return min(MOST_REST, share * (FREE_REST + size))


def item_cost(kind: pa.DataType) -> int:
    """Returns the cost of an item of a list, without the items of lists and maps inside it."""
    return _VALUE_BYTES * _values(kind)


def entry_cost(kind: pa.DataType) -> int:
    """Returns the cost of an entry of a map: a key, and a value of this type."""
    return _VALUE_BYTES * (1 + _values(kind))


def _values(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_values(field.type) for field in kind)
    return 2 if pa.types.is_decimal(kind) else 1
