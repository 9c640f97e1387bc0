"""A SELECT over rows, as a transform.

DuckDB computes what the query computes; a column that the query passes on, or only
renames, doesn't go through it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import RULES, Decoded, Refusal
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import TIMESTAMP, UnsupportedTypeError
from windrow.ingest.schema.messages import for_rows
from windrow.ingest.schema.metadata_arrays import columns as metadata_arrays
from windrow.ingest.schema.metadata_fields import TYPES
from windrow.ingest.transform.left_out import with_deletes
from windrow.ingest.transform.sql.select import (
    ROWS,
    Node,
    Output,
    Select,
    column,
    listed,
    query_of,
    read_select,
    unnest,
)

SECONDS = 60
"""The longest that a SELECT may take for one batch."""

MEMORY = "512MB"
"""The most memory that DuckDB may take in a task."""

_ROW = "_windrow_row"

_SETTINGS = (
    "TimeZone='UTC'",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "python_enable_replacements=false",
    "preserve_insertion_order=true",
    "temp_directory=''",
    "enable_external_access=false",
    "lock_configuration=true",
)
"""Settings of a connection, in this order.

A query then has no file, no network and no variable of Python's, so that the spec and the
rows alone decide what comes out. (They are no wall against an author who means harm.)
"""


@dataclass(frozen=True)
class Sql:
    """A SELECT over rows.

    `setting`: its place in the spec, for messages; `metadata`: the metadata columns, name
    and column; `primary_key`: of a table that has one; `versioned`: whether the newest
    version of a key counts.

    In a table with a primary key, a row that the WHERE leaves out deletes its key, as a
    filter in Flink's changelogs does. A column that a message left unchanged
    (`Decoded.unavailable`) stays so under another name, and so does everything that is
    computed of it; a WHERE can't be answered by it.
    """

    query: str
    setting: str = "sql"
    metadata: tuple[tuple[str, str], ...] = ()
    primary_key: tuple[str, ...] = ()
    versioned: bool = False

    def columns(self, before: Columns) -> Columns:
        """The columns that the SELECT gives.

        Raises:
            SpecError: it can't be used with such rows; says all that is wrong.
        """
        select = self.select([c.name for c in before.columns])
        self._refuse_keys(select)
        types = self.types(before.arrow_schema, select)
        given = {c.name: c for c in before.columns}
        made = (
            replace(given[output.source], name=output.name)
            if output.source is not None
            else Column(output.name, types[output.name], nullable=True)
            for output in select.outputs
        )
        return Columns(tuple(made), finer=before.finer)

    def open(self) -> Apply:
        """Returns the SELECT for the calling thread; each has a DuckDB of its own."""
        opened: _Step | None = None

        def step(decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
            nonlocal opened
            opened = opened or _Step(self, decoded.rows.schema)
            return opened(decoded, messages)

        return step

    def select(self, names: Sequence[str]) -> Select:
        """The SELECT, taken apart, for rows with columns of these names.

        Raises:
            SpecError: it can't be used with them.
        """
        return read_select(self.query, names, [name for _, name in self.metadata], self.setting)

    def _refuse_keys(self, select: Select) -> None:
        """Checks that messages still say which row of the table is theirs."""
        passed = {output.source for output in select.outputs if output.source == output.name}
        changed = [name for name in self.primary_key if name not in passed]
        wrong = []
        if changed:
            wrong.append(
                f"it doesn't pass on {', '.join(changed)} of sink.primary_key as it is: messages"
                " delete and replace rows by it"
            )
        if self.primary_key and select.unnests:
            wrong.append(
                "unnest makes several rows of one, and sink.primary_key has one row of each key"
            )
        if self.versioned and select.where is not None:
            wrong.append(
                "a row that WHERE leaves out deletes its key, and with sink.version nothing is"
                " deleted: leave one of them out"
            )
        if wrong:
            raise SpecError(
                f"{self.setting} can't be used: " + "; ".join(wrong),
                "spec",
                "Change the SELECT or the sink. Nothing was read.",
            )

    def types(self, schema: pa.Schema, select: Select) -> dict[str, pa.DataType]:
        """The type of each column that is computed of rows with a schema.

        Raises:
            SpecError: DuckDB can't compute it of such rows, or no table can have the type.
        """
        more = [pa.field(name, TYPES[kind]) for kind, name in self.metadata]
        empty = pa.schema(
            [*schema, *(f for f in more if f.name not in schema.names), pa.field(_ROW, pa.int64())]
        ).empty_table()
        computed = select.computed
        con = locked()
        try:
            con.register(ROWS, empty)
            query = query_of([*(o.expression for o in computed), column(_ROW)], select.where)
            found = con.sql(query).to_arrow_table().schema.types
        except duckdb.Error as error:
            what = f"{self.setting} can't be used: {_first_line(error)}"
            raise SpecError(what, "spec", "Fix the SELECT. Nothing was read.") from None
        finally:
            con.close()
        types, wrong = {}, []
        for output, kind in zip(computed, found[:-1], strict=True):
            try:
                types[output.name] = _stored(_values(kind) if output.unnests else kind)
            except UnsupportedTypeError as error:
                wrong.append(f"{output.name} is {kind}, and {error}")
        if wrong:
            what = f"{self.setting} can't be used: " + "; ".join(wrong)
            raise SpecError(what, "spec", "Fix the SELECT. Nothing was read.")
        return types


class _Step:
    """A SELECT for rows of one schema, in a worker."""

    def __init__(self, sql: Sql, schema: pa.Schema) -> None:
        self._sql, self._select = sql, sql.select(schema.names)
        select, types = self._select, sql.types(schema, self._select)
        self._schema = pa.schema(
            [
                schema.field(o.source).with_name(o.name)
                if o.source is not None
                else pa.field(o.name, types[o.name])
                for o in select.outputs
            ]
        )
        self._read = [name for name in schema.names if name in select.reads]
        self._metadata = {
            kind: name
            for kind, name in sql.metadata
            if name in select.reads and name not in schema.names
        }
        self._con = locked()
        self._query = query_of(
            [*(_unnested(o) for o in select.computed), column(_ROW)], select.where
        )
        conditions = [] if select.where is None else [select.where]
        self._parts = [*conditions, *(o.expression for o in select.computed)]
        self._names = ["WHERE"] * len(conditions) + [o.name for o in select.computed]
        self._tries = query_of([listed(part) for part in self._parts]) if self._parts else ""

    def __call__(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        if not self._parts:
            every = np.arange(decoded.rows.num_rows)
            return self._marked(decoded.with_rows(self._passed(decoded, None, {}), every))
        decoded = self._without_unanswerable(decoded)
        rows = self._rows(decoded, messages)
        try:
            found = self._run(self._query, rows)
        except _OF_A_ROW:
            decoded = decoded.refused(RULES, list(self._failures(rows)))
            found = self._found_of_good(self._rows(decoded, messages))
        made_from = found.column(found.num_columns - 1).to_numpy()
        computed = dict(zip((o.name for o in self._select.computed), found.columns, strict=False))
        if self._sql.primary_key and self._select.where is not None:
            decoded, kept = with_deletes(decoded, made_from, self._sql.primary_key)
            computed = {name: a.filter(pa.array(kept)) for name, a in computed.items()}
            made_from = made_from[kept]
        return self._marked(
            decoded.with_rows(self._passed(decoded, made_from, computed), made_from)
        )

    def _rows(self, decoded: Decoded, messages: pa.RecordBatch) -> pa.Table:
        """Returns what DuckDB reads: the columns that are computed with, and row numbers."""
        arrays = [decoded.rows[name] for name in self._read]
        if self._metadata:
            of_rows = for_rows(messages, decoded.row_index)
            arrays += [
                array.cast(TYPES[kind])
                for kind, array in zip(
                    self._metadata, metadata_arrays(self._metadata, of_rows, ""), strict=True
                )
            ]
        numbers = pa.array(np.arange(decoded.rows.num_rows))
        return pa.Table.from_arrays(
            [*arrays, numbers], [*self._read, *self._metadata.values(), _ROW]
        )

    def _run(self, query: str, rows: pa.Table) -> pa.Table:
        """Asks DuckDB, for a bounded time.

        Raises:
            SpecError: it takes too long, or too much memory.
            duckdb.Error: a row's expression fails.
        """
        self._con.register(ROWS, rows)
        timer = threading.Timer(SECONDS, self._con.interrupt)
        timer.start()
        try:
            return self._con.sql(query).to_arrow_table().combine_chunks()
        except duckdb.InterruptException:
            what = f"{self._sql.setting} took longer than {SECONDS} s for {rows.num_rows} rows"
            do = "Nothing was committed. Make the SELECT simpler; a spark step may take its time."
            raise SpecError(what, "validate", do) from None
        except duckdb.OutOfMemoryException:
            what = (
                f"{self._sql.setting} needs more than {MEMORY} of memory for {rows.num_rows} rows"
            )
            raise SpecError(what, "validate", _FEWER) from None
        finally:
            timer.cancel()

    def _found_of_good(self, rows: pa.Table) -> pa.Table:
        """Asks DuckDB for rows of which none fails alone.

        Raises:
            SpecError: they fail together: what comes out is too large for a batch.
        """
        try:
            return self._run(self._query, rows)
        except _OF_A_ROW as error:
            what = (
                f"{self._sql.setting} fails for {rows.num_rows} rows together, and for none of"
                f" them alone: {without_values(_first_line(error), rows.slice(0, 0))}"
            )
            raise SpecError(what, "validate", _FEWER) from None

    def _failures(self, rows: pa.Table) -> Iterator[Refusal]:
        """Finds the rows whose expressions fail, each with DuckDB's sentence.

        A row that the WHERE leaves out fails by the WHERE alone.
        """
        tried = self._run(self._tries, rows).columns
        asked = np.ones(rows.num_rows, np.bool_)
        for name, part, values in zip(self._names, self._parts, tried, strict=True):
            failed = asked & np.asarray(values.is_null())
            for number in np.flatnonzero(failed).tolist():
                yield self._failure(name, part, rows.slice(number, 1), number)
            asked &= ~failed
            if name == "WHERE" and part is self._select.where:
                true = pc.list_element(values.filter(pa.array(asked)), 0)
                asked[asked] = np.asarray(pc.equal(true, True).fill_null(False))

    def _failure(self, name: str, part: Node, row: pa.Table, number: int) -> Refusal:
        detail = "It fails"
        try:
            self._run(query_of([part]), row)
        except _OF_A_ROW as error:
            detail = without_values(_first_line(error), row)
        return Refusal(
            np.array([number]), f"sql:{name}", f"{detail} - in {name} of {self._sql.setting}"
        )

    def _without_unanswerable(self, decoded: Decoded) -> Decoded:
        """Refuses messages that left a column alone which the WHERE asks for."""
        if decoded.unavailable is None or not self._select.where_reads:
            return decoded
        asked = pc.is_in(decoded.unavailable.flatten(), pa.array(sorted(self._select.where_reads)))
        rows = np.unique(pc.list_parent_indices(decoded.unavailable).filter(asked).to_numpy())
        detail = (
            "The message left a column unchanged, and so doesn't say its value - in WHERE of"
            f" {self._sql.setting}"
        )
        return decoded.refused(RULES, [Refusal(rows, "sql:WHERE:unavailable", detail)])

    def _passed(
        self,
        decoded: Decoded,
        made_from: npt.NDArray[np.int64] | None,
        computed: Mapping[str, pa.Array],
    ) -> pa.RecordBatch:
        """Returns the columns of the result; `made_from` None: one row for each."""
        same = made_from is None or len(made_from) == decoded.rows.num_rows
        if same and made_from is not None:
            same = bool((made_from == np.arange(len(made_from))).all())
        rows = decoded.rows if same else decoded.rows.take(pa.array(made_from))
        arrays = [
            rows[o.source] if o.source is not None else _plain(computed[o.name]).cast(f.type)
            for o, f in zip(self._select.outputs, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _marked(self, made: Decoded) -> Decoded:
        """Marks what depends on a column that the message left unchanged, and empties it."""
        if made.unavailable is None:
            return made
        parents = pc.list_parent_indices(made.unavailable).to_numpy()
        names = made.unavailable.flatten()
        rows, marks = [], []
        arrays = dict(zip(made.rows.schema.names, made.rows.columns, strict=True))
        for output in self._select.outputs:
            left = pc.is_in(names, pa.array(sorted(output.reads), pa.string()))
            found = np.unique(parents[np.asarray(left)])
            if len(found):
                rows.append(found)
                marks.append(np.repeat(output.name, len(found)))
                empty = np.zeros(made.rows.num_rows, np.bool_)
                empty[found] = True
                kind = arrays[output.name].type
                arrays[output.name] = pc.if_else(
                    pa.array(empty), pa.scalar(None, kind), arrays[output.name]
                )
        every = np.concatenate([np.zeros(0, np.int64), *rows])
        order = np.argsort(every, kind="stable")
        counts = np.bincount(every, minlength=made.rows.num_rows)
        lists = pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()),
            pa.array(np.concatenate([np.zeros(0, str), *marks])[order], pa.string()),
        )
        changed = pa.RecordBatch.from_arrays(list(arrays.values()), schema=made.rows.schema)
        return replace(made, rows=changed, unavailable=lists)


_FEWER = (
    "Nothing was committed. Decode fewer messages at once (source.tuning.batch_messages), or make"
    " the SELECT simpler."
)

_OF_A_ROW = (duckdb.DataError, duckdb.InvalidInputException)
"""Errors of an expression that a row's values cause."""


def locked() -> duckdb.DuckDBPyConnection:
    """Opens a DuckDB that has nothing but what is registered with it."""
    con = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": MEMORY})
    for setting in _SETTINGS:
        con.execute(f"SET {setting}")
    return con


def _unnested(output: Output) -> Node:
    return unnest(output.expression) if output.unnests else output.expression


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _first_line(error: duckdb.Error) -> str:
    return str(error).partition("\n")[0]


def without_values(sentence: str, row: pa.Table) -> str:
    """Returns a sentence of DuckDB's without what may come from a row.

    That is everything in quotes, numbers, and words that one of the row's texts has.
    """
    text = re.sub(r"'.*'|\".*\"", "'...'", sentence)
    text = re.sub(r"(?<![A-Za-z_0-9])[-+]?\d[\d.,:eE+-]*", "...", text)
    values = " ".join(str(v) for one in row.to_pylist() for v in one.values()).casefold()
    return re.sub(
        r"[^\W\d_]{3,}", lambda word: "..." if word[0].casefold() in values else word[0], text
    )


def _values(kind: pa.DataType) -> pa.DataType:
    """The type of a list's values.

    Raises:
        UnsupportedTypeError: it is no list.
    """
    if not pa.types.is_list(kind):
        raise UnsupportedTypeError("unnest takes a list")
    return kind.value_type


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that a table has for a type of DuckDB's, as Arrow has it.

    Raises:
        UnsupportedTypeError: there is none; says what to write instead.
    """
    types = pa.types
    if kind in _SAME or types.is_decimal128(kind):
        return kind
    if types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, _stored(f.type)) for f in kind])
    if types.is_map(kind) and kind.key_type == pa.string():
        return pa.map_(pa.string(), _stored(kind.item_type))
    if types.is_timestamp(kind):
        raise UnsupportedTypeError("says no zone: write AT TIME ZONE 'UTC' behind it")
    if types.is_unsigned_integer(kind):
        raise UnsupportedTypeError("no table has unsigned integers: CAST it AS BIGINT, or wider")
    if types.is_null(kind):
        raise UnsupportedTypeError("has no type: write CAST(NULL AS ...)")
    raise UnsupportedTypeError("no table has this type: CAST it AS VARCHAR")


_SAME = frozenset(
    {
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        TIMESTAMP,
    }
)
