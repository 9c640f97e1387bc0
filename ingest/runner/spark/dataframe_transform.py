"""A window's rows as one DataFrame, through a user's function, and back into splits.

read       Each split's rows are read once and kept (`ingest.runner.spark.checkpoint`).
function   It is called on the driver, which has the DataFrame's columns but not its rows. The
           columns of its result must be those of the step's schema.
position   Topic, partition and offset of each row give its split. The rows of a split are
           brought together, in the order of the log.
stage      A Spark task stages some splits. Only the attempts whose results Spark returns are
           committed.
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
    foreign_exceptions,
)
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.engine import DataFrameWork, Stages
from windrow.ingest.runner.outcome import outcome_of, result_of
from windrow.ingest.runner.spark.checkpoint import (
    columns_of_session,
    refuse_lost_rows,
    row_loss_as_error,
    rows_kept,
    rows_of_counted_tries,
    session_of_its_own,
    spark_schema,
    split_results,
)
from windrow.ingest.runner.spark.cluster import job_for_workers
from windrow.ingest.runner.spark.jobs import (
    DO_AGAIN,
    RESULT,
    collect_rows,
    dump_task,
    error_name,
    is_gone,
)
from windrow.ingest.runner.spark.pyspark_internals import MISSING_MODULE, RAISED_ON_WORKER
from windrow.ingest.runner.spark.worker import prepared_worker
from windrow.ingest.schema.row_changes import DELETED
from windrow.ingest.schema.user_code import FunctionReference, load_function

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NOWHERE = -1
"""The index of rows whose position is in none of the window's splits."""

_ADVICE = "No row was committed. Fix the function, then run the window again."


def transform_rows(
    spark: SparkSession,
    work: DataFrameWork,
    splits: Sequence[Split],
    tasks: int,
) -> list[Staged]:
    """Reads, changes and stages the rows; see `ports.engine.DataFrameEngine.transform`.

    Args:
        spark: the session.
        work: the work on the window.
        splits: the splits of the window.
        tasks: the smallest number of Spark tasks that read, and the largest number that stage.
    """
    expected_schema = spark_schema(work.output_schema)
    with (
        session_of_its_own(spark) as session,
        rows_kept(session, work, splits, tasks) as read,
    ):
        read_results, tries = split_results(read, len(splits))
        with row_loss_as_error(), columns_of_session(session):
            counted = rows_of_counted_tries(read, tries)
            result = _call_function(work.function, _rows(counted, work))
            _refuse_other_columns(work.function, result, expected_schema)
            rows = _struct(result, work)
            placed = _join_splits(
                session, _with_deletes(rows, counted, work) if work.keyed else rows, work, splits
            )
            in_order = _in_order(placed, work, min(tasks, len(splits)))
        staged = _stage_rows(session, in_order, work, read_results)
    return [
        staged[index] if index in staged else work.stage(split_read, ())
        for index, split_read in enumerate(read_results)
    ]


# --------------------------------------------------------------------------------------------------


def _rows(counted: DataFrame, work: DataFrameWork) -> DataFrame:
    """Returns the rows that the function is given: all but deletes."""
    return counted.where(f"not {DELETED}").drop(DELETED) if work.keyed else counted


def _call_function(reference: FunctionReference, rows: DataFrame) -> DataFrame:
    """Calls the function, and returns its DataFrame.

    Raises:
        SpecError: the function can't be loaded, it fails, or it gives no DataFrame.
        UnreachableError: the function reads rows that Spark has lost, or Spark is gone.
    """
    from pyspark import cloudpickle  # imported here: it loads Spark
    from pyspark.sql import DataFrame

    function = load_function(reference)
    if reference.is_file:  # workers can't import the module, so UDFs are pickled by value
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # type: ignore[no-untyped-call]  # Spark's own
    try:
        result = function(rows)
        if isinstance(result, DataFrame):
            result.schema  # a server checks a plan only if its schema is read  # noqa: B018
    except WindrowError:
        raise
    except foreign_exceptions() as failed:  # the user's code; the error's text may have values
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
        # without a user's line: a server finds some mistakes only after the function returned
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
            "Have it give the metadata columns and those of the step's schema: transform.schema is"
            " the last step's. A step without a schema gives the columns that it was given. No row"
            " was committed.",
        )


# --------------------------------------------------------------------------------------------------


def _struct(result: DataFrame, work: DataFrameWork) -> DataFrame:
    """Makes each row one struct in the column `row`; a change, if the table has a primary key."""
    from pyspark.sql import functions as f  # imported here: it loads Spark

    deleted = [f.lit(False).alias(DELETED)] if work.keyed else []
    return result.select(
        f.struct(*(_column(c.name) for c in work.output_schema), *deleted).alias("row")
    )


def _with_deletes(rows: DataFrame, counted: DataFrame, work: DataFrameWork) -> DataFrame:
    """Adds the deletes, which bypass the function, to the function's changes.

    In a delete, all columns except the key and the metadata of its message are null: the task
    that read it has set them so. Columns that the step adds or retypes are null, too.
    """
    from pyspark.sql import functions as f  # imported here: it loads Spark

    types = {c.name: c.type for c in work.columns}
    table_schema = spark_schema(work.output_schema)
    columns = [
        (
            _column(c.name)
            if types.get(c.name) == c.type
            else f.lit(None).cast(table_schema[c.name].dataType).alias(c.name)
        )
        for c in work.output_schema
    ]
    deletes = counted.where(DELETED).select(
        f.struct(*columns, f.lit(True).alias(DELETED)).alias("row")
    )
    return rows.unionAll(deletes)


def _join_splits(
    session: SparkSession, rows: DataFrame, work: DataFrameWork, splits: Sequence[Split]
) -> DataFrame:
    """Joins each row (`row`) with its split (`at`), by its position; `at` is null without one."""
    from pyspark.sql import functions as f  # imported here: it loads Spark

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
    """Returns a column by its name, which may have any characters."""
    from pyspark.sql import functions as f  # imported here: it loads Spark

    quoted = f"`{name.replace('`', '``')}`"
    return f.col(f"{struct_name}.{quoted}" if struct_name else quoted)


def _in_order(placed: DataFrame, work: DataFrameWork, tasks: int) -> DataFrame:
    """Brings the rows of each split together, in the order of the log, with the split's index.

    Within a message, deletes come before rows.
    """
    from pyspark.sql import functions as f  # imported here: it loads Spark

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
    """Stages the rows, and returns the results of the splits that have rows, by index.

    Raises:
        WindrowError: a row is of no split; else the error of the first split that failed.
    """
    deleted = [pa.field(DELETED, pa.bool_())] if work.keyed else []
    job = StageJob(
        dump_task(work.stage),
        tuple(read),
        pa.schema([*work.output_schema, *deleted]),
        work.position,
    )
    with row_loss_as_error(), _udf_errors_of(work.function):
        outcomes = sorted(
            (row[0], row[1])
            for row in collect_rows(
                in_order.mapInArrow(job_for_workers(session, job), "index long, outcome string")
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
    """Turns errors of the user's code on a worker into a SpecError.

    windrow's own tasks return their errors as data, so other errors are the user's.

    Raises:
        SpecError: a worker raised an error. The text has only the error's type, because the
            error's own text may have values.
    """
    from pyspark.errors import PythonException  # imported here: it loads Spark

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
    """The code of a Spark task that stages splits; picklable.

    Attributes:
        task: the `ports.engine.Stages`, pickled.
        read: the results of reading all splits.
        expected_schema: the columns of the rows.
        position: see `ports.engine.DataFrameWork`.
        schema: see `SparkJob`.
        shares: None: each number in its input is the index of one split.
    """

    task: bytes
    read: tuple[Staged, ...]
    expected_schema: pa.Schema
    position: tuple[str, str, str]
    schema: pa.Schema = RESULT
    shares: None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stages the rows, and yields one result per split. A split's rows come together."""
        with prepared_worker():
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
        task: Stages = pickle.loads(self.task)  # safe: the driver pickled it  # noqa: S301
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
    """Cuts batches into pieces with rows of one split; yields each with the split's index."""
    for batch in batches:
        indices = batch.column(0).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
        for start, stop in pairwise(cuts):
            if stop > start:
                yield int(indices[start]), batch.column(1).slice(start, stop - start)
