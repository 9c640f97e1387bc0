"""The data sources to register: `windrow` for reads, `windrow-kafka` for writes.

`spark.read.format("windrow")` and `df.write.format("windrow-kafka")` use them.

This module is pickled by value, because workers may not have windrow, and PySpark unpickles
everything before any code runs. So it imports windrow only inside functions, after
`install_code` of `ingest.runner.spark.worker_bootstrap` was called. The real reader and writer
stay pickled until then.

    class      It is pickled when it is registered. Spark starts Python processes beside its
               driver to plan a read or write; each makes an instance.
    reader     It is pickled in such a process, and sent to the tasks of a read.
    writer     It is pickled in such a process, and sent to the tasks of a write, and to the
               process that commits.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from windrow.ingest.runner.spark.worker_bootstrap import install_code

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # Spark's own


class CodeOfDriver:
    """A placeholder that is pickled as windrow's code, or as None if workers have windrow."""

    def __reduce__(self) -> tuple[Any, ...]:
        from windrow.ingest.runner.spark.cluster import code_to_send  # only the driver calls this

        return _itself, (code_to_send(),)


def _itself(value: Any) -> Any:
    return value


class WindrowSource(DataSource):
    """The data source `windrow`: exact ranges of topics as a DataFrame.

    Register it once in a session: `spark.dataSource.register(windrow.WindrowSource)`.
    `docs/dataframes.md` explains the options.

    Example:
        import windrow

        spark.dataSource.register(windrow.WindrowSource)  # once in a session
        reader = spark.read.format("windrow").option("spec", "payments/defs.yaml")
        hour = reader.option("window", "2026-01-05T09:00:00Z").load()
        print(hour.count(), "rows")
    """

    _code: Any = CodeOfDriver()
    _pinned: bytes | None = None

    @classmethod
    def name(cls) -> str:
        return "windrow"

    def schema(self) -> StructType:
        """Returns the columns, and pins the offsets to read. Spark calls it once per DataFrame."""
        install_code(self._code)
        from windrow.ingest.dataframes.source import pinned  # after install_code

        columns, self._pinned = pinned(dict(self.options))
        return columns

    def reader(self, schema: StructType) -> PackedReader:
        """Makes the reader of the DataFrame."""
        install_code(self._code)
        from windrow.ingest.dataframes.source import reader

        return PackedReader(self._code, reader(self._pinned, schema))


class PackedReader(DataSourceReader):
    """A pickled `ingest.dataframes.source.SplitReader`, with windrow's code.

    The code is None if workers have windrow.
    """

    def __init__(self, code: Any, packed: bytes) -> None:
        self._code, self._packed = code, packed

    def partitions(self) -> list[InputPartition]:
        """Returns one partition per split, with the split's number.

        If there are no splits, Spark adds a partition whose value is None.
        """
        return [InputPartition(number) for number in range(len(self._reader().pinned.splits))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields a split's batches."""
        return iter(()) if partition.value is None else self._reader().read(partition.value)

    def _reader(self) -> Any:
        install_code(self._code)
        return pickle.loads(self._packed)  # safe: windrow pickled it  # noqa: S301


class WindrowKafka(DataSource):
    """The data source `windrow-kafka`: rows of a DataFrame into topics.

    Register it once in a session: `spark.dataSource.register(windrow.WindrowKafka)`.
    `docs/dataframes.md` explains the options.

    Example:
        import windrow

        spark.dataSource.register(windrow.WindrowKafka)  # once in a session
        totals = spark.range(1000).selectExpr("id AS customer", "id * 3 AS cents")
        writer = totals.write.format("windrow-kafka").option("spec", "totals.yaml")
        writer.option("batch", 20260105).mode("append").save()
    """

    _code: Any = CodeOfDriver()

    @classmethod
    def name(cls) -> str:
        return "windrow-kafka"

    def writer(self, schema: StructType, overwrite: bool) -> PackedWriter:
        """Makes the writer of the DataFrame."""
        install_code(self._code)
        from windrow.ingest.dataframes.sink import writer

        return PackedWriter(self._code, writer(dict(self.options), schema, overwrite=overwrite))


class StagedRows(WriterCommitMessage):
    """The outcome of a partition's task; None if the batch was committed already."""

    def __init__(self, partition: int, outcome: str | None) -> None:
        self.partition, self.outcome = partition, outcome


class PackedWriter(DataSourceArrowWriter):
    """A pickled `ingest.dataframes.sink.BatchWriter`, with windrow's code.

    The code is None if workers have windrow.
    """

    def __init__(self, code: Any, packed: bytes) -> None:
        self._code, self._packed = code, packed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages a partition."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in its tasks"
        return StagedRows(
            context.partitionId(), self._writer().write(context.partitionId(), iterator)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publishes the staged rows, unless the batch is committed already."""
        tasks: list[Any] = [message for message in messages if message is not None]
        self._writer().commit({task.partition: task.outcome for task in tasks})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Does nothing: a copy of a task may still run. A later write removes staged files."""

    def _writer(self) -> Any:
        install_code(self._code)
        return pickle.loads(self._packed)  # safe: windrow pickled it  # noqa: S301
