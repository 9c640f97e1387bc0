"""A SELECT over rows, as a transform.

DuckDB computes the expressions of the query. A column that the query passes on, or only
renames, doesn't go through DuckDB.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.sqltypes import DuckDBPyType

from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.ports.decoder import RULES, Decoded, Refusal
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.calendar import rows_beyond
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import ROW_NUMBER, TIMESTAMP, UnsupportedTypeError
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.transform.sql.select import (
    ROWS,
    Select,
    broken,
    column,
    line_of,
    listed,
    locked,
    query_of,
    read_select,
)
from windrow.ingest.transform.step_rows import (
    StepOutput,
    beside_rows,
    mark_unavailable,
    refuse_unanswerable,
    with_deletes,
)

SECONDS = 60
"""Time limit of a SELECT for one batch."""


@dataclass(frozen=True)
class Sql:
    """A SELECT over rows.

    In a table with a primary key, a row that the WHERE leaves out deletes its key, as a
    filter in Flink's changelogs does.

    A message may leave columns unchanged (`Decoded.unavailable`). A renamed unchanged column
    stays unchanged, and so does an expression that reads unchanged columns only. A message
    is a dead letter if the WHERE reads one of its unchanged columns, or if an expression
    reads unchanged and changed columns together.

    Attributes:
        query: the SELECT.
        setting: the step's place in the spec, for messages.
        metadata: metadata columns that may be read, as pairs of metadata and column name.
        primary_key: the table's primary key; empty if rows are appended.
        versioned: whether the newest version of a key counts.
        one_each: whether a row must not become several rows.
    """

    query: str
    setting: str = "sql"
    metadata: tuple[tuple[str, str], ...] = ()
    primary_key: tuple[str, ...] = ()
    versioned: bool = False
    one_each: bool = False

    def columns(self, input_columns: Columns) -> Columns:
        """Returns the columns that the SELECT gives.

        Raises:
            SpecError: the SELECT can't be used with such rows; the text names all mistakes.
        """
        select = self.select([c.name for c in input_columns.columns])
        self._refuse_keys(select)
        with locked() as con:
            types = self.types(con, input_columns.arrow_schema, select)
        column_by_name = {c.name: c for c in input_columns.columns}
        output_columns = (
            replace(column_by_name[output.source], name=output.name)
            if output.source is not None
            else Column(output.name, types[output.name], nullable=True)
            for output in select.outputs
        )
        return Columns(tuple(output_columns), finer=input_columns.finer)

    def open(self) -> Apply:
        """Returns the SELECT for the calling thread; each thread has its own DuckDB cursor."""
        opened: _Step | None = None

        def step(decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
            nonlocal opened
            opened = opened or _Step(self, decoded.rows.schema)
            return opened(decoded, messages)

        return step

    def column_sources(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        return {output.name: output.reads for output in self.select(names).outputs}

    def select(self, names: Sequence[str]) -> Select:
        """Parses the SELECT, for rows with columns of these names.

        Raises:
            SpecError: the SELECT can't be used with such rows.
        """
        try:
            return read_select(self.query, names, [name for _, name in self.metadata], self.setting)
        except RecursionError:
            raise SpecError(
                f"{self.setting} can't be used: it is nested too deeply",
                "spec",
                "Take it apart into steps. Nothing was read.",
            ) from None

    def _refuse_keys(self, select: Select) -> None:
        """Refuses a SELECT that changes the primary key, or gives rows without a clear key.

        Raises:
            SpecError: the text names all mistakes.
        """
        passed = {output.source for output in select.outputs if output.source == output.name}
        changed = [name for name in self.primary_key if name not in passed]
        mistakes = []
        if changed:
            mistakes.append(
                f"it doesn't pass on {', '.join(changed)} of sink.primary_key as it is: messages"
                " delete and replace rows by it"
            )
        if self.primary_key and select.unnests:
            mistakes.append(
                "unnest makes several rows of one, and sink.primary_key has one row of each key"
            )
        if self.one_each and select.unnests:
            mistakes.append(
                "unnest numbers the rows of a message, which have no order behind a spark step:"
                " unnest before it, or explode in its function"
            )
        if self.versioned and select.where is not None:
            mistakes.append(
                "a row that WHERE leaves out deletes its key, and with sink.version nothing is"
                " deleted: leave one of them out"
            )
        if mistakes:
            raise SpecError(
                f"{self.setting} can't be used: " + "; ".join(mistakes),
                "spec",
                "Change the SELECT or the sink. Nothing was read.",
            )

    def types(
        self, con: duckdb.DuckDBPyConnection, schema: pa.Schema, select: Select
    ) -> dict[str, pa.DataType]:
        """Returns the type of each computed column, by its name.

        Args:
            con: a connection of DuckDB.
            schema: the schema of the rows.
            select: the parsed query.

        Raises:
            SpecError: DuckDB can't compute a column, or no table can have its type.
        """
        more = [
            pa.field(name, TYPES.get(kind, pa.string()))
            for kind, name in self.metadata
            if name not in schema.names
        ]
        # only the columns that the parsed query reads: DuckDB must find no other column
        read = [f for f in (*schema, *more) if f.name in select.reads]
        empty = pa.schema([*read, pa.field(ROW_NUMBER, pa.int64())]).empty_table()
        computed = select.computed
        conditions = [] if select.condition is None else [select.condition]
        try:
            con.register(ROWS, empty)
            expressions = [*conditions, *(o.expression for o in computed), column(ROW_NUMBER)]
            relation = con.sql(query_of(expressions, select.where))
            column_types = relation.types
            relation.fetchall()  # an expression that fails without a row fails for every row
        except duckdb.Error as error:
            location = self._place_of_mistake(con, select)
            raise SpecError(
                f"{self.setting} can't be used: {str(error).splitlines()[0]}{location}",
                "spec",
                "Fix the SELECT. Nothing was read.",
            ) from None
        types, mistakes = {}, []
        if conditions and column_types[0].id != "boolean":
            mistakes.append(f"WHERE is {column_types[0]}, and no condition")
        for output, kind in zip(computed, column_types[len(conditions) : -1], strict=True):
            try:
                types[output.name] = _table_type(_values(kind) if output.unnests else kind)
            except UnsupportedTypeError as error:
                mistakes.append(f"{output.name} is {kind}: {error}")
        if mistakes:
            raise SpecError(
                f"{self.setting} can't be used: " + "; ".join(mistakes),
                "spec",
                "Fix the SELECT. Nothing was read.",
            )
        return types

    def _place_of_mistake(self, con: duckdb.DuckDBPyConnection, select: Select) -> str:
        """Returns text with the first part of the SELECT that fails alone, and its line."""
        parts = [(output.name, output.expression) for output in select.computed]
        for name, part in [("WHERE", select.condition or column(ROW_NUMBER)), *parts]:
            try:
                con.sql(query_of([part])).fetchall()
            except duckdb.Error:
                return f" - in {name}{line_of(part, self.query)}"
        return ""


class _Step:
    """A SELECT for rows of one schema, in a worker."""

    def __init__(self, sql: Sql, schema: pa.Schema) -> None:
        self._sql, self._con = sql, locked()
        self._select = select = sql.select(schema.names)
        types = sql.types(self._con, schema, select)
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
        computed = [o.expression for o in select.computed]
        self._query = query_of([*computed, column(ROW_NUMBER)], select.where)
        self._lists = [o.name for o in select.outputs if o.unnests]
        conditions = [] if select.where is None else [select.where]
        self._parts = [*conditions, *computed]
        self._names = ["WHERE"] * len(conditions) + [o.name for o in select.computed]
        self._reads = {o.name: o.reads for o in select.outputs}
        self._outputs = [
            StepOutput("WHERE", select.where_reads, may_keep=False),
            *(StepOutput(o.name, o.reads, may_keep=True) for o in select.computed),
        ]
        self._tries = query_of([listed(part) for part in self._parts]) if self._parts else ""
        self._single_queries = [query_of([part]) for part in self._parts]

    def __call__(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        try:
            return self._transform(decoded, messages)
        except pa.ArrowInvalid:  # an Arrow string column holds at most 2 GiB
            raise self._too_large(decoded.rows) from None

    def _too_large(self, rows: pa.Table | pa.RecordBatch) -> SpecError:
        return SpecError(
            f"What {self._sql.setting} makes is too large for a batch of"
            f" {format_count(rows.num_rows, 'row')}",
            "validate",
            _FEWER,
        )

    def _transform(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        if not self._parts:
            all_rows = np.arange(decoded.rows.num_rows)
            return mark_unavailable(
                decoded.with_rows(self._output_batch(decoded, all_rows, {}), all_rows), self._reads
            )
        decoded = refuse_unanswerable(decoded, self._outputs, "sql", self._sql.setting)
        # even without rows, DuckDB fails if an expression always fails
        if not decoded.rows.num_rows:
            empty = pa.RecordBatch.from_pylist([], schema=self._schema)
            return decoded.with_rows(empty, np.zeros(0, np.intp))
        rows = self._rows(decoded, messages)
        try:
            computed_rows = self._run(self._query, rows)
        except duckdb.Error:
            failures = list(self._failures(rows))
            if failures:
                return self(decoded.refused(RULES, failures), messages)
            computed_rows = self._in_parts(rows)
        made_from = computed_rows.column(computed_rows.num_columns - 1).to_numpy()
        arrays = (column.combine_chunks() for column in computed_rows.columns)
        computed = dict(zip((o.name for o in self._select.computed), arrays, strict=False))
        beyond = [
            Refusal(made_from[far], f"sql:{name}", f"{_BEYOND} - in {name} of {self._sql.setting}")
            for name, array in computed.items()
            if len(far := rows_beyond(array))
        ]
        if beyond:
            return self(decoded.refused(RULES, beyond), messages)
        if self._lists:
            computed, made_from = self._unnest(computed, made_from)
        if self._sql.primary_key and self._select.where is not None:
            decoded, kept_mask = with_deletes(decoded, made_from, self._sql.primary_key)
            computed = {name: a.filter(pa.array(kept_mask)) for name, a in computed.items()}
            made_from = made_from[kept_mask]
        transformed = decoded.with_rows(self._output_batch(decoded, made_from, computed), made_from)
        return mark_unavailable(transformed, self._reads)

    def _unnest(
        self, computed: Mapping[str, pa.Array], made_from: npt.NDArray[np.int64]
    ) -> tuple[dict[str, pa.Array], npt.NDArray[np.int64]]:
        """Makes a row of each value of a list.

        If a row has several lists, nulls fill the shorter ones. DuckDB's own `unnest` isn't
        used: it computes no other column of a row whose list is empty. So that row would
        fail in one batch and not in another.

        Args:
            computed: the computed columns before `unnest`, by name.
            made_from: the number of the input row of each computed row.

        Returns:
            The columns with the new rows, and the number of each new row's input row.
        """
        lengths = [pc.list_value_length(computed[name]).fill_null(0) for name in self._lists]
        rows = np.max(lengths, axis=0)
        row_indices = np.repeat(np.arange(len(rows)), rows)
        number = np.arange(len(row_indices)) - (np.cumsum(rows) - rows)[row_indices]
        unnested_columns = {
            n: a.take(pa.array(row_indices)) for n, a in computed.items() if n not in self._lists
        }
        for name, values in zip(self._lists, map(np.asarray, lengths), strict=True):
            positions = (np.cumsum(values) - values)[row_indices] + number
            ended = number >= values[row_indices]
            unnested_columns[name] = computed[name].flatten().take(pa.array(positions, mask=ended))
        return unnested_columns, made_from[row_indices]

    def _rows(self, decoded: Decoded, messages: pa.RecordBatch) -> pa.Table:
        """Returns the table that DuckDB reads: the columns that are read, and row numbers."""
        columns = {name: decoded.rows[name] for name in self._read}
        columns |= beside_rows(self._metadata, decoded, messages)
        columns[ROW_NUMBER] = pa.array(np.arange(decoded.rows.num_rows))
        return pa.table(columns)

    def _run(self, query: str, rows: pa.Table) -> pa.Table:
        """Runs a query over `rows`, for at most `SECONDS`.

        Raises:
            SpecError: the query takes too long, or too much memory.
            BugError: DuckDB has an internal error.
            duckdb.Error: an expression fails for a row.
        """
        self._con.register(ROWS, rows)
        timer = threading.Timer(SECONDS, self._con.interrupt)
        timer.start()
        try:
            return self._con.sql(query).to_arrow_table().combine_chunks()
        except duckdb.InterruptException:
            raise SpecError(
                f"{self._sql.setting} took longer than {SECONDS} s for"
                f" {format_count(rows.num_rows, 'row')}",
                "validate",
                "Nothing was committed. Make the SELECT simpler; a spark step may take its time.",
            ) from None
        except (duckdb.FatalException, duckdb.InternalException) as error:
            raise broken(error) from error
        except duckdb.OutOfMemoryException:
            raise SpecError(
                f"{self._sql.setting} found no memory for what it makes of"
                f" {format_count(rows.num_rows, 'row')}",
                "validate",
                _FEWER,
            ) from None
        finally:
            timer.cancel()

    def _in_parts(self, rows: pa.Table) -> pa.Table:
        """Computes rows in halves, if the query fails but `_failures` finds no row to refuse.

        There are three causes:
        - Some functions of DuckDB don't read their second argument if the first is null in
          all rows that are computed together.
        - The result is too large for one batch of DuckDB.
        - The WHERE leaves out a row whose map has a key twice. DuckDB can't read such a map.

        Raises:
            SpecError: the result is too large for one row.
        """
        half, parts = rows.num_rows // 2, []
        for part in (rows.slice(0, half), rows.slice(half)):
            try:
                parts.append(self._run(self._query, part))
            except duckdb.Error:
                if half:
                    parts.append(self._in_parts(part))
                elif (
                    self._select.where is None
                    or self._run(self._single_queries[0], part)[0][0].as_py()
                ):
                    raise self._too_large(rows) from None
                else:
                    parts.append(self._run(self._query, part.slice(0, 0)))
        return pa.concat_tables(parts)

    def _failures(self, rows: pa.Table) -> Iterator[Refusal]:
        """Yields refusals of the rows for which an expression fails.

        A row that the WHERE leaves out is refused only if the WHERE itself fails. Of the
        rows that fail in one column, only the first is computed alone for DuckDB's error,
        because that takes a millisecond. The other rows get the same text.
        """
        if rows.num_rows == 1:
            yield from self._failure(range(len(self._parts)), rows, 0)
            return
        # DuckDB computes a chunk of rows at once; if one of them fails, TRY computes each row of
        # the chunk alone, so chunks are small
        few = pa.Table.from_batches(rows.to_batches(max_chunksize=32), rows.schema)
        try:
            tried = self._run(self._tries, few).columns
        except duckdb.Error:  # TRY doesn't catch every error: the rows are halved
            half = rows.num_rows // 2
            yield from self._failures(rows.slice(0, half))
            for failure in self._failures(rows.slice(half)):
                yield replace(failure, rows=failure.rows + half)
            return
        pending = np.ones(rows.num_rows, np.bool_)
        for part_index, values in enumerate(tried):
            failed = pending & np.asarray(values.is_null())
            first, others = np.split(np.flatnonzero(failed), [1])
            for number in first.tolist():
                for refusal in self._failure([part_index], rows, number):
                    yield refusal
                    detail = f"It fails, and another row of its batch by {refusal.detail}"
                    yield replace(refusal, rows=others, detail=detail)
            pending &= ~failed
            if self._parts[part_index] is self._select.where:
                true = pc.list_element(values.filter(pa.array(pending)), 0)
                pending[pending] = np.asarray(true)

    def _failure(self, parts: Iterable[int], rows: pa.Table, number: int) -> Iterator[Refusal]:
        """Computes parts of the SELECT for one row, and yields a refusal if one fails.

        It stops at the first part that fails, or if the WHERE leaves the row out.

        Args:
            parts: indices into `_parts`.
            rows: the rows of the batch.
            number: the row's number in `rows`.
        """
        for part_index in parts:
            try:
                computed = self._run(self._single_queries[part_index], rows.slice(number, 1))
            except duckdb.Error as error:
                yield self._refusal(part_index, np.array([number]), without_values(str(error)))
                return
            if self._parts[part_index] is self._select.where and computed[0][0].as_py() is not True:
                return

    def _refusal(self, part_index: int, rows: npt.NDArray[np.intp], detail: str) -> Refusal:
        name = self._names[part_index]
        return Refusal(rows, f"sql:{name}", f"{detail} - in {name} of {self._sql.setting}")

    def _output_batch(
        self,
        decoded: Decoded,
        made_from: npt.NDArray[np.int64],
        computed: Mapping[str, pa.Array],
    ) -> pa.RecordBatch:
        """Returns the rows of the result.

        Args:
            decoded: the rows before the step.
            made_from: the number of the input row of each row of the result.
            computed: the computed columns, by name.
        """
        same = np.array_equal(made_from, np.arange(decoded.rows.num_rows))
        rows = decoded.rows if same else decoded.rows.take(pa.array(made_from))
        arrays = [
            rows[o.source] if o.source is not None else computed[o.name].cast(f.type)
            for o, f in zip(self._select.outputs, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


_BEYOND = "It holds a date or time outside the years 1 to 9999"

_FEWER = (
    "Nothing was committed. Decode fewer messages at once (source.tuning.batch_messages), or make"
    " the SELECT simpler."
)


def without_values(sentence: str) -> str:
    """Returns the beginning of an error text of DuckDB, up to the first possible value of a row.

    A value follows a quote, a bracket, a colon or a line's end, or it is a number.
    """
    kind, _, rest = sentence.partition(": ")
    words = re.match(r"(?:[^:'\"()\[\]{}\d\n]|(?<=[A-Z])\d+)*", rest)
    assert words is not None  # the pattern matches an empty text, too
    return f"{kind}: {words[0].strip()}"[:200]


def _values(kind: DuckDBPyType) -> DuckDBPyType:
    """Returns the type of a list's values.

    Raises:
        UnsupportedTypeError: `kind` is no list.
    """
    if kind.id != "list":
        raise UnsupportedTypeError("unnest takes a list")
    element_type: Any = kind.children[0][1]
    return cast("DuckDBPyType", element_type)


def _table_type(kind: DuckDBPyType) -> pa.DataType:
    """Returns the Arrow type of a table's column for a type of DuckDB.

    Raises:
        UnsupportedTypeError: there is none; the text says what to write instead.
    """
    if kind.id in _SCALARS:
        return _SCALARS[kind.id]
    nested = kind.id in {"decimal", "list", "struct", "map"}
    children: dict[str, Any] = dict(kind.children) if nested else {}
    if kind.id == "decimal":
        return pa.decimal128(children["precision"], children["scale"])
    if kind.id == "list":
        return pa.list_(_table_type(children["child"]))
    if kind.id == "struct" and children:
        return pa.struct([pa.field(name, _table_type(child)) for name, child in children.items()])
    if kind.id == "map" and children["key"].id == "varchar":
        return pa.map_(pa.string(), _table_type(children["value"]))
    raise UnsupportedTypeError(_WAYS_OUT.get(kind.id, "no table has this type: CAST it AS VARCHAR"))


_SCALARS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": TIMESTAMP,
}
_UNSIGNED = "no table has unsigned integers: CAST it AS BIGINT, or wider"
_WAYS_OUT = {
    "timestamp": (
        "it has no zone: CAST a text AS TIMESTAMPTZ, which keeps to the offset in it, and write AT"
        " TIME ZONE 'UTC' behind anything else"
    ),
    "null": "it has no type: write CAST(NULL AS ...)",
    "hugeint": "CAST it AS DECIMAL(38, 0), or BIGINT",
    **dict.fromkeys(("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"), _UNSIGNED),
}
