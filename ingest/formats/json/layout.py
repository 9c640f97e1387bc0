"""Layout of the compiled pass's input, which is the columns as numbers, and of its state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.json.strict import MAX_DEPTH
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.nodes import LIST, MAP, STRUCT, TEXT, Node, bounds_of
from windrow.ingest.formats.shared.rest_text import pointer_name
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Finer
from windrow.ingest.schema.dtypes import map_type

PASS = Compiled("windrow.ingest.formats.json.scan")
"""Compiled functions of JSON."""

WIDTH = 16
(
    KIND,
    SPACE,
    INNER,
    FIRST,
    LOW,
    HIGH,
    FACTOR,
    REQUIRED,
    NAME,
    LENGTH,
    PLAIN,
    LOOKUP,
    MASK,
    AFTER,
    START,
    SEEN,
) = range(WIDTH)
"""Places of the numbers in a node's row of `Tables.numbers`.

- `KIND`: the node's kind.
- `SPACE`: the space that the node belongs to.
- `INNER`: the space that the node opens.
- `FIRST`: the number of its first child; the other children have the next numbers.
- `LOW`, `HIGH`: the numbers of `shared.nodes.bounds_of`, except for these kinds:
  - text: `LOW` is 1 if the text also takes an object or a list;
  - list: `LOW` is 1 if the list also takes an object;
  - document: `LOW` is 1 if a document that is no object is the value of the only column;
  - struct: `HIGH` is 1 if fields without a column are reported as ignored.
- `FACTOR`: the factor of a decimal that is written as bytes, see `Node.power`. Of a struct, an
  upper bound of the bytes of a pointer to it.
- `REQUIRED`: 1 if the value may be neither null nor absent.
- `NAME`, `LENGTH`: where its name is in `Tables.names`.
- `PLAIN`: 1 if the name needs no escape in JSON.
- `LOOKUP`: where a struct's hash table of children begins in `Tables.numbers`. The table's
  entries are pairs of a child, or -1, and the hash of the child's name.
- `MASK`: the mask that turns a hash into a place in this table.
- `AFTER`: the field that last followed this field; updated by the pass.
- `START`: the field with which this struct last began; updated by the pass.
- `SEEN`: the number of the object that last had this field; updated by the pass.
"""

OBJECTS, REQUIRED_SEEN, SPARE, IGNORED, REST_NODE, MEMBER, REST_BYTES = range(4, 11)
"""Places of the counters in the pass's state, after the places of `shared.seen`.

- `OBJECTS`: the number of objects and arrays opened so far, which numbers each of them.
- `REQUIRED_SEEN`: the number of required columns that the message has had so far.
- `SPARE`: the index in `names` of the room for one more name.
- `IGNORED`: 1 if the message has had a field that no column is for, and that is reported as
  ignored.
- `REST_NODE`: the node of what no column is for, a list of a text's parts; 0 if rows don't keep it.
- `MEMBER`: the index of the name of the member that no column is for.
- `REST_BYTES`: an upper bound of the bytes that the row keeps so far; `UNCERTAIN` or more if
  only the strict decoder can tell what the row keeps.

The frames follow from `FRAMES` on, one for each open object or array. The counts of items
follow from `ITEMS` on: first the present number of items of each space, then the numbers
before the message, then what an item costs (`shared/budget.py`). The items of space 0 are the rows.
"""
FRAMES, FRAME = 16, 8
"""Place in the state where the frames begin, and the number of places of a frame."""
NODE, CLOSE, OBJECT, INDEX, ITEM, BEGIN, FIELD, TEXT_NODE = range(FRAME)
"""Places of the numbers in a frame.

- `NODE`: the node of the object or array, or `UNKNOWN`.
- `CLOSE`: the bracket that closes it.
- `OBJECT`: its number, see `OBJECTS`.
- `INDEX`: its index among the values of its node.
- `ITEM`: the index of its next member among the values of the member's node.
- `BEGIN`: the number of items that its space had before it. If it is taken as a text, the
  index of its first byte.
- `FIELD`: the place in the tables that has the field expected next.
- `TEXT_NODE`: the node that takes the object or array as a text, or `UNKNOWN`.
"""
UNKNOWN = -1
"""Node of values that no column is for."""

UNCERTAIN = 1 << 40

REST_NAME = "\x01"
"""Name of the node `REST_NODE`. Lookups leave it out, because a message may have this name."""

ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Place in the state where the counts of items begin."""

_MOST_MORE = 18
"""Number of zeros of the largest power of ten that fits in 64 bits with a sign."""

_ROOM = 4
"""Places in a struct's hash table for each name, so that an unknown name is ruled out fast."""


@dataclass(frozen=True)
class Tables:
    r"""Columns in the form that the compiled pass reads.

    Attributes:
        numbers: a row of `WIDTH` numbers for each node, followed by the hash tables.
        names: the bytes of all names, without separators.
        pointers: for each node, the beginning of a JSON text that points to its members, with
            `\0` for the index in a list.
    """

    numbers: npt.NDArray[np.int64]
    names: bytes
    pointers: list[str]


def tables_of(
    nodes: list[Node],
    readings: list[Reading],
    finer: Finer = "truncate",
    row_path: tuple[str, ...] | None = (),
) -> Tables:
    """Makes the tables for the compiled pass.

    Args:
        nodes: all nodes.
        readings: the rules for each node's values, from `assign_readings`.
        finer: whether timestamps finer than a microsecond are truncated.
        row_path: `Columns.row_path`.
    """
    rows = np.zeros((len(nodes), WIDTH), np.int64)
    names = b"".join(node.name.encode() for node in nodes)
    name_begin = 0
    for node, row in zip(nodes, rows, strict=True):
        length = len(node.name.encode())
        row[[KIND, SPACE, INNER, REQUIRED, NAME, LENGTH]] = (
            node.kind,
            node.space,
            node.inner,
            node.required,
            name_begin,
            length,
        )
        row[[LOW, HIGH]], row[FACTOR] = bounds_of(node, finer), node.power
        if node.kind == TEXT:
            row[LOW] = readings[node.number].lenient
        elif node.kind == LIST:
            row[LOW] = map_type(node.type) is not None
        row[PLAIN] = not any(c in '"\\' or ord(c) < 32 for c in node.name)
        row[[FIRST, START]] = node.children[0].number if node.children else 0
        for child, next_child in zip(
            node.children, [*node.children[1:], *node.children[:1]], strict=True
        ):
            rows[child.number, AFTER] = next_child.number
        name_begin += length
    counted_nodes = [] if row_path is None else nodes[:1]
    for name in row_path or ():
        counted_nodes = [
            child for node in counted_nodes for child in node.children if child.name == name
        ]
    pointers = ['"'] * len(nodes)
    for node in counted_nodes:
        pointer = pointers[node.number]
        if node.kind == STRUCT:
            # 16 bytes are for the index of a list, and for signs.
            rows[node.number, [HIGH, FACTOR]] = 1, len(pointer.encode()) + 16
        for child in node.children:
            name = "\0" if node.kind == LIST else pointer_name(child.name)
            pointers[child.number] = f"{pointer}{name}/" if pointer != '"' else f'"/{name}/'
        counted_nodes += node.children
    rows[0, LOW] = readings[0].is_only_column and len(nodes[0].children) == 1
    lookups = [np.zeros(0, np.int64)]
    for node in nodes:
        if node.kind == STRUCT:
            lookup = _lookup(node)
            rows[node.number, [LOOKUP, MASK]] = (
                rows.size + sum(map(len, lookups)),
                len(lookup) // 2 - 1,
            )
            lookups.append(lookup)
    return Tables(np.concatenate([rows.ravel(), *lookups]), names, pointers)


def assign_readings(nodes: list[Node], reading: Reading) -> list[Reading]:
    """Returns the rules for each node's values.

    Also sets `epoch`, `zone`, `days` and `power` of the nodes by these rules.
    """
    readings = [reading] * len(nodes)
    for node in nodes:
        for child in node.children:
            child_reading = (
                readings[node.number].field(child.name)
                if node.kind == STRUCT
                else readings[node.number].item()
            )
            child_reading = child_reading.field("value") if node.kind == MAP else child_reading
            readings[child.number] = child_reading
            child.epoch, child.zone = (
                child_reading.unit(child.epoch, child.zone),
                child_reading.clock(child.zone),
            )
            child.days = child_reading.dates == "epoch_days" and pa.types.is_date(child.type)
            if child_reading.decimals == "base64" and pa.types.is_decimal(child.type):
                missing_digits = (
                    0 if child_reading.scale is None else child.type.scale - child_reading.scale
                )
                child.power = 10**missing_digits if 0 <= missing_digits <= _MOST_MORE else -1
    return readings


def _lookup(node: Node) -> npt.NDArray[np.int64]:
    """Returns the hash table of a struct's children.

    Each child is at the first free place, counted from the place of its name's hash.
    """
    slots = 1 << (_ROOM * len(node.children) - 1).bit_length()
    lookup = np.full((slots, 2), -1, np.int64)
    for child in node.children:
        if child.name == REST_NAME:
            continue
        name = np.frombuffer(child.name.encode(), np.uint8)
        hashed = PASS.hash_of(name, 0, len(name))
        slot = hashed & slots - 1
        while lookup[slot, 0] >= 0:
            slot = (slot + 1) & slots - 1
        lookup[slot] = child.number, hashed
    return lookup.ravel()
