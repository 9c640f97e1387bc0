"""Program of numbers that tells the compiled pass how to read messages of a schema.

There is one instruction for each value, in the order of the bytes, and each instruction has
the number of the next one. A run of values that no column is for has one instruction. A record
itself has no instruction, only its fields have. A record that no column is for may contain
itself, so its fields are a subroutine that is called and returns. An array or a map returns to
its `LOOP` after each item.
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
    is_big_decimal,
    is_null,
    member_name,
    members_of,
    names_in,
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
    RefusedType,
    UnionType,
)
from windrow.ingest.formats.avro.strict import MAX_DEPTH
from windrow.ingest.formats.shared.budget import entry_cost, item_cost
from windrow.ingest.formats.shared.integers import IntegerRule
from windrow.ingest.formats.shared.nodes import (
    DECIMAL,
    TEXT,
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
    SKIP,
    UNION,
    ENUM,
    LOOP,
    ARRAY,
    CALL,
    PRESENT,
    DECIMAL_OCTETS,
    TIME_OCTETS,
    RETURN,
    END,
    MISSING,
) = range(20)
"""Operations. Their order matters, because the pass compares their numbers with `<=`.

- `VARINT`: reads an int or a long that becomes an integer.
- `VARINT_FLOAT`: reads an int or a long that becomes a float.
- `OCTETS_TEXT`: reads a length, and this number of bytes, which must be UTF-8.
- `OCTETS_ANY`: reads a length, and this number of bytes.
- `DOUBLE`, `BOOLEAN`, `FLOAT`: read a value of this primitive type.
- `FIXED_ANY`: reads `COUNT` bytes.
- `SKIP`: skips `COUNT` values that no column is for.
- `UNION`: reads the number of a branch, and continues with the branch's first instruction.
- `ENUM`: reads the number of a symbol.
- `LOOP`: reads the next item of an array or map, the head of its next block, or its end.
- `ARRAY`: opens an array or a map.
- `CALL`: opens a record that no column is for.
- `PRESENT`: writes that a struct is present; reads nothing.
- `DECIMAL_OCTETS`: reads a decimal of `COUNT` bytes, or of a length if `COUNT` is 0.
- `TIME_OCTETS`: reads a length, and the text of a timestamp, or of a date if `COUNT` is 1.
  `LOW` is 1 if the timestamp may be truncated.
- `RETURN`: closes a record that no column is for.
- `END`: takes the message, which must end here.
- `MISSING`: leaves the message to the strict decoder. The message has a null in a column that
  isn't nullable, a union's type that can't become the column, a decimal that may lose
  digits or has its own scale, or a record that becomes a JSON text.
"""

WIDTH = 12
OP, NODE, NEXT, FIRST, COUNT, LOW, HIGH, FACTOR, DIVISOR, SPACE, COST, KEYED = range(WIDTH)
"""Places of the numbers in an instruction's row.

- `OP`: the operation.
- `NODE`: the node of the value, or `NOBODY`.
- `NEXT`: the number of the next instruction.
- `FIRST`, by operation:
  - union: the place of the table of its branches' first instructions;
  - skip: the place of the table of the values' codes (`SKIP_TEXT` and so on);
  - enum: the place of the table of its symbols;
  - loop: the first instruction of an item;
  - call: the first instruction of the record.
- `COUNT`: the number of branches, symbols or bytes; for a varint its longest length; for a
  loop the node of the keys; for octets 1 if they are copied as they are read.
- `LOW`, `HIGH`, `FACTOR`, `DIVISOR`, by operation:
  - integer: its `IntegerRule`; the divisor is negative if the remainder may be truncated;
  - integer that becomes a float: the same, but `FACTOR` is the number of bits that the float
    holds;
  - decimal: `LOW` and `HIGH` are the lower and upper 64 bits of its bound, and `FACTOR` is the
    number of zeros that are appended.
- `SPACE`: for a loop, the space of its items.
- `COST`: for a loop, the cost of an item.
- `KEYED`: for a loop, 1 if each item begins with a key, 2 if the items have no bytes; for a
  decimal, 1 if it is `WIDE`.
"""
SKIP_TEXT, SKIP_BYTES, SKIP_INT, SKIP_LONG, SKIP_BOOLEAN, SKIP_FLOAT, SKIP_DOUBLE = range(7)
"""Codes of the primitive types of values that are skipped."""
NULL_FIRST, NULL_SECOND = 8, 16
"""Added to the code of a union of null and a primitive type, by the place of null in it."""
_SKIPPED = {
    name: code
    for code, name in enumerate(("string", "bytes", "int", "long", "boolean", "float", "double"))
}
NOBODY = -1
"""Number of a node that doesn't exist, because no column is for the value."""

MAPS = 4
"""Place in the pass's state, after the places of `shared.seen`, of the number of arrays and
maps that were ever opened. It numbers each of them.
"""
TEXTS = 5
"""Place in the state of the number of bytes in the array of texts."""
FRAMES = 6
"""Place in the state where the frames begin."""
FRAME = 6
INSTRUCTION, REMAINING, BLOCK_END, BEGIN, INDEX, MAP_NUMBER = range(FRAME)
"""Places of the numbers in a frame. Each open array, map and call has a frame.

- `INSTRUCTION`: for a call, the instruction after it.
- `REMAINING`: the number of items left in the block, with the item being read.
- `BLOCK_END`: the index where the block must end; -1 if its head doesn't have its size.
- `BEGIN`: the number of items that the space had before the array or map.
- `INDEX`: the index of the array or map among the values of its node.
- `MAP_NUMBER`: the number of the array or map, for the table of keys.
"""
ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Place in the state, after the frames, where the counts of items begin.

First is the present number of items of each space, then the number before the message. The
items of space 0 are the rows.
"""


@dataclass(frozen=True)
class Program:
    """Program for a writer's schema and columns.

    Attributes:
        numbers: a row of `WIDTH` numbers for each instruction, followed by the tables of
            branches and symbols.
        begin: the number of the first instruction.
        symbols: the bytes of all symbols, without separators.
        nodes: the nodes of the columns.
        keyed: whether a map of the writer's schema is read into a column.
        nested: the largest number of structs that may begin at the same byte.
    """

    numbers: npt.NDArray[np.int64]
    begin: int
    symbols: bytes
    nodes: list[Node]
    keyed: bool
    nested: int


def program_of(schema: AvroSchema, columns: Columns) -> Program:
    """Makes the program for a writer's schema and columns.

    Raises:
        SpecError: a column can't be read from the schema.
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


def _skip_code(kind: AvroType) -> int | None:
    """Returns the code of a value that is skipped; None if it has an instruction of its own."""
    if isinstance(kind, PrimitiveType):
        return _SKIPPED.get(kind.name)
    if not isinstance(kind, UnionType) or [is_null(b) for b in kind.branches].count(True) != 1:
        return None
    if len(kind.branches) != 2:
        return None
    is_first = is_null(kind.branches[0])
    code = _skip_code(kind.branches[1 if is_first else 0])
    return None if code is None else code + (NULL_FIRST if is_first else NULL_SECOND)


class _ProgramWriter:
    """Writes a program from the last instruction to the first.

    This order is needed because each instruction has the number of the next one. A method
    that writes a type gets `next_pc`, the number of the instruction after the type. It
    returns the number of the type's first instruction.
    """

    def __init__(self, schema: AvroSchema, nodes: list[Node], finer: Finer) -> None:
        self._schema = schema
        self._finer = finer
        self._nodes = nodes
        self._rows: list[list[int]] = []
        self._tables: list[int] = []
        # The instructions whose FIRST is a place in the tables.
        self._with_tables: list[int] = []
        self._called: dict[str, int] = {}
        self._unwritten: list[str] = []
        self._enums: dict[str, int] = {}
        self.symbols = bytearray()
        self.keyed = False

    def add(self, **fields: int) -> int:
        """Adds an instruction and returns its number."""
        row = [0] * WIDTH
        row[NODE] = NOBODY
        for name, value in fields.items():
            row[_PLACES[name]] = value
        self._rows.append(row)
        return len(self._rows) - 1

    def numbers(self) -> npt.NDArray[np.int64]:
        for number in self._with_tables:
            self._rows[number][FIRST] += len(self._rows) * WIDTH
        is_sparse = any(row[OP] in {SKIP, CALL} for row in self._rows)
        for row in self._rows:
            row[COUNT] = is_sparse if row[OP] in {OCTETS_TEXT, OCTETS_ANY} else row[COUNT]
        rows = [number for row in self._rows for number in row]
        return np.array([*rows, *self._tables], np.int64)

    def record(self, name: str, node_by_field: dict[str, Node], next_pc: int) -> int:
        """Writes a record's fields.

        Args:
            name: the record's full name.
            node_by_field: the nodes of the fields that a column is for.
            next_pc: the instruction after the record.
        """
        codes: list[int] = []
        for field, kind in reversed(self._schema.records[name].fields):
            code = None if field in node_by_field else _skip_code(kind)
            if code is not None:
                codes.append(code)
                continue
            next_pc, codes = self._skip(codes, next_pc), []
            next_pc = self._value(kind, node_by_field.get(field), next_pc)
        return self._skip(codes, next_pc)

    def _skip(self, codes: list[int], next_pc: int) -> int:
        """Writes values that are skipped; `codes` are theirs, the last one first."""
        if not codes:
            return next_pc
        skip = self.add(OP=SKIP, NEXT=next_pc, COUNT=len(codes))
        return self._with_table(skip, self._table(codes[::-1]))

    def _value(self, kind: AvroType, node: Node | None, next_pc: int) -> int:
        """Writes a value; `node` is None if no column is for the value."""
        if isinstance(kind, AbsentType) or (node is None and self._schema.is_empty(kind)):
            return next_pc
        if isinstance(kind, RefusedType):
            return self.add(OP=MISSING)
        if isinstance(kind, UnionType):
            missing = self.add(OP=MISSING) if node is not None and node.required else next_pc
            is_member = node is not None and members_of(kind, names_in(node.type))
            write_branch = self._member if is_member else self._value
            return self._union(
                [missing if is_null(b) else write_branch(b, node, next_pc) for b in kind.branches]
            )
        if isinstance(kind, ArrayType | MapType) and node is None:
            item_type = kind.items if isinstance(kind, ArrayType) else kind.values
            keyed = 1 if isinstance(kind, MapType) else 2 if self._schema.is_empty(item_type) else 0
            return self._items(item_type, None, next_pc, None, 0, keyed)
        if isinstance(kind, NamedReference) and node is None:
            return self.add(OP=CALL, NEXT=next_pc, FIRST=self._subroutine(kind.name))
        number = NOBODY if node is None else node.number
        if isinstance(kind, EnumType):
            return self._enum(kind, number, next_pc)
        if isinstance(kind, FixedType) and (node is None or node.kind not in {DECIMAL, WIDE}):
            return self.add(OP=FIXED_ANY, NODE=number, NEXT=next_pc, COUNT=kind.size)
        if isinstance(kind, PrimitiveType) and (node is None or node.kind not in {DECIMAL, WIDE}):
            return self._primitive(kind, node, next_pc)
        assert node is not None  # types without a column are done
        return self._column(kind, node, next_pc)

    def _member(self, kind: AvroType, node: Node | None, next_pc: int) -> int:
        """Writes a value of a union that becomes a struct of the union's members."""
        assert node is not None  # `members_of` has its fields
        children = {child.name: child for child in node.children}
        first = self._value(kind, children.get(member_name(kind)), next_pc)
        return self.add(OP=PRESENT, NODE=node.number, NEXT=first)

    def _column(self, kind: AvroType, node: Node, next_pc: int) -> int:
        """Writes an array, a map, a record or a decimal that is read into a column."""
        if isinstance(kind, ArrayType):
            (item,) = node.children
            return self._items(kind.items, item, next_pc, node, item_cost(node.type.value_type), 0)
        self.keyed = self.keyed or isinstance(kind, MapType)
        if isinstance(kind, MapType) and pa.types.is_map(node.type):
            return self._items(
                kind.values, node.children[1], next_pc, node, entry_cost(node.type.item_type), 1
            )
        if isinstance(kind, MapType):
            return self._pairs(kind, node, next_pc)
        if isinstance(kind, NamedReference) and node.kind in {DECIMAL, WIDE, TEXT}:
            return self.add(OP=MISSING)
        if isinstance(kind, NamedReference):
            first = self.record(kind.name, {child.name: child for child in node.children}, next_pc)
            return self.add(OP=PRESENT, NODE=node.number, NEXT=first)
        return self._decimal(kind, node, next_pc)

    def _decimal(self, kind: AvroType, node: Node, next_pc: int) -> int:
        assert isinstance(kind, PrimitiveType | FixedType)  # `check` has passed
        if is_big_decimal(kind):
            return self.add(OP=MISSING)
        zeros = node.type.scale - (decimal_scale(kind) or 0)
        if zeros < 0:
            return self.add(OP=MISSING)
        bound = (10**node.type.precision - 1) // 10**zeros
        size = kind.size if isinstance(kind, FixedType) else 0
        low, high, wide = _signed(bound & (1 << 64) - 1), bound >> 64, int(node.kind == WIDE)
        return self.add(
            OP=DECIMAL_OCTETS,
            NODE=node.number,
            NEXT=next_pc,
            COUNT=size,
            LOW=low,
            HIGH=high,
            FACTOR=zeros,
            KEYED=wide,
        )

    def _primitive(self, kind: PrimitiveType, node: Node | None, next_pc: int) -> int:
        number = NOBODY if node is None else node.number
        column = PRIMITIVE_COLUMNS[kind.name] if node is None else node.type
        if kind.name in {"int", "long"}:
            rule = integer_rule(kind, column, None if node is None else node.epoch)
            assert rule is not None  # `check` has passed
            if not pa.types.is_floating(column):
                return self._varint(VARINT, kind, rule, number, next_pc)
            exact = replace(rule, factor=53 if column.bit_width == 64 else 24)
            return self._varint(VARINT_FLOAT, kind, exact, number, next_pc)
        if pa.types.is_temporal(column):
            cuts, is_date = int(self._finer == "truncate"), int(pa.types.is_date(column))
            return self.add(OP=TIME_OCTETS, NODE=number, NEXT=next_pc, LOW=cuts, COUNT=is_date)
        text = kind.name == "string" or column == pa.string()
        ops = {"boolean": BOOLEAN, "float": FLOAT, "double": DOUBLE}
        op = ops.get(kind.name, OCTETS_TEXT if text else OCTETS_ANY)
        return self.add(OP=op, NODE=number, NEXT=next_pc)

    def _varint(
        self, op: int, kind: PrimitiveType, rule: IntegerRule, node: int, next_pc: int
    ) -> int:
        longest = INT_BYTES if kind.name == "int" else LONG_BYTES
        divisor = -rule.divisor if rule.divisor > 1 and self._finer == "truncate" else rule.divisor
        return self.add(
            OP=op,
            NODE=node,
            NEXT=next_pc,
            COUNT=longest,
            LOW=rule.low,
            HIGH=rule.high,
            FACTOR=rule.factor,
            DIVISOR=divisor,
        )

    def _subroutine(self, name: str) -> int:
        """Returns the first instruction of a record that no column is for.

        Each record is written once, so it may contain itself. This method only writes its
        first instruction, which does nothing. `write_called` writes the fields in a loop, so
        that deeply nested records cause no recursion.
        """
        if name not in self._called:
            self._called[name] = self.add(OP=PRESENT)
            self._unwritten.append(name)
        return self._called[name]

    def write_called(self) -> None:
        """Writes the fields of all records that are subroutines."""
        while self._unwritten:
            name = self._unwritten.pop()
            first = self.record(name, {}, self.add(OP=RETURN))
            self._rows[self._called[name]][NEXT] = first

    def _union(self, firsts: list[int]) -> int:
        return self._with_table(self.add(OP=UNION, COUNT=len(firsts)), self._table(firsts))

    def _enum(self, kind: EnumType, node: int, next_pc: int) -> int:
        """Writes an enum.

        All fields of the enum share one table. For each symbol, the table has the value of
        an entry: the symbol's place and length.
        """
        if kind.name not in self._enums:
            entries = []
            for symbol in map(str.encode, kind.symbols):
                entries.append(len(self.symbols) << 32 | len(symbol) << 1 | 1)
                self.symbols += symbol
            self._enums[kind.name] = self._table(entries)
        return self._with_table(
            self.add(OP=ENUM, NODE=node, NEXT=next_pc, COUNT=len(kind.symbols)),
            self._enums[kind.name],
        )

    def _table(self, numbers: list[int]) -> int:
        """Adds a table and returns its place among the tables."""
        self._tables += numbers
        return len(self._tables) - len(numbers)

    def _with_table(self, number: int, table: int) -> int:
        self._rows[number][FIRST] = table
        self._with_tables.append(number)
        return number

    def _items(
        self,
        kind: AvroType,
        item: Node | None,
        next_pc: int,
        node: Node | None,
        cost: int,
        keyed: int,
    ) -> int:
        """Writes an array or a map.

        Args:
            kind: the type of the items or values.
            item: the node of the items or values; None if no column is for them.
            next_pc: the instruction after the array or map.
            node: the node of the array or map; None if no column is for it.
            cost: the loop's `COST`.
            keyed: the loop's `KEYED`.
        """
        number, space, key = (
            (NOBODY, 0, 0) if node is None else (node.number, node.inner, node.children[0].number)
        )
        loop = self.add(
            OP=LOOP, NODE=number, NEXT=next_pc, COUNT=key, SPACE=space, COST=cost, KEYED=keyed
        )
        first = self._value(kind, item, loop)
        self._rows[loop][FIRST] = first
        return self.add(OP=ARRAY, NODE=number, NEXT=loop, SPACE=space)

    def _pairs(self, kind: MapType, node: Node, next_pc: int) -> int:
        """Writes a map that becomes a list of structs of a key and a value."""
        (pair,) = node.children
        inner = {child.name: child for child in pair.children}
        key, value = inner["key"], inner["value"]
        loop = self.add(
            OP=LOOP,
            NODE=node.number,
            NEXT=next_pc,
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
    """Returns the signed number with the same 64 bits."""
    return number - (1 << 64) if number >> 63 else number
