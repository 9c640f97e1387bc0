"""A window's rows as one DataFrame, through a user's function, and back into splits.

    read       Spark tasks take splits one after the other: the rows of each, and behind them one row with what came of the split
    keep       what was read is on the disks of Spark's executors, and is from then on all that Spark knows of it: nothing is read again
    function   called on the driver, which sees columns and no rows; what it gives is held against the columns that are wanted
    place      each row's topic, partition and offset say its split; the rows of a split come together, in the order of its log
    stage      one Spark task for some splits; only the attempts whose results Spark returns are committed

Should Spark lose what was read, it can't work out the function's rows, and the window ends with that: read again, messages may be gone
meanwhile that the run was told to go on without, and what was counted would be of other rows than those that are staged. Should Spark have
kept two tries at a split, of which one may have failed halfway, the rows are those of the try that was counted, or the window ends.

All of it is done in a session of its own, on a Spark Connect server, too: what is kept goes with the session there, also if this process
is killed; a cache would stay for as long as the server does.
"""

from __future__ import annotations

import pickle
import re
import secrets
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ingest.engine.outcome import brought_back, tried
from ingest.engine.spark import (
    DO_AGAIN,
    RESULT,
    SparkJob,
    dumped,
    is_connected,
    named,
    rows_of,
    shares,
    spark_troubles_as,
    waited_for,
    working,
)
from ingest.engine.variables import variable_set
from ingest.errors import BugError, RefusedError, SpecError, UnreachableError, WindrowError
from ingest.model.plan import Split
from ingest.model.staged import Staged
from ingest.ports.engine import Reads, Reshaping, Stages
from ingest.ports.pulled import pulled
from ingest.ports.reader import Take
from ingest.schema.changes import DELETED
from ingest.schema.load import FunctionReference, function_now

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",  # the function shuffles as it likes, and most windows are small
    # What was read is a few rows by Spark's guess, which goes by splits. So it sends no side of a join to all tasks before it has counted.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""Of the session that the function sees."""

_OWN = (
    pa.field("windrow_index", pa.int64(), nullable=False), pa.field("windrow_outcome", pa.string()), pa.field("windrow_try", pa.int64()),
)  # fmt: skip
"""Before the rows' columns: of which split; of a split's last row what came of it, and a number by chance that names the try."""

_NOWHERE = -1
"""In the place of a split's index, of rows that name none of the window's messages."""

_CONNECT = "SPARK_CONNECT_MODE_ENABLED"
"""The environment variable by which `pyspark.sql.functions` makes columns of a server's session, and not of this process's own."""

_OTHER_TRY = "windrow: what was counted is of another try at this split"
"""What Spark says where it comes by one."""

_LOST = re.compile(rf"\[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]|\[USER_RAISED_EXCEPTION\] {re.escape(_OTHER_TRY)}")
"""In Spark's errors where it has not what was read, or not of the try that was counted. Plans, which errors tell too, have the sentence."""

_DO = "No row was committed. Mend the function, then run the window again."


def reshaped(
    spark: SparkSession, work: Reshaping, splits: Sequence[Split], tasks: int, sent: Callable[[SparkJob], Any]
) -> list[Staged]:  # fmt: skip
    """See `ports.engine.ReshapingEngine.reshape`. `tasks`: so many stage at most; `sent`: what workers get in the place of a job."""
    wanted = _as_spark_has_it(work.wanted)
    with _session_of_its_own(spark) as session, _kept(session, work, splits, tasks, sent) as read:
        brought, tries = _read_of(read, len(splits))
        counted = _counted(read, tries)
        with _functions_of(session):
            result = _called(work.function, _rows(counted, work))
            _refuse_other_columns(work.function, result, wanted)
            rows = _struct(result, work)
            placed = _placed(session, _with_deletes(rows, counted, work) if work.keyed else rows, work, splits)
            in_order = _in_order(placed, work, min(tasks, len(splits)))
        staged = _staged(in_order, work, brought, sent)
    return [staged[index] if index in staged else work.stage(one, ()) for index, one in enumerate(brought)]


@contextmanager
def _session_of_its_own(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside another one, whose settings and names are seen by nobody else."""
    from ingest.engine.connect import end_session, session_beside  # noqa: PLC0415  # workers load this module, too

    with spark_troubles_as("setup", "Spark can't begin", DO_AGAIN):
        session = session_beside(spark) if is_connected(spark) else spark.newSession()
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
    try:
        yield session
    finally:
        if is_connected(session):  # of this process's own Spark it would be the end
            end_session(session)


@contextmanager
def _functions_of(session: SparkSession) -> Iterator[None]:
    """Columns are made for that session in the block, whoever makes them."""
    with variable_set(_CONNECT, "1" if is_connected(session) else None), _active(session):
        yield


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """The session is this thread's in the block: a server's client asks the thread for it where nobody tells which."""
    if not is_connected(session):
        yield
        return
    from pyspark.sql.connect.session import SparkSession as ConnectedSession  # noqa: PLC0415  # gRPC is loaded only where it is used

    of_thread: Any = ConnectedSession._active_session  # noqa: SLF001  # nothing public sets one that is there already
    before = getattr(of_thread, "session", None)
    of_thread.session = session
    try:
        yield
    finally:
        of_thread.session = before


# ------------------------------------------------------------------------------------------------------------------------------ read


@contextmanager
def _kept(
    session: SparkSession, work: Reshaping, splits: Sequence[Split], tasks: int, sent: Callable[[SparkJob], Any]
) -> Iterator[DataFrame]:  # fmt: skip
    """What was read of the splits, for the block: read once, and kept where it was read."""
    from pyspark import StorageLevel  # noqa: PLC0415  # Spark is loaded only where it is used

    schema = _as_spark_has_it(pa.schema([*_OWN, *(pa.field(f.name, f.type) for f in work.columns)]))
    job = ReadJob(dumped(work.read), tuple(splits), shares(splits, tasks), _as_arrow(schema))
    with spark_troubles_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        reading = session.range(0, len(job.shares), 1, len(job.shares)).mapInArrow(sent(job), schema)

        def keep() -> DataFrame:
            with _active(session):
                return reading.localCheckpoint(True, StorageLevel.DISK_ONLY)

        kept = waited_for(session, keep)
    try:
        yield kept
    finally:
        if not is_connected(session):  # else Java would keep it until it looks for what nobody uses any more, twice an hour
            with suppress(Exception):  # Spark may be gone
                kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001  # nothing public leads there


@dataclass(frozen=True)
class ReadJob:
    """What each Spark task runs that reads splits; picklable. `schema`: of what it gives, of the very types that Spark's JVM expects."""

    task: bytes
    splits: tuple[Split, ...]
    shares: list[list[int]]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each split, and what came of it."""
        with working():
            for batch in batches:
                for index in (index for share in batch.column(0).to_pylist() for index in self.shares[share]):
                    yield from self._rows(index)

    def _rows(self, index: int) -> Iterator[pa.RecordBatch]:
        task: Reads = pickle.loads(self.task)  # noqa: S301  # our own, of the driver's
        outcome = ""

        def read(give: Take) -> None:
            nonlocal outcome
            outcome = tried(partial(task, give=give), self.splits[index])

        for rows in pulled(read):
            none = [pa.nulls(rows.num_rows, f.type) for f in _OWN[1:]]
            yield self._fitted([pa.repeat(pa.scalar(index, pa.int64()), rows.num_rows), *none, *rows.columns])
        nothing = [pa.nulls(1, f.type) for f in list(self.schema)[len(_OWN) :]]
        yield self._fitted([pa.array([index]), pa.array([outcome]), pa.array([secrets.randbits(63)]), *nothing])

    def _fitted(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, self.schema, strict=True)], schema=self.schema)


def _read_of(read: DataFrame, splits: int) -> tuple[list[Staged], list[int]]:
    """What came of each split, and by which tries.

    Raises:
        WindrowError: the first split's, in their order.
    """
    with _troubles():
        rows = rows_of(read.where("windrow_outcome is not null").select(*(f.name for f in _OWN)))
    found = {row[0]: (row[1], row[2]) for row in rows}
    return [brought_back(found[index][0]) for index in range(splits)], [found[index][1] for index in range(splits)]


def _counted(read: DataFrame, tries: Sequence[int]) -> DataFrame:
    """The rows of those tries, whole, without windrow's columns but for that of deletes.

    Spark may have kept another try, too: of a task that it ran twice, or on an executor that it took for lost. That one may have failed
    halfway, or have read less. So whoever comes by a split's last row sees whether it is the one that was counted. Spark would look at a
    function's own conditions first, which no last row meets, but for the partition's number, which it takes for a matter of chance.

    Raises (in Spark's tasks):
        an error with `_OTHER_TRY`: it isn't.
    """
    known = ", ".join(map(str, tries))
    rows = read.where(
        f"CASE WHEN windrow_outcome IS NULL THEN spark_partition_id() >= 0 WHEN windrow_try IN ({known}) THEN false "
        f"ELSE raise_error('{_OTHER_TRY}') END"
    )
    return rows.drop(*(f.name for f in _OWN))


def _rows(counted: DataFrame, work: Reshaping) -> DataFrame:
    """Those that the function sees."""
    return counted.where(f"not {DELETED}").drop(DELETED) if work.keyed else counted


@contextmanager
def _troubles() -> Iterator[None]:
    """Spark's own errors while it has what was read, as `spark_troubles_as`.

    Raises:
        UnreachableError: in their place.
    """
    with spark_troubles_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        try:
            yield
        except Exception as failed:
            _refuse_lost(failed)
            raise


def _refuse_lost(failed: Exception) -> None:
    """Say so where Spark fails for it has no longer what was read.

    Raises:
        UnreachableError: it does.
    """
    if _LOST.search(str(failed)):
        what = "Spark lost what was read of the window, with an executor that ended, or has two tries at a split"
        raise UnreachableError(what, "stage", "Nothing was committed. Run the window again.") from failed


# -------------------------------------------------------------------------------------------------------------------------- function


def _called(reference: FunctionReference, rows: DataFrame) -> DataFrame:
    """What the function gives.

    Raises:
        SpecError: it can't be loaded, it fails, or it gives no DataFrame.
        UnreachableError: it looked at rows, and Spark has them no longer.
    """
    from pyspark import cloudpickle  # noqa: PLC0415  # as above
    from pyspark.sql import DataFrame  # noqa: PLC0415

    function = function_now(reference)
    if reference.is_file:  # what Spark takes along of it, for a UDF, can be imported nowhere
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # type: ignore[no-untyped-call]  # Spark's own
    try:
        result = function(rows)
        if isinstance(result, DataFrame):
            result.schema  # noqa: B018  # a server looks at it only when it is asked for this
    except WindrowError:
        raise
    except Exception as failed:  # it is the user's code; its text may quote a value
        _refuse_lost(failed)
        frames = traceback.extract_tb(failed.__traceback__)
        users = [frame for frame in frames if frame.filename != __file__ and not {"pyspark", "py4j"} & {*Path(frame.filename).parts}]
        at = f" ({users[-1].filename}:{users[-1].lineno})" if users else ""  # a server says what is wrong only once all is told
        what = f"The function {reference} of transform.spark fails: {named(failed)}{at}"
        raise SpecError(what, "spec", _DO) from failed
    if not isinstance(result, DataFrame):
        raise SpecError(f"The function {reference} of transform.spark gave {type(result).__name__}, and no DataFrame", "spec", _DO)
    return result


def _refuse_other_columns(reference: FunctionReference, result: DataFrame, wanted: StructType) -> None:
    there: dict[str, str] = {f.name: f.dataType.simpleString() for f in result.schema}
    names = {f.name: f.dataType.simpleString() for f in wanted}
    wrong = [f"{name}: missing" for name in names if name not in there]
    wrong += [f"{name}: {kind}, and there is no such column" for name, kind in there.items() if name not in names]
    wrong += [f"{name}: {there[name]}, and it is {kind}" for name, kind in names.items() if there.get(name, kind) != kind]
    wrong += [f"{name}: there twice" for name in there if result.columns.count(name) > 1]
    if wrong:
        what = f"The function {reference} of transform.spark gives other columns than the table has: " + "; ".join(wrong)
        do = "Have it give those of transform.schema (without one, of decode.schema) and the metadata columns; no row was committed."
        raise SpecError(what, "spec", do)


# ----------------------------------------------------------------------------------------------------------------------------- stage


def _struct(result: DataFrame, work: Reshaping) -> DataFrame:
    """Each row as one column, `row`; of a table with a primary key as a change."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    deleted = [f.lit(False).alias(DELETED)] if work.keyed else []
    return result.select(f.struct(*(_column(c.name) for c in work.wanted), *deleted).alias("row"))


def _with_deletes(rows: DataFrame, counted: DataFrame, work: Reshaping) -> DataFrame:
    """The changes that the function gave, and those that it didn't see: of these all is null but the key and their messages' places."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    types = {c.name: c.type for c in work.columns}
    of_table = _as_spark_has_it(work.wanted)
    columns = [
        _column(c.name) if types.get(c.name) == c.type else f.lit(None).cast(of_table[c.name].dataType).alias(c.name) for c in work.wanted
    ]
    deletes = counted.where(DELETED).select(f.struct(*columns, f.lit(True).alias(DELETED)).alias("row"))
    return rows.unionAll(deletes)


def _placed(session: SparkSession, rows: DataFrame, work: Reshaping, splits: Sequence[Split]) -> DataFrame:
    """Each row (`row`) beside its split's index (`at.index`)."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    ranges = [
        {"index": index, "topic": s.topic, "partition": s.partition, "start": s.start, "stop": s.stop} for index, s in enumerate(splits)
    ]
    named_ranges = session.createDataFrame(pa.Table.from_pylist(ranges), "index long, topic string, partition long, start long, stop long")
    at = named_ranges.select(f.struct("*").alias("at"))
    topic, partition, offset = (_column(name, "row") for name in work.place)
    same = (topic == f.col("at.topic")) & (partition == f.col("at.partition"))
    return rows.join(f.broadcast(at), same & (offset >= f.col("at.start")) & (offset < f.col("at.stop")), "left")


def _column(name: str, within: str = "") -> Column:
    """A column by a name that may hold anything."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    quoted = f"`{name.replace('`', '``')}`"
    return f.col(f"{within}.{quoted}" if within else quoted)


def _in_order(placed: DataFrame, work: Reshaping, tasks: int) -> DataFrame:
    """The rows of each split together, in the order of its log, beside its index; of one message deletes first."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    index, order = f.coalesce(f.col("at.index"), f.lit(_NOWHERE)).alias("index"), [f.col("index"), _column(work.place[2], "row")]
    order += [_column(DELETED, "row").desc()] if work.keyed else []
    return placed.select(index, "row").repartitionById(tasks, f.col("index").cast("int")).sortWithinPartitions(*order)


def _staged(in_order: DataFrame, work: Reshaping, read: Sequence[Staged], sent: Callable[[SparkJob], Any]) -> dict[int, Staged]:
    """The results of the splits that have rows, by their indices.

    Raises:
        WindrowError: the first split's, in their order; before all a row that is of none.
    """
    deleted = [pa.field(DELETED, pa.bool_())] if work.keyed else []
    job = StageJob(dumped(work.stage), tuple(read), pa.schema([*work.wanted, *deleted]), work.place)
    with _troubles(), _udf_troubles_of(work.function):
        outcomes = sorted((row[0], row[1]) for row in rows_of(in_order.mapInArrow(sent(job), "index long, outcome string")))
    found = {at: brought_back(outcome) for at, outcome in outcomes}
    if len(found) < len(outcomes):
        raise BugError("Spark staged a split's rows in two tasks", "stage", "Nothing was committed. Report it, with Spark's version.")
    return found


@contextmanager
def _udf_troubles_of(reference: FunctionReference) -> Iterator[None]:
    """A user's own code that fails on a worker: windrow's brings its errors back as data.

    Raises:
        SpecError: in its place, with the kind of the error, whose text may quote a value.
    """
    from pyspark.errors import PythonException  # noqa: PLC0415  # as above

    try:
        yield
    except PythonException as failed:
        missing = re.search(r"^ModuleNotFoundError: No module named '([\w.]+)'", str(failed), re.MULTILINE)
        if missing is None:
            kinds = re.findall(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Exit))(?::|$)", str(failed), re.MULTILINE)
            kind = kinds[-1] if kinds else "no kind of error is told"
            what = f"A UDF of the function {reference} of transform.spark fails on a worker: {kind}"
            raise SpecError(what, "stage", _DO) from failed
        what = f"A worker can't import {missing[1]}, which a UDF of the function {reference} of transform.spark needs"
        do = "No row was committed. Put it into the function's own file, which travels with each job, or install it where the workers run."
        raise SpecError(what, "stage", do) from failed


@dataclass(frozen=True)
class StageJob:
    """What each Spark task runs that stages splits; picklable. `wanted`: the rows' columns; `place`: see `ports.engine.Reshaping`."""

    task: bytes
    read: tuple[Staged, ...]
    wanted: pa.Schema
    place: tuple[str, str, str]

    @property
    def schema(self) -> pa.Schema:
        """See `ingest.engine.spark.SparkJob`."""
        return RESULT

    @property
    def shares(self) -> None:
        """See `ingest.engine.spark.SparkJob`: what it is given has the splits' own indices."""
        return None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each split's rows come together; one result of each."""
        with working():
            for index, pieces in groupby(_pieces(batches), key=itemgetter(0)):
                rows = (self._rows(piece) for _, piece in pieces)
                outcome = self._refused(next(rows)) if index == _NOWHERE else self._outcome(self.read[index], rows)
                yield pa.RecordBatch.from_pylist([{"index": index, "outcome": outcome}], schema=RESULT)

    def _outcome(self, read: Staged, rows: Iterable[pa.RecordBatch]) -> str:
        task: Stages = pickle.loads(self.task)  # noqa: S301  # as above
        return tried(lambda _: task(read, rows), read.split)

    def _rows(self, piece: pa.StructArray) -> pa.RecordBatch:
        arrays = [column.cast(f.type) for column, f in zip(piece.flatten(), self.wanted, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, self.wanted.names)

    def _refused(self, rows: pa.RecordBatch) -> str:
        topic, partition, offset = (rows[name][0].as_py() for name in self.place)

        def refuse(_: Split) -> Staged:
            what = "The function of transform.spark gave a row of a message that is none of the window's"
            do = "No row was committed. A row keeps the metadata columns of the message that it comes from: mend the function."
            raise RefusedError(what, "check", do, topic, partition, offset)

        return tried(refuse, self.read[0].split)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.StructArray]]:
    """Batches of rows cut where the split changes."""
    for batch in batches:
        indices = batch.column(0).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
        for start, stop in pairwise(cuts):
            if stop > start:
                yield int(indices[start]), batch.column(1).slice(start, stop - start)


# ----------------------------------------------------------------------------------------------------------------------------- types


def _as_spark_has_it(schema: pa.Schema) -> StructType:
    """Columns as Spark has them.

    Raises:
        SpecError: it has no such type.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415  # as above
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    try:
        return from_arrow_schema(schema)
    except PySparkException as failed:
        kinds = ", ".join(f"{f.name} {f.type}" for f in schema)
        raise SpecError(f"Spark has not all of the types of {kinds}", "spec", "Change the schema, or take transform out.") from failed


def _as_arrow(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # as above

    found: Any = to_arrow_schema(schema, timezone="UTC")
    return found
