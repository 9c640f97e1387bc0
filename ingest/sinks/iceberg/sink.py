"""The Iceberg sink: rows and receipt in one commit, exactly once.

A commit goes: load afresh -> look -> refuse overlaps -> write receipt and page -> commit on exactly that state; if that didn't surely
arrive, again from the top (`ingest.sinks.iceberg.table` says what "exactly" is made of).

Race of two runs of one window:  1 A loads snapshot 7.  2 B loads snapshot 7.  3 A commits snapshot 8.  4 B's commit asserts that main is at
7, and fails.  5 B loads snapshot 8, looks, finds A's receipt: already done.  PyIceberg's own retry in step 4 would write twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property

import msgspec
import pyarrow as pa

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError, UnreachableError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan, covered
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import AlreadyDone, Audit, Done, Outcome, Promises, Unknown, Unreadable
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks.columns import file_schema
from windrow.ingest.sinks.decision import Seen, adjacent, decide
from windrow.ingest.sinks.gone import refuse_gone
from windrow.ingest.sinks.iceberg.at import TableAt
from windrow.ingest.sinks.iceberg.catalogs import WAITS, is_full, load
from windrow.ingest.sinks.iceberg.columns import Evolve, check_rows
from windrow.ingest.sinks.iceberg.janitor import sweep
from windrow.ingest.sinks.iceberg.pages import PageLine
from windrow.ingest.sinks.iceberg.prepare import LakeColumns, columns_to_come, ensure, evolved
from windrow.ingest.sinks.iceberg.receipts import LakeReceipts, restore
from windrow.ingest.sinks.iceberg.stage import IcebergStagerFactory, LakeFile, staged_files
from windrow.ingest.sinks.iceberg.table import TRIES, LakeState, LakeTable, LakeWriting, bound_to, only_of, stagers, waits_again
from windrow.ingest.sinks.rights import refuse_unwritable
from windrow.ingest.sinks.staging import RowLayout

_KIND = "iceberg:"


class IcebergSink:
    """`ports.sink.Sink` on an Iceberg table.

    Args:
        at: the table, by its catalog; it belongs to one pipeline.
        schema: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        metadata: those that it adds, by name (see `ingest.schema.metadata`): which ones, and what they are called.
        evolve: what may become of the columns of a table that is there (`ingest.sinks.iceberg.columns`).

    Raises:
        SpecError: if Iceberg can't store these columns as they are, or two of them have one name; of a schema to load, at the first write.
    """

    promises = Promises(atomic="window", replaces=True, mode="append")

    def __init__(
        self,
        at: TableAt,
        schema: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str] = DEFAULT,
        evolve: Evolve = "add_columns",
    ) -> None:
        if isinstance(schema, pa.Schema):
            check_rows(schema, metadata)
        else:
            refuse_wrong((), metadata)
        self.at, self.metadata = at, dict(metadata)
        self._load, self._evolve = schema, evolve
        self._lake = LakeTable(at, metadata["window"])
        self._receipts = LakeReceipts()

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        loaded = self._load() if callable(self._load) else self._load
        check_rows(loaded, self.metadata)
        return loaded

    @cached_property
    def _wanted(self) -> LakeColumns:
        return LakeColumns.of(file_schema(self.schema, self.metadata), self._lake.column, self._evolve)

    @property
    def identity(self) -> str:
        """Which table this is."""
        return f"{_KIND}{self.at.place}"

    def is_at(self, identity: str) -> bool:
        """See `ports.sink.Sink.is_at`."""
        return self.at.is_same(identity.removeprefix(_KIND))

    def refuse_unwritable(self) -> None:
        """See `ports.sink.Sink.refuse_unwritable`: of a table in a folder the folder is tried, of any other one its catalog."""
        if self.at.warehouse:
            refuse_unwritable(self.at.warehouse, "sink.warehouse")
        else:
            load(self.at)

    def places(self) -> Sequence[str]:
        """See `ports.sink.Sink.places`: of a table in a folder. Any other one's catalog says where files go, and what opens that."""
        return [self.at.warehouse] if self.at.warehouse else []

    def binding(self) -> Binding | None:
        """See `ports.sink.Sink.binding`."""
        state = self._lake.look()
        return None if state is None else bound_to(self.at.place, state.table)

    def prepare(self, binding: Binding) -> None:
        """See `ports.sink.Sink.prepare`."""
        ensure(self._lake, self._wanted, binding)

    def size(self) -> tuple[int, int] | None:
        """See `ports.sink.Sized`: as the newest snapshot sums it up, which not every client does."""
        state = self._lake.look()
        newest = None if state is None else state.table.current_snapshot()
        if newest is None or newest.summary is None:
            return (0, 0) if newest is None else None
        rows, size = (newest.summary.additional_properties.get(name) for name in ("total-records", "total-files-size"))
        return None if rows is None or size is None else (int(rows), int(size))

    def columns_to_come(self) -> Sequence[str]:
        """See `ports.sink.Sink.columns_to_come`."""
        state = self._lake.look()
        return () if state is None else columns_to_come(self.at.place, state.table, self._wanted)

    def look(self, window: Window) -> Committed | None:
        """See `ports.sink.Sink.look`."""
        return next(self.looks([window]))

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """See `ports.sink.Sink.looks`."""
        state = self._lake.look() if windows else None
        if state is None:
            yield from (None for _ in windows)
            return
        yield from (self._committed(state, window.key) for window in windows)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """See `ports.sink.Sink.committed`."""
        state = self._lake.look() if windows else None
        keys = {} if state is None else state.pages.windows()
        return {window for window in windows if window.key in keys}

    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`."""
        state = self._lake.look()
        if state is None:
            return
        windows = state.pages.windows()
        strange = state.filled() - windows.keys()
        for key in sorted(windows.keys() | strange):
            if key in strange:
                what = f"the table {self.at.place} holds rows of window {key} that no commit of windrow brought"
                raise RefusedError(what, "commit", "Something else writes into this table: windrow verify shows what; remove those rows.")
            committed = self._committed(state, key)
            if committed is not None:
                yield committed

    def receipt_text(self, receipt: Receipt) -> str:
        """See `ports.sink.Sink.receipt_text`."""
        return self._receipts.text(receipt)

    def stager(self, plan: Plan, generation: int, attempt: str) -> IcebergStagerFactory:
        """See `ports.sink.Sink.stager`; a file of rows says nothing of its generation."""
        del generation
        table = self._lake.look_now().table
        columns = self._wanted.files(table)
        rows = pa.schema([pa.field(name, columns.field(name).type, columns.field(name).nullable) for name in self.schema.names])
        return stagers(self.at, table, RowLayout(rows, self.metadata, attempt), columns, plan.window.key)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """See `ports.sink.Sink.commit`.

        Raises:
            RefusedError: the window is there under another plan, or has rows that no commit brought; a generation was left out; or staged
                files are gone, or were given up.
            UnreachableError: the commit could not be prepared.
        """
        files = staged_files(word for s in staged for word in s.rows)
        waits, tries, sent = list(WAITS), iter(range(TRIES)), False
        while True:
            outcome = self._single_try(receipt, files, sent=sent)
            if not isinstance(outcome, _Unheard):
                return outcome
            sent = True
            if not waits_again(outcome.why, waits, tries, time.sleep):
                self._refuse_full(outcome)
                return Unknown(outcome.why)

    def audit(self) -> Audit:
        """See `ports.sink.Sink.audit`."""
        from windrow.ingest.sinks.iceberg.audit import IcebergAudit  # noqa: PLC0415  # brings DuckDB

        return IcebergAudit(self._lake, self.metadata, self._receipts_or_damage, self._restore)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.sink.Sink.sweep`. Receipts and pages stay, all of them."""
        return sweep(self._lake, older_than, dry_run=dry_run)

    # ------------------------------------------------------------------------------------------------------------- look, decide, write

    def _single_try(self, receipt: Receipt, files: Sequence[LakeFile], *, sent: bool) -> Outcome | _Unheard:
        """Look, decide, write: each once, on one state. `sent`: whether an earlier try may have arrived."""
        try:
            state = self._lake.look_now()
            committed = decide(receipt, self._seen(state, receipt))
            if committed is not None:
                return Done(committed) if sent and committed.receipt == receipt else AlreadyDone(committed)
            refuse_gone(state.place, files, state.swept)
            ready = self._lake.prepared(state, self._writing(state, receipt, files))
        except UnreachableError as error:
            if sent:
                return Unknown(str(error))
            raise
        crash_point("commit.before")
        why = self._lake.attempt(ready.send)
        crash_point("commit.after")
        return Done(Committed(receipt, ready.snapshot)) if why is None else _Unheard(state, why)

    def _seen(self, state: LakeState, receipt: Receipt) -> Seen:
        """What the table holds that bears on a receipt."""
        committed = self._committed(state, receipt.window.key)
        before, after = (None if key is None else self._committed(state, key) for key in adjacent(receipt))
        others = self._overlapping(state, receipt, None if committed is None else committed.receipt)
        return Seen(self.at.place, bound_to(self.at.place, state.table), committed, before, after, others)

    def _overlapping(self, state: LakeState, receipt: Receipt, own: Receipt | None) -> list[Receipt]:
        """The receipts of other windows that may share an offset with this one. Nearly always the pages tell that there are none.

        What the window itself has covered was held against all others when that was committed.
        """
        mine = covered(receipt.plan)
        if (own is not None and set(mine) <= set(covered(own.plan))) or not state.pages.meets(mine):
            return []
        every = (self._committed(state, key) for key in state.pages.windows() if key != receipt.window.key)
        return [c.receipt for c in every if c is not None]

    def _writing(self, state: LakeState, receipt: Receipt, files: Sequence[LakeFile]) -> LakeWriting:
        """What becomes of the table.

        Raises:
            RefusedError: it holds rows of a window that isn't committed.
            SchemaChangedError: the files don't fit it any more.
        """
        key = receipt.window.key
        here = only_of(state, self._lake.column, key) if receipt.mending is None else []
        if here and receipt.generation == 0:
            what = f"the table {self.at.place} holds rows of window {key} that no commit of windrow brought"
            do = "Nothing was committed. Find out what wrote them (the table's history tells), remove them, and run the window again."
            raise RefusedError(what, "commit", do)
        become = evolved(self.at.place, state.table, self._wanted, files) if files else None
        said = self._receipts.write(state.place, receipt)
        return LakeWriting(
            part=key,
            added=files,
            removed=here,
            schema=become.schema if become is not None and become.changes else None,
            windows=lambda snapshot: {key: PageLine(receipt.generation, said, snapshot)},
            covered=covered(receipt.plan),
            summary=_note(receipt),
        )

    def _refuse_full(self, outcome: _Unheard) -> None:
        """A disk without room is no unknown outcome, if a look says that the table stands where it stood."""
        if not is_full(outcome.why):
            return
        table = load(self.at)
        if table is not None and table.metadata_location == outcome.state.table.metadata_location:
            what = f"there is no room left where the table {self.at.place} lies: {outcome.why}"
            do = "Nothing was committed: the table was looked at again. Make room (or raise the quota), then run the window again."
            raise UnreachableError(what, "commit", do)

    # ------------------------------------------------------------------------------------------------------------------------ receipts

    def _committed(self, state: LakeState, key: str) -> Committed | None:
        return self._receipts.committed(state.place, key, state.pages.window(key))

    def _receipts_or_damage(self) -> Iterator[Committed | Unreadable]:
        """Reads every file anew: one that was damaged since this process read it is what is looked for."""
        state = LakeTable(self.at, self._lake.column).look()
        if state is not None:
            files = LakeReceipts()
            yield from (files.committed_or_damage(state.place, key, entry) for key, entry in state.pages.windows().items())

    def _restore(self, window: Window, text: str, dry_run: bool) -> None:
        state = self._lake.look()
        if state is None:
            raise RefusedError(f"the table {self.at.place} isn't there", "check", "There is no receipt to restore: check sink.table.")
        restore(state.place, window, state.pages.window(window.key), text, dry_run=dry_run)


class _Unheard(msgspec.Struct, frozen=True):
    """A commit on a state that was sent and is not known to have arrived."""

    state: LakeState
    why: str


def _note(receipt: Receipt) -> dict[str, str]:
    """For people who read the table's history; windrow never reads it back. Short: Iceberg writes it anew with each later commit."""
    return {
        "windrow.window": receipt.window.key,
        "windrow.generation": str(receipt.generation),
        "windrow.attempt": receipt.attempt,
        "windrow.digest": receipt.digest,
    }
