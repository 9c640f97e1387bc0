"""A window's rows through a function of Spark's DataFrames.

They are read and decoded split by split, changed together, and staged split by split
again. Each row keeps the topic, partition and offset of a message that it comes from,
and by them its split. So everything behind the function is as without it: the stagers,
the counts of each split, the checksums, the commit. A message without a row behind the
function was filtered.

The function's rows are held to the rules of its schema, and go through the steps behind
it, each row as if it were a message of its own. A row that is refused, or that doesn't fit
the table, refuses the window: if a row is made of several messages, nobody can say which
one would be the dead letter.

In a table with a primary key the function sees rows alone. Deletes go around it and
count at their messages' offsets, and so does a row of the function's, by the message
that it names. So the staged changes are a fold's input as ever; only of two rows of one
key that name one message nobody can say which is the last, and they refuse the window.
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
from windrow.ingest.errors import BugError, RefusedError, SpecError, UnstorableRowsError, counted
from windrow.ingest.model.lookup import LookedUp, merged
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
    """Describes for an engine what to do with a window's rows.

    `later_transform`: what becomes of the function's rows; `task`: that of the window's splits,
    as it would be without the function.
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
    """Checks that the key columns of deletes have the types of the table's."""
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
    """Reads a split and gives its rows away; see `ports.engine.Reads`.

    `task`: as it would stage rows itself; `metadata`: the metadata columns, name ->
    column.
    """

    task: SplitTask
    metadata: Mapping[str, str]

    def __call__(self, split: Split, give: Take) -> Staged:
        return replace(self.task, rows=lambda _: _RowForwarder(give, self.metadata))(split)


class _RowForwarder:
    """A stager that gives rows away, with their metadata columns."""

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
        """Counts the rows; there is nothing to commit."""
        return Staging(self._rows)

    def discard(self) -> None:
        """Does nothing; see `ports.sink.Stager.discard`."""


@dataclass(frozen=True)
class StageTask:
    """Stages the rows of a split that the function gave; see `ports.engine.Stages`.

    `rows`: makes the stager; `later_transform`: what becomes of the rows; `row_schema`: their
    columns without the metadata columns; `primary_key`: of a table that has one, then changes
    come instead of rows.
    """

    rows: StagerFactory
    later_transform: Transform
    row_schema: pa.Schema
    metadata: Mapping[str, str]
    primary_key: tuple[str, ...] = ()

    def __call__(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Stages a split's rows, in the order of its log.

        Raises:
            RefusedError: a row is refused, more messages have rows than had before, or two
                rows of one key name one message.
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
                f" {refused.what}",
                "stage",
                "No row was committed. Have the function change such values, or a step behind it,"
                " or leave out their rows; then run the window again.",
                refused.topic,
                refused.partition,
                refused.offset,
            ) from None

    def _to_decoded(self, batch: pa.RecordBatch) -> Decoded:
        """Returns rows and deletes as a decoder would, each of a message of its own."""
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
    """The keys of the rows of one message.

    The order of these rows is lost on the way through a DataFrame.
    """

    def __init__(self, primary_key: tuple[str, ...], split: Split) -> None:
        self._primary_key, self._split = primary_key, split
        self._offset, self._seen_keys = split.start - 1, set[tuple[object, ...]]()

    def refuse_doubled(self, given_rows: Decoded, messages: pa.RecordBatch) -> None:
        """Checks the keys of the next rows of the split.

        It looks only at the rows of messages that have several, and at the last row.
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
                    " message: nobody can say which is the last",
                    "check",
                    "No row was committed. Have it give one row of each sink.primary_key for a"
                    " message, then run the window again.",
                    self._split.topic,
                    self._split.partition,
                    offset,
                )
            self._seen_keys.add(key)


def _refuse_nulls(given_rows: Decoded, messages: pa.RecordBatch, split: Split) -> None:
    """Checks the columns that are never null by the schema.

    A DataFrame's own word on that means nothing behind an outer join.
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
        "No row was committed, since nobody can say which message would be the dead letter. Fix"
        " the function, the step or the schema; then run the window again.",
        split.topic,
        split.partition,
        messages["offset"][transformed_rows.dead_index[0].as_py()].as_py(),
    )


class _Messages:
    """Counts the messages of rows, whose offsets ascend; `last`: the offset of the last row."""

    def __init__(self, last_offset: int) -> None:
        self.last, self.count = last_offset, 0

    def add(self, messages: pa.RecordBatch) -> bool:
        """Counts those of the next rows; returns whether they are in order."""
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
        """Counts what the function gave, and the deletes that went around it."""
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
        """Counts what goes to the table; `messages`: of each row and each delete."""
        self._staged.add(messages)
        self._rows += transformed_rows.rows.num_rows
        self._deletes += _count(transformed_rows.deletes)
        self._lookups = merged([*self._lookups, *transformed_rows.lookups])

    def finish(self, staging: Staging) -> Staged:
        """Returns the read split's result with the counts of its staged rows."""
        read, counts = self._read, self._read.counts
        if self._went_around != counts.deletes:
            raise BugError(
                f"{counted(self._went_around, 'delete')} came to be staged, of"
                f" {counts.deletes} read",
                "check",
                "Nothing was committed. Report it, with Spark's version.",
                *self._position,
            )
        if self._given_messages.count > counts.valid:
            raise self._count_error(
                f"{counted(self._given_messages.count, 'message')} with rows after it, and"
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
            lookups=merged([*counts.lookups, *self._lookups]),
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
