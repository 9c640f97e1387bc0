"""Writes Parquet files in row groups, and reads them in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.errors import RefusedError, UnreachableError, WindrowError
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.staged_files import RowFile

BATCH_ROWS = 8192
BATCH_BYTES = 16 << 20
"""The limits of a batch: rows, and about as many bytes, by the mean row size of its row group."""

_BUFFER = 64 << 10
"""The bytes of a column that are read ahead. Without a buffer a whole column chunk is read."""


def read_batches(
    folder: Place, path: str, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads the rows of one file, or some of its columns.

    Raises (when the rows are read):
        RefusedError: the file is gone or damaged.
        UnreachableError: it can't be read.
    """
    with explain_file_errors(path), folder.filesystem().open_input_file(path) as source:
        yield from batches_in(source, columns)


def batches_in(source: pa.NativeFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file, with the file's own columns.

    Columns that the table got later add nothing to a checksum.
    """
    with pq.ParquetFile(
        source,
        buffer_size=_BUFFER,
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
    ) as file:
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            rows = rows_per_batch(about.num_rows, about.total_byte_size)
            yield from file.iter_batches(rows, [group], columns, use_threads=False)


def rows_per_batch(rows: int, size: int) -> int:
    """Returns the most rows of a batch of bounded size.

    Args:
        rows: number of rows of the whole.
        size: their size in bytes.
    """
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))


class ParquetRowWriter:
    """Writes rows in Parquet for the readers of table formats (`file_stager.RowWriter`).

    Args:
        columns: the columns of the file.
        metadata: the names of the metadata columns.
        compression: the compression of its pages.
        options: more arguments of Arrow's writer.
    """

    def __init__(
        self,
        columns: pa.Schema,
        metadata: Mapping[str, str],
        compression: str = "zstd",
        **options: bool,
    ) -> None:
        self.columns, self.metadata, self._options = columns, metadata, options
        self._compression = compression
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter

    def begin(self, out: pa.NativeFile) -> None:
        # Dictionaries of numbers cost time and save nothing. Offsets and timestamps increase
        # nearly evenly, so their differences need almost no room.
        steps = {
            self.metadata[name]: "DELTA_BINARY_PACKED"
            for name in ("offset", "timestamp")
            if name in self.metadata
        }
        self._writer = pq.ParquetWriter(
            out,
            self.columns,
            compression=self._compression,
            use_dictionary=[f.name for f in self.columns if pa.types.is_string(f.type)],
            column_encoding=steps,
            write_page_checksum=True,
            metadata_collector=self._footers,
            **self._options,
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def end(self) -> None:
        end(self._writer)

    def describe(self, path: str, size: int, rows: int) -> Any:
        return RowFile(path, size, rows)

    @property
    def footer(self) -> pq.FileMetaData:
        """The footer of the file, after `end`."""
        return self._footers[0]


def end(writer: pq.ParquetWriter) -> None:
    """Closes a writer, and prevents a second close by the garbage collector.

    Without that it would close the writer again if the disk was full.
    """
    try:
        writer.close()
    finally:
        writer.is_open = False


@contextmanager
def explain_file_errors(path: str) -> Iterator[None]:
    """Converts the errors of reading a file to windrow's: it is gone, damaged or can't be read."""
    try:
        yield
    except WindrowError:
        raise
    except (
        FileNotFoundError,
        pa.ArrowException,
        ArithmeticError,
        LookupError,
        ValueError,
    ) as error:
        # A flipped bit in the file can cause any of these errors.
        raise _unreadable_error(path, error) from error
    except OSError as error:
        # Parquet's own errors about pages and footers have no errno, and neither have S3's.
        if error.errno is None and "AWS Error" not in str(error):
            raise _unreadable_error(path, error) from error
        raise UnreachableError(
            f"{path}: {error.strerror or _first_line(error)}",
            "setup",
            "Check the table's storage and rights, then run this again.",
        ) from error


@contextmanager
def explain_storage_errors() -> Iterator[None]:
    """Converts the operating system's errors while a commit reads and writes files of the table.

    Raises:
        UnreachableError: a file can't be read or written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(
            f"a file of the table can't be read or written: {reason}",
            "commit",
            "Nothing was committed. Make room or repair the storage, then run the window again.",
        ) from error


def _unreadable_error(path: str, error: Exception) -> RefusedError:
    reason = (
        _first_line(error)
        if isinstance(error, OSError | pa.ArrowException)
        else type(error).__name__
    )
    state = "is gone" if isinstance(error, FileNotFoundError) else f"is damaged ({reason})"
    return RefusedError(
        f"the file {path} {state}",
        "commit",
        "Restore the file from a backup; or, if no commit names it yet, run the window again.",
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]
