"""Dead letters in a Delta table of their own, committed before the data (`ports.dead_letters.DeadLetters`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.dead_letters import Publication
from windrow.ingest.sinks.columns import DEAD_FILE, DEAD_LETTERS
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.janitor import sweep
from windrow.ingest.sinks.delta.names import SWEPT_APP, dead_app, published_app, publishing_app
from windrow.ingest.sinks.delta.newest import Newest, append_on
from windrow.ingest.sinks.delta.prepare import Wanted, ensure, is_as_wanted
from windrow.ingest.sinks.delta.stage import DeltaStagerFactory, StagedFile, staged_files
from windrow.ingest.sinks.gone import refuse_gone
from windrow.ingest.sinks.place import Place, dead_place, normal
from windrow.ingest.sinks.rights import refuse_unwritable
from windrow.ingest.sinks.staging import DeadLetterLayout

_WINDOW = DEFAULT["window"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaDeadLetters:
    """A table of dead letters, for any sink.

    Args:
        uri: the table's path or URI.
    """

    def __init__(self, uri: str) -> None:
        self.uri = normal(uri)
        self._place = Place(self.uri)
        self._newest = Newest(self.uri, self._place)

    @classmethod
    def beside(cls, table: str) -> DeltaDeadLetters:
        """Those of the Delta table at a place: `<table>_dead`."""
        return cls(dead_place(normal(table)))

    def refuse_unwritable(self) -> None:
        """See `ports.dead_letters.DeadLetters.refuse_unwritable`."""
        refuse_unwritable(self.uri)

    def prepare(self, binding: Binding) -> None:
        """See `ports.dead_letters.DeadLetters.prepare`."""
        wanted = Wanted(DEAD_FILE, tables.Laid(_WINDOW), at_once=True)
        state = self._newest.look()
        if state is None or not is_as_wanted(self.uri, state.table, wanted, binding):
            ensure(self.uri, wanted, binding)

    def stager(self, plan: Plan, generation: int, attempt: str) -> DeltaStagerFactory:
        """See `ports.dead_letters.DeadLetters.stager`."""
        return DeltaStagerFactory(self.uri, DeadLetterLayout(attempt, generation, plan.window.pipeline), plan.window.key)

    def commit(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """Add an attempt's files once, under an application id of (pipeline, window, attempt).

        Raises:
            OutcomeUnknownError: it was sent and can't be told to have arrived.
        """
        files = staged_files(word for s in staged for word in s.dead)
        if files:
            self._put(dead_app(plan.window, attempt), 1, plan.window.key, files)

    def publication(self, window: Window, attempt: str) -> Publication | None:
        """See `ports.dead_letters.DeadLetters.publication`."""
        state = self._newest.look()
        begun = None if state is None else state.version_of(publishing_app(window, attempt))
        if state is None or begun is None:
            return None
        return Publication(_EPOCH + timedelta(milliseconds=begun), state.version_of(published_app(window, attempt)) is not None)

    def begin_publication(self, window: Window, attempt: str, now: datetime) -> datetime:
        """See `ports.dead_letters.DeadLetters.begin_publication`."""
        millis = self._put(publishing_app(window, attempt), (now - _EPOCH) // timedelta(milliseconds=1), window.key)
        return _EPOCH + timedelta(milliseconds=millis)

    def end_publication(self, window: Window, attempt: str) -> None:
        """See `ports.dead_letters.DeadLetters.end_publication`."""
        self._put(published_app(window, attempt), 1, window.key)

    def _put(self, app: str, version: int, key: str, files: Sequence[StagedFile] = ()) -> int:
        """Put an application id with a version, and a window's files with it, if it isn't there; the version that is there now.

        Raises:
            OutcomeUnknownError: it was sent and can't be told to have arrived.
        """
        waits, why = list(tables.WAITS), ""
        while True:
            try:
                state = self._newest.look()
            except UnreachableError as error:
                raise (tables.unknown(self.uri, str(error)) if why else error) from error
            if state is None:
                what = f"the table {self.uri} isn't there any more"
                raise RefusedError(what, "commit", "Was it removed meanwhile? Run the window again.")
            found = state.version_of(app)
            if found is not None:
                return found
            refuse_gone(self._place, files, state.version_of(SWEPT_APP))
            actions = tables.add_actions(state.table, files, key)
            failed = tables.attempt(partial(append_on, state, actions, tables.once({app: version}, {"windrow": app})))
            if failed is None:
                return version
            why = failed
            if not tables.is_conflict(why):
                self._newest.forget()
            if not tables.again(self.uri, state.version, waits):
                tables.refuse_full(self.uri, state.version, why)
                raise tables.unknown(self.uri, why)

    def attempts(self, wanted: Callable[[str], bool]) -> dict[str, str]:
        """See `ports.dead_letters.DeadLetters.attempts`."""
        table = tables.load(self.uri)
        if table is None:
            return {}
        files = tables.listed(table).sort_by("modification_time").to_pylist()
        newest = {f[f"partition.{_WINDOW}"]: unquote(f["path"]) for f in files}
        return {key: self._attempt(path) for key, path in newest.items() if wanted(key)}

    def _attempt(self, path: str) -> str:
        """The attempt that a file is of; the last one, should Delta's compaction have put several into it."""
        try:
            with Place(self.uri).filesystem().open_input_file(path) as source:
                return str(pq.read_table(source, columns=["attempt"])["attempt"][-1].as_py())
        except (OSError, pa.ArrowException, LookupError, ValueError) as error:
            what = f"{self.uri}/{path} can't be read: {type(error).__name__}"
            raise UnreachableError(what, "setup", "Check the table's storage and rights, then run again.") from error

    def read(self, window: Window, attempt: str, limit: int | None = None) -> pa.Table:
        """See `ports.dead_letters.DeadLetters.read`; in the order of their files."""
        import pyarrow.dataset as ds  # noqa: PLC0415  # brings pandas, and only who reads dead letters needs it

        from windrow.ingest.sinks.delta.rows import explained  # noqa: PLC0415

        table = tables.load(self.uri)
        if table is None:
            return DEAD_LETTERS.empty_table()
        data = tables.rows_of(self.uri, table, window.key).replace_schema(DEAD_LETTERS)  # an older table has fewer columns
        scanner = data.scanner(columns=DEAD_LETTERS.names, filter=ds.field("attempt") == attempt)
        with explained(self.uri, window, data):
            return scanner.to_table() if limit is None else scanner.head(limit)

    def count(self, window: Window, attempt: str) -> int:
        """See `ports.dead_letters.DeadLetters.count`."""
        from windrow.ingest.sinks.delta.rows import dead_counted  # noqa: PLC0415  # brings DuckDB

        return dead_counted(self.uri, window, attempt)

    def contents(self, window: Window) -> Iterator[pa.RecordBatch]:
        """See `ports.dead_letters.DeadLetters.contents`."""
        from windrow.ingest.sinks.delta.contents import contents  # noqa: PLC0415

        return contents(self.uri, window)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.dead_letters.DeadLetters.sweep`."""
        return sweep(self.uri, older_than, dry_run=dry_run)
