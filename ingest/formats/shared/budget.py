"""Budget of one message: how much memory its items may take in the columns.

An item of a list or map may be one byte in the message and many values in the columns, as
a null struct of a hundred fields. Each item costs what its values take; a message whose
items cost more than the budget is refused, or left to a decoder that needs less memory.
"""

from __future__ import annotations

import pyarrow as pa

FREE, SHARE = 1 << 20, 32
"""What the items of any message may cost in bytes, and how much more for each of its bytes."""

_VALUE_BYTES = 9
"""What one value of a column takes in a pass: 64 bits, and whether the value is present."""


def budget(size: int) -> int:
    """Returns what the items of a message of `size` bytes may cost."""
    return FREE + SHARE * size


def item_cost(kind: pa.DataType) -> int:
    """Returns the cost of an item of a list. Lists and maps inside it are paid by their items."""
    return _VALUE_BYTES * _values(kind)


def entry_cost(kind: pa.DataType) -> int:
    """Returns the cost of an entry of a map: a key, and a value of this type."""
    return _VALUE_BYTES * (1 + _values(kind))


def _values(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return 1 + sum(_values(field.type) for field in kind)
    return 2 if pa.types.is_decimal(kind) else 1
