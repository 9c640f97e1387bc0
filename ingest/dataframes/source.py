"""`spark.read.format("windrow")`: reads exact ranges of topics as a DataFrame.

1. `load()` checks the options and pins the offsets (`ingest.dataframes.pinned`), on the
   driver. PySpark asks the source for its columns, and pickles it: each plan of the
   DataFrame has that very copy, so every action reads the same offsets.
2. Each read runs one Spark task per split, which gives Arrow batches to the JVM; no
   Python object is made for a message.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from windrow.ingest.dataframes.options import read_options
from windrow.ingest.dataframes.pinned import Pinned, pin
from windrow.ingest.errors import SpecError
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import Take, batch_iterator
from windrow.ingest.runner.accounting import refuse_misread
from windrow.ingest.runner.outcome import as_error
from windrow.ingest.runner.spark.jobs import dumped


def pinned(options: Mapping[str, str]) -> tuple[StructType, bytes]:
    """Pins a DataFrame: returns its columns, and the pickled `Pinned`.

    Raises:
        WindrowError: as `ingest.dataframes.pinned.pin`.
    """
    made = pin(read_options(options))
    columns: StructType = from_arrow_schema(made.shape.schema)
    return columns, dumped(made)


def reader(made: bytes | None, schema: StructType) -> bytes:
    """Makes the reader of a DataFrame, pickled. `made`: of `pinned`; None: it wasn't called.

    Raises:
        SpecError: the columns were given by `.schema()`.
    """
    if made is None:
        what = "The columns of a windrow read can't be set by schema()"
        raise SpecError(
            what, "spec", "Leave it out, and select or cast the columns that load() returns."
        )
    own = pickle.loads(made)  # of `pinned`  # noqa: S301
    return dumped(SplitReader(own, to_arrow_schema(schema, timezone="UTC")))


@dataclass(frozen=True)
class SplitReader:
    """Reads the splits of a DataFrame, each in a task.

    `target`: its columns, of the types that Spark's JVM expects.
    """

    pinned: Pinned
    target: pa.Schema

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Reads the batches of a split, by its number.

        Raises:
            WindrowError: as the reader; RefusedError for a message that can't become a
                row; BugError for any other exception.
        """
        split = self.pinned.splits[number]
        try:
            yield from batch_iterator(partial(self._read, split))
        except Exception as failed:  # becomes one of windrow's, without its text  # noqa: BLE001
            raise as_error(failed, split) from None

    def _read(self, split: Split, give: Take) -> None:
        shape, position = self.pinned.shape.open(split), split.start

        def take(messages: pa.RecordBatch) -> None:
            nonlocal position
            position = refuse_misread(split, messages, position)
            columns = [
                column.cast(field.type)
                for column, field in zip(shape(messages), self.target, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.target)
            if batch.num_rows:
                give(batch)

        self.pinned.reader.read(split, take)
