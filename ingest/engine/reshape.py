"""A window's rows as one DataFrame, through a user's function, and back into splits.

    read       one Spark task per split: its rows, and behind them one row with what came of the split. Kept on Spark's disks: read once
    function   called on the driver, which sees columns and no rows; what it gives is held against the columns that are wanted
    place      each row's topic, partition and offset say its split; the rows of a split come together, in the order of its log
    stage      one Spark task for some splits; only the attempts whose results Spark returns are committed

Should Spark lose what was read, it reads the same offsets again, and may call the function's parts on rows again. The rows are the same,
but where messages are gone meanwhile that the run was told to go on without. So each try at a split has a number of its own; what was read
again while the function's rows were staged refuses the window.
"""

from __future__ import annotations

import pickle
import sys
import traceback
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ingest.engine.outcome import brought_back, tried
from ingest.engine.spark import DO_AGAIN, dumped, named, rows_of, spark_troubles_as, working
from ingest.errors import BugError, RefusedError, SpecError, UnreachableError, WindrowError
from ingest.model.plan import Split
from ingest.model.staged import Staged
from ingest.ports.engine import Reads, Reshaping, Stages
from ingest.ports.pulled import pulled
from ingest.ports.reader import Take
from ingest.schema.load import FunctionReference, function_now

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",  # the function shuffles as it likes, and most windows are small
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""Of the session that the function sees."""

_OWN = (
    pa.field("windrow_index", pa.int64(), nullable=False), pa.field("windrow_outcome", pa.string()), pa.field("windrow_try", pa.string()),
)  # fmt: skip
"""Before the rows' columns: of which split; of a split's last row what came of it, and of which try."""

_STAGED = pa.schema([("index", pa.int64()), ("outcome", pa.string())])
_NOWHERE = -1
"""In the place of a split's index, of rows that name none of the window's messages."""

_DO = "No row was committed. Mend the function, then run the window again."


def reshaped(spark: SparkSession, work: Reshaping, splits: Sequence[Split], tasks: int) -> list[Staged]:
    """See `ports.engine.ReshapingEngine.reshape`. `tasks`: so many stage at most."""
    from pyspark import StorageLevel  # noqa: PLC0415  # Spark is loaded only where it is used

    wanted = _as_spark_has_it(work.wanted)
    with spark_troubles_as("setup", "Spark can't begin", DO_AGAIN):
        session = spark.newSession()
        for name, value in _SETTINGS.items():
            session.conf.set(name, value)
        read = _read(session, work, splits).persist(StorageLevel.DISK_ONLY)
    try:
        tries, found = _outcomes(read)
        brought = [brought_back(found[index]) for index in range(len(splits))]
        result = _called(work.function, read.where("windrow_outcome is null").drop(*(f.name for f in _OWN)))
        _refuse_other_columns(work.function, result, wanted)
        staged = _staged(_placed(session, result, work, splits), work, brought, tasks)
        if _outcomes(read)[0] != tries:
            what = "Spark lost what was read of the window while the function's rows were staged, and read it again"
            raise UnreachableError(what, "stage", "Nothing was committed. Run the window again.")
    finally:
        with suppress(Exception):  # Spark may be gone
            read.unpersist()
    return [staged[index] if index in staged else work.stage(one, ()) for index, one in enumerate(brought)]


# ------------------------------------------------------------------------------------------------------------------------------ read


def _read(session: SparkSession, work: Reshaping, splits: Sequence[Split]) -> DataFrame:
    schema = _as_spark_has_it(pa.schema([*_OWN, *(pa.field(f.name, f.type) for f in work.columns)]))
    job = ReadJob(dumped(work.read), tuple(splits), _as_arrow(schema))
    return session.range(0, len(splits), 1, len(splits)).mapInArrow(job, schema)


@dataclass(frozen=True)
class ReadJob:
    """What each Spark task runs that reads a split; picklable. `schema`: of what it gives, of the very types that Spark's JVM expects."""

    task: bytes
    splits: tuple[Split, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each split, and what came of it."""
        with working():
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield from self._rows(index)

    def _rows(self, index: int) -> Iterator[pa.RecordBatch]:
        task: Reads = pickle.loads(self.task)  # noqa: S301  # our own, of the driver's
        outcome = ""

        def read(give: Take) -> None:
            nonlocal outcome
            outcome = tried(partial(task, give=give), self.splits[index])

        for rows in pulled(read):
            own = [pa.repeat(pa.scalar(index, pa.int64()), rows.num_rows), *(pa.nulls(rows.num_rows, pa.string()) for _ in range(2))]
            yield self._fitted([*own, *rows.columns])
        nothing = [pa.nulls(1, f.type) for f in list(self.schema)[len(_OWN) :]]
        yield self._fitted([pa.array([index]), pa.array([outcome]), pa.array([uuid.uuid4().hex]), *nothing])

    def _fitted(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, self.schema, strict=True)], schema=self.schema)


def _outcomes(read: DataFrame) -> tuple[dict[int, str], dict[int, str]]:
    """Of each split, by its index, the number of the try that is kept, and what came of it."""
    with spark_troubles_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        rows = rows_of(read.where("windrow_outcome is not null").select(*(f.name for f in _OWN)))
    return {row[0]: row[2] for row in rows}, {row[0]: row[1] for row in rows}


# -------------------------------------------------------------------------------------------------------------------------- function


def _called(reference: FunctionReference, rows: DataFrame) -> DataFrame:
    """What the function gives.

    Raises:
        SpecError: it can't be loaded, it fails, or it gives no DataFrame.
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
        frames = traceback.extract_tb(failed.__traceback__)
        last = [frame for frame in frames if not {"pyspark", "py4j"} & {*Path(frame.filename).parts}]
        what = f"The function {reference} of transform.spark fails: {named(failed)} ({last[-1].filename}:{last[-1].lineno})"
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


def _placed(session: SparkSession, result: DataFrame, work: Reshaping, splits: Sequence[Split]) -> DataFrame:
    """Each row (`row`) beside its split's index (`at.index`)."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    ranges = [(index, s.topic, s.partition, s.start, s.stop) for index, s in enumerate(splits)]
    named_ranges = session.createDataFrame(ranges, "index long, topic string, partition int, start long, stop long")
    rows, at = result.select(f.struct(*(_column(c.name) for c in work.wanted)).alias("row")), named_ranges.select(f.struct("*").alias("at"))
    topic, partition, offset = (_column(name, "row") for name in work.place)
    same = (topic == f.col("at.topic")) & (partition == f.col("at.partition"))
    return rows.join(f.broadcast(at), same & (offset >= f.col("at.start")) & (offset < f.col("at.stop")), "left")


def _column(name: str, within: str = "") -> Column:
    """A column by a name that may hold anything."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    quoted = f"`{name.replace('`', '``')}`"
    return f.col(f"{within}.{quoted}" if within else quoted)


def _staged(placed: DataFrame, work: Reshaping, read: Sequence[Staged], tasks: int) -> dict[int, Staged]:
    """The results of the splits that have rows, by their indices.

    Raises:
        WindrowError: the first split's, in their order; before all a row that is of none.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  # as above

    index, offset = f.coalesce(f.col("at.index"), f.lit(_NOWHERE)).alias("index"), _column(work.place[2], "row")
    sorted_rows = placed.select(index, "row").repartition(min(tasks, len(read)), "index").sortWithinPartitions("index", offset)
    job = StageJob(dumped(work.stage), tuple(read), work.wanted, work.place)
    with spark_troubles_as("stage", "Spark could not finish the tasks", DO_AGAIN):
        outcomes = sorted((row[0], row[1]) for row in rows_of(sorted_rows.mapInArrow(job, "index long, outcome string")))
    found = {at: brought_back(outcome) for at, outcome in outcomes}
    if len(found) < len(outcomes):
        raise BugError("Spark staged a split's rows in two tasks", "stage", "Nothing was committed. Report it, with Spark's version.")
    return found


@dataclass(frozen=True)
class StageJob:
    """What each Spark task runs that stages splits; picklable. `wanted`: the rows' columns; `place`: see `ports.engine.Reshaping`."""

    task: bytes
    read: tuple[Staged, ...]
    wanted: pa.Schema
    place: tuple[str, str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each split's rows come together; one result of each."""
        with working():
            for index, pieces in groupby(_pieces(batches), key=itemgetter(0)):
                rows = (self._rows(piece) for _, piece in pieces)
                outcome = self._refused(next(rows)) if index == _NOWHERE else self._outcome(self.read[index], rows)
                yield pa.RecordBatch.from_pylist([{"index": index, "outcome": outcome}], schema=_STAGED)

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
