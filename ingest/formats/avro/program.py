"""A schema and columns as a program of numbers, which the compiled pass carries out: an
instruction a value, in the order of the bytes.

Records are no instructions: their fields follow each other, and what comes behind is
said by each instruction. What may hold itself (a record that no column is for) is
called, and returns; arrays and maps come back to an instruction of theirs for each
item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.avro.fit import (
    INT_BYTES,
    LONG_BYTES,
    PRIMITIVE_COLUMNS,
    check,
    decimal_scale,
    integer_rule,
    is_null,
)
from windrow.ingest.formats.avro.schema import (
    AbsentType,
    ArrayType,
    AvroSchema,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedReference,
    PrimitiveType,
    UnfitType,
    UnionType,
)
from windrow.ingest.formats.avro.strict import MAX_DEPTH
from windrow.ingest.formats.shared.budget import entry_cost, item_cost
from windrow.ingest.formats.shared.integers import IntegerRule
from windrow.ingest.formats.shared.nodes import (
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INSTANT,
    WIDE,
    Node,
    nodes_of,
)
from windrow.ingest.schema.columns import Columns, Finer

(
    VARINT,
    VARINT_FLOAT,
    OCTETS_TEXT,
    OCTETS_ANY,
    DOUBLE,
    BOOLEAN,
    FLOAT,
    FIXED_ANY,
    UNION,
    ENUM,
    LOOP,
    ARRAY,
    CALL,
    PRESENT,
    DECIMAL_OCTETS,
    INSTANT_OCTETS,
    RETURN,
    END,
    MISSING,
) = range(19)
"""Instructions; the pass goes by their order.

`OCTETS_TEXT`: a length, and so many bytes of UTF-8; `OCTETS_ANY`: of anything;
`FIXED_ANY`: `COUNT` bytes; `DECIMAL_OCTETS`: `COUNT` bytes, or after a length if that
is 0; `INSTANT_OCTETS`: a length, and a timestamp's text, of which `LOW` says whether it
is truncated; `PRESENT`: a struct is there; `ARRAY`: an array or a map begins; `LOOP`:
its next item, block, or end; `MISSING`: what the pass leaves to the strict way, as null
where the column isn't nullable, a type of a union that can't become the column, a
decimal that may lose digits.
"""

WIDTH = 12
OP, NODE, NEXT, FIRST, COUNT, LOW, HIGH, FACTOR, DIVISOR, SPACE, COST, KEYED = range(WIDTH)
"""What stands at which place of an instruction.

- `NODE`: whose value it is, -1: nobody's; `NEXT`: the instruction behind it.
- `FIRST`: of a union, where the branches' first instructions stand in the numbers; of
  an enum, where its symbols' places do; of a loop, the first instruction of an item; of
  a call, the first of the record.
- `COUNT`: branches, symbols or bytes; of a varint, its longest; of a loop, the node of
  its keys.
- `LOW`, `HIGH`, `FACTOR`, `DIVISOR`: the rule of an integer, the factor of one that
  becomes a float being the bits of that; of a decimal, the lower and the higher 64 bits
  of its bound, and how many zeros it gets.
- `SPACE`, `COST`: of a loop, the space that its items lie in, and what each costs;
  `KEYED`: 1 if each begins with a key, 2 if the items have no bytes; of a decimal, 1 if
  it is a wide one.
"""
NOBODY = -1

MAPS = 4
"""The place in the pass's state, behind those of `shared.rewind`, that counts the
arrays and maps that were opened, ever: so each has a number of its own.
"""
FRAMES = 5
"""The place in the state where the frames begin."""
FRAME = 6
INSTRUCTION, REMAINING, BLOCK_END, BEGIN, INDEX, MAP_NUMBER = range(FRAME)
"""Of an array or map that is open, or a call: where it goes on; items that its block
still has, the one that is read among them; where its block ends, or -1; where its items
begin; which value of its node it is; its own number.
"""
ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Behind the frames: how many items each space has, now and before the message.

Space 0 has the rows.
"""


@dataclass(frozen=True)
class Program:
    """`numbers`: a row of `WIDTH` for each instruction, and the tables of branches and
    symbols behind them; `begin`: the first one.

    `symbols`: the bytes of all symbols, behind each other; `nodes`: the columns';
    `keyed`: whether a column is or holds what comes from a map; `nested`: how many
    structs may begin at one byte.
    """

    numbers: npt.NDArray[np.int64]
    begin: int
    symbols: bytes
    nodes: list[Node]
    keyed: bool
    nested: int


def program_of(schema: AvroSchema, columns: Columns) -> Program:
    """The program.

    Raises:
        SpecError: a column can't come from the schema.
    """
    check(schema, columns)
    nodes = nodes_of(columns)
    writer = _ProgramWriter(schema, nodes, columns.finer)
    begin = writer.record(
        schema.root, {child.name: child for child in nodes[0].children}, writer.add(OP=END)
    )
    writer.write_called()
    return Program(
        writer.numbers(),
        begin,
        bytes(writer.symbols),
        nodes,
        writer.keyed,
        _nested(pa.struct(list(columns.arrow_schema))),
    )


def _nested(kind: pa.DataType) -> int:
    inner = max((_nested(kind.field(i).type) for i in range(kind.num_fields)), default=0)
    return inner + (1 if pa.types.is_struct(kind) else 0)


class _ProgramWriter:
    """Instructions are written from the last one to the first: each knows what comes behind it."""

    def __init__(self, schema: AvroSchema, nodes: list[Node], finer: Finer) -> None:
        self._schema = schema
        self._finer = finer
        self._nodes = nodes
        self._rows: list[list[int]] = []
        self._tables: list[int] = []
        self._of_tables: list[int] = []  # instructions whose FIRST is a place in the tables
        self._called: dict[str, int] = {}
        self._unwritten: list[str] = []
        self._enums: dict[str, int] = {}
        self.symbols = bytearray()
        self.keyed = False

    def add(self, **places: int) -> int:
        """One more instruction; its number."""
        row = [0] * WIDTH
        row[NODE] = NOBODY
        for name, value in places.items():
            row[_PLACES[name]] = value
        self._rows.append(row)
        return len(self._rows) - 1

    def numbers(self) -> npt.NDArray[np.int64]:
        for number in self._of_tables:
            self._rows[number][FIRST] += len(self._rows) * WIDTH
        rows = [place for row in self._rows for place in row]
        return np.array([*rows, *self._tables], np.int64)

    def record(self, name: str, wanted: dict[str, Node], after: int) -> int:
        """The first instruction of a record's fields, those that are wanted for their nodes."""
        for field, kind in reversed(self._schema.records[name].fields):
            node = wanted.get(field)
            after = self._skip(kind, after) if node is None else self._value(kind, node, after)
        return after

    def _value(self, kind: AvroType, node: Node, after: int) -> int:
        number = node.number
        if isinstance(kind, AbsentType):
            return after
        if isinstance(kind, UnfitType):
            return self.add(OP=MISSING)
        if isinstance(kind, UnionType):
            missing = self.add(OP=MISSING) if node.required else after
            return self._union(
                [missing if is_null(b) else self._value(b, node, after) for b in kind.branches]
            )
        if isinstance(kind, ArrayType):
            (item,) = node.children
            return self._items(kind.items, item, after, node, item_cost(node.type.value_type), 0)
        self.keyed = self.keyed or isinstance(kind, MapType)
        if isinstance(kind, MapType) and pa.types.is_map(node.type):
            return self._items(
                kind.values, node.children[1], after, node, entry_cost(node.type.item_type), 1
            )
        if isinstance(kind, MapType):
            return self._pairs(kind, node, after)
        if isinstance(kind, NamedReference):
            if node.kind in {DECIMAL, WIDE}:
                return self.add(OP=MISSING)
            first = self.record(kind.name, {child.name: child for child in node.children}, after)
            return self.add(OP=PRESENT, NODE=number, NEXT=first)
        if isinstance(kind, EnumType):
            return self._enum(kind, number, after)
        if node.kind in {DECIMAL, WIDE}:
            return self._decimal(kind, node, after)
        if isinstance(kind, FixedType):
            return self.add(OP=FIXED_ANY, NODE=number, NEXT=after, COUNT=kind.size)
        return self._primitive(kind, node, after)

    def _decimal(self, kind: AvroType, node: Node, after: int) -> int:
        assert isinstance(kind, PrimitiveType | FixedType)  # `check` has looked
        zeros = node.type.scale - (decimal_scale(kind) or 0)
        if zeros < 0:
            return self.add(OP=MISSING)
        bound = (10**node.type.precision - 1) // 10**zeros
        size = kind.size if isinstance(kind, FixedType) else 0
        low, high, wide = _signed(bound & (1 << 64) - 1), bound >> 64, int(node.kind == WIDE)
        return self.add(
            OP=DECIMAL_OCTETS,
            NODE=node.number,
            NEXT=after,
            COUNT=size,
            LOW=low,
            HIGH=high,
            FACTOR=zeros,
            KEYED=wide,
        )

    def _primitive(self, kind: PrimitiveType, node: Node, after: int) -> int:
        if kind.name in {"int", "long"}:
            rule = integer_rule(kind, node.type, node.epoch)
            assert rule is not None  # `check` has looked
            if node.kind in {FLOAT32, FLOAT64}:
                return self._varint(
                    VARINT_FLOAT,
                    kind,
                    replace(rule, factor=53 if node.kind == FLOAT64 else 24),
                    node.number,
                    after,
                )
            return self._varint(VARINT, kind, rule, node.number, after)
        if node.kind == INSTANT:
            return self.add(
                OP=INSTANT_OCTETS, NODE=node.number, NEXT=after, LOW=int(self._finer == "truncate")
            )
        text = kind.name == "string" or node.type == pa.string()
        ops = {"boolean": BOOLEAN, "float": FLOAT, "double": DOUBLE}
        return self.add(
            OP=ops.get(kind.name, OCTETS_TEXT if text else OCTETS_ANY), NODE=node.number, NEXT=after
        )

    def _varint(
        self, op: int, kind: PrimitiveType, rule: IntegerRule, node: int, after: int
    ) -> int:
        longest = INT_BYTES if kind.name == "int" else LONG_BYTES
        divisor = -rule.divisor if rule.divisor > 1 and self._finer == "truncate" else rule.divisor
        return self.add(
            OP=op,
            NODE=node,
            NEXT=after,
            COUNT=longest,
            LOW=rule.low,
            HIGH=rule.high,
            FACTOR=rule.factor,
            DIVISOR=divisor,
        )

    def _skip(self, kind: AvroType, after: int) -> int:
        if self._schema.is_empty(kind):
            return after
        if isinstance(kind, UnionType):
            return self._union([self._skip(branch, after) for branch in kind.branches])
        if isinstance(kind, ArrayType):
            return self._items(
                kind.items, None, after, None, 0, 2 if self._schema.is_empty(kind.items) else 0
            )
        if isinstance(kind, MapType):
            return self._items(kind.values, None, after, None, 0, 1)
        if isinstance(kind, NamedReference):
            return self.add(OP=CALL, NEXT=after, FIRST=self._subroutine(kind.name))
        if isinstance(kind, EnumType):
            return self._enum(kind, NOBODY, after)
        if isinstance(kind, FixedType):
            return self.add(OP=FIXED_ANY, NEXT=after, COUNT=kind.size)
        assert isinstance(kind, PrimitiveType)  # others are where columns are
        if kind.name in {"int", "long"}:
            rule = integer_rule(kind, PRIMITIVE_COLUMNS[kind.name], None)
            assert rule is not None  # an integer of its own size
            return self._varint(VARINT, kind, rule, NOBODY, after)
        ops = {
            "boolean": BOOLEAN,
            "float": FLOAT,
            "double": DOUBLE,
            "string": OCTETS_TEXT,
            "bytes": OCTETS_ANY,
        }
        return self.add(OP=ops[kind.name], NEXT=after)

    def _subroutine(self, name: str) -> int:
        """Once for each record, so that one may hold itself: calls go to an instruction
        that is written first, and leads to the fields.

        These are written later, so records in one another don't nest here, however many they are.
        """
        if name not in self._called:
            self._called[name] = self.add(OP=PRESENT)
            self._unwritten.append(name)
        return self._called[name]

    def write_called(self) -> None:
        """The fields of all records that are called."""
        while self._unwritten:
            name = self._unwritten.pop()
            first = self.record(name, {}, self.add(OP=RETURN))
            self._rows[self._called[name]][NEXT] = first

    def _union(self, firsts: list[int]) -> int:
        return self._with_table(self.add(OP=UNION, COUNT=len(firsts)), self._table(firsts))

    def _enum(self, kind: EnumType, node: int, after: int) -> int:
        """Each symbol's place and length, as a text's value has it; once for each enum,
        however many fields are of it.
        """
        if kind.name not in self._enums:
            places = []
            for symbol in map(str.encode, kind.symbols):
                places.append(len(self.symbols) << 32 | len(symbol) << 1 | 1)
                self.symbols += symbol
            self._enums[kind.name] = self._table(places)
        return self._with_table(
            self.add(OP=ENUM, NODE=node, NEXT=after, COUNT=len(kind.symbols)),
            self._enums[kind.name],
        )

    def _table(self, numbers: list[int]) -> int:
        """One more table; its place."""
        self._tables += numbers
        return len(self._tables) - len(numbers)

    def _with_table(self, number: int, table: int) -> int:
        self._rows[number][FIRST] = table
        self._of_tables.append(number)
        return number

    def _items(
        self,
        kind: AvroType,
        item: Node | None,
        after: int,
        node: Node | None,
        cost: int,
        keyed: int,
    ) -> int:
        """An array or a map of a type; `item`: the node of its items or values."""
        number, space, key = (
            (NOBODY, 0, 0) if node is None else (node.number, node.inner, node.children[0].number)
        )
        loop = self.add(
            OP=LOOP, NODE=number, NEXT=after, COUNT=key, SPACE=space, COST=cost, KEYED=keyed
        )
        first = self._skip(kind, loop) if item is None else self._value(kind, item, loop)
        self._rows[loop][FIRST] = first
        return self.add(OP=ARRAY, NODE=number, NEXT=loop, SPACE=space)

    def _pairs(self, kind: MapType, node: Node, after: int) -> int:
        """A map as a list of structs of a key and a value."""
        (pair,) = node.children
        inner = {child.name: child for child in pair.children}
        key, value = inner["key"], inner["value"]
        loop = self.add(
            OP=LOOP,
            NODE=node.number,
            NEXT=after,
            COUNT=key.number,
            SPACE=node.inner,
            COST=item_cost(node.type.value_type),
            KEYED=1,
        )
        self._rows[loop][FIRST] = self.add(
            OP=PRESENT, NODE=pair.number, NEXT=self._value(kind.values, value, loop)
        )
        return self.add(OP=ARRAY, NODE=node.number, NEXT=loop, SPACE=node.inner)


_PLACES = {
    "OP": OP,
    "NODE": NODE,
    "NEXT": NEXT,
    "FIRST": FIRST,
    "COUNT": COUNT,
    "LOW": LOW,
    "HIGH": HIGH,
    "FACTOR": FACTOR,
    "DIVISOR": DIVISOR,
    "SPACE": SPACE,
    "COST": COST,
    "KEYED": KEYED,
}


def _signed(number: int) -> int:
    """The same 64 bits as a number with a sign."""
    return number - (1 << 64) if number >> 63 else number
