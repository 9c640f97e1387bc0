"""The files sink: rows and receipt in one entry of a log, exactly once.

A commit goes: read the log up to N - 1 -> look -> refuse overlaps -> put entry N under a name that is taken once; if that didn't surely
arrive, again from the top. The entry names the window's files and has its receipt, so what is in the table is what the log names, and
nothing else: files that an attempt left behind lie beside it until a sweep.

Race of two runs of one window:  1 A reads up to 7.  2 B reads up to 7.  3 A puts 8.  4 B puts 8: the name is taken.
5 B reads 8, looks, finds A's receipt: already done.

A commit that is answered late, or twice, changes nothing: it is the same entry under the same name, and any other one there means that it
can't arrive any more.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property

import msgspec
import pyarrow as pa

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.model.binding import Binding, refuse_other_binding
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import AlreadyDone, Audit, Done, Outcome, Promises, Unknown
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks import exclusive
from windrow.ingest.sinks.decision import Seen, adjacent, decide
from windrow.ingest.sinks.files.columns import check_rows, columns_after, in_words, whole_schema
from windrow.ingest.sinks.files.entry import BeginTable, BringWindow, ColumnText, RowFile
from windrow.ingest.sinks.files.janitor import sweep
from windrow.ingest.sinks.files.log import FilesLog
from windrow.ingest.sinks.files.stage import FileFormat, FilesStagerFactory, row_files
from windrow.ingest.sinks.files.state import FilesState
from windrow.ingest.sinks.gone import refuse_gone
from windrow.ingest.sinks.place import Place, dead_place, is_same, normal
from windrow.ingest.sinks.rights import refuse_unwritable
from windrow.ingest.sinks.staging import RowLayout

_KIND = "files:"
_FULL = {errno.ENOSPC, errno.EDQUOT}


class FilesSink:
    """`ports.sink.Sink` on a folder of files.

    Args:
        uri: the folder, or its URL; it belongs to one pipeline.
        rows: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        metadata: those that it adds, by name (see `ingest.schema.metadata`).
        written: how its files are written.

    Raises:
        SpecError: no such files can lie there, or hold such columns; of a schema to load, at the first write.
    """

    promises = Promises(atomic="window", replaces=True, mode="append")

    def __init__(
        self,
        uri: str,
        rows: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str] = DEFAULT,
        written: FileFormat = FileFormat("parquet", "zstd"),  # noqa: B008 - immutable
    ) -> None:
        if isinstance(rows, pa.Schema):
            check_rows(rows, metadata, written.format)
        else:
            refuse_wrong((), metadata)
        self.uri, self.metadata, self.written = normal(uri), dict(metadata), written
        self._load = rows
        self._place = Place(self.uri)
        self._log = FilesLog(self.uri)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        loaded = self._load() if callable(self._load) else self._load
        check_rows(loaded, self.metadata, self.written.format)
        return loaded

    @cached_property
    def _columns(self) -> tuple[ColumnText, ...]:
        return in_words(whole_schema(self.schema, self.metadata))

    @property
    def identity(self) -> str:
        """Which table this is."""
        return f"{_KIND}{self.uri}"

    def is_at(self, identity: str) -> bool:
        """See `ports.sink.Sink.is_at`. A link may lead to the table alone, and not to the dead letters' beside it: that is another one."""
        other = identity.removeprefix(_KIND)
        return is_same(other, self.uri) and is_same(dead_place(other), dead_place(self.uri))

    def refuse_unwritable(self) -> None:
        """See `ports.sink.Sink.refuse_unwritable`."""
        refuse_unwritable(self.uri)

    def places(self) -> Sequence[str]:
        """See `ports.sink.Sink.places`."""
        return [self.uri]

    def binding(self) -> Binding | None:
        """See `ports.sink.Sink.binding`."""
        state = self._log.look()
        return None if state is None else state.binding

    def prepare(self, binding: Binding) -> None:
        """See `ports.sink.Sink.prepare`."""
        state = self._log.look() or self._begun(binding)
        refuse_other_binding(self.uri, state.binding, binding)
        self._refuse_other_format(state)
        self._columns_after(state)
        self._log.refuse_overwriting(state)

    def columns_to_come(self) -> Sequence[str]:
        """See `ports.sink.Sink.columns_to_come`."""
        state = self._log.look()
        if state is None:
            return ()
        return [f"{name} ({kind})" for name, kind, _ in self._columns_after(state)[len(state.columns) :]]

    def look(self, window: Window) -> Committed | None:
        """See `ports.sink.Sink.look`."""
        return next(self.looks([window]))

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """See `ports.sink.Sink.looks`."""
        state = self._log.look() if windows else None
        return (None if state is None else self._log.committed(state, window.key) for window in windows)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """See `ports.sink.Sink.committed`."""
        state = self._log.look() if windows else None
        return set() if state is None else {window for window in windows if window.key in state.windows}

    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`."""
        state = self._log.look()
        return iter(()) if state is None else self._log.every(state)

    def receipt_text(self, receipt: Receipt) -> str:
        """See `ports.sink.Sink.receipt_text`."""
        number = self._log.number_of(receipt)
        return to_json(receipt) if number is None else self._log.receipt_bytes(number).decode()

    def stager(self, plan: Plan, generation: int, attempt: str) -> FilesStagerFactory:
        """See `ports.sink.Sink.stager`; a file of rows says nothing of its generation."""
        del generation
        return FilesStagerFactory(self.uri, RowLayout(self.schema, self.metadata, attempt), plan.window.key, self.written)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """See `ports.sink.Sink.commit`.

        Raises:
            RefusedError: the window is there under another plan; a generation was left out; or staged files are gone, or were given up.
        """
        files, tries = row_files(word for s in staged for word in s.rows), _Tries()
        while True:
            try:
                state = self._state()
            except UnreachableError as error:
                if tries.why is None:
                    raise
                return Unknown(str(error))
            committed = decide(receipt, self._seen(state, receipt))
            if committed is not None:
                return Done(committed) if tries.why is not None and committed.receipt == receipt else AlreadyDone(committed)
            if tries.over(state.number):
                self._refuse_full(tries.why)
                return Unknown(_reason(tries.why))
            failed = self._put(state, self._change(state, receipt, files))
            if failed is None:
                return Done(Committed(receipt, state.number + 1))
            tries.failed(state.number, failed)

    def audit(self) -> Audit:
        """See `ports.sink.Sink.audit`."""
        from windrow.ingest.sinks.files.audit import FilesAudit  # noqa: PLC0415  # brings DuckDB

        return FilesAudit(self.uri, self.metadata, lambda: whole_schema(self.schema, self.metadata))

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.sink.Sink.sweep`. Entries of the log stay, all of them: the receipts are theirs."""
        return sweep(self.uri, older_than, dry_run=dry_run)

    # ------------------------------------------------------------------------------------------------------------- look, decide, write

    def _state(self) -> FilesState:
        state = self._log.look()
        if state is None:
            raise RefusedError(f"the table {self.uri} isn't there any more", "commit", "Was it removed meanwhile? Run the window again.")
        return state

    def _seen(self, state: FilesState, receipt: Receipt) -> Seen:
        """What the table holds that bears on a receipt."""
        before, after = adjacent(receipt)
        named = (receipt.window.key, before, after, *sorted(self._log.sharing(receipt.plan)))
        own, left, right, *others = (self._log.committed(state, key) for key in named)
        return Seen(self.uri, state.binding, own, left, right, [other.receipt for other in others if other is not None])

    def _change(self, state: FilesState, receipt: Receipt, files: Sequence[RowFile]) -> BringWindow:
        """The entry that brings a window: its own files, and where they are added to, those of the generation before."""
        refuse_gone(self._place, files, state.swept)
        stays = () if receipt.mending is None else state.windows[receipt.window.key].files
        columns = self._columns_after(state) if files else state.columns
        more = columns if len(columns) > len(state.columns) else ()
        return BringWindow((*stays, *files), msgspec.Raw(to_json(receipt).encode()), more)

    def _put(self, state: FilesState, change: BringWindow) -> OSError | None:
        """Put the entry behind exactly this state; None if it surely arrived, else why that isn't known."""
        crash_point("commit.before")
        try:
            self._log.put(state, change)
        except OSError as error:
            return error
        finally:
            crash_point("commit.after")
        return None

    def _refuse_full(self, why: OSError | None) -> None:
        """After a look that found nothing: a disk without room is no unknown outcome."""
        if why is not None and why.errno in _FULL and self._place.is_local:
            what = f"there is no room left where the table {self.uri} lies ({why.strerror})"
            raise UnreachableError(what, "commit", "Nothing was committed. Make room on that disk, then run the window again.")

    # ----------------------------------------------------------------------------------------------------------------------- beginning

    def _begun(self, binding: Binding) -> FilesState:
        """Begin the table, or find that another one was first."""
        if self._place.names("_delta_log") or self._place.names("metadata"):
            what = f"at {self.uri} lies a table of another kind"
            raise SpecError(what, "setup", "Set sink.path to a place where nothing is, or sink.kind to the table's.")

        def put() -> None:
            try:
                self._log.put(None, BeginTable(binding, self.written.format, self._columns))
            except OSError:  # the name may be taken, or the put arrived and its answer didn't
                if self._log.look() is None:
                    raise

        exclusive.begun(self.uri, put)
        return self._state()

    def _refuse_other_format(self, state: FilesState) -> None:
        if state.format != self.written.format:
            what = f"the table {self.uri} was begun with {state.format} files, not {self.written.format}"
            raise SpecError(what, "setup", f"Set sink.format back to {state.format}, or write to another path.")

    def _columns_after(self, state: FilesState) -> tuple[ColumnText, ...]:
        return columns_after(state.columns, self._columns, self.written.format, self.uri)


class _Tries:
    """How often one commit was put. That the name was taken doesn't count while the log moves on: then somebody's commit arrived."""

    def __init__(self) -> None:
        self.why: OSError | None = None
        self._waits = list(exclusive.WAITS)
        self._number = -1
        self._last = False

    def failed(self, number: int, why: OSError) -> None:
        """It was put behind the entry of this number."""
        self.why, self._number = why, number
        if not isinstance(why, FileExistsError):
            self._wait()

    def over(self, number: int) -> bool:
        """Whether no more tries are left, now that this is the newest entry."""
        if isinstance(self.why, FileExistsError) and number == self._number:  # taken, and by nobody that can be seen
            self._wait()
        return self._last and self.why is not None and number == self._number

    def _wait(self) -> None:
        if self._waits:
            time.sleep(self._waits.pop(0))
        else:
            self._last = True


def _reason(error: OSError | None) -> str:
    return "" if error is None else error.strerror or str(error) or type(error).__name__
