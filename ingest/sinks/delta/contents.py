"""Reads a Delta table's files back, one window at a time."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from windrow.ingest.model.window import Window
from windrow.ingest.sinks.delta.table import active, listed, load, rows_of
from windrow.ingest.sinks.parquet_files import SaidOfFile, as_said, batches_of
from windrow.ingest.sinks.place import Place


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
    files = [fragment.path for fragment in rows_of(uri, table, window.key).get_fragments()]
    place, said = Place(uri), _said(table)
    for path in files:
        yield from as_said(path, said[path], batches_of(place, path))


def _said(table: DeltaTable) -> dict[str, SaidOfFile]:
    """What the log says of each file."""
    about = listed(table)
    numbers = [f.name.removeprefix("min.") for f in about.schema if f.name.startswith("min.") and pa.types.is_integer(f.type)]
    return {
        unquote(one["path"]): SaidOfFile(one["num_records"], {name: (one[f"min.{name}"], one[f"max.{name}"]) for name in numbers})
        for one in about.to_pylist()
    }


def every(uri: str) -> Iterator[pa.RecordBatch]:
    """All rows of the table at a place, which is loaded afresh.

    Raises (when read):
        RefusedError, UnreachableError: as `contents`.
    """
    table, place = load(uri), Place(uri)
    for path in [] if table is None else active(table):
        yield from batches_of(place, unquote(path))
