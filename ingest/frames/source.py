"""`spark.read.format("windrow")`: exact ranges of topics as a DataFrame, read by windrow's own reader into Arrow batches.

    load()        the options are checked, and what they ask for is pinned (`ingest.frames.pinned`): the driver's side
    each read     one Spark task per split, which gives Arrow batches to the JVM: no Python object is made for a message

PySpark makes an instance at `load()`, asks it for its columns, and pickles it then: each plan of the DataFrame has that very copy. So what
`schema()` pins is what every action reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ingest.engine.outcome import as_error
from ingest.errors import SpecError
from ingest.frames.options import read_options
from ingest.frames.pinned import Pinned, pin
from ingest.model.plan import Split
from ingest.ports.pulled import pulled
from ingest.ports.reader import Take
from ingest.run.accounting import refuse_misread


class WindrowSource(DataSource):
    """Register it once in a session: `spark.dataSource.register(ingest.WindrowSource)`. The options: `docs/dataframes.md`."""

    _pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "windrow"

    def schema(self) -> StructType:
        """The columns; what is read is made out here, once for the DataFrame.

        Raises:
            WindrowError: as `ingest.frames.pinned.pin`.
        """
        self._pinned = pin(read_options(dict(self.options)))
        found: StructType = from_arrow_schema(self._pinned.shape.schema)
        return found

    def reader(self, schema: StructType) -> SplitReader:
        """What reads the DataFrame.

        Raises:
            SpecError: the columns were told by `.schema()`.
        """
        if self._pinned is None:
            what = "The columns of a windrow read can't be told by schema()"
            raise SpecError(what, "spec", "Leave it out, and select or cast the columns that load() gives.")
        return SplitReader(self._pinned, to_arrow_schema(schema, timezone="UTC"))


class SplitPartition(InputPartition):
    """One split."""

    def __init__(self, split: Split) -> None:
        """`split`: what one task reads."""
        super().__init__(split)


@dataclass(frozen=True)
class SplitReader(DataSourceReader):
    """Reads the splits of a DataFrame, each in a task. `target`: its columns, of the very types that Spark's JVM expects."""

    pinned: Pinned
    target: pa.Schema

    def partitions(self) -> list[InputPartition]:
        """One per split; without any, Spark makes an empty one of its own."""
        return [SplitPartition(split) for split in self.pinned.splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A split's batches.

        Raises:
            WindrowError: as the reader; RefusedError for a message that can't become a row; BugError for what nobody foresaw.
        """
        if partition.value is None:
            return
        split: Split = partition.value
        try:
            yield from pulled(partial(self._read, split))
        except Exception as failed:  # noqa: BLE001  # told as one of ours, without its text
            raise as_error(failed, split) from None

    def _read(self, split: Split, give: Take) -> None:
        shape, position = self.pinned.shape.open(split), split.start

        def take(messages: pa.RecordBatch) -> None:
            nonlocal position
            position = refuse_misread(split, messages, position)
            columns = [column.cast(field.type) for column, field in zip(shape(messages), self.target, strict=True)]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.target)
            if batch.num_rows:
                give(batch)

        self.pinned.reader.read(split, take)
