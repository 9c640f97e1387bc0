"""Rewrites files of a table in wider columns, file by file, in the memory of one row group.

Delta lets a file have narrower columns than its table only with a feature that
deltalake neither reads nor writes. So a commit that makes a column wider replaces all
files by rewritten ones, and no reader, of this version or an older one, meets a type
that the table doesn't have. Where such a commit fails, the next try can use the same
rewritten files: the originals never change.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.columns import fitted
from windrow.ingest.sinks.delta.stage import StagedFile, explained_files, growing, part_path
from windrow.ingest.sinks.parquet_files import batches_of
from windrow.ingest.sinks.place import Place


class WideFiles:
    """The files that one commit has rewritten so far, in all of its tries.

    Args:
        place: the table's place.
        receipt: the commit's receipt.
        metadata: names of the metadata columns.
    """

    def __init__(self, place: Place, receipt: Receipt, metadata: Mapping[str, str]) -> None:
        self._place, self._receipt, self._metadata = place, receipt, metadata
        self._columns = pa.schema([])
        self._written: dict[str, StagedFile | None] = {}

    @property
    def files(self) -> list[StagedFile]:
        """All files that were written."""
        return [file for file in self._written.values() if file is not None]

    def of(self, path: str, part: str, columns: pa.Schema) -> list[StagedFile]:
        """Rewrites a file of a window with exactly these columns; returns none without rows.

        Raises:
            RefusedError: the original is missing or damaged.
            UnreachableError: the original can't be read, or the new file written.
        """
        if columns != self._columns:
            self._columns = columns
            self._written.clear()
        if path not in self._written:
            with explained_files():
                self._written[path] = self._write(path, part)
        return list(filter(None, [self._written[path]]))

    def _write(self, path: str, part: str) -> StagedFile | None:
        out = growing(
            self._place,
            part_path(self._metadata["window"], part, self._receipt.attempt),
            self._columns,
            self._metadata,
        )
        for batch in batches_of(self._place, path):
            out.add(fitted(batch, self._columns))
        return out.close()
