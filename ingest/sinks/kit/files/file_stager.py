"""Stages a split's rows: a stager on an executor writes them to files that aren't visible yet.

    layout    makes a staged batch from rows and their messages, the same for every sink
    writer    writes such batches in a sink's format, and describes the file for the commit
    stager    checks rows, passes them to the writer, and adds up their checksum

Layouts and factories of stagers are picklable. No other attempt uses a file's name. Nothing
becomes visible here, and nothing is removed: another attempt may have committed a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa

from windrow.ingest.errors import (
    BugError,
    RefusedError,
    UnreachableError,
    UnstorableRowsError,
    format_count,
)
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staging
from windrow.ingest.ports.dead_letters import REASONS
from windrow.ingest.schema.calendar import find_outside_calendar
from windrow.ingest.schema.checksum import checksum, checksum_text
from windrow.ingest.schema.metadata_arrays import columns, dead_columns, in_files
from windrow.ingest.schema.partition_fields import (
    MOST_PARTITIONS,
    PartitionField,
    PartitionValues,
)
from windrow.ingest.schema.partition_values import divide_by_partition
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_FILE, file_schema
from windrow.ingest.sinks.kit.files.filesystem import Place, is_busy

GROUP_ROWS = 131_072
GROUP_BYTES = 32 << 20
"""Rows are written as soon as one of the limits is reached. So little of a file is in memory."""

File = TypeVar("File", bound=msgspec.Struct)
File_co = TypeVar("File_co", bound=msgspec.Struct, covariant=True)


class RowLayout(msgspec.Struct, frozen=True):
    """Rows with their metadata columns, except the window's.

    Attributes:
        rows: the columns of the rows.
        metadata: the names of the metadata columns.
        attempt: the attempt that stages the rows.
        only_staged: a column that staged rows have, but not the table.
    """

    rows: pa.Schema
    metadata: dict[str, str]
    attempt: str
    only_staged: pa.Field | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of a staged batch."""
        return file_schema(self._file_schema, self.metadata)

    @property
    def _file_schema(self) -> pa.Schema:
        return self.rows if self.only_staged is None else self.rows.append(self.only_staged)

    def batch(self, rows: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        """Adds the metadata columns, from the rows' messages.

        Raises:
            BugError: the rows have other columns than the table, their number isn't that of the
                messages, or the table can't hold a value. The error quotes no value.
        """
        if self.only_staged is not None and self.only_staged.name not in rows.schema.names:
            rows = rows.append_column(
                self.only_staged, pa.nulls(rows.num_rows, self.only_staged.type)
            )
        _refuse_unlike(rows, messages, self._file_schema, split)
        return _fitted(
            [*rows.columns, *columns(in_files(self.metadata), messages, self.attempt)],
            self.schema,
            split,
        )


class DeadLetterLayout(msgspec.Struct, frozen=True):
    """Dead letters: whole messages, with the reasons of their refusal (`REASONS`)."""

    attempt: str
    generation: int
    pipeline: str

    @property
    def schema(self) -> pa.Schema:
        """The columns of a staged batch."""
        return DEAD_FILE

    @property
    def metadata(self) -> dict[str, str]:
        """The names of the metadata columns. They don't depend on those of the table of rows."""
        return dict(DEFAULT)

    def batch(self, rows: pa.RecordBatch, messages: pa.RecordBatch, split: Split) -> pa.RecordBatch:
        """Joins messages and reasons.

        Raises:
            BugError: the reasons are not those of the messages.
        """
        _refuse_unlike(rows, messages, REASONS, split)
        return _fitted(
            dead_columns(messages, rows.columns, self.attempt, self.generation, self.pipeline),
            DEAD_FILE,
            split,
        )


Layout = RowLayout | DeadLetterLayout
"""The columns of staged rows, or of staged dead letters."""


@contextmanager
def explain_write_errors(uri: str, split: Split, *, done: str = "committed") -> Iterator[None]:
    """Converts errors of the disk to windrow's, while a split is staged.

    Args:
        uri: the place of the staged files.
        split: the split that is staged.
        done: the word for the step that surely didn't happen to the split.

    Raises:
        UnreachableError: the operating system raised an error.
    """
    try:
        yield
    except OSError as error:
        reason = (
            error.strerror or str(error).strip().partition("\n")[0][:300] or type(error).__name__
        )
        message = f"a staged file below {uri} can't be written: {reason}"
        wait = (
            "Wait, for the store has too much to do"
            if is_busy(str(error))
            else "Make room or fix the storage"
        )
        raise UnreachableError(
            message,
            "stage",
            f"Nothing was {done}. {wait}, then run the window again.",
            split.topic,
            split.partition,
            split.start,
        ) from error


class RowWriter(Protocol[File_co]):
    """A writer of rows into one file, in a sink's format."""

    def begin(self, out: pa.NativeFile) -> None:
        """Writes the file's header. Called once, first."""

    def write(self, rows: pa.Table) -> None:
        """Appends rows."""

    def end(self) -> None:
        """Writes the file's footer; the caller closes the file."""

    def describe(self, path: str, size: int, rows: int) -> File_co:
        """Describes the file for the commit. Called last.

        The description is small, JSON, and may be lost.
        """


class GrowingFile(Generic[File]):
    """A file that is written in groups of rows. One group is in memory.

    It is created with its first batch, so a split without rows creates no file.

    Args:
        folder: the folder.
        path: the file's path in it; no other file has this path.
        writer: the writer of the format.
        grouped: whether batches are collected to groups; else each batch is written at once.
        durable: whether the file must survive a loss of power. Otherwise its reader must check
            that it is complete.
    """

    def __init__(
        self,
        folder: Place,
        path: str,
        writer: RowWriter[File],
        *,
        grouped: bool = True,
        durable: bool = True,
    ) -> None:
        self.rows = self.waiting_bytes = 0
        self._folder, self._path, self._writer = folder, path, writer
        self._grouped, self._durable = grouped, durable
        self._out: pa.NativeFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends rows, with the same columns each time."""
        if self._out is None:
            out = self._folder.create(self._path)
            # `_out` is set afterwards: if `begin` fails, for example on a full disk, there is
            # nothing to end.
            self._writer.begin(out)
            self._out = out
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.waiting_bytes += batch.nbytes
        if (
            not self._grouped
            or self._waiting_rows >= GROUP_ROWS
            or self.waiting_bytes >= GROUP_BYTES
        ):
            self.flush()

    def close(self) -> File | None:
        """Finishes the file and describes it; None if there were no rows."""
        if self._out is None:
            return None
        self.flush()
        self._writer.end()
        self._out.close()
        return self._writer.describe(
            self._path, self._folder.finish(self._path, durable=self._durable), self.rows
        )

    def abandon(self) -> None:
        """Closes the file without a result. On a full disk closing fails, as writing did.

        The file is closed already if an error came while it was finished.
        """
        self._waiting.clear()
        with suppress(OSError, RuntimeError, pa.ArrowException):
            if self._out is not None and not self._out.closed:
                self._writer.end()
                self._out.close()

    def flush(self) -> None:
        """Writes the rows that are in memory as a group."""
        if self._waiting:
            self._writer.write(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0


class PartitionedFiles(Generic[File]):
    """Growing files, one for each partition of the rows of a split.

    All of them together hold about as much in memory as one file of a table without partitions.

    Args:
        fields: the partition fields; empty for a single file.
        split: the split of the rows.
        begin: begins the file of a partition.
        as_texts: whether the values of a partition are texts, for Delta and for folders.
    """

    def __init__(
        self,
        fields: Sequence[PartitionField],
        split: Split,
        begin: Callable[[PartitionValues], GrowingFile[File]],
        *,
        as_texts: bool = False,
    ) -> None:
        self._fields, self._split, self._begin = fields, split, begin
        self._as_texts = as_texts
        self._files: dict[PartitionValues, GrowingFile[File]] = {}

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        return sum(file.rows for file in self._files.values())

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends each row to the file of its partition.

        Raises:
            RefusedError: the rows of the split have too many partitions.
        """
        divided: Iterable[tuple[PartitionValues, pa.RecordBatch]] = [((), batch)]
        if self._fields:
            divided = divide_by_partition(self._fields, batch, as_texts=self._as_texts)
        for partition, rows in divided:
            if partition not in self._files:
                self._refuse_more()
                self._files[partition] = self._begin(partition)
            self._files[partition].add(rows)
        while sum(file.waiting_bytes for file in self._files.values()) >= GROUP_BYTES:
            max(self._files.values(), key=lambda file: file.waiting_bytes).flush()

    def close(self) -> list[File]:
        """Finishes the files and describes them."""
        return [
            description
            for file in self._files.values()
            if (description := file.close()) is not None
        ]

    def abandon(self) -> None:
        """Closes the files without a result."""
        for file in self._files.values():
            file.abandon()

    def _refuse_more(self) -> None:
        if len(self._files) < MOST_PARTITIONS:
            return
        split = self._split
        raise RefusedError(
            f"the rows of one split would be in more than {MOST_PARTITIONS} files, one for each"
            f" partition: sink.partition_by is {PartitionField.describe(self._fields)}",
            "stage",
            "Nothing was committed. Refuse far values by a rule of the schema. Else begin a"
            " pipeline with another id and table: with smaller windows, or by month or year in"
            " place of day, or with fewer buckets.",
            split.topic,
            split.partition,
            split.start,
        )


class FileStager(Generic[File]):
    """Stages a split in one file, or in one for each partition (`ports.sink.Stager`).

    Args:
        uri: the place of the sink's files, for errors.
        layout: the columns of a staged batch.
        split: the split of the rows.
        file: the new file or files.
    """

    done = "committed"
    """The word for the step that surely didn't happen to a split whose file can't be written."""

    def __init__(
        self,
        uri: str,
        layout: Layout,
        split: Split,
        file: GrowingFile[File] | PartitionedFiles[File],
    ) -> None:
        self._uri, self._layout, self._split, self._file = uri, layout, split, file
        self._checksum = 0

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        if rows.num_rows or messages.num_rows:
            self.check(rows, messages)()

    def check(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> Callable[[], None]:
        batch = self._layout.batch(rows, messages, self._split)
        in_file = self._in_file(batch, messages)

        def take() -> None:
            with explain_write_errors(self._uri, self._split, done=self.done):
                self._file.add(in_file)
            self._checksum += checksum(batch)

        return take

    def finish(self) -> Staging:
        with explain_write_errors(self._uri, self._split, done=self.done):
            closed = self._file.close()
        files = closed if isinstance(closed, list) else [] if closed is None else [closed]
        committables = tuple(msgspec.json.encode(file).decode() for file in files)
        return Staging(self._file.rows, checksum_text(self._checksum), committables)

    def discard(self) -> None:
        """Closes the file without a result. The file stays until a sweep removes it."""
        self._file.abandon()

    def _in_file(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Converts a staged batch for the file; refuses rows that the file can't hold."""
        del messages
        return batch

    def _unstorable(
        self, message: str, advice: str, messages: pa.RecordBatch, rows: Sequence[int]
    ) -> UnstorableRowsError:
        """Returns the error for rows that the file can't hold, with the offset of the first row."""
        offset = messages["offset"][rows[0]].as_py()
        position = self._split.topic, self._split.partition, offset
        return UnstorableRowsError(message, "stage", advice, *position, rows)


class TextStager(FileStager[File]):
    """Stages rows of a table whose dates and times are texts.

    It refuses dates and times that have no text.
    """

    def _in_file(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        refusal = find_outside_calendar(dict(zip(batch.schema.names, batch.columns, strict=True)))
        if refusal is not None:
            advice = (
                "Nothing was committed. Refuse such values by a rule of the schema, or have a"
                " transform change them."
            )
            raise self._unstorable(refusal[1], advice, messages, refusal[0].tolist())
        return batch


def _refuse_unlike(
    rows: pa.RecordBatch, messages: pa.RecordBatch, expected: pa.Schema, split: Split
) -> None:
    """Refuses rows with other columns than expected, or with another number than the messages."""
    if rows.schema.names != expected.names or rows.num_rows != messages.num_rows:
        message = (
            f"{format_count(rows.num_rows, 'row')} of {rows.schema.names} were to be staged for"
            f" {format_count(messages.num_rows, 'message')}"
        )
        raise _misfit(f"{message}; the table has {expected.names}", split)


def _fitted(arrays: Sequence[pa.Array], schema: pa.Schema, split: Split) -> pa.RecordBatch:
    """Casts columns to the table's types, and refuses nulls in columns that allow none."""
    fitted = []
    for array, field in zip(arrays, schema, strict=True):
        if array.null_count and not field.nullable:
            raise _misfit(
                f"column {field.name} holds {array.null_count} nulls, but the table allows none",
                split,
            )
        fitted.append(_cast(array, field, split))
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def _cast(array: pa.Array, field: pa.Field, split: Split) -> pa.Array:
    """Casts a column to the table's type.

    Raises:
        BugError: the type or a value doesn't fit.
    """
    if array.type == field.type:
        return array
    misfit = _misfit(
        f"column {field.name} is {array.type}; it doesn't fit the table's {field.type}", split
    )
    # Arrow's cast would round the value, even to infinity, without an error.
    if pa.types.is_floating(array.type) and array.type != pa.float32():
        raise misfit
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Arrow's error isn't shown, because its text may quote a value.
        raise misfit from None


def _misfit(message: str, split: Split) -> BugError:
    return BugError(
        message,
        "stage",
        "Nothing was committed. Report a bug in the format or the transform: the rows must be"
        " exactly the table's columns.",
        split.topic,
        split.partition,
        split.start,
    )
