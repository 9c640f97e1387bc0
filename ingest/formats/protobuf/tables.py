"""Tables of numbers that tell the compiled pass how to read messages of a type.

There is one table for each pair of a message type and a struct that its fields are read into.
Each message type that no column is for also has a table. Its fields are checked as strictly as
other fields, because Protobuf's library refuses the whole message for a mistake in them.
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
    is_json,
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
"""Operations of the pass on a value of a field.

- `NUMBER`: takes a number within the column's bounds.
- `NUMBER_FLOAT`: takes a number within the column's bounds as a double.
- `NUMBER_WIDE`: takes a number as a decimal of 128 bits.
- `BITS`: takes the 64 bits unchanged.
- `TABLE`: takes the symbol of an enum's number, which a table has.
- `TEXT`: takes UTF-8.
- `KEY`: takes UTF-8 as a map's key.
- `OCTETS_ANY`: takes any bytes.
- `MESSAGE`: opens an inner message.
- `INSTANT`: takes a google.protobuf.Timestamp.
- `STRICT`: leaves the whole message to the strict decoder.
- `DIVIDED`: takes a timestamp in a unit finer than microseconds, within the column's bounds.
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
"""Encodings of a value. Their order matters, because the pass compares their numbers with `<=`.

- `INT64` to `BOOL` are varints.
- `FIXED64` to `DOUBLE` are eight bytes.
- `SIZED` is a length, and this number of bytes.
- `FIXED32` to `FLOAT` are four bytes.
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
"""Places of the numbers in a field's row.

- `OP`: the operation.
- `NODE`: the node of the value, or `NOBODY`.
- `WIRE`: the wire type.
- `KIND`: the encoding.
- `LOW`, `HIGH`, `FACTOR`, by operation:
  - numbers: their `IntegerRule`;
  - `DIVIDED`: `FACTOR` is the divisor, and negative if the remainder may be truncated;
  - `NUMBER_WIDE`: `LOW` is 1 if the column has room for 20 digits;
  - `INSTANT`: `LOW` is 1 if nanoseconds may be cut off;
  - `TABLE`: the enum's lowest number, its highest number, and the place of the table;
  - `MESSAGE`: `FACTOR` is the number of entries that mark the message as present.
- `ONCE`: bits that must not be set yet when the field is read. If one is set, the result would
  depend on the order of the fields, so the strict decoder decides.
- `SETS`: bits that the field sets.
- `REPEATED`: 1 if the field may be repeated, or packed.
- `LENGTHS`: the node of its list or map, or `NOBODY`.
- `SPACE`: the space of its items.
- `INNER_SPACES`: the place of the list of spaces whose lists and maps are empty at the start of
  each item. The list begins with its length.
- `COST`: the cost of an item.
- `INNER`: the table of the inner message.
- `MESSAGE_COST`: the cost of the inner message (`budget.py`).
"""

TYPE = 6
NEEDS, DENSE, DENSE_AT, SPARSE, SPARSE_AT, KEYED = range(TYPE)
"""Places of the numbers in a message type's row.

- `NEEDS`: the bits that must be set at the end of a message.
- `DENSE`: the number of field numbers that are looked up directly.
- `DENSE_AT`: the place where the places of these fields' rows begin.
- `SPARSE`: the number of fields with larger numbers.
- `SPARSE_AT`: the place where the sorted pairs of such a field's number and its row's place
  begin.
- `KEYED`: the node of the keys if the message is an entry of a map, or `NOBODY`.
"""

MAX_DEPTH = 60
"""Deepest nesting of messages that the pass takes; Protobuf's library takes 100."""

FRAMES = 4
"""Place in the pass's state, after the places of `shared.seen`, where the frames begin."""
FRAME = 7
FRAME_TABLE, FRAME_END, FRAME_INDEX, FRAME_BITS, FRAME_PARENT, FRAME_LENGTHS, FRAME_KEY = range(
    FRAME
)
"""Places of the numbers in a frame. Each open inner message has a frame.

- `FRAME_TABLE`, `FRAME_END`, `FRAME_INDEX`, `FRAME_BITS`: the table, end, index and bits of the
  outer message, which are restored at the inner message's end.
- `FRAME_PARENT`: for an entry of a map, the map's index among the values of its node.
- `FRAME_LENGTHS`: for an entry of a map, the map's node; `NOBODY` if the message isn't an entry
  of a map, or no column is for the map.
- `FRAME_KEY`: for an entry of a map, the index and length of its key, in the layout of a text's
  entry.
"""
ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Place in the state, after the frames, of three numbers for each space.

First is the present number of items of each space. Then comes the number before the message, and
last the number before the open list of the space. The items of space 0 are the rows.
"""

NOBODY = -1
"""Number of a node that doesn't exist, because no column is for the value."""
UNKNOWN, DOUBTFUL, UNCOUNTED = -1, -2, -3
"""Replacements for the place of a field's row.

- `UNKNOWN`: the type has no field of this number.
- `DOUBTFUL`: only the strict decoder knows whether the type has a field of this number.
- `UNCOUNTED`: the type has no field of this number. It is a wrapper or an entry of a map, whose
  fields aren't reported as ignored.
"""
_MOST_BITS = 62
"""Largest number of bits that a type may use."""
_DENSE_BELOW = 1024
"""Field numbers below this number are looked up directly."""
_WIDEST_ENUM = 4096
"""Largest range of an enum's numbers for which the enum gets a table."""
NO_VALUE = -(1 << 63)
"""Entry of an enum's table for a number without a symbol.

It also replaces the default of a field if the column can't hold the default.
"""
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

    Attributes:
        numbers: all tables.
        root: the place of the table of the messages' type.
        inner_spaces: the place of the list of spaces whose lists and maps are empty at the
            start of each row.
        symbols: the bytes of all enum symbols and default texts, without separators.
        nodes: the nodes of the columns.
        keyed: whether one of the nodes is a map.
        defaults: pairs of a node's number and the value that it has if its field isn't set.
    """

    numbers: npt.NDArray[np.int64]
    root: int
    inner_spaces: int
    symbols: bytes
    nodes: list[Node]
    keyed: bool
    defaults: list[tuple[int, int]]


def field_tables(kind: Any, columns: Columns) -> FieldTables:
    """Makes the tables for a message type's descriptor and columns.

    `fields.reader` must have accepted the columns.
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

    Attributes:
        node_by_field: the nodes that its fields are read into, by the fields' names.
        unwrapped: whether it is a wrapper whose value is read into the column.
        used: the number of bits that it uses. A bit says that a message has had a field, or
            a member of a oneof. Fields beyond `_MOST_BITS` share the last bit, so that the
            pass leaves more messages to the strict decoder.
        needs: the bits that must be set at the end of a message.
        of_oneofs: the bit of each oneof, by name.
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
    """Writes tables.

    A table gets its place at the first reference to it, and is filled later.
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
        """Returns the place of the list of spaces that the nodes of a space open."""
        if space not in self._inner_spaces:
            inner = [node.inner for node in self._nodes if node.inner and node.space == space]
            self._inner_spaces[space] = self._put([len(inner), *inner])
        return self._inner_spaces[space]

    def type_of(self, kind: Any, node: Node | None) -> int:
        """Returns the place of a type's table.

        Args:
            kind: the type's descriptor.
            node: the struct, map or value that the fields are read into; None if no column
                is for them.
        """
        key = kind.full_name, NOBODY if node is None else node.number
        if key not in self._places:
            self._places[key] = self._put([0] * TYPE)
            self._empty.append((self._places[key], kind, node))
        return self._places[key]

    def fill(self) -> None:
        """Fills all tables that have a place.

        It is a loop, so that deeply nested types cause no recursion.
        """
        while self._empty:
            table, kind, node = self._empty.pop()
            self._fill(table, kind, self._open_type(node))
            if node is not None and node.kind == MAP:
                self.numbers[table + KEYED] = node.children[0].number

    @staticmethod
    def _open_type(node: Node | None) -> _Type:
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
        # Protobuf's library may know an extension with an unknown number.
        unknown = UNCOUNTED if type_state.unwrapped or _is_entry(kind) else UNKNOWN
        unknown = DOUBTFUL if kind.is_extendable else unknown
        dense = [DOUBTFUL] + [unknown] * (dense_end - 1)  # No field has the number 0.
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
                # An entry without a value gets an empty message. The library refuses it,
                # because its required fields aren't set.
                self._must(row, type_state)
        # A map that becomes a list must be sorted by its keys, and only strict.py sorts it. It
        # alone writes JSON, too.
        if name == "group" or (
            value is not None
            and (
                (is_map(descriptor) and value.kind != MAP)
                or (
                    descriptor.message_type is not None
                    and is_json(descriptor.message_type)
                    and value.type == pa.string()
                )
            )
        ):
            row[OP] = STRICT
        else:
            row[KIND] = _KINDS[name]
            row[WIRE] = _WIRES.get(row[KIND], 0)
            row.update(self._value(descriptor, value))
        return self._put([row[i] for i in range(FIELD)])

    @staticmethod
    def _bit(descriptor: Any, node: Node | None, type_state: _Type) -> int:
        """Returns the bit of a field that the pass takes only once, or 0.

        Only the strict decoder merges a second message into the first one, and replaces the
        first member of a oneof with the second one.
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
        """Returns the node that an item is read into; for an entry of a map, the map's node."""
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
        """Yields the numbers of a field's row that say how to read a single value."""
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
                # Only unsigned numbers of 64 bits may have 20 digits.
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
        """Adds a text to the symbols; returns its place and length as the value of an entry."""
        self.symbols += octets
        return len(self.symbols) - len(octets) << 32 | len(octets) << 1 | 1

    def _default(self, row: dict[int, int], descriptor: Any, node: Node, type_state: _Type) -> None:
        """Notes the value of the column if the field isn't set."""
        in_entry = _is_entry(descriptor.containing_type)
        if descriptor.message_type is not None and in_entry:
            self.defaults.append((node.number, 0))
        elif descriptor.message_type is None and (
            in_entry or not descriptor.has_presence or descriptor.has_default_value
        ):
            value = self._default_value(descriptor, node)
            if value == NO_VALUE:  # The column can't hold it, so the strict decoder refuses it.
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
