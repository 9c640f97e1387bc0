"""Reads a Delta table's files back, one window at a time, in batches: memory grows neither with the window nor with its row groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from ingest.errors import RefusedError, UnreachableError
from ingest.model.window import Window
from ingest.sinks.delta.place import Place
from ingest.sinks.delta.table import active, load, rows_of

BATCH_ROWS = 8192
BATCH_BYTES = 16 << 20
"""A batch holds no more rows, and about no more bytes, by the mean of its row group."""

_BUFFER = 64 << 10
"""So much of a column is read ahead: without a buffer a row group's whole column would be."""


def contents(uri: str, window: Window) -> Iterator[pa.RecordBatch]:
    """All rows of a window in the table at a place, which is loaded afresh.

    Whole files, and nothing chosen by Arrow: bounds in a damaged file's statistics must not hide what it holds.

    Raises (when asked, or read on):
        RefusedError: a file is gone or damaged.
        UnreachableError: it can't be got at.
    """
    table = load(uri)
    if table is None:
        return
    try:
        files = [fragment.path for fragment in rows_of(uri, table, window.key).get_fragments()]
    except DeltaError as error:
        raise UnreachableError(f"{uri}: {error}", "setup", "Read it with what it was rewritten with.") from error
    place = Place(uri)
    for path in files:
        yield from batches_of(place, path)


def every(uri: str) -> Iterator[pa.RecordBatch]:
    """All rows of the table at a place, which is loaded afresh.

    Raises (when read):
        RefusedError, UnreachableError: as `contents`.
    """
    table, place = load(uri), Place(uri)
    for path in [] if table is None else active(table):
        yield from batches_of(place, unquote(path))


def batches_of(place: Place, path: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one file, or some of its columns.

    Raises (when read):
        RefusedError, UnreachableError: as `contents`.
    """
    with _explained(path), place.filesystem().open_input_file(path) as source:
        yield from _of_file(source, columns)


def _of_file(source: pa.NativeFile, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The file's own columns and types: what a table has gained since is null here, and adds nothing to a checksum."""
    with pq.ParquetFile(
        source, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
    ) as file:
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            rows = BATCH_BYTES * about.num_rows // max(about.total_byte_size, 1)
            yield from file.iter_batches(min(max(rows, 1), BATCH_ROWS), [group], columns, use_threads=False)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """A file that is gone or damaged is another matter than one that can't be got at."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowException) as error:
        raise _lost(path, error) from error
    except OSError as error:
        if error.errno is None:  # what Parquet itself says of pages and footers
            raise _lost(path, error) from error
        raise UnreachableError(f"{path}: {error.strerror}", "setup", "Check the table's storage and rights.") from error


def _lost(path: str, error: Exception) -> RefusedError:
    what = "is gone" if isinstance(error, FileNotFoundError) else f"is damaged ({str(error).strip().partition(chr(10))[0][:200]})"
    return RefusedError(f"the file {path} {what}", "commit", "Restore the file from a backup.")
