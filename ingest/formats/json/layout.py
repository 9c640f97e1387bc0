"""The columns as tables of numbers, which the compiled pass goes by, and what it keeps in mind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.ingest.formats.json.strict import MAX_DEPTH
from windrow.ingest.formats.json.values import EXACT, Reading
from windrow.ingest.formats.shared.nodes import LIST, MAP, STRUCT, TEXT, Node, bounds_of
from windrow.ingest.native.calling import Compiled
from windrow.ingest.schema.columns import Finer
from windrow.ingest.schema.dtypes import map_type

PASS = Compiled("windrow.ingest.formats.json.scan")
"""The compiled functions."""

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
"""What stands at which place of a node's row in `Tables.numbers`.

- `SPACE`: the space that it lies in; `INNER`: the one that it opens; `FIRST`: its first
  child, which the others follow.
- `LOW`, `HIGH`: see `shared.nodes.bounds_of`; `FACTOR`: what a decimal that is bytes is
  multiplied with, see `Node.power`. `LOW` is 1 of a text that an object or a list will
  do for, and of a list that may be an object.
- `REQUIRED`: 1 where neither null nor nothing will do.
- `NAME`, `LENGTH`: where its name is in `Tables.names`; `PLAIN`: 1 if these bytes may
  stand in JSON as they are.
- `LOOKUP`, `MASK`: where a struct's lookup begins in `Tables.numbers`, and how it is
  indexed: pairs of a child, or -1, and its name's hash.
- `AFTER`, `START`: the field that came behind this one the last time, and the one that
  this struct began with. The pass keeps them.
- `SEEN`: the object that this field was seen in last. The pass keeps it.
"""

OBJECTS, REQUIRED_SEEN, SPARE = range(4, 7)
"""What stands at which place of the pass's state, behind those of `shared.rewind`.

`OBJECTS` were opened, ever: so each has a number of its own; `REQUIRED_SEEN` columns
that must be there were in the message; at `SPARE` there is room for a name behind all
names. Behind them stand the frames of what is open, and behind these how many items
each space has, now and before the message. Space 0 has the rows.
"""
FRAMES = 8
FRAME = 8
NODE, CLOSE, OBJECT, INDEX, ITEM, BEGIN, FIELD, TEXT_NODE = range(FRAME)
"""What stands at which place of a frame.

`NODE`: whose value is open, or `UNKNOWN`; `CLOSE`: the bracket that closes it;
`OBJECT`: its own number; `INDEX`: which value of its node it is; `ITEM`: which value of
its children's nodes is the next one; `BEGIN`: where its items begin, or its text;
`FIELD`: where in the tables it stands which field is expected; `TEXT_NODE`: whose value
it is as a text, or `UNKNOWN`.
"""
UNKNOWN = -1
"""The node of what no column is for."""

ITEMS = FRAMES + FRAME * MAX_DEPTH

_MOST_MORE = 18
"""Digits of a power of ten that 64 bits hold."""

_ROOM = 4
"""Places in a lookup for each name, so that what isn't among them is soon known."""


@dataclass(frozen=True)
class Tables:
    """`numbers`: a row of `WIDTH` for each node, and the lookups behind them all.

    `names`: the bytes of all names, behind each other.
    """

    numbers: npt.NDArray[np.int64]
    names: bytes


def tables_of(nodes: list[Node], reading: Reading = EXACT, finer: Finer = "truncate") -> Tables:
    """What the compiled pass goes by.

    `reading`: how values are read, which the nodes are told, too; `finer`: what becomes
    of timestamps finer than a microsecond.
    """
    readings = _as_read(nodes, reading)
    rows = np.zeros((len(nodes), WIDTH), np.int64)
    names = b"".join(node.name.encode() for node in nodes)
    at = 0
    for node, row in zip(nodes, rows, strict=True):
        length = len(node.name.encode())
        row[[KIND, SPACE, INNER, REQUIRED, NAME, LENGTH]] = (
            node.kind,
            node.space,
            node.inner,
            node.required,
            at,
            length,
        )
        row[[LOW, HIGH]], row[FACTOR] = bounds_of(node, finer), node.power
        if node.kind == TEXT:
            row[LOW] = readings[node.number].lenient
        elif node.kind == LIST:
            row[LOW] = map_type(node.type) is not None
        row[PLAIN] = not any(c in '"\\' or ord(c) < 32 for c in node.name)
        row[[FIRST, START]] = node.children[0].number if node.children else 0
        for child, after in zip(
            node.children, [*node.children[1:], *node.children[:1]], strict=True
        ):
            rows[child.number, AFTER] = after.number
        at += length
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


def _as_read(nodes: list[Node], reading: Reading) -> list[Reading]:
    """How each node is read."""
    readings = [reading] * len(nodes)
    for node in nodes:
        for child in node.children:
            own = (
                readings[node.number].field(child.name)
                if node.kind == STRUCT
                else readings[node.number].item()
            )
            own = own.field("value") if node.kind == MAP else own
            readings[child.number] = own
            child.epoch, child.zone = own.unit(child.epoch, child.zone), own.clock(child.zone)
            child.days = own.dates == "epoch_days" and pa.types.is_date(child.type)
            if own.decimals == "base64" and pa.types.is_decimal(child.type):
                more = 0 if own.scale is None else child.type.scale - own.scale
                child.power = 10**more if 0 <= more <= _MOST_MORE else -1
    return readings


def _lookup(node: Node) -> npt.NDArray[np.int64]:
    """The struct's children, each at the first free place from the one on that its
    name's hash says.
    """
    places = 1 << (_ROOM * len(node.children) - 1).bit_length()
    lookup = np.full((places, 2), -1, np.int64)
    for child in node.children:
        name = np.frombuffer(child.name.encode(), np.uint8)
        hashed = PASS.hash_of(name, 0, len(name))
        place = hashed & places - 1
        while lookup[place, 0] >= 0:
            place = (place + 1) & places - 1
        lookup[place] = child.number, hashed
    return lookup.ravel()
