"""Reads a Delta table's files back, one window at a time."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError

from ingest.errors import UnreachableError
from ingest.model.window import Window
from ingest.sinks.delta.table import active, load, rows_of
from ingest.sinks.parquet_files import batches_of
from ingest.sinks.place import Place


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
