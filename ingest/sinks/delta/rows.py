"""Counts a Delta table's rows for verification, one window at a time. Reads the coordinates only; bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyarrow import fs

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import RowsHeld
from windrow.ingest.sinks.counting import rows_held
from windrow.ingest.sinks.delta.table import listed, load, parts, rows_of


def windows(uri: str) -> set[str]:
    """The keys of all windows that the table at a place holds rows of."""
    table = load(uri)
    return set() if table is None else set(parts(table))


def rows_in(uri: str) -> int:
    """How many rows the table at a place holds, by what its log says of its files."""
    table = load(uri)
    return 0 if table is None else int(pc.sum(listed(table)["num_records"]).as_py() or 0)


def counted(uri: str, metadata: Mapping[str, str], window: Window) -> list[RowsHeld]:
    """One window's rows per topic-partition. `metadata`: what the table calls its metadata columns.

    Raises:
        RefusedError: files are gone or damaged.
        UnreachableError: they can't be got at.
    """
    table = load(uri)
    if table is None:
        return []
    data = rows_of(uri, table, window.key)
    with explained(uri, window, data):
        return rows_held(data, metadata, window)


def dead_counted(uri: str, window: Window, attempt: str) -> int:
    """How many dead letters an attempt left of a window in the table at a place. Reads batch by batch, one column of it.

    Raises:
        RefusedError, UnreachableError: as `counted`.
    """
    table = load(uri)
    if table is None:
        return 0
    data = rows_of(uri, table, window.key)
    with explained(uri, window, data):
        return int(data.count_rows(filter=(ds.field(DEFAULT["window"]) == window.key) & (ds.field("attempt") == attempt)))


@contextmanager
def explained(uri: str, window: Window, data: ds.FileSystemDataset) -> Iterator[None]:
    """What can't be read: lost, if it is a file's own fault; else out of reach."""
    try:
        yield
    except (duckdb.Error, DeltaError, OSError, pa.ArrowException, LookupError, ValueError) as error:  # a flipped bit may lead to any
        lost = _lost(data)
        if lost:
            what = f"the table {uri} names data files of window {window.key} that are {'; '.join(lost)}"
            again = f"windrow replay SPEC --window {window.key} reads the window again, as long as the topic holds its messages."
            raise RefusedError(what, "check", f"Restore them from a backup; or {again}") from error
        what = f"the rows of window {window.key} in {uri} can't be read: {str(error).partition(chr(10))[0]}"
        raise UnreachableError(what, "setup", "Check the table's storage and rights, then run this again.") from error


def _lost(data: ds.FileSystemDataset) -> list[str]:
    """The files of a dataset that aren't there, and those that are no Parquet files any more; none if that can't be told."""
    try:
        infos = data.filesystem.get_file_info(data.files)
        damaged = [i.path for i in infos if i.type == fs.FileType.File and not _is_parquet(data.filesystem, i.path)]
    except OSError:
        return []
    missing = [i.path for i in infos if i.type == fs.FileType.NotFound]
    return [f"{state}: {', '.join(paths)}" for state, paths in (("gone", missing), ("damaged", damaged)) if paths]


def _is_parquet(filesystem: fs.FileSystem, path: str) -> bool:
    try:
        pq.read_metadata(path, filesystem=filesystem)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a flipped byte may ask for what no Parquet file of ours has
        return False
    return True
