"""Columns as a compiled pass sees them: a tree of nodes.

Each column, field, item, key and value has a node.

A node in a list or a map has as many values as the list or map has items, not rows. So
each list and each map opens a *space* of its own, and every node lies in one space. All
nodes of a space have equally many values, as Arrow wants it of a list's children. Space
0 has the rows.
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
"""Kinds of nodes.

`DECIMAL` has at most 18 digits, for which 64 bits are enough; a decimal of more is
`WIDE`.
"""

UTC = "UTC"
"""Zone of timestamps without an offset that a pass reads.

Those of other zones are left to the strict way.
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
    """One node.

    - `inner`: the space that it opens; 0 if none.
    - `epoch`: the unit of a timestamp that is a number; `zone`: the zone of one that is
      a text without an offset.
    - `days`: whether a date is a number.
    - `power`: for a decimal that comes as bytes, the power of ten that gives it the
      column's scale; -1 if that is too large for 64 bits, or the column's scale is the
      smaller one; 0 for any other value.
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
        """Kind of the node: by it the pass chooses how to read a value."""
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
    """Makes all nodes; the first is the document, whose children are the columns.

    The children of a node have consecutive numbers. `epoch`, `zone`: the unit of
    timestamps, or the zone of those without an offset, for columns that say neither;
    without a unit they are texts.
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
    """Two numbers that a pass needs of a node.

    - Of an integer, its bounds. Of a decimal, its precision and scale.
    - Of a timestamp, its form, and 1 if a finer one is truncated. The form of a number
      is the power of ten of its unit in microseconds; of a text it is 1 if it is UTC
      without an offset.
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
