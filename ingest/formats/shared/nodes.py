"""Columns in the form that a compiled pass reads: a tree of nodes.

Each column, each field of a struct, each list's item, and each map's key and value has a
node.

A node inside a list or a map has one value for each item, not for each row. So each list
and each map opens its own *space*, and every node belongs to one space. All nodes of a space
have the same number of values, which Arrow requires of a list's children. The nodes of space
0 have one value for each row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from windrow.ingest.formats.shared.integers import MAX_DAYS, MIN_DAYS
from windrow.ingest.schema.columns import Columns, Finer, epoch_of, zone_of
from windrow.ingest.schema.dtypes import EPOCH_UNITS

INTEGER, FLOAT64, FLOAT32, DECIMAL, WIDE, EPOCH, INSTANT, DAY, BOOL, TEXT, STRUCT, LIST, MAP = (
    range(13)
)
"""Kinds of nodes. Their order matters, because passes compare their numbers.

A `DECIMAL` has at most 18 digits, which fit in 64 bits. A decimal of more digits is `WIDE`.
An `EPOCH` is a timestamp that is a number; an `INSTANT` is one that is a text.
"""

UTC = "UTC"
"""The only zone in which a pass reads timestamps without an offset.

Timestamps without an offset in other zones are left to the strict way.
"""

_NARROW_DIGITS = 18
_SCALARS = {
    pa.string(): TEXT,
    pa.binary(): TEXT,
    pa.bool_(): BOOL,
    pa.date32(): DAY,
    pa.float64(): FLOAT64,
    pa.float32(): FLOAT32,
}


@dataclass
class Node:
    """A node.

    Attributes:
        number: its index among all nodes.
        name: the name of the column or field; "" for items, keys and values.
        type: the type of its values.
        space: the space that it belongs to.
        inner: the space that it opens; 0 if it opens none.
        epoch: the unit of a timestamp that is a number; None if it is a text.
        zone: the zone of a timestamp that is a text without an offset.
        days: whether a date is a number of days since 1970.
        power: for a decimal that is written as bytes, the power of ten by which its integer
            is multiplied to get the column's scale. -1 if the power is too large for 64
            bits, or the column's scale is too small. 0 for any other value.
        required: whether its value may be neither null nor absent.
        children: the nodes inside it: columns, fields, the item, or the key and value.
    """

    number: int
    name: str
    type: pa.DataType
    space: int = 0
    inner: int = 0
    epoch: str | None = None
    zone: str | None = None
    days: bool = False
    power: int = 0
    required: bool = False
    children: list[Node] = field(default_factory=list)

    @property
    def kind(self) -> int:
        """Kind of the node, by which the pass chooses how to read a value."""
        if self.days:
            return INTEGER
        if self.type in _SCALARS:
            return _SCALARS[self.type]
        if pa.types.is_decimal(self.type):
            return DECIMAL if self.type.precision <= _NARROW_DIGITS else WIDE
        if pa.types.is_nested(self.type):
            return (
                MAP
                if pa.types.is_map(self.type)
                else LIST
                if pa.types.is_list(self.type)
                else STRUCT
            )
        if pa.types.is_timestamp(self.type):
            return INSTANT if self.epoch is None else EPOCH
        return INTEGER


def nodes_of(columns: Columns, epoch: str | None = None, zone: str | None = None) -> list[Node]:
    """Makes all nodes. The first one is the document, whose children are the columns.

    The children of a node have consecutive numbers.

    Args:
        columns: the columns.
        epoch: the unit of timestamps, for columns that have neither unit nor zone; None if
            their timestamps are texts.
        zone: the zone of timestamps without an offset, for columns that have no zone.
    """
    nodes, spaces = [Node(0, "", pa.struct(list(columns.arrow_schema)))], 1
    for node in nodes:  # the list grows in the loop
        if node.number == 0:
            node.children = [
                Node(0, c.name, c.type, epoch=c.epoch, zone=c.zone, required=not c.nullable)
                for c in columns.columns
            ]
        elif node.kind == STRUCT:
            node.children = [
                Node(0, f.name, f.type, epoch=epoch_of(f), zone=zone_of(f)) for f in node.type
            ]
        elif node.kind == LIST:
            node.children = [Node(0, "", node.type.value_type)]
        elif node.kind == MAP:
            node.children = [Node(0, "", node.type.key_type), Node(0, "", node.type.item_type)]
        if node.kind in {LIST, MAP}:
            node.inner, spaces = spaces, spaces + 1
        for child in node.children:
            child.number, child.space = len(nodes), node.inner or node.space
            if child.zone is None:
                child.epoch, child.zone = child.epoch or epoch, zone
            nodes.append(child)
    return nodes


def bounds_of(node: Node, finer: Finer) -> tuple[int, int]:
    """Returns two numbers that a pass needs for a node.

    - Integer, or date that is a number: the smallest and the largest value.
    - Decimal: the precision and the scale.
    - Timestamp that is a number: the unit as a power of ten of microseconds; and 1 if a
      finer timestamp is truncated, else 0.
    - Timestamp that is a text: 1 if a text without an offset is UTC, else 0; and 1 if a
      finer timestamp is truncated, else 0.
    - Any other node: 0 and 0.
    """
    if node.days:
        return MIN_DAYS, MAX_DAYS
    if node.kind == INTEGER:
        half = 1 << node.type.bit_width - 1
        return -half, half - 1
    if node.kind in {EPOCH, INSTANT}:
        return EPOCH_UNITS[node.epoch] if node.epoch is not None else int(node.zone == UTC), int(
            finer == "truncate"
        )
    return (node.type.precision, node.type.scale) if node.kind in {DECIMAL, WIDE} else (0, 0)
