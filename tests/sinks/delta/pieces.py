"""Readers of the files in a Delta table's folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.staged_files import DATA_FOLDER


def delta_pieces(uri: str) -> list[pa.Table]:
    """Returns a Delta table's rows, one Arrow table per data file, in the file's order."""
    actions = pa.table(DeltaTable(uri).get_add_actions()).to_pylist()
    files, pieces = Place(uri).filesystem(), []
    for action in actions:
        with files.open_input_file(unquote(action["path"])) as source:
            table = pq.ParquetFile(source).read()
        ((column, key),) = action["partition"].items()
        pieces.append(table.append_column(column, pa.repeat(key, table.num_rows)))
    return pieces


def staged_paths(uri: str) -> set[Path]:
    """Returns all staged Parquet files below a table: committed, not committed, and drafts."""
    return set((Path(uri) / DATA_FOLDER).rglob("*.parquet*"))
