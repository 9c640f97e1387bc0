"""A user's function over batches of rows, as a transform."""

from __future__ import annotations

import inspect
import traceback
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from polars.testing import assert_series_equal

from windrow.ingest.errors import RefusedError, SpecError, foreign_exceptions, format_count
from windrow.ingest.ports.decoder import RULES, Decoded, Refusal
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import map_type
from windrow.ingest.schema.messages import for_rows
from windrow.ingest.schema.user_code import (
    FunctionReference,
    ModelReference,
    load_function,
    load_model,
)
from windrow.ingest.transform.rules import as_list, frame_of
from windrow.ingest.transform.step_rows import beside_rows, with_deletes
from windrow.ingest.waiting import waiting_for

ROW = "_row"
"""Name of the column with each row's number in its batch.

A function must keep the column if it leaves out, adds or moves rows.
"""


@dataclass(frozen=True)
class Python:
    """A function over batches of rows.

    The result for a row must not depend on other rows, because batches are cut anywhere.

    Attributes:
        function: the user's function.
        model: the columns and types of the rows that it gives.
        setting: the step's place in the spec, for messages.
        metadata: metadata columns that may be read, as pairs of metadata and column name.
        primary_key: the table's primary key; empty if rows are appended.
        versioned: whether the newest version of a key counts.
        on_error: with "dead", rows at which the function raises become dead letters.
    """

    function: FunctionReference
    model: ModelReference
    setting: str = "python"
    metadata: tuple[tuple[str, str], ...] = ()
    primary_key: tuple[str, ...] = ()
    versioned: bool = False
    on_error: Literal["fail", "dead"] = "fail"

    def columns(self, input_columns: Columns) -> Columns:
        """Returns the model's columns, all of them nullable.

        The next transform checks the model's rules, nulls included.

        Raises:
            SpecError: function or model can't be loaded or used, or the model has another
                primary key than the rows.
        """
        _batch_of(self.function)
        if ROW in {c.name for c in input_columns.columns} | {column for _, column in self.metadata}:
            raise SpecError(
                f"{self.setting} can't be used: the rows have a column {ROW}, and so has the step"
                " itself",
                "spec",
                "Give the rows' column another name. Nothing was read.",
            )
        model_columns = Columns.of(load_model(self.model))
        input_types, model_types = (
            {c.name: c.type for c in schema_columns.columns}
            for schema_columns in (input_columns, model_columns)
        )
        changed_keys = [
            n
            for n in self.primary_key
            if n not in model_types or model_types[n] != input_types.get(n)
        ]
        if changed_keys:
            message = (
                f"The schema of {self.setting} has {', '.join(changed_keys)} of sink.primary_key"
            )
            message += " otherwise than the rows before it"
            raise SpecError(
                message,
                "spec",
                "Messages delete and replace rows by it: a step passes it on. Nothing was read.",
            )
        return _nullable(model_columns)

    def column_sources(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:  # noqa: ARG002
        """Returns the same name for each column of the model: a function can't be analysed."""
        return {c.name: frozenset({c.name}) for c in Columns.of(load_model(self.model)).columns}

    def open(self) -> Apply:
        """Returns the function for the calling thread."""
        return _Step(self)


class _Step:
    """The function in a worker."""

    def __init__(self, step: Python) -> None:
        self._step = step
        self._batch, self._function = _batch_of(step.function), load_function(step.function)
        self._schema = _nullable(Columns.of(load_model(step.model))).arrow_schema
        self._order_checked = False

    def __call__(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        if not decoded.rows.num_rows:
            empty = pa.RecordBatch.from_pylist([], schema=self._schema)
            return decoded.with_rows(empty, np.zeros(0, np.intp))
        rows = self._rows(decoded, messages)
        try:
            output = self._call(rows)
        except SpecError:
            raise
        except foreign_exceptions() as error:  # the user's own code
            failures = self._failures(rows) if self._step.on_error == "dead" else []
            if not failures:
                raise self._batch_error(error, decoded, messages) from None
            return self(decoded.refused(RULES, failures), messages)
        output_rows, made_from = self._check_output(output, decoded.rows.num_rows)
        if ROW not in output.column_names and not self._order_checked and rows.num_rows > 1:
            self._refuse_moved_rows(rows, output_rows)
        if self._step.primary_key:
            decoded, stays = self._add_deletes(decoded, output_rows, made_from)
            output_rows, made_from = output_rows.filter(pa.array(stays)), made_from[stays]
        return decoded.with_rows(output_rows, made_from)

    def _rows(self, decoded: Decoded, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows with the metadata columns and the column `ROW`."""
        column_by_name = dict(zip(decoded.rows.schema.names, decoded.rows.columns, strict=True))
        names = {kind: name for kind, name in self._step.metadata if name not in column_by_name}
        columns = column_by_name | beside_rows(names, decoded, messages)
        columns[ROW] = pa.array(np.arange(decoded.rows.num_rows))
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def _call(self, rows: pa.RecordBatch) -> pa.Table:
        """Calls the function, and returns its rows as an Arrow table.

        Raises:
            SpecError: the function gives another type.
        """
        batch = frame_of(rows) if self._batch is pl.DataFrame else rows
        with waiting_for(
            f"{self._step.function} of {self._step.setting}: {format_count(rows.num_rows, 'row')}"
        ):
            output = self._function(batch)
        if isinstance(output, pl.DataFrame):
            return output.to_arrow(compat_level=pl.CompatLevel.oldest())
        if isinstance(output, pa.RecordBatch):
            return pa.Table.from_batches([output])
        raise SpecError(
            f"{self._step.function} of {self._step.setting} gave {type(output).__name__}",
            "validate",
            "Let it give a polars.DataFrame or a pyarrow.RecordBatch. Nothing was committed.",
        )

    def _check_output(
        self, output: pa.Table, count: int
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Returns the columns of the schema, and the number of each row's input row.

        Args:
            output: the function's rows.
            count: the number of rows that the function was given.

        Raises:
            SpecError: columns, types or row numbers can't be used.
        """
        names = output.column_names
        problems = [name for name in self._schema.names if names.count(name) != 1]
        if problems:
            raise self._refusal(f"it gives no column {', '.join(problems)}, or several")
        # polars gives large strings and large lists, and has no maps
        arrays = [self._to_stored(output[f.name].combine_chunks(), f) for f in self._schema]
        problems = [
            f"{field.name} is {array.type}, by its schema {field.type}"
            for field, array in zip(self._schema, arrays, strict=True)
            if array.type != field.type
        ]
        if problems:
            raise self._refusal("; ".join(problems))
        output_rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if ROW in names:
            made_from = output[ROW].to_numpy()
            if made_from.dtype.kind in "iu":  # np.diff of unsigned numbers is never below 0
                made_from = made_from.astype(np.int64)
        elif output_rows.num_rows == count:
            made_from = np.arange(count)
        else:
            raise self._refusal(
                f"it gives {format_count(output_rows.num_rows, 'row')} for {count}, without {ROW}"
            )
        ascending = made_from.dtype == np.int64 and not (np.diff(made_from) < 0).any()
        if not ascending or (len(made_from) and not 0 <= made_from[0] <= made_from[-1] < count):
            raise self._refusal(f"{ROW} has other numbers than it was given, or another order")
        return output_rows, made_from

    def _to_stored(self, array: pa.Array, field: pa.Field) -> pa.Array:
        """Returns a column with a type that tables have.

        A list of keys and values becomes a map if `field` is a map.
        """
        expected_type = as_list(field.type) if pa.types.is_map(field.type) else field.type
        stored = array.cast(_table_type(array.type, expected_type))
        if not pa.types.is_map(field.type) or map_type(stored.type) != field.type:
            return stored
        try:
            return stored.view(field.type)
        except pa.ArrowInvalid:
            raise self._refusal(f"{field.name} has a null as an entry or a key") from None

    def _refuse_moved_rows(self, rows: pa.RecordBatch, output_rows: pa.RecordBatch) -> None:
        """Refuses a function that moves rows without `ROW`, or whose result reads other rows.

        The function is called again, with the same rows in another order. The result for a
        row must move with the row. If it doesn't, the column is suspect.

        A column that differs in each call, such as random values, is not suspect, unless
        only the order of its values differs. Random values may agree by chance in one call,
        if there are few rows or few values. So a column must stay suspect in ten rounds.

        Raises:
            SpecError: a column is suspect.
        """
        few = {2: [1, 0], 3: [1, 0, 2]}  # with so few rows, other orders don't show every move
        drawn = np.random.default_rng(0).permutation(rows.num_rows)
        order = pa.array(few.get(rows.num_rows, drawn))
        moved = rows.take(order).set_column(rows.num_columns - 1, ROW, rows[ROW])
        output_frame, expected = frame_of(output_rows), frame_of(output_rows.take(order))
        first: tuple[pl.DataFrame, ...] = ()
        suspects = output_frame.columns
        for _ in range(10):
            try:
                moved_output, repeated_output = (
                    frame_of(self._check_output(self._call(batch), rows.num_rows)[0])
                    for batch in (moved, rows)
                )
            except foreign_exceptions():  # it didn't raise before: the next batch is checked
                return
            first = first or (moved_output, repeated_output)
            suspects = [
                name
                for name in suspects
                if not (
                    _nearly_equal(first[0][name], expected[name])
                    and _nearly_equal(first[1][name], output_frame[name])
                )
                and (
                    (
                        _nearly_equal(output_frame[name], repeated_output[name])
                        and _nearly_equal(first[0][name], moved_output[name])
                    )
                    or (
                        _same_values(output_frame, repeated_output, name)
                        and _same_values(output_frame, moved_output, name)
                    )
                )
            ]
            if not suspects:
                break
        if suspects:
            raise self._refusal(
                f"it gives other values of {', '.join(suspects)} if the rows come in another order:"
                f" let it keep {ROW} with each row that it moves, and not look at other rows"
            )
        self._order_checked = rows.num_rows > 2  # two rows have only one other order

    def _add_deletes(
        self, decoded: Decoded, output_rows: pa.RecordBatch, made_from: npt.NDArray[np.int64]
    ) -> tuple[Decoded, npt.NDArray[np.bool_]]:
        key, row_numbers = list(self._step.primary_key), pa.array(made_from)
        input_keys = decoded.rows.select(key).take(row_numbers)
        if output_rows.select(key).columns != input_keys.columns:
            raise self._refusal("it changes sink.primary_key, by which rows are replaced")
        if (np.diff(made_from) == 0).any():
            raise self._refusal("it makes several rows of one, which have one key")
        if len(made_from) < decoded.rows.num_rows and self._step.versioned:
            raise self._refusal("it leaves rows out, and with sink.version nothing is deleted")
        return with_deletes(decoded, made_from, self._step.primary_key)

    def _failures(self, rows: pa.RecordBatch) -> list[Refusal]:
        """Calls the function for each row alone, and returns refusals of the rows that fail."""
        refusals = []
        for number in range(rows.num_rows):
            try:
                self._call(rows.slice(number, 1))
            except SpecError:  # the function gives no rows, which no other batch would change
                raise
            except foreign_exceptions() as error:  # the user's own code
                detail = f"{self._step.function} raised {type(error).__name__}{_line(error)}"
                reason = f"python:{type(error).__name__}"
                refusals.append(
                    Refusal(np.array([number]), reason, f"{detail} - in {self._step.setting}")
                )
        return refusals

    def _batch_error(
        self, error: BaseException, decoded: Decoded, messages: pa.RecordBatch
    ) -> RefusedError:
        """Returns the error for a batch. It omits the exception's text, which may hold values."""
        read = for_rows(messages, decoded.row_index)
        first, last = (read["offset"][index].as_py() for index in (0, read.num_rows - 1))
        message = (
            f"{self._step.function} of {self._step.setting} raised {type(error).__name__}"
            f"{_line(error)} for a batch of the offsets {first} to {last}"
        )
        advice = (
            "Nothing was committed. Fix the function; on_error: dead makes dead letters of the"
            " messages at which it fails."
        )
        topic, partition = read["topic"][0].as_py(), read["partition"][0].as_py()
        return RefusedError(message, "validate", advice, topic, partition, first)

    def _refusal(self, problem: str) -> SpecError:
        return SpecError(
            f"{self._step.function} of {self._step.setting} can't be used: {problem}",
            "validate",
            "Fix the function or the schema. Nothing was committed.",
        )


def _batch_of(function: FunctionReference) -> type[pl.DataFrame | pa.RecordBatch]:
    """Returns the type of batch that a function takes, by its first parameter's annotation.

    Raises:
        SpecError: the annotation is neither polars.DataFrame nor pyarrow.RecordBatch.
    """
    called, hint, reason = load_function(function), None, ""
    try:
        parameter = next(iter(inspect.signature(called).parameters), "")
        hint = typing.get_type_hints(called).get(parameter)
    except Exception as error:  # an undefined name, or a callable without signature  # noqa: BLE001
        reason = f" ({type(error).__name__}: {error})"
    if hint not in {pl.DataFrame, pa.RecordBatch}:
        raise SpecError(
            f"{function} doesn't say which batch it takes{reason}",
            "spec",
            "Annotate its parameter with polars.DataFrame or pyarrow.RecordBatch.",
        )
    batch_type: type[pl.DataFrame | pa.RecordBatch] = hint
    return batch_type


def _nullable(columns: Columns) -> Columns:
    return replace(columns, columns=tuple(replace(c, nullable=True) for c in columns.columns))


def _table_type(kind: pa.DataType, expected: pa.DataType) -> pa.DataType:
    """Returns the type of a table's column for a type that a function gave.

    A column that has only nulls in a batch gets the expected type.
    """
    types = pa.types
    if types.is_null(kind):
        return expected
    if types.is_large_list(kind) or types.is_list(kind):
        inner = expected.value_type if types.is_list(expected) else kind.value_type
        return pa.list_(_table_type(kind.value_type, inner))
    if types.is_struct(kind):
        fields = {f.name: f.type for f in expected} if types.is_struct(expected) else {}
        return pa.struct(
            [pa.field(f.name, _table_type(f.type, fields.get(f.name, f.type))) for f in kind]
        )
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _same_values(first_frame: pl.DataFrame, second_frame: pl.DataFrame, name: str) -> bool:
    """Returns whether a column has the same values in two frames, in any order."""
    first, second = (frame.select(name).hash_rows().sort() for frame in (first_frame, second_frame))
    return first.equals(second)


def _nearly_equal(first: pl.Series, second: pl.Series) -> bool:
    """Returns whether values are the same, except for rounding in products of matrices."""
    try:
        assert_series_equal(first, second, rel_tol=1e-4, abs_tol=1e-6)
    except AssertionError:
        return False
    return True


def _line(error: BaseException) -> str:
    """Returns text with file and line of the user's code, without the exception's text."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    return f" at {frames[0].filename}:{frames[0].lineno}" if frames else ""
