"""Counts a Delta table's rows for verification, one window at a time. Reads the coordinates only; bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from ingest.errors import UnreachableError
from ingest.metacolumns import DEFAULT
from ingest.model import Window
from ingest.verify import Held, Rows
from ingest.write.place import normal
from ingest.write.table import load, rows_of, window_column

MEMORY = "400MB"
"""Beyond it DuckDB spills to a temporary folder: a window of any size is counted."""

_COUNT = """
    SELECT topic, part, sum(rows)::BIGINT, count(*), min(position), max(position)
    FROM (
        SELECT coalesce({topic}, '') AS topic, coalesce({partition}, -1) AS part, coalesce({offset}, -1) AS position, count(*) AS rows
        FROM coordinates WHERE {window} = ? GROUP BY ALL
    )
    GROUP BY ALL ORDER BY ALL
"""
"""Grouped by offset first: unlike a count of distinct values, a grouping spills. A null, which only damage brings, counts as -1."""


def delta_rows(uri: str, metadata: Mapping[str, str] = DEFAULT) -> Rows:
    """The questions to the table at a path or URI, with its metadata columns, and to its dead letters; loaded afresh for each."""
    return Rows(
        windows=lambda: _windows(uri),
        held=lambda window: _held(uri, metadata, window),
        dead=lambda window, attempt: _dead(f"{normal(uri)}_dead", window, attempt),
    )


def _windows(uri: str) -> set[str]:
    table = load(normal(uri))
    return set() if table is None else {str(p[window_column(table)]) for p in table.partitions()}


def _held(uri: str, metadata: Mapping[str, str], window: Window) -> list[Held]:
    table = load(normal(uri))
    count = _COUNT.format(**{name: _quoted(column) for name, column in metadata.items()})
    if table is None:
        return []
    with _told(uri, window), duckdb.connect(config={"memory_limit": MEMORY, "threads": "2"}) as connection:
        connection.execute("SET enable_progress_bar = false")  # it would go to stdout
        connection.register("coordinates", rows_of(uri, table, window.key))
        return [Held(*row) for row in connection.execute(count, [window.key]).fetchall()]


def _dead(uri: str, window: Window, attempt: str) -> int:
    """Read batch by batch, one column of it."""
    table = load(uri)
    if table is None:
        return 0
    with _told(uri, window):
        data = rows_of(uri, table, window.key)
        return int(data.count_rows(filter=(ds.field(DEFAULT["window"]) == window.key) & (ds.field("attempt") == attempt)))


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


@contextmanager
def _told(uri: str, window: Window) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, DeltaError, OSError) as error:
        what = f"the rows of window {window.key} in {uri} can't be read: {str(error).partition(chr(10))[0]}"
        raise UnreachableError(what, "setup", "Check the table's storage and rights. A missing file is a lost one: restore it.") from error
