"""Most messages at once, in DuckDB: takes a message only where that is certain, and leaves every other to `strict.py`, which is the truth.

DuckDB's JSON is lenient: it casts "1" and true to numbers, rounds, keeps one of two equal keys and takes NaN and trailing commas. A message
is taken if all of this holds:

1. It is UTF-8 and DuckDB's parser takes it, and no `,` stands before a closing bracket.
2. `json_type` says of each column that the value is of exactly its type, or null where it may be, and the converted value is exact: the
   bounds and patterns in `sql.py` are narrower than the truth's.
3. There is no other key than those, and none twice. Each key is followed by a colon, which stands right after a quote or whitespace; so the
   number of such colons, whatever else they are, is at least the number of keys. If it equals the number of the schema's names that were
   found, these are all. Where fields that the schema doesn't name are ignored, `json_keys` of the objects in the schema accounts for those,
   if no two are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.json.sql import Statements
from ingest.decode.json.strict import MAX_DEPTH, Unknown
from ingest.schema.columns import Column, Columns

_SETTINGS = (
    "threads = 1",  # a task is one core
    "memory_limit = '1GB'",
    "temp_directory = ''",  # a batch is small: rather fail than spill
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "enable_external_access = false",  # json and icu are in the wheel; nothing is ever downloaded or read
    "TimeZone = 'UTC'",
    "lock_configuration = true",
)
_COMMA = r",\s*[}\]]"
_NOT_FINITE = r"(?i)[\s:,\[+-](?:nan|inf|infinity)[\s,\]}]"
_LONG_NUMBER = r"[0-9.]{16}|[eE]-[0-9]{3}"
"""A double's shortest text has the digits of its literal if these are at most 15 and it isn't tiny; only then a decimal may come."""


@dataclass(frozen=True)
class Taken:
    """Which messages were taken (bool, no nulls), and the columns; where a message wasn't taken they hold anything."""

    mask: pa.BooleanArray
    columns: list[pa.Array]


class Fast:
    """One DuckDB connection and one statement. Not for several threads at once."""

    def __init__(self, columns: Columns, unknown: Unknown) -> None:
        self._columns = columns.columns
        self._unknown = unknown
        self._digits = any(_has_decimal(c.type) for c in self._columns)
        statements = Statements(self._columns)
        self._db = duckdb.connect(":memory:")
        for setting in _SETTINGS:
            self._db.execute(f"SET {setting}")
        self._messages = _Messages()
        self._messages.table = self._table(pa.array([], pa.string()))
        self._db.register("messages", self._messages)
        self._db.execute(f"PREPARE main AS {statements.main()}")
        self._db.execute(f"PREPARE keys AS {statements.keys()}")

    @staticmethod
    def covers(columns: Columns) -> bool:
        """Whether it can take any message of these columns: lists and maps are left to the strict decoder."""
        return all(_covered(c.type) for c in columns.columns)

    def decode(self, text: pa.StringArray) -> Taken:
        """Valid UTF-8 in; nulls are not taken."""
        out = self._run("main", text)
        exact = pc.and_(out[-2], pc.invert(pc.fill_null(pc.match_substring_regex(text, _COMMA), fill_value=True)))
        colons = _colons(text)
        mask = pc.and_(exact, pc.equal(colons, out[-1]))
        if self._unknown == "ignore":
            mask = self._with_unknown(text, mask, pc.and_(exact, pc.greater(colons, out[-1])), colons)
        return Taken(mask, [_stored(a, c) for a, c in zip(out[:-2], self._columns, strict=True)])

    def _with_unknown(self, text: pa.StringArray, mask: pa.BooleanArray, maybe: pa.BooleanArray, colons: pa.Array) -> pa.BooleanArray:
        """Take also those of `maybe` whose other keys are all accounted for."""
        index = pc.indices_nonzero(maybe)
        if not len(index):
            return mask
        some = text.take(index)
        plain = pc.invert(pc.match_substring_regex(some, _NOT_FINITE))
        shallow = pc.less(_brackets(some), MAX_DEPTH)
        keys = self._run("keys", some)
        accounted = pc.equal(pa.array(sum(np.diff(k.offsets) for k in keys)), colons.take(index))
        good = pc.and_(pc.and_(plain, shallow), pc.and_(accounted, pc.invert(_repeating(keys))))
        return pc.or_(mask, pc.is_in(pa.array(np.arange(len(text), dtype=np.uint64)), index.filter(good)))

    def _run(self, statement: str, text: pa.StringArray) -> list[pa.Array]:
        """The statement's columns, in the order of the texts, which its last column proves."""
        self._messages.table = table = self._table(text)
        try:
            out = self._db.sql(f"EXECUTE {statement}").to_arrow_table()
        finally:
            self._messages.table = None
        *arrays, order = (c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in out.columns)
        if not order.equals(table.column("n").chunk(0)):
            raise RuntimeError("DuckDB returned the messages of a batch in another order")
        return arrays

    def _table(self, text: pa.StringArray) -> pa.Table:
        long = pc.match_substring_regex(text, _LONG_NUMBER) if self._digits else pa.nulls(len(text), pa.bool_())
        return pa.table({"v": text, "long": long, "n": pa.array(np.arange(len(text)))})


class _Messages:
    """What DuckDB scans: one object, registered once, so that statements stay prepared: planning one may take as long as running it."""

    table: pa.Table | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batch at hand, by Arrow's PyCapsule protocol."""
        assert self.table is not None
        return self.table.__arrow_c_stream__(requested_schema)


def _octets(text: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of all texts, and where each begins and the last one ends."""
    _, starts, data = text.buffers()
    edges = np.frombuffer(starts, np.int32)[text.offset : text.offset + len(text) + 1]
    return np.frombuffer(data or b"", np.uint8)[edges[0] : edges[-1]], edges - edges[0]


def _colons(text: pa.StringArray) -> pa.Array:
    """Colons right after a quote or whitespace, per text: each key has one, and escaped quotes can only add some."""
    octets, edges = _octets(text)
    before = octets[:-1]
    after_key = (octets[1:] == ord(":")) & ((before == ord('"')) | (before <= ord(" ")))
    return pa.array(np.diff(np.searchsorted(np.flatnonzero(after_key) + 1, edges)))


def _brackets(text: pa.StringArray) -> pa.Array:
    """Opening brackets and braces, per text: at least as many as objects and arrays lie in one another."""
    octets, edges = _octets(text)
    opening = (octets == ord("[")) | (octets == ord("{"))
    return pa.array(np.diff(np.searchsorted(np.flatnonzero(opening), edges)))


def _repeating(keys: list[pa.ListArray]) -> pa.BooleanArray:
    """Whether any of a text's lists of keys holds a key twice. DuckDB's own list_distinct is slower."""
    repeating = np.zeros(len(keys[0]), np.bool_)
    for lists in keys:
        names = lists.flatten().dictionary_encode()
        rows = np.repeat(np.arange(len(lists)), np.diff(lists.offsets))
        both = np.sort(rows * (len(names.dictionary) + 1) + np.asarray(names.indices))
        twice = both[1:][both[1:] == both[:-1]]
        repeating[twice // (len(names.dictionary) + 1)] = True
    return pa.array(repeating)


def _stored(array: pa.Array, column: Column) -> pa.Array:
    return array if array.type == column.type else array.cast(column.type)


def _covered(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_covered(f.type) for f in kind)
    return not pa.types.is_nested(kind)


def _has_decimal(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or (pa.types.is_struct(kind) and any(_has_decimal(f.type) for f in kind))
