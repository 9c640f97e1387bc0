"""Readers of the files in a Delta table's folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.sinks.world import sort_if_joined
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.staged_files import DATA_FOLDER


def delta_pieces(uri: str) -> list[pa.Table]:
    """Returns a Delta table's rows, one Arrow table per data file, in the file's order."""
    table = DeltaTable(uri)
    actions = pa.table(table.get_add_actions()).to_pylist()
    column = table.metadata().partition_columns[0]  # the window's
    files, pieces = Place(uri).filesystem(), []
    for action in actions:
        with files.open_input_file(unquote(action["path"])) as source:
            rows = sort_if_joined(action["path"], pq.ParquetFile(source).read())
        key = action["partition"][column]
        pieces.append(rows.append_column(column, pa.repeat(key, rows.num_rows)))
    return pieces


def staged_paths(uri: str) -> set[Path]:
    """Returns all staged Parquet files below a table: committed, not committed, and drafts."""
    return set((Path(uri) / DATA_FOLDER).rglob("*.parquet*"))
