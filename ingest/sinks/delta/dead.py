"""Dead letters in a Delta table of their own, committed before the data.

Each row says which attempt refused it, and readers see only the attempt that the data's receipt names. So a crash between the two
commits, or a retry with a mended schema, never shows a message on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.errors import RefusedError, UnreachableError
from ingest.model.plan import Plan
from ingest.model.window import Window
from ingest.schema.metadata import DEFAULT
from ingest.sinks.columns import DEAD_FILE
from ingest.sinks.delta import table as tables
from ingest.sinks.delta.names import dead_app
from ingest.sinks.delta.place import Place
from ingest.sinks.delta.stage import StagedFile, refuse_gone


class DeadLetters:
    """The table of one sink's dead letters."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def commit(self, plan: Plan, attempt: str, files: Sequence[StagedFile]) -> None:
        """Add an attempt's files once, under an application id of (pipeline, window, attempt).

        Raises:
            OutcomeUnknownError: it was sent and can't be told to have arrived.
        """
        app = dead_app(plan.window, attempt)
        waits, why = list(tables.WAITS), ""
        while files:
            try:
                table = tables.load(self.uri)
            except UnreachableError as error:
                raise (tables.unknown(self.uri, str(error)) if why else error) from error
            if table is None:
                what = f"the table {self.uri} isn't there any more"
                raise RefusedError(what, "commit", "Was it removed meanwhile? Run the window again.")
            if tables.versions(self.uri, table)(app) is not None:
                return
            refuse_gone(Place(self.uri), files)
            actions = tables.add_actions(table, files, plan.window.key)
            properties = tables.once({app: 1}, {"windrow": app})
            failed = tables.attempt(partial(tables.append, table, actions, properties))
            if failed is None:
                return
            why = failed
            if not tables.again(self.uri, table.version(), waits):
                tables.refuse_full(self.uri, table.version(), why)
                raise tables.unknown(self.uri, why)

    def newest(self) -> dict[str, str]:
        """Per window key the file that was written last."""
        table = tables.load(self.uri)
        if table is None:
            return {}
        files = pa.table(table.get_add_actions(flatten=True)).sort_by("modification_time").to_pylist()
        return {f[f"partition.{DEFAULT['window']}"]: unquote(f["path"]) for f in files}

    def attempt(self, path: str) -> str:
        """The attempt that a file is of; the last one, should Delta's compaction have put several into it."""
        try:
            with Place(self.uri).filesystem().open_input_file(path) as source:
                return str(pq.read_table(source, columns=["attempt"])["attempt"][-1].as_py())
        except (OSError, pa.ArrowException) as error:
            what = f"{self.uri}/{path} can't be read: {type(error).__name__}"
            raise UnreachableError(what, "setup", "Check the table's storage and rights, then run again.") from error

    def read(self, window: Window, attempt: str | None, limit: int | None) -> pa.Table:
        """The dead letters of one attempt at a window, at most `limit`, in the order of their files; none for no attempt."""
        import pyarrow.dataset as ds  # noqa: PLC0415  # brings pandas, and only who reads dead letters needs it

        empty = DEAD_FILE.append(pa.field(DEFAULT["window"], pa.string())).empty_table()
        table = None if attempt is None else tables.load(self.uri)
        if table is None:
            return empty
        data = tables.rows_of(self.uri, table, window.key)
        scanner = data.scanner(columns=empty.schema.names, filter=ds.field("attempt") == attempt)
        return scanner.to_table() if limit is None else scanner.head(limit)
