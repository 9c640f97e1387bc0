"""A window's rows as one DataFrame, through a user's function, and back into splits.

read       each split's rows are read once and kept (`ingest.runner.spark.checkpoint`)
function   is called on the driver, which sees columns and no rows; the columns of its
           result must be those of the table
position   topic, partition and offset of each row say its split; the rows of a split are
           brought together, in the order of its log
stage      one Spark task for some splits; only the attempts whose results Spark returns are
           committed
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from windrow.ingest.errors import (
    BugError,
    RefusedError,
    SpecError,
    UnreachableError,
    WindrowError,
    mistakes,
)
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.engine import DataFrameWork, Stages
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.spark.checkpoint import (
    columns_made_for,
    counted_rows,
    refuse_lost_rows,
    row_loss_as_error,
    rows_kept,
    session_of_its_own,
    spark_columns,
    split_results,
)
from windrow.ingest.runner.spark.cluster import sent
from windrow.ingest.runner.spark.jobs import (
    DO_AGAIN,
    RESULT,
    collected,
    dumped,
    error_name,
    is_gone,
)
from windrow.ingest.runner.spark.pyspark_internals import MISSING_MODULE, RAISED_ON_WORKER
from windrow.ingest.runner.spark.worker import working
from windrow.ingest.schema.row_changes import DELETED
from windrow.ingest.schema.user_code import FunctionReference, load_function

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NOWHERE = -1
"""The index of rows that name none of the window's messages."""

_ADVICE = "No row was committed. Fix the function, then run the window again."


def transform_rows(
    spark: SparkSession,
    work: DataFrameWork,
    splits: Sequence[Split],
    tasks: int,
) -> list[Staged]:
    """Reads, changes and stages the rows; see `ports.engine.DataFrameEngine.transform`.

    `tasks`: the most tasks that stage.
    """
    expected_schema = spark_columns(work.wanted)
    with (
        session_of_its_own(spark) as session,
        rows_kept(session, work, splits, tasks) as read,
    ):
        brought, tries = split_results(read, len(splits))
        with row_loss_as_error(), columns_made_for(session):
            counted = counted_rows(read, tries)
            result = _call_function(work.function, _rows(counted, work))
            _refuse_other_columns(work.function, result, expected_schema)
            rows = _struct(result, work)
            placed = _join_splits(
                session, _with_deletes(rows, counted, work) if work.keyed else rows, work, splits
            )
            in_order = _in_order(placed, work, min(tasks, len(splits)))
        staged = _stage_rows(session, in_order, work, brought)
    return [
        staged[index] if index in staged else work.stage(split_read, ())
        for index, split_read in enumerate(brought)
    ]


# --------------------------------------------------------------------------------------------------


def _rows(counted: DataFrame, work: DataFrameWork) -> DataFrame:
    """Returns the rows that the function sees."""
    return counted.where(f"not {DELETED}").drop(DELETED) if work.keyed else counted


def _call_function(reference: FunctionReference, rows: DataFrame) -> DataFrame:
    """Calls the function, and returns its DataFrame.

    Raises:
        SpecError: the function can't be loaded, it fails, or it gives no DataFrame.
        UnreachableError: the function looked at rows that Spark has lost, or Spark
            itself is gone.
    """
    from pyspark import cloudpickle  # as above
    from pyspark.sql import DataFrame

    function = load_function(reference)
    if reference.is_file:  # workers can't import it, so Spark pickles it by value for a UDF
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # type: ignore[no-untyped-call]  # Spark's own
    try:
        result = function(rows)
        if isinstance(result, DataFrame):
            result.schema  # a server checks the plan only when asked for this  # noqa: B018
    except WindrowError:
        raise
    except mistakes() as failed:  # it is the user's code; its text may quote a value
        refuse_lost_rows(failed)
        if is_gone(failed):
            raise UnreachableError(
                f"Spark was gone while the function {reference} of the spark step was called"
                f" ({error_name(failed)})",
                "stage",
                DO_AGAIN,
            ) from failed
        frames = traceback.extract_tb(failed.__traceback__)
        users = [
            frame
            for frame in frames
            if frame.filename != __file__
            and not {"pyspark", "py4j"} & {*Path(frame.filename).parts}
        ]
        # a server finds the mistake only behind the user's last line
        location = f" ({users[-1].filename}:{users[-1].lineno})" if users else ""
        raise SpecError(
            f"The function {reference} of the spark step fails: {error_name(failed)}{location}",
            "spec",
            _ADVICE,
        ) from failed
    if not isinstance(result, DataFrame):
        raise SpecError(
            f"The function {reference} of the spark step gave {type(result).__name__}, and no"
            " DataFrame",
            "spec",
            _ADVICE,
        )
    return result


def _refuse_other_columns(
    reference: FunctionReference, result: DataFrame, expected_schema: StructType
) -> None:
    given_types: dict[str, str] = {f.name: f.dataType.simpleString() for f in result.schema}
    names = {f.name: f.dataType.simpleString() for f in expected_schema}
    problems = [f"{name}: missing" for name in names if name not in given_types]
    problems += [
        f"{name}: {kind}, and there is no such column"
        for name, kind in given_types.items()
        if name not in names
    ]
    problems += [
        f"{name}: {given_types[name]}, by the schema {kind}"
        for name, kind in names.items()
        if given_types.get(name, kind) != kind
    ]
    problems += [f"{name}: there twice" for name in given_types if result.columns.count(name) > 1]
    if problems:
        raise SpecError(
            f"The function {reference} of the spark step gives other columns than its schema has: "
            + "; ".join(problems),
            "spec",
            "Have it give those of the step's schema (of a last step transform.schema; without"
            " one, the columns that it is given) and the metadata columns; no row was committed.",
        )


# --------------------------------------------------------------------------------------------------


def _struct(result: DataFrame, work: DataFrameWork) -> DataFrame:
    """Makes one column `row` of each row; in a table with a primary key as a change."""
    from pyspark.sql import functions as f  # as above

    deleted = [f.lit(False).alias(DELETED)] if work.keyed else []
    return result.select(f.struct(*(_column(c.name) for c in work.wanted), *deleted).alias("row"))


def _with_deletes(rows: DataFrame, counted: DataFrame, work: DataFrameWork) -> DataFrame:
    """Adds the deletes, which the function didn't see, to the changes that it gave.

    All their columns are null but the key and the metadata of their messages.
    """
    from pyspark.sql import functions as f  # as above

    types = {c.name: c.type for c in work.columns}
    of_table = spark_columns(work.wanted)
    columns = [
        (
            _column(c.name)
            if types.get(c.name) == c.type
            else f.lit(None).cast(of_table[c.name].dataType).alias(c.name)
        )
        for c in work.wanted
    ]
    deletes = counted.where(DELETED).select(
        f.struct(*columns, f.lit(True).alias(DELETED)).alias("row")
    )
    return rows.unionAll(deletes)


def _join_splits(
    session: SparkSession, rows: DataFrame, work: DataFrameWork, splits: Sequence[Split]
) -> DataFrame:
    """Joins each row (`row`) with its split's index (`split_ranges.index`)."""
    from pyspark.sql import functions as f  # as above

    ranges = [
        {
            "index": index,
            "topic": s.topic,
            "partition": s.partition,
            "start": s.start,
            "stop": s.stop,
        }
        for index, s in enumerate(splits)
    ]
    named_ranges = session.createDataFrame(
        pa.Table.from_pylist(ranges),
        "index long, topic string, partition long, start long, stop long",
    )
    split_ranges = named_ranges.select(f.struct("*").alias("at"))
    topic, partition, offset = (_column(name, "row") for name in work.position)
    same = (topic == f.col("at.topic")) & (partition == f.col("at.partition"))
    return rows.join(
        f.broadcast(split_ranges),
        same & (offset >= f.col("at.start")) & (offset < f.col("at.stop")),
        "left",
    )


def _column(name: str, struct_name: str = "") -> Column:
    """Returns a column by a name that may hold any characters."""
    from pyspark.sql import functions as f  # as above

    quoted = f"`{name.replace('`', '``')}`"
    return f.col(f"{struct_name}.{quoted}" if struct_name else quoted)


def _in_order(placed: DataFrame, work: DataFrameWork, tasks: int) -> DataFrame:
    """Brings the rows of each split together, in the order of its log, with its index.

    Of one message the deletes come first.
    """
    from pyspark.sql import functions as f  # as above

    index, order = (
        f.coalesce(f.col("at.index"), f.lit(_NOWHERE)).alias("index"),
        [
            f.col("index"),
            _column(work.position[2], "row"),
        ],
    )
    order += [_column(DELETED, "row").desc()] if work.keyed else []
    return (
        placed.select(index, "row")
        .repartitionById(tasks, f.col("index").cast("int"))
        .sortWithinPartitions(*order)
    )


def _stage_rows(
    session: SparkSession, in_order: DataFrame, work: DataFrameWork, read: Sequence[Staged]
) -> dict[int, Staged]:
    """Stages the rows, and returns the results of splits that have any, by index.

    Raises:
        WindrowError: the error of the first split that has one; before all others that
            of a row of no split.
    """
    deleted = [pa.field(DELETED, pa.bool_())] if work.keyed else []
    job = StageJob(
        dumped(work.stage), tuple(read), pa.schema([*work.wanted, *deleted]), work.position
    )
    with row_loss_as_error(), _udf_errors_of(work.function):
        outcomes = sorted(
            (row[0], row[1])
            for row in collected(
                in_order.mapInArrow(sent(session, job), "index long, outcome string")
            )
        )
    result_by_split = {index: result_of(outcome) for index, outcome in outcomes}
    if len(result_by_split) < len(outcomes):
        raise BugError(
            "Spark staged a split's rows in two tasks",
            "stage",
            "Nothing was committed. Report it, with Spark's version.",
        )
    return result_by_split


@contextmanager
def _udf_errors_of(reference: FunctionReference) -> Iterator[None]:
    """Turns errors of a user's own code on a worker into windrow's.

    windrow's own tasks bring their errors back as data.

    Raises:
        SpecError: in their place, with the kind of the error: its text may quote a
            value.
    """
    from pyspark.errors import PythonException  # as above

    try:
        yield
    except PythonException as failed:
        missing = MISSING_MODULE.search(str(failed))
        if missing is None:
            kinds = RAISED_ON_WORKER.findall(str(failed))
            kind = kinds[-1] if kinds else "an error of an unknown kind"
            raise SpecError(
                f"A UDF of the function {reference} of the spark step fails on a worker: {kind}",
                "stage",
                _ADVICE,
            ) from failed
        raise SpecError(
            f"A worker can't import {missing[1]}, which a UDF of the function {reference} of"
            " the spark step needs",
            "stage",
            "No row was committed. Put it into the function's own file, which travels with each"
            " job, or install it where the workers run.",
        ) from failed


@dataclass(frozen=True)
class StageJob:
    """The job of each Spark task that stages splits; picklable.

    `expected_schema`: the rows' columns; `position`: see `ports.engine.DataFrameWork`. `shares`:
    none, because its input has the splits' own indices.
    """

    task: bytes
    read: tuple[Staged, ...]
    expected_schema: pa.Schema
    position: tuple[str, str, str]
    schema: pa.Schema = RESULT
    shares: None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stages the rows of each split, which come together; yields one result each."""
        with working():
            for index, pieces in groupby(_pieces(batches), key=itemgetter(0)):
                rows = (self._rows(piece) for _, piece in pieces)
                outcome = (
                    self._refused(next(rows))
                    if index == _NOWHERE
                    else self._outcome(self.read[index], rows)
                )
                yield pa.RecordBatch.from_pylist(
                    [{"index": index, "outcome": outcome}], schema=RESULT
                )

    def _outcome(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> str:
        task: Stages = pickle.loads(self.task)  # as above  # noqa: S301
        return outcome_of(lambda _: task(read, rows), read.split)

    def _rows(self, piece: pa.StructArray) -> pa.RecordBatch:
        arrays = [
            column.cast(f.type)
            for column, f in zip(piece.flatten(), self.expected_schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, self.expected_schema.names)

    def _refused(self, rows: pa.RecordBatch) -> str:
        topic, partition, offset = (rows[name][0].as_py() for name in self.position)

        def refuse(_: Split) -> Staged:
            raise RefusedError(
                "The function of the spark step gave a row of a message that is none of the"
                " window's",
                "check",
                "No row was committed. A row keeps the metadata columns of the message that it"
                " comes from: fix the function.",
                topic,
                partition,
                offset,
            )

        return outcome_of(refuse, self.read[0].split)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.StructArray]]:
    """Cuts batches of rows where the split changes."""
    for batch in batches:
        indices = batch.column(0).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
        for start, stop in pairwise(cuts):
            if stop > start:
                yield int(indices[start]), batch.column(1).slice(start, stop - start)
