"""Layout of what the compiled pass reads, the columns as numbers, and of its state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.json.strict import MAX_DEPTH
from windrow.ingest.formats.shared.json_dialects import Reading
from windrow.ingest.formats.shared.nodes import LIST, MAP, STRUCT, TEXT, Node, bounds_of
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

- `SPACE`: the space that it lies in; `INNER`: the one that it opens; `FIRST`: its first
  child, which the others follow.
- `LOW`, `HIGH`: see `shared.nodes.bounds_of`; `FACTOR`: what a decimal that is bytes is
  multiplied with, see `Node.power`. Of a text, `LOW` is 1 if it takes an object or a
  list, too; of a list, if it takes an object; of the document, if one that is no object
  is the value of the only column. Of a struct, `HIGH` is 1 if its fields without a column are
  counted.
- `REQUIRED`: 1 if neither null nor nothing will do.
- `NAME`, `LENGTH`: where its name is in `Tables.names`; `PLAIN`: 1 if JSON may have
  these bytes without an escape.
- `LOOKUP`, `MASK`: where a struct's hash table of children begins in `Tables.numbers`,
  and the mask that makes an index of a hash. Its entries are pairs of a child, or -1,
  and the hash of its name.
- `AFTER`, `START`: the field that came behind this one the last time, and the one that
  this struct began with the last time. The pass keeps them up to date.
- `SEEN`: number of the object that this field was last in. The pass keeps it up to
  date.
"""

OBJECTS, REQUIRED_SEEN, SPARE, IGNORED = range(4, 8)
"""Places of the counters in the pass's state, behind those of `shared.seen`.

- `OBJECTS`: objects and arrays opened so far, so that each has a number of its own.
- `REQUIRED_SEEN`: required columns that the message has had.
- `SPARE`: index in `names` of the room for one name more.
- `IGNORED`: 1 if the message has had a field that no column is for, and that is counted.

Behind the counters are the frames, from `FRAMES` on, one for each open object or array.
Behind these, from `ITEMS` on, is the number of items of each space, first now, then as
it was before the message. The items of space 0 are the rows.
"""
FRAMES, FRAME = 8, 8
"""Place in the state where the frames begin, and numbers of each."""
NODE, CLOSE, OBJECT, INDEX, ITEM, BEGIN, FIELD, TEXT_NODE = range(FRAME)
"""Places of the numbers in a frame.

- `NODE`: the node whose value is open, or `UNKNOWN`.
- `CLOSE`: the bracket that closes it.
- `OBJECT`: its own number, see `OBJECTS`.
- `INDEX`: which value of its node it is.
- `ITEM`: which value of its children's nodes is the next one.
- `BEGIN`: how many items its space had before it; of a text, where it begins.
- `FIELD`: the place in the tables that says which field is expected next.
- `TEXT_NODE`: the node whose text it is, or `UNKNOWN`.
"""
UNKNOWN = -1
"""Node of values that no column is for."""

ITEMS = FRAMES + FRAME * MAX_DEPTH
"""Place in the state where the counts of items begin."""

_MOST_MORE = 18
"""Zeros of the largest power of ten that 64 bits hold with a sign."""

_ROOM = 4
"""Places in a struct's hash table for each name, so that others are soon ruled out."""


@dataclass(frozen=True)
class Tables:
    """Columns as the compiled pass reads them.

    `numbers`: a row of `WIDTH` for each node, and behind all rows the hash tables.
    `names`: the bytes of all names, behind each other.
    """

    numbers: npt.NDArray[np.int64]
    names: bytes


def tables_of(
    nodes: list[Node],
    readings: list[Reading],
    finer: Finer = "truncate",
    row_path: tuple[str, ...] | None = (),
) -> Tables:
    """Makes the tables for the compiled pass.

    `readings`: as `assign_readings` gives them. `finer`: what becomes of timestamps finer than a
    microsecond. `row_path`: as in `Columns`.
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
    for node in counted_nodes:
        rows[node.number, HIGH] = 1 if node.kind == STRUCT else rows[node.number, HIGH]
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
    return Tables(np.concatenate([rows.ravel(), *lookups]), names)


def assign_readings(nodes: list[Node], reading: Reading) -> list[Reading]:
    """Readings of the values of each node, which are also noted in the nodes."""
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
    """Hash table of a struct's children.

    Each is at the first free place from that of its name's hash on.
    """
    slots = 1 << (_ROOM * len(node.children) - 1).bit_length()
    lookup = np.full((slots, 2), -1, np.int64)
    for child in node.children:
        name = np.frombuffer(child.name.encode(), np.uint8)
        hashed = PASS.hash_of(name, 0, len(name))
        slot = hashed & slots - 1
        while lookup[slot, 0] >= 0:
            slot = (slot + 1) & slots - 1
        lookup[slot] = child.number, hashed
    return lookup.ravel()
