"""Behind `spark.read.format("windrow")`: exact ranges of topics as a DataFrame, read by
windrow's own reader into Arrow batches.

    load()        the options are checked, and what they ask for is pinned
                  (`ingest.dataframes.pinned`): the driver's side
    each read     one Spark task per split, which gives Arrow batches to the JVM: no Python object
                  is made for a message

PySpark makes an instance of the source (`ingest.dataframes.formats`) at `load()`, asks it for its
columns, and pickles it then: each plan of
the DataFrame has that very copy. So what `pinned` pins is what every action reads.
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
from windrow.ingest.runner.spark.outcome import as_error
from windrow.ingest.runner.spark.spark import dumped


def pinned(options: Mapping[str, str]) -> tuple[StructType, bytes]:
    """The columns of a DataFrame, and what it reads, pickled.

    Raises:
        WindrowError: as `ingest.dataframes.pinned.pin`.
    """
    made = pin(read_options(options))
    columns: StructType = from_arrow_schema(made.shape.schema)
    return columns, dumped(made)


def reader(made: bytes | None, schema: StructType) -> bytes:
    """What reads a DataFrame, pickled. `made`: as `pinned` gives it; None where it wasn't asked.

    Raises:
        SpecError: the columns were told by `.schema()`.
    """
    if made is None:
        what = "The columns of a windrow read can't be told by schema()"
        raise SpecError(
            what, "spec", "Leave it out, and select or cast the columns that load() gives."
        )
    return dumped(
        SplitReader(pickle.loads(made), to_arrow_schema(schema, timezone="UTC"))  # noqa: S301
    )  # our own


@dataclass(frozen=True)
class SplitReader:
    """Reads the splits of a DataFrame, each in a task.

    `target`: its columns, of the very types that Spark's JVM expects.
    """

    pinned: Pinned
    target: pa.Schema

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The batches of the split of that number.

        Raises:
            WindrowError: as the reader; RefusedError for a message that can't become a
                row; BugError for what nobody foresaw.
        """
        split = self.pinned.splits[number]
        try:
            yield from batch_iterator(partial(self._read, split))
        except Exception as failed:  # told as one of ours, without its text  # noqa: BLE001
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
