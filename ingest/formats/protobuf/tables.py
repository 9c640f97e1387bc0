"""A message type and columns as tables of numbers, which the compiled pass goes by: one
for each type of a message, with its fields.

A type has a table for each struct that some of its fields are for, and one that nobody
wants anything of: what no column is for is passed over as strictly as the rest, since
Protobuf's library would refuse the whole message for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.protobuf.fields import INTEGERS, TYPES, bounds, is_map, is_wrapper
from windrow.ingest.formats.protobuf.weight import weight_of
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
"""What is done with a field.

`NUMBER`: held to the column's bounds; `NUMBER_FLOAT`: likewise, and becomes a double;
`NUMBER_WIDE`: becomes a decimal of 128 bits; `BITS`: stays what it is; `TABLE`: an
enum, whose numbers have their values in a table; `TEXT`: bytes of UTF-8; `KEY`: the
same, of a map; `OCTETS_ANY`: bytes; `MESSAGE`: a message inside; `INSTANT`: a
google.protobuf.Timestamp; `STRICT`: the message is left to the strict way; `DIVIDED`:
as `NUMBER`, for a timestamp in a unit that is finer than a column's.
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
"""How a value is written: as a varint up to `BOOL`, in eight bytes up to `DOUBLE`, with
its length, in four bytes.
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
    KIDS,
    COST,
    INNER,
    WEIGHT,
) = range(FIELD)
"""What stands at which place of a field.

- `NODE`: whose value it is, -1: nobody's; `WIRE`: its wire type; `KIND`: how it is
  written.
- `LOW`, `HIGH`, `FACTOR`: the rule of a number, whose factor divides a `DIVIDED` one,
  and is below zero where what is left is cut off; of a wide one `LOW` says whether it
  may have 20 digits; of an `INSTANT`, `LOW` is 1 where what is finer is cut off; of a
  table, its first number, its last one, and where it stands in the numbers; `FACTOR` of
  a message inside, how many entries say that it is there.
- `ONCE`: bits of which none may be set when it comes, for else the order of fields
  would matter; `SETS`: bits that it sets.
- `REPEATED`: whether it may come again and again, or packed; `LENGTHS`: the node of its
  list or map, -1: nobody's; `SPACE`: where its items lie; `KIDS`: where the spaces
  stand that open anew with each item, their number first; `COST`: what an item costs of
  the budget.
- `INNER`: the table of the message inside; `WEIGHT`: what the strict way would weigh
  it.
"""

TYPE = 6
NEEDS, DENSE, DENSE_AT, SPARSE, SPARSE_AT, KEYED = range(TYPE)
"""What stands at which place of a table: bits that must be set at a message's end; how
many fields are found by their number alone, and where they stand; how many others there
are, and where they stand, each as its number and its place; the node of keys, or -1.
"""

MAX_DEPTH = 60
"""Messages in one another that the pass takes; Protobuf's library takes a hundred."""

FRAMES = 4
"""The place in the pass's state, behind those of `shared.rewind`, where the frames begin."""
FRAME = 7
FRAME_TABLE, FRAME_END, FRAME_INDEX, FRAME_BITS, FRAME_PARENT, FRAME_LENGTHS, FRAME_KEY = range(
    FRAME
)
"""Of a message inside that is open: table, end, index and bits of the one around it; of
a map's entry also which value of its map it is, the map's node (-1: it is none that a
column is for), and where its key stands, as a text's value says it.
"""
ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Behind the frames: how many items each space has, now; the same before the message;
where the open list of each space begins.

Space 0 has the rows.
"""

NOBODY = -1
UNKNOWN, DOUBTFUL = -1, -2
"""In the place of a field: there is none; what becomes of it only the strict way can tell."""
_BITS = 62
_DENSE = 1024
_TABLE = 4096
"""The widest enum: from its lowest number to its highest."""
NO_VALUE = -(1 << 63)
"""In an enum's table: a number without a name."""
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
_PLACE_BYTES = 9
"""What one place of a column takes in a pass: 64 bits, and whether it is there."""


@dataclass(frozen=True)
class FieldTables:
    """`numbers`: all tables; `root`: where the one of the messages themselves stands;
    `kids`: where the spaces stand that each row opens.

    `symbols`: the bytes of all names and defaults, behind each other; `nodes`: the
    columns'; `keyed`: whether there is a map among them; `defaults`: nodes that have a
    value where the message says nothing, with this value.
    """

    numbers: npt.NDArray[np.int64]
    root: int
    kids: int
    symbols: bytes
    nodes: list[Node]
    keyed: bool
    defaults: list[tuple[int, int]]


def field_tables(kind: Any, columns: Columns) -> FieldTables:
    """The tables for a type (a descriptor of Protobuf's library) and columns that can
    come from it (`fields.readers`).
    """
    nodes = nodes_of(columns)
    writer = _TableWriter(nodes, columns.finer)
    root, kids = writer.type_of(kind, nodes[0]), writer.kids(0)
    writer.fill()
    return FieldTables(
        np.array(writer.numbers, np.int64),
        root,
        kids,
        bytes(writer.symbols),
        nodes,
        any(node.kind == MAP for node in nodes),
        writer.defaults,
    )


@dataclass
class _Type:
    """A type whose table is being written.

    `wanted`: the nodes that its fields are for; `unwrapped`: whether it is a wrapper
    that stands for its value. Its bits say what may come once, and what must: more than
    there is room for share the last one, which is only stricter.
    """

    wanted: Mapping[str, Node]
    unwrapped: bool
    used: int = 0
    needs: int = 0
    of_oneofs: dict[str, int] = field(default_factory=dict)

    def new(self) -> int:
        bit = 1 << min(self.used, _BITS - 1)
        self.used += 1
        return bit


class _TableWriter:
    """Tables are written behind each other; whoever names one that isn't filled yet has
    its place already.
    """

    def __init__(self, nodes: list[Node], finer: Finer) -> None:
        self._nodes = nodes
        self._finer = finer
        self._places: dict[tuple[str, int], int] = {}
        self._empty: list[tuple[int, Any, Node | None]] = []
        self._kids: dict[int, int] = {}
        self._named: dict[str, int] = {}
        self.numbers: list[int] = []
        self.symbols = bytearray()
        self.defaults: list[tuple[int, int]] = []

    def kids(self, space: int) -> int:
        """Where the spaces stand whose lists and maps lie in this one."""
        if space not in self._kids:
            inner = [node.inner for node in self._nodes if node.inner and node.space == space]
            self._kids[space] = self._put([len(inner), *inner])
        return self._kids[space]

    def type_of(self, kind: Any, node: Node | None) -> int:
        """The table of a type, for the fields of a struct, of an entry of a map, or for nobody."""
        key = kind.full_name, NOBODY if node is None else node.number
        if key not in self._places:
            self._places[key] = self._put([0] * TYPE)
            self._empty.append((self._places[key], kind, node))
        return self._places[key]

    def fill(self) -> None:
        """All tables that have a place: one behind the other, so that types in one
        another don't nest here, however many they are.
        """
        while self._empty:
            place, kind, node = self._empty.pop()
            self._fill(place, kind, self._opened(node))
            if node is not None and node.kind == MAP:
                self.numbers[place + KEYED] = node.children[0].number

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

    def _fill(self, place: int, kind: Any, of: _Type) -> None:
        below = max((f.number for f in kind.fields if f.number < _DENSE), default=0) + 1
        # an extension may be known to Protobuf's library
        unknown = DOUBTFUL if kind.is_extendable else UNKNOWN
        dense = [DOUBTFUL] + [unknown] * (below - 1)  # there is no field 0
        sparse = []
        for each in kind.fields:
            at = self._field(each, of)
            if each.number < _DENSE:
                dense[each.number] = at
            else:
                sparse.append((each.number, at))
        pairs = [number for pair in sorted(sparse) for number in pair]
        self.numbers[place : place + TYPE] = [
            of.needs,
            len(dense),
            self._put(dense),
            len(sparse),
            self._put([*pairs, unknown]),
            NOBODY,
        ]

    def _field(self, one: Any, of: _Type) -> int:
        places = dict.fromkeys(range(FIELD), 0) | {
            NODE: NOBODY,
            LENGTHS: NOBODY,
            LOW: -(1 << 63),
            HIGH: (1 << 63) - 1,
            FACTOR: 1,
        }
        name, node = TYPES[one.type], of.wanted.get(one.name)
        value = node
        if one.is_repeated:
            value = self._repeated(places, node)
        else:
            places[SETS] = places[ONCE] = self._bit(one, node, of)
            of.needs |= places[SETS] if one.is_required else 0
            if node is not None and not of.unwrapped:
                self._default(places, one, node, of)
            if (
                _is_entry(one.containing_type)
                and one.message_type is not None
                and any(f.is_required for f in one.message_type.fields)
            ):
                # where an entry has no value, one without fields stands for it, which
                # the library doesn't take
                self._must(places, of)
        # of a map as a list the order is its keys'
        if name == "group" or (value is not None and is_map(one) and value.kind != MAP):
            places[OP] = STRICT
        else:
            places[KIND] = _KINDS[name]
            places[WIRE] = _WIRES.get(places[KIND], 0)
            places.update(self._value(one, value))
        return self._put([places[i] for i in range(FIELD)])

    @staticmethod
    def _bit(one: Any, node: Node | None, of: _Type) -> int:
        """The bit of a field that may come only once here: a later one would be merged,
        or take the place of another one.
        """
        group = one.containing_oneof
        if (
            group is not None
            and len(group.fields) > 1
            and any(member.name in of.wanted for member in group.fields)
        ):
            if group.name not in of.of_oneofs:
                of.of_oneofs[group.name] = of.new()
            return of.of_oneofs[group.name]
        is_new = one.is_required or (node is not None and one.message_type is not None)
        return of.new() if is_new else 0

    def _repeated(self, places: dict[int, int], node: Node | None) -> Node | None:
        """The node of an item; of a map, for its entries, the map itself."""
        places[REPEATED] = 1
        if node is None:
            return None
        places[LENGTHS], places[SPACE], places[KIDS] = (
            node.number,
            node.inner,
            self.kids(node.inner),
        )
        places[COST] = _PLACE_BYTES * sum(_places(child.type) for child in node.children)
        self.defaults.append((node.number, 0))
        return node if node.kind == MAP else node.children[0]

    def _value(self, one: Any, node: Node | None) -> Iterator[tuple[int, int]]:
        """What is done with one value of a field."""
        inner, name = one.message_type, TYPES[one.type]
        if inner is not None:
            yield WEIGHT, weight_of(inner)
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
            # a number without a name is no value
            if one.is_required and name == "enum" and one.enum_type.is_closed:
                yield from self._enum(one.enum_type, None)
            return
        yield NODE, node.number
        if self._is_key(one, node):
            yield OP, KEY
        elif name == "bytes" and node.type == pa.string():
            yield OP, TEXT
        elif name in INTEGERS or (
            name == "enum" and node.type != pa.string() and not one.enum_type.is_closed
        ):
            low, high, factor, divisor = bounds(node.type, node.epoch)
            if node.kind == WIDE:  # all of 64 bits but the largest without a sign have 19 digits
                yield from ((OP, NUMBER_WIDE), (LOW, int(high >> 64 > 0)))
                return
            yield from (
                (OP, NUMBER_FLOAT if node.kind in {FLOAT32, FLOAT64} else NUMBER),
                (FACTOR, factor),
            )
            yield from ((LOW, max(low, -(1 << 63))), (HIGH, min(high, (1 << 63) - 1)))
            if divisor > 1:
                yield from (
                    (OP, DIVIDED),
                    (FACTOR, -divisor if self._finer == "truncate" else divisor),
                )
        elif name == "enum":
            yield from self._enum(one.enum_type, node)

    @staticmethod
    def _is_key(one: Any, node: Node) -> bool:
        return _is_entry(one.containing_type) and one.name == "key" and node.type == pa.string()

    def _enum(self, kind: Any, node: Node | None) -> Iterator[tuple[int, int]]:
        numbers = sorted(kind.values_by_number)
        if numbers[-1] - numbers[0] >= _TABLE:
            yield OP, STRICT
            return
        table = [NO_VALUE] * (numbers[-1] - numbers[0] + 1)
        for number in numbers:
            table[number - numbers[0]] = self._enum_value(kind, number, node)
        place = self._put(table) if node is not None else self._named.get(kind.full_name)
        if place is None:  # nobody's is the same for all fields of the enum
            place = self._named[kind.full_name] = self._put(table)
        yield from ((OP, TABLE), (LOW, numbers[0]), (HIGH, numbers[-1]), (FACTOR, place))

    def _enum_value(self, kind: Any, number: int, node: Node | None) -> int:
        """What a column has of an enum's number; `NO_VALUE` if it can't hold it, or it
        has no name there.
        """
        if node is None:
            return 0
        if node.type != pa.string():
            low, high, _, _ = bounds(node.type, None)
            return number if low <= number <= high else NO_VALUE
        return (
            self._symbol(kind.values_by_number[number].name.encode())
            if number in kind.values_by_number
            else NO_VALUE
        )

    def _symbol(self, letters: bytes) -> int:
        """A place and a length, as a text's value has it."""
        self.symbols += letters
        return len(self.symbols) - len(letters) << 32 | len(letters) << 1 | 1

    def _default(self, places: dict[int, int], one: Any, node: Node, of: _Type) -> None:
        """What the column has where the field isn't there."""
        in_entry = _is_entry(one.containing_type)
        if one.message_type is not None and in_entry:
            self.defaults.append((node.number, 0))
        elif one.message_type is None and (
            in_entry or not one.has_presence or one.has_default_value
        ):
            value = self._default_value(one, node)
            if value == NO_VALUE:  # it can't hold it, and the strict way says so
                self._must(places, of)
            else:
                self.defaults.append((node.number, value))
        elif node.required:
            self._must(places, of)

    @staticmethod
    def _must(places: dict[int, int], of: _Type) -> None:
        """The message is taken only if the field is there."""
        own = of.new()
        places[SETS] |= own
        of.needs |= own

    def _default_value(self, one: Any, node: Node) -> int:
        name, value = TYPES[one.type], one.default_value
        if name in {"string", "bytes"}:
            octets = value.encode() if isinstance(value, str) else value
            return (
                self._symbol(octets) if node.type == pa.binary() or _is_text(octets) else NO_VALUE
            )
        if name == "enum":
            return self._enum_value(one.enum_type, value, node)
        if name in INTEGERS:
            low, high, factor, divisor = bounds(node.type, node.epoch)
            if (
                not low <= value <= high
                or value * factor % divisor
                or (node.kind == WIDE and value)
            ):
                return NO_VALUE
            return (
                _bits(float(value))
                if node.kind in {FLOAT32, FLOAT64}
                else value * factor // divisor
            )
        return _bits(value) if isinstance(value, float) else int(value)


def _is_entry(kind: Any) -> bool:
    return bool(kind.GetOptions().map_entry)


def _places(kind: pa.DataType) -> int:
    return 1 + sum(_places(part.type) for part in kind) if pa.types.is_struct(kind) else 1


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
