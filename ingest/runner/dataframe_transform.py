"""A window's rows through a user's function of Spark DataFrames.

Rows are read and decoded split by split, changed together by the function, and staged split
by split. Each row keeps topic, partition and offset of a message that it comes from. They
give the row's split. So stagers, counts, checksums and the commit work as without a function.
A message without a row after the function counts as filtered.

The function's rows must keep the rules of its schema, and go through the later steps. There
each row counts as a message. If a row is refused, or doesn't fit the table, the window is
refused. There can be no dead letter, because a row may be made of several messages.

In a table with a primary key the function gets rows only. Deletes bypass it. Changes are
ordered by offset: a delete has the offset of its message, and a row has the offset of the
message that it names. Two rows with the same key and the same message have no order, so the
window is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import (
    BugError,
    RefusedError,
    SpecError,
    UnstorableRowsError,
    format_count,
)
from windrow.ingest.model.lookup import LookedUp, merge_parts
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, Staged, Staging
from windrow.ingest.ports.decoder import Decoded, Deletes
from windrow.ingest.ports.engine import DataFrameWork
from windrow.ingest.ports.reader import Take
from windrow.ingest.ports.sink import Stager, StagerFactory
from windrow.ingest.ports.transform import Transform
from windrow.ingest.runner.context import DataFrameTransform, Pipeline
from windrow.ingest.runner.task import SplitTask, rows_with_messages
from windrow.ingest.schema.metadata_arrays import columns, messages_of, of_message
from windrow.ingest.schema.metadata_types import metadata_fields
from windrow.ingest.schema.row_changes import DELETED


def dataframe_work(
    pipeline: Pipeline, function: DataFrameTransform, later_transform: Transform, task: SplitTask
) -> DataFrameWork:
    """Describes for an engine the work on a window's rows.

    Args:
        pipeline: the pipeline.
        function: the user's function.
        later_transform: the transform of the function's rows.
        task: the task of the window's splits, as it would be without the function.
    """
    metadata, key = of_message(pipeline.spec.metadata), pipeline.spec.sink.key
    given_columns = pipeline.transform().columns(pipeline.decoder().columns)
    input_schema, output_schema = (
        c.arrow_schema for c in (given_columns, function.columns(given_columns))
    )
    deleted = [pa.field(DELETED, pa.bool_())] if task.keyed else []
    stage = StageTask(
        task.rows,
        later_transform,
        output_schema,
        metadata,
        key.columns if task.keyed and key is not None else (),
    )
    position = (metadata["topic"], metadata["partition"], metadata["offset"])
    given_schema, expected_schema = (
        pa.schema([*input_schema, *deleted, *metadata_fields(metadata)]),
        pa.schema([*output_schema, *metadata_fields(metadata)]),
    )
    return DataFrameWork(
        ReadTask(task, metadata),
        given_schema,
        function.function,
        expected_schema,
        position,
        stage,
        task.keyed,
    )


def refuse_other_key(
    key: tuple[str, ...], input_schema: pa.Schema, output_schema: pa.Schema
) -> None:
    """Checks that the key columns have the same types before and after the function.

    Deletes have the types before the function.

    Args:
        key: the primary key.
        input_schema: the columns that the function is given.
        output_schema: the columns that it gives.

    Raises:
        SpecError: a key column is missing before the function, or has another type.
    """
    for name in key:
        input_type = input_schema.field(name).type if name in input_schema.names else None
        if input_type != output_schema.field(name).type:
            type_text = "doesn't have it" if input_type is None else f"has {input_type}"
            raise SpecError(
                f"The column {name} of sink.primary_key is {output_schema.field(name).type} by"
                f" transform.schema, and the schema of decode {type_text}",
                "spec",
                "Messages delete by that key: give it one type in both. With sink.version nothing"
                " is deleted. Nothing was read.",
            )


@dataclass(frozen=True)
class ReadTask:
    """A task that reads a split and hands its rows to the engine; see `ports.engine.Reads`.

    Attributes:
        task: the task as it would be without the function; its stager of rows is replaced.
        metadata: the metadata columns to add, metadata name -> column.
    """

    task: SplitTask
    metadata: Mapping[str, str]

    def __call__(self, split: Split, give: Take) -> Staged:
        return replace(self.task, rows=lambda _: _RowForwarder(give, self.metadata))(split)


class _RowForwarder:
    """A stager that hands rows to the engine, with their metadata columns."""

    def __init__(self, give: Take, metadata: Mapping[str, str]) -> None:
        self._give, self._metadata, self._rows = give, metadata, 0

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        metadata = columns(self._metadata, messages, "")
        self._give(
            pa.RecordBatch.from_arrays(
                [*rows.columns, *metadata], [*rows.schema.names, *self._metadata.values()]
            )
        )
        self._rows += rows.num_rows

    def finish(self) -> Staging:
        """Returns the number of rows, and nothing to commit."""
        return Staging(self._rows)

    def discard(self) -> None:
        """Does nothing; see `ports.sink.Stager.discard`."""


@dataclass(frozen=True)
class StageTask:
    """A task that stages the function's rows of a split; see `ports.engine.Stages`.

    Attributes:
        rows: makes the stager.
        later_transform: the transform of the rows.
        row_schema: the columns of the rows, without the metadata columns.
        metadata: the metadata columns, metadata name -> column.
        primary_key: the table's primary key. If it isn't empty, changes come instead of rows.
    """

    rows: StagerFactory
    later_transform: Transform
    row_schema: pa.Schema
    metadata: Mapping[str, str]
    primary_key: tuple[str, ...] = ()

    def __call__(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stages a split's rows, in the order of its log.

        Args:
            read: the result of reading the split.
            rows: the function's rows, by offset.

        Raises:
            RefusedError: a row is refused; more messages have rows than before the function;
                or two rows of the same key name the same message.
        """
        stager: Stager | None = None
        counter, split = _RowCounter(read), read.split
        keys, transform = _MessageKeys(self.primary_key, split), self.later_transform.open()
        try:
            for batch in rows:
                stager = stager or self.rows(split)
                messages = messages_of(
                    {name: batch[column] for name, column in self.metadata.items()}
                )
                given_rows = self._to_decoded(batch)
                counter.count_given(given_rows, messages)
                _refuse_nulls(given_rows, messages, split)
                if self.primary_key:
                    keys.refuse_doubled(given_rows, messages)
                transformed_rows = transform(given_rows, messages)
                _refuse_refused(transformed_rows, messages, split)
                self._stage(stager, transformed_rows, messages, counter)
                crash_point("transform.middle")
            staging = Staging() if stager is None else stager.finish()
            return counter.finish(staging)
        except BaseException:
            if stager is not None:
                stager.discard()
            raise

    def _stage(
        self,
        stager: Stager,
        transformed_rows: Decoded,
        messages: pa.RecordBatch,
        counter: _RowCounter,
    ) -> None:
        staged, of_rows = rows_with_messages(
            messages, transformed_rows, keyed=bool(self.primary_key)
        )
        counter.count_staged(transformed_rows, of_rows)
        if not staged.num_rows:
            return
        try:
            stager.add(staged, of_rows)
        except UnstorableRowsError as refused:
            raise RefusedError(
                "A row that the function of the spark step gave doesn't fit the table:"
                f" {refused.message}",
                "stage",
                "No row was committed. Have the function change such values, or a step behind it,"
                " or leave out their rows; then run the window again.",
                refused.topic,
                refused.partition,
                refused.offset,
            ) from None

    def _to_decoded(self, batch: pa.RecordBatch) -> Decoded:
        """Returns rows and deletes as a decoder's result, in which each is its own message."""
        schema, none = self.row_schema, pa.array([], pa.string())
        rows = pa.RecordBatch.from_arrays([batch[f.name] for f in schema], schema=schema)
        index, deletes = pa.array(np.arange(batch.num_rows)), None
        if self.primary_key:
            deleted = batch[DELETED]
            keys = rows.select(list(self.primary_key)).filter(deleted)
            deletes = Deletes(keys, index.filter(deleted))
            rows, index = (part.filter(pc.invert(deleted)) for part in (rows, index))
        return Decoded(rows, index, pa.array([], pa.int64()), none, none, none, deletes=deletes)


class _MessageKeys:
    """The keys of the rows of the current message.

    The order of a message's rows is lost in a DataFrame, so two of them must not have one key.
    """

    def __init__(self, primary_key: tuple[str, ...], split: Split) -> None:
        self._primary_key, self._split = primary_key, split
        self._offset, self._seen_keys = split.start - 1, set[tuple[object, ...]]()

    def refuse_doubled(self, given_rows: Decoded, messages: pa.RecordBatch) -> None:
        """Refuses two rows of the same message and key among the next rows of the split.

        Only rows of messages with several rows, and the last row, are converted to Python.
        """
        rows, offsets = given_rows.rows, messages["offset"].take(given_rows.row_index).to_numpy()
        if not len(offsets):
            return
        repeated_indices = np.flatnonzero(np.diff(offsets, prepend=self._offset) == 0)
        shared = np.unique(
            np.concatenate([repeated_indices, repeated_indices - 1, [len(offsets) - 1]])
        )
        row_indices = shared[shared >= 0]
        keys = [rows[name].take(pa.array(row_indices)).to_pylist() for name in self._primary_key]
        for offset, key in zip(offsets[row_indices].tolist(), zip(*keys, strict=True), strict=True):
            if offset != self._offset:
                self._offset, self._seen_keys = offset, set()
            if key in self._seen_keys:
                raise RefusedError(
                    "The function of the spark step gave two rows of one key that name one"
                    " message: such rows have no order, so none is the last",
                    "check",
                    "No row was committed. Have it give one row of each sink.primary_key for a"
                    " message, then run the window again.",
                    self._split.topic,
                    self._split.partition,
                    offset,
                )
            self._seen_keys.add(key)


def _refuse_nulls(given_rows: Decoded, messages: pa.RecordBatch, split: Split) -> None:
    """Refuses null in columns that aren't nullable in the schema.

    A DataFrame's own `nullable` is no proof: it may be wrong after an outer join.
    """
    for column, field in zip(given_rows.rows.columns, given_rows.rows.schema, strict=True):
        if column.null_count and not field.nullable:
            row = given_rows.row_index[int(np.flatnonzero(column.is_null())[0])].as_py()
            raise RefusedError(
                f"A row that the function of the spark step gave has null in {field.name}, which"
                " is never null by its schema",
                "validate",
                "No row was committed. Fix the function, or make the column nullable; then run the"
                " window again.",
                split.topic,
                split.partition,
                messages["offset"][row].as_py(),
            )


def _refuse_refused(transformed_rows: Decoded, messages: pa.RecordBatch, split: Split) -> None:
    if not len(transformed_rows.dead_index):
        return
    reason = f"{transformed_rows.dead_reason[0].as_py()}: {transformed_rows.dead_detail[0].as_py()}"
    others = (
        f"; {len(transformed_rows.dead_index) - 1} more near it"
        if len(transformed_rows.dead_index) > 1
        else ""
    )
    raise RefusedError(
        f"A row that the function of the spark step gave is refused: {reason}{others}",
        "validate",
        "No row was committed, since no single message could be the dead letter. Fix"
        " the function, the step or the schema; then run the window again.",
        split.topic,
        split.partition,
        messages["offset"][transformed_rows.dead_index[0].as_py()].as_py(),
    )


class _Messages:
    """A count of the distinct messages of rows, whose offsets must ascend.

    Attributes:
        last: the offset of the last row.
        count: the number of messages.
    """

    def __init__(self, last_offset: int) -> None:
        self.last, self.count = last_offset, 0

    def add(self, messages: pa.RecordBatch) -> bool:
        """Counts the messages of the next rows; returns whether the rows are in order."""
        offsets = messages["offset"].to_numpy()
        ahead = np.diff(offsets, prepend=self.last)
        self.count += int(np.count_nonzero(ahead))
        self.last = int(offsets[-1]) if len(offsets) else self.last
        return bool((ahead >= 0).all())


class _RowCounter:
    """The task's own count of a split's rows, and of their messages."""

    def __init__(self, read: Staged) -> None:
        self._read = read
        self._given_messages, self._staged = (
            _Messages(read.split.start - 1),
            _Messages(read.split.start - 1),
        )
        self._rows, self._deletes, self._went_around = 0, 0, 0
        self._lookups: tuple[LookedUp, ...] = ()

    def count_given(self, given_rows: Decoded, messages: pa.RecordBatch) -> None:
        """Counts the messages of the function's rows, and the deletes that bypassed it.

        Raises:
            RefusedError: rows are not in the order of the log, or belong to another split.
        """
        in_order = self._given_messages.add(messages)
        if (
            not in_order
            or messages["offset"][0].as_py() < self._read.split.start
            or self._given_messages.last >= self._read.split.stop
        ):
            raise self._count_error(
                "rows came that are not in the order of the split's log, or not of the split"
            )
        self._went_around += _count(given_rows.deletes)

    def count_staged(self, transformed_rows: Decoded, messages: pa.RecordBatch) -> None:
        """Counts the rows and deletes that go to the table.

        Args:
            transformed_rows: the rows and deletes.
            messages: the message of each row and each delete.
        """
        self._staged.add(messages)
        self._rows += transformed_rows.rows.num_rows
        self._deletes += _count(transformed_rows.deletes)
        self._lookups = merge_parts([*self._lookups, *transformed_rows.lookups])

    def finish(self, staging: Staging) -> Staged:
        """Returns the result of reading the split, with the counts of its staged rows.

        Args:
            staging: the stager's result.

        Raises:
            RefusedError: more messages have rows than before the function.
            BugError: Spark lost or doubled deletes.
        """
        read, counts = self._read, self._read.counts
        if self._went_around != counts.deletes:
            raise BugError(
                f"{format_count(self._went_around, 'delete')} came to be staged, of"
                f" {counts.deletes} read",
                "check",
                "Nothing was committed. Report it, with Spark's version.",
                *self._position,
            )
        if self._given_messages.count > counts.valid:
            raise self._count_error(
                f"{format_count(self._given_messages.count, 'message')} with rows after it, and"
                f" {counts.valid} before"
            )
        changed = msgspec.structs.replace(
            counts,
            valid=self._staged.count,
            filtered=counts.filtered + counts.valid - self._staged.count,
            rows=self._rows,
            deletes=self._deletes,
            rows_staged=staging.rows,
            checksums=Checksums(staging.checksum, counts.checksums.dead),
            lookups=merge_parts([*counts.lookups, *self._lookups]),
        )
        ran = None if read.ran is None else (read.ran[0], time.time())
        return msgspec.structs.replace(read, counts=changed, rows=staging.committables, ran=ran)

    def _count_error(self, problem: str) -> RefusedError:
        return RefusedError(
            "The rows that the function of the spark step gave don't fit the split's messages:"
            f" {problem}",
            "check",
            "Nothing was committed. A row keeps the metadata columns of the message that it comes"
            " from: fix the function.",
            *self._position,
        )

    @property
    def _position(self) -> tuple[str, int, int]:
        return self._read.split.topic, self._read.split.partition, self._read.split.start


def _count(deletes: Deletes | None) -> int:
    return 0 if deletes is None else deletes.keys.num_rows
