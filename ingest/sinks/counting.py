"""Counts a window's rows for verification, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa

from windrow.ingest.errors import RefusedError, WindrowError
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import RowsHeld
from windrow.ingest.sinks.sql_names import quoted

MEMORY = "400MB"
"""The memory limit. Beyond it DuckDB spills to a temporary folder: any window can be counted."""

_COUNT = """
    SELECT topic, part, sum(rows)::BIGINT, count(*), min(position), max(position)
    FROM (
        SELECT coalesce({topic}, '') AS topic, coalesce({partition}, -1) AS part,
            coalesce({offset}, -1) AS position, count(*) AS rows
        FROM coordinates WHERE {window} = ? GROUP BY ALL
    )
    GROUP BY ALL ORDER BY ALL
"""
"""It groups by offset first: unlike a count of distinct values, a grouping can spill.

A null, which only a damaged table has, counts as -1.
"""


def rows_held(
    batches: Iterator[pa.RecordBatch],
    columns: pa.Schema,
    metadata: Mapping[str, str],
    window: Window,
) -> list[RowsHeld]:
    """Counts a window's rows per topic-partition.

    Args:
        batches: the table's rows, as they are read.
        columns: the metadata columns that each batch has, in these types or narrower ones.
        metadata: their names in the table.
        window: the window of the rows.

    Raises:
        RefusedError, UnreachableError: as reading the batches does; or they have other columns.
    """
    failed: list[Exception] = []

    def picked() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield batch.select(columns.names).cast(columns)
        except Exception as error:
            failed.append(error)
            raise

    count = _COUNT.format(**{name: quoted(column) for name, column in metadata.items()})
    try:
        with duckdb.connect(config={"memory_limit": MEMORY, "threads": "2"}) as connection:
            # the bar would be written to stdout
            connection.execute("SET enable_progress_bar = false")
            rows = pa.RecordBatchReader.from_batches(columns, picked())
            connection.register("coordinates", rows)
            return [RowsHeld(*row) for row in connection.execute(count, [window.key]).fetchall()]
    except Exception as error:
        if failed and isinstance(failed[0], WindrowError):  # DuckDB wraps it
            raise failed[0] from None
        if isinstance(failed[0] if failed else error, KeyError | pa.ArrowException):
            what = f"a file of window {window.key} has other columns than windrow wrote"
            raise RefusedError(what, "check", "Restore the file from a backup.") from error
        raise
