"""Tables of numbers that tell the compiled pass how to read messages of a type.

There is one table for each message type and each struct that its fields are read into,
and one for each message type that no column is for. Fields that no column is for are
checked as strictly as the others, since Protobuf's library refuses the whole message for
a mistake in one of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.protobuf.budget import message_cost
from windrow.ingest.formats.protobuf.fields import (
    INTEGERS,
    TYPES,
    integer_rule,
    is_map,
    is_wrapper,
)
from windrow.ingest.formats.shared.budget import item_cost
from windrow.ingest.formats.shared.nodes import FLOAT32, FLOAT64, MAP, STRUCT, WIDE, Node, nodes_of
from windrow.ingest.schema.columns import Columns, Finer

(
    NUMBER,
    NUMBER_FLOAT,
    NUMBER_WIDE,
    BITS,
    TABLE,
    TEXT,
    KEY,
    OCTETS_ANY,
    MESSAGE,
    INSTANT,
    STRICT,
    DIVIDED,
) = range(12)
"""Operations: what the pass does with a value of a field.

- `NUMBER`: takes a number within the column's bounds; `NUMBER_FLOAT`: the same, as a
  double; `DIVIDED`: the same, for a timestamp in a unit finer than microseconds;
  `NUMBER_WIDE`: takes a number as a decimal of 128 bits.
- `BITS`: takes the 64 bits as they are; `TABLE`: takes an enum's number by a table.
- `TEXT`: takes UTF-8; `KEY`: the same, for a map's key; `OCTETS_ANY`: takes any bytes.
- `MESSAGE`: enters a message; `INSTANT`: takes a google.protobuf.Timestamp.
- `STRICT`: leaves the whole message to the strict decoder.
"""

(
    INT64,
    UINT64,
    INT32,
    UINT32,
    SINT32,
    SINT64,
    BOOL,
    FIXED64,
    SFIXED64,
    DOUBLE,
    SIZED,
    FIXED32,
    SFIXED32,
    FLOAT,
) = range(14)
"""Encodings of a value.

Up to `BOOL` it is a varint, up to `DOUBLE` eight bytes; `SIZED` is a length and so many
bytes; the others are four bytes.
"""

FIELD = 16
(
    OP,
    NODE,
    WIRE,
    KIND,
    LOW,
    HIGH,
    FACTOR,
    ONCE,
    SETS,
    REPEATED,
    LENGTHS,
    SPACE,
    INNER_SPACES,
    COST,
    INNER,
    MESSAGE_COST,
) = range(FIELD)
"""Numbers in a field's row.

- `OP`: the operation; `NODE`: the node of the value, or `NOBODY`; `WIRE`: the wire type;
  `KIND`: the encoding.
- `LOW`, `HIGH`, `FACTOR`: for a number its `IntegerRule`. For `DIVIDED` the factor is the
  divisor, negative if the rest may be cut off. For `NUMBER_WIDE` `LOW` is 1 if the column
  has room for 20 digits. For `INSTANT` `LOW` is 1 if nanoseconds may be cut off. For
  `TABLE` they are the enum's lowest number, its highest, and the place of the table. For
  `MESSAGE` `FACTOR` is how many entries say that the message is present.
- `ONCE`: bits that must not be set when the field comes: the result would depend on the
  order of the fields, so the strict decoder decides; `SETS`: bits that the field sets.
- `REPEATED`: 1 if the field may come several times, or packed; `LENGTHS`: the node of its
  list or map, or `NOBODY`; `SPACE`: the space of its items; `INNER_SPACES`: the place of the list
  of spaces that begin anew with each item, its length first; `COST`: what an item costs
  of the budget.
- `INNER`: the table of the message inside; `MESSAGE_COST`: its cost (`budget.py`).
"""

TYPE = 6
NEEDS, DENSE, DENSE_AT, SPARSE, SPARSE_AT, KEYED = range(TYPE)
"""Numbers in a message type's row.

- `NEEDS`: bits that must be set at the end of a message.
- `DENSE`, `DENSE_AT`: how many field numbers are looked up directly, and the place of
  their rows' places.
- `SPARSE`, `SPARSE_AT`: how many fields have larger numbers, and the place of their
  sorted pairs of number and row's place.
- `KEYED`: the node of the keys if the message is an entry of a map, or `NOBODY`.
"""

MAX_DEPTH = 60
"""The deepest nesting of messages that the pass takes; Protobuf's library takes a hundred."""

FRAMES = 4
"""The place in the pass's state, after those of `shared.seen`, where the frames begin."""
FRAME = 7
FRAME_TABLE, FRAME_END, FRAME_INDEX, FRAME_BITS, FRAME_PARENT, FRAME_LENGTHS, FRAME_KEY = range(
    FRAME
)
"""Numbers of a frame. A frame is there for each message inside that isn't at its end.

- `FRAME_TABLE`, `FRAME_END`, `FRAME_INDEX`, `FRAME_BITS`: the table, end, index and bits
  of the message around it, to go on with.
- `FRAME_PARENT`: for an entry of a map, which value of its node the map is.
- `FRAME_LENGTHS`: for an entry of a map, the map's node; `NOBODY` if the message is no
  such entry, or no column is for the map.
- `FRAME_KEY`: for an entry of a map, where its key is, as a text's entry
  says it.
"""
ITEMS = FRAMES + FRAME * MAX_DEPTH
"""The place in the state, after the frames, of three numbers for each space.

First how many items each space has; then the same before the message; then where the
open list of each space begins. Space 0 has the rows.
"""

NOBODY = -1
"""In the place of a node: no column is for the value."""
UNKNOWN, DOUBTFUL, UNCOUNTED = -1, -2, -3
"""In the place of a field's row: the type has no such field; only the strict decoder can tell; the
type has no such field, and is a wrapper or an entry of a map, whose fields aren't counted."""
_MOST_BITS = 62
"""Most bits that a type may use."""
_DENSE_BELOW = 1024
"""Field numbers below this one are looked up directly."""
_WIDEST_ENUM = 4096
"""The widest enum that gets a table: from its lowest number to its highest."""
NO_VALUE = -(1 << 63)
"""In an enum's table: the column has no value for the number."""
_WIRES = {SIZED: 2, FIXED32: 5, SFIXED32: 5, FLOAT: 5, FIXED64: 1, SFIXED64: 1, DOUBLE: 1}
_KINDS = {
    "double": DOUBLE,
    "float": FLOAT,
    "int64": INT64,
    "uint64": UINT64,
    "int32": INT32,
    "fixed64": FIXED64,
    "fixed32": FIXED32,
    "bool": BOOL,
    "string": SIZED,
    "message": SIZED,
    "bytes": SIZED,
    "uint32": UINT32,
    "enum": INT32,
    "sfixed32": SFIXED32,
    "sfixed64": SFIXED64,
    "sint32": SINT32,
    "sint64": SINT64,
}


@dataclass(frozen=True)
class FieldTables:
    """Tables for a message type and columns.

    - `numbers`: all tables; `root`: the place of the table of the messages' own type.
    - `inner_spaces`: the place of the list of spaces that begin anew with each row.
    - `symbols`: the bytes of all enum symbols and default texts, one after the other.
    - `nodes`: the nodes of the columns; `keyed`: True if a map is among them.
    - `defaults`: for each node that has a value when its field isn't set, the node and
      the value.
    """

    numbers: npt.NDArray[np.int64]
    root: int
    inner_spaces: int
    symbols: bytes
    nodes: list[Node]
    keyed: bool
    defaults: list[tuple[int, int]]


def field_tables(kind: Any, columns: Columns) -> FieldTables:
    """Makes the tables for a message type (its descriptor) and columns.

    The columns can be read from the type: `fields.reader` has accepted them.
    """
    nodes = nodes_of(columns)
    writer = _TableWriter(nodes, columns.finer)
    root, inner_spaces = writer.type_of(kind, nodes[0]), writer.inner_spaces(0)
    writer.fill()
    return FieldTables(
        np.array(writer.numbers, np.int64),
        root,
        inner_spaces,
        bytes(writer.symbols),
        nodes,
        any(node.kind == MAP for node in nodes),
        writer.defaults,
    )


@dataclass
class _Type:
    """Message type whose table is being written.

    - `node_by_field`: the nodes that its fields are read into, by the fields' names.
    - `unwrapped`: True if it is a wrapper, and its value is the column's.
    - `used`: how many bits it uses. A bit notes that a field, or a member of a oneof,
      has come. If there are more than `_MOST_BITS`, the others share the last bit: then the
      pass only leaves more messages to the strict decoder.
    - `needs`: the bits that must be set at the end of a message.
    """

    node_by_field: Mapping[str, Node]
    unwrapped: bool
    used: int = 0
    needs: int = 0
    of_oneofs: dict[str, int] = field(default_factory=dict)

    def new(self) -> int:
        bit = 1 << min(self.used, _MOST_BITS - 1)
        self.used += 1
        return bit


class _TableWriter:
    """Writes tables one after the other.

    A table gets its place when something refers to it first, and is filled later.
    """

    def __init__(self, nodes: list[Node], finer: Finer) -> None:
        self._nodes = nodes
        self._finer = finer
        self._places: dict[tuple[str, int], int] = {}
        self._empty: list[tuple[int, Any, Node | None]] = []
        self._inner_spaces: dict[int, int] = {}
        self.numbers: list[int] = []
        self.symbols = bytearray()
        self.defaults: list[tuple[int, int]] = []

    def inner_spaces(self, space: int) -> int:
        """Returns the place of the list of spaces whose lists and maps lie in a space."""
        if space not in self._inner_spaces:
            inner = [node.inner for node in self._nodes if node.inner and node.space == space]
            self._inner_spaces[space] = self._put([len(inner), *inner])
        return self._inner_spaces[space]

    def type_of(self, kind: Any, node: Node | None) -> int:
        """Returns the place of a type's table.

        `node`: the struct, map or value that the fields are read into; None: no column.
        """
        key = kind.full_name, NOBODY if node is None else node.number
        if key not in self._places:
            self._places[key] = self._put([0] * TYPE)
            self._empty.append((self._places[key], kind, node))
        return self._places[key]

    def fill(self) -> None:
        """Fills all tables that have a place.

        It is a loop, so that deeply nested types don't recurse here.
        """
        while self._empty:
            table, kind, node = self._empty.pop()
            self._fill(table, kind, self._opened(node))
            if node is not None and node.kind == MAP:
                self.numbers[table + KEYED] = node.children[0].number

    @staticmethod
    def _opened(node: Node | None) -> _Type:
        if node is None:
            return _Type({}, unwrapped=False)
        if node.kind == MAP:
            return _Type({"key": node.children[0], "value": node.children[1]}, unwrapped=False)
        if node.kind == STRUCT:
            return _Type({child.name: child for child in node.children}, unwrapped=False)
        return _Type({"value": node}, unwrapped=True)

    def _put(self, numbers: list[int]) -> int:
        self.numbers += numbers
        return len(self.numbers) - len(numbers)

    def _fill(self, table: int, kind: Any, type_state: _Type) -> None:
        dense_end = max((f.number for f in kind.fields if f.number < _DENSE_BELOW), default=0) + 1
        # Protobuf's library may know an extension with this number
        unknown = UNCOUNTED if type_state.unwrapped or _is_entry(kind) else UNKNOWN
        unknown = DOUBTFUL if kind.is_extendable else unknown
        dense = [DOUBTFUL] + [unknown] * (dense_end - 1)  # a field can't have the number 0
        sparse = []
        for member in kind.fields:
            row_begin = self._field(member, type_state)
            if member.number < _DENSE_BELOW:
                dense[member.number] = row_begin
            else:
                sparse.append((member.number, row_begin))
        pairs = [number for pair in sorted(sparse) for number in pair]
        self.numbers[table : table + TYPE] = [
            type_state.needs,
            len(dense),
            self._put(dense),
            len(sparse),
            self._put([*pairs, unknown]),
            NOBODY,
        ]

    def _field(self, descriptor: Any, type_state: _Type) -> int:
        row = dict.fromkeys(range(FIELD), 0) | {
            NODE: NOBODY,
            LENGTHS: NOBODY,
            LOW: -(1 << 63),
            HIGH: (1 << 63) - 1,
            FACTOR: 1,
        }
        name, node = TYPES[descriptor.type], type_state.node_by_field.get(descriptor.name)
        value = node
        if descriptor.is_repeated:
            value = self._write_repeated(row, node)
        else:
            row[SETS] = row[ONCE] = self._bit(descriptor, node, type_state)
            type_state.needs |= row[SETS] if descriptor.is_required else 0
            if node is not None and not type_state.unwrapped:
                self._default(row, descriptor, node, type_state)
            if (
                _is_entry(descriptor.containing_type)
                and descriptor.message_type is not None
                and any(f.is_required for f in descriptor.message_type.fields)
            ):
                # an entry without a value gets an empty message, which the library
                # refuses: its required fields aren't set
                self._must(row, type_state)
        # a map that becomes a list is in the order of its keys, which only strict.py sorts
        if name == "group" or (value is not None and is_map(descriptor) and value.kind != MAP):
            row[OP] = STRICT
        else:
            row[KIND] = _KINDS[name]
            row[WIRE] = _WIRES.get(row[KIND], 0)
            row.update(self._value(descriptor, value))
        return self._put([row[i] for i in range(FIELD)])

    @staticmethod
    def _bit(descriptor: Any, node: Node | None, type_state: _Type) -> int:
        """Returns the bit of a field that the pass takes only once, or 0.

        A second message would be merged into the first one, and a second member of a
        oneof would replace the first one: the strict decoder does that.
        """
        group = descriptor.containing_oneof
        if (
            group is not None
            and len(group.fields) > 1
            and any(member.name in type_state.node_by_field for member in group.fields)
        ):
            if group.name not in type_state.of_oneofs:
                type_state.of_oneofs[group.name] = type_state.new()
            return type_state.of_oneofs[group.name]
        is_new = descriptor.is_required or (
            node is not None and descriptor.message_type is not None
        )
        return type_state.new() if is_new else 0

    def _write_repeated(self, row: dict[int, int], node: Node | None) -> Node | None:
        """Returns the node that an item is read into; for a map's entries the map's own."""
        row[REPEATED] = 1
        if node is None:
            return None
        row[LENGTHS], row[SPACE], row[INNER_SPACES] = (
            node.number,
            node.inner,
            self.inner_spaces(node.inner),
        )
        row[COST] = sum(item_cost(child.type) for child in node.children)
        self.defaults.append((node.number, 0))
        return node if node.kind == MAP else node.children[0]

    def _value(self, descriptor: Any, node: Node | None) -> Iterator[tuple[int, int]]:
        """Yields the numbers of a field's row that say what is done with one value."""
        inner, name = descriptor.message_type, TYPES[descriptor.type]
        if inner is not None:
            yield MESSAGE_COST, message_cost(inner)
            if node is not None and pa.types.is_timestamp(node.type) and not is_wrapper(inner):
                yield from (
                    (OP, INSTANT),
                    (NODE, node.number),
                    (LOW, int(self._finer == "truncate")),
                )
                return
            yield from ((OP, MESSAGE), (INNER, self.type_of(inner, node)))
            if node is not None and node.kind != MAP:
                yield from ((NODE, node.number), (FACTOR, 2 if node.kind == WIDE else 1))
            return
        yield OP, {"string": TEXT, "bytes": OCTETS_ANY}.get(name, BITS)
        if node is None:
            return
        yield NODE, node.number
        is_text = node.type == pa.string()
        if is_text and descriptor.name == "key" and _is_entry(descriptor.containing_type):
            yield OP, KEY
        elif name == "bytes" and is_text:
            yield OP, TEXT
        elif name in INTEGERS or (name == "enum" and not is_text):
            rule = integer_rule(node.type, node.epoch)
            assert rule is not None  # `fields.reader` has accepted the column
            if node.kind == WIDE:
                # only unsigned numbers of 64 bits have 20 digits
                yield from ((OP, NUMBER_WIDE), (LOW, int(rule.high >> 64 > 0)))
                return
            yield from (
                (OP, NUMBER_FLOAT if node.kind in {FLOAT32, FLOAT64} else NUMBER),
                (FACTOR, rule.factor),
            )
            yield from ((LOW, max(rule.low, -(1 << 63))), (HIGH, min(rule.high, (1 << 63) - 1)))
            if rule.divisor > 1:
                yield from (
                    (OP, DIVIDED),
                    (FACTOR, -rule.divisor if self._finer == "truncate" else rule.divisor),
                )
        elif name == "enum":
            yield from self._enum(descriptor.enum_type)

    def _enum(self, kind: Any) -> Iterator[tuple[int, int]]:
        numbers = sorted(kind.values_by_number)
        if numbers[-1] - numbers[0] >= _WIDEST_ENUM:
            yield OP, STRICT
            return
        table = [
            self._symbol(kind.values_by_number[number].name.encode())
            if number in kind.values_by_number
            else NO_VALUE
            for number in range(numbers[0], numbers[-1] + 1)
        ]
        yield from (
            (OP, TABLE),
            (LOW, numbers[0]),
            (HIGH, numbers[-1]),
            (FACTOR, self._put(table)),
        )

    def _symbol(self, octets: bytes) -> int:
        """Adds a text to the symbols; returns its place and length as an entry."""
        self.symbols += octets
        return len(self.symbols) - len(octets) << 32 | len(octets) << 1 | 1

    def _default(self, row: dict[int, int], descriptor: Any, node: Node, type_state: _Type) -> None:
        """Notes what the column has if the field isn't set."""
        in_entry = _is_entry(descriptor.containing_type)
        if descriptor.message_type is not None and in_entry:
            self.defaults.append((node.number, 0))
        elif descriptor.message_type is None and (
            in_entry or not descriptor.has_presence or descriptor.has_default_value
        ):
            value = self._default_value(descriptor, node)
            if value == NO_VALUE:  # the column can't hold it: the strict decoder refuses it
                self._must(row, type_state)
            else:
                self.defaults.append((node.number, value))
        elif node.required:
            self._must(row, type_state)

    @staticmethod
    def _must(row: dict[int, int], type_state: _Type) -> None:
        """Makes the pass take only messages in which the field is set."""
        bit = type_state.new()
        row[SETS] |= bit
        type_state.needs |= bit

    def _default_value(self, descriptor: Any, node: Node) -> int:
        name, value = TYPES[descriptor.type], descriptor.default_value
        if name in {"string", "bytes"}:
            octets = value.encode() if isinstance(value, str) else value
            return (
                self._symbol(octets) if node.type == pa.binary() or _is_text(octets) else NO_VALUE
            )
        if name == "enum" and node.type == pa.string():
            return self._symbol(descriptor.enum_type.values_by_number[value].name.encode())
        if name in INTEGERS or name == "enum":
            rule = integer_rule(node.type, node.epoch)
            assert rule is not None  # `fields.reader` has accepted the column
            if (
                not rule.low <= value <= rule.high
                or value * rule.factor % rule.divisor
                or (node.kind == WIDE and value)
            ):
                return NO_VALUE
            return (
                _bits(float(value))
                if node.kind in {FLOAT32, FLOAT64}
                else value * rule.factor // rule.divisor
            )
        return _bits(value) if isinstance(value, float) else int(value)


def _is_entry(kind: Any) -> bool:
    return bool(kind.GetOptions().map_entry)


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
