"""The files sink as tests have it: with its dead letters, and its rows read by a reader
that goes by the list of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from tests.sinks.things import ROWS, produced
from tests.sinks.with_dead_letters import WithDeadLetters
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.sinks.files.stage import FileFormat, read_file
from windrow.ingest.sinks.files.store import FilesStore
from windrow.ingest.sinks.kinds import delta_dead_letters
from windrow.ingest.sinks.window_table import WindowTable
from windrow.ingest.testing.checker import Report, check

PARQUET = FileFormat("parquet", "zstd")
FORMATS = {
    "parquet": PARQUET,
    "jsonl": FileFormat("jsonl", "gzip"),
    "csv": FileFormat("csv", "none"),
}


class FilesBoth(WithDeadLetters, WindowTable):
    """With dead letters in a Delta table: beside it, or at another place."""

    store: FilesStore

    def __init__(
        self,
        uri: str,
        rows: pa.Schema,
        metadata: Mapping[str, str] = DEFAULT,
        written: FileFormat = PARQUET,
        dead: str | None = None,
    ) -> None:
        super().__init__(FilesStore(uri, written, metadata), rows)
        self.uri, self.written, self.dead = self.store.place, written, dead
        self.dead_letters = delta_dead_letters(
            self.uri if dead is None else dead.removesuffix("_dead")
        )


def report(sink: Any, numbers: range) -> Report:
    """What the checker says of all windows."""
    receipts = [c.receipt for c in sink.receipts()]
    return check(
        produced(numbers),
        pieces(sink),
        [sink.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )


def sink_at(place: str) -> Any:
    """The sink on an existing place, whose name may end with its format."""
    return FilesBoth(place, ROWS, written=FORMATS.get(place.rpartition("-")[2], PARQUET))


def pieces(sink: Any) -> list[pa.Table]:
    """All visible rows, one table per file, in the order in which they lie in it."""
    with FilesStore(sink.uri).reading() as state:
        files = [] if state is None else state.row_files()
    return [
        pa.Table.from_batches(read_file(sink.store.files, file.path, sink.columns))
        for file in files
    ]


def twin_at(place: str) -> Any:
    """A broken one, with the crash point between its look and its write."""
    from tests.sinks.files.twins import RetriesBlindly

    return RetriesBlindly(place, ROWS, partial(crash_point, "commit.before"))


TWINS = {"retries-blindly": twin_at}
