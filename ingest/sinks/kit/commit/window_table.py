"""The table that takes windows exactly once, over the store of any kind.

A kind of table is a store (`sinks.kit.commit.table_store`). The commit loop makes windows
visible in it (`sinks.kit.commit.commit_loop`). This module makes a sink and its verification
from both (`ingest.ports.sink`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

import pyarrow as pa

from windrow.ingest.errors import (
    OutcomeUnknownError,
    RefusedError,
    SchemaChangedError,
    SpecError,
    UnreachableError,
    WindrowError,
)
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.owner import TableOwner, refuse_other_owner
from windrow.ingest.model.plan import Plan, Window, covered_ranges
from windrow.ingest.model.receipt import Committed, Receipt, Staged
from windrow.ingest.ports.sink import (
    Capabilities,
    KeyedAudit,
    Maintained,
    Maintenance,
    Outcome,
    ProgressFolder,
    RowsHeld,
    StagerFactory,
    Unreadable,
    WrittenReceipt,
)
from windrow.ingest.schema.metadata_types import refuse_wrong
from windrow.ingest.schema.row_changes import UNAVAILABLE, change_schema
from windrow.ingest.sinks.kind import Rows
from windrow.ingest.sinks.kit.columns.sql_names import quote_identifier
from windrow.ingest.sinks.kit.commit.commit_loop import (
    run_commit_loop,
    table_gone_error,
)
from windrow.ingest.sinks.kit.commit.conflicts import TableView, decide
from windrow.ingest.sinks.kit.commit.maintain import maintain
from windrow.ingest.sinks.kit.commit.pages import PagedState, PageLine, Pages, page_of
from windrow.ingest.sinks.kit.commit.stored_receipts import (
    committed_by_key,
    digest,
    read_receipt,
    read_receipt_texts,
    require_readable,
)
from windrow.ingest.sinks.kit.commit.sweep import check_staged, youngest
from windrow.ingest.sinks.kit.commit.table_store import (
    ReceiptState,
    StoredReceipt,
    TableChange,
    TableState,
    TableStore,
    Unanswered,
)
from windrow.ingest.sinks.kit.files.file_stager import RowLayout
from windrow.ingest.sinks.kit.files.staged_files import SWEPT

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

# ------------------------------------------------------------------------------------- receipts


def check_receipt(location: str, state: ReceiptState, receipt: Receipt) -> Committed | None:
    """Compares a receipt with a table's windows.

    Returns:
        The committed receipt of its window; None if the window isn't committed.

    Raises:
        RefusedError: the receipt may not be committed on this state.
        DamagedError: a receipt that is needed for the answer is missing or damaged.
    """
    # First, because it refuses a table that another program made.
    owner = state.owner
    own_key = receipt.window.key
    previous_key, next_key = (
        None if window is None else window.key for window in receipt.adjacent_windows
    )
    committed_windows = committed_by_key(
        state, {key for key in (own_key, previous_key, next_key) if key is not None}
    )
    # Other windows are compared only with a window's first generation: later generations have
    # the same plan.
    sharing = (
        set() if own_key in committed_windows else state.overlapping(covered_ranges(receipt.plan))
    )
    others = committed_by_key(state, sharing - {own_key}).values()
    view = TableView(
        location,
        owner,
        committed_windows.get(own_key),
        committed_windows.get(previous_key or ""),
        committed_windows.get(next_key or ""),
        [committed.receipt for committed in others],
    )
    return decide(receipt, view)


def relist(
    store: TableStore,
    version: int,
    receipts: Collection[WrittenReceipt],
    notes: Mapping[str, int],
) -> None:
    """Writes a lost list of windows and notes again, by a commit on the state with this version.

    All files that are staged so far are given up, as after a sweep: a note of an earlier sweep
    may be lost.

    Args:
        store: the store of a table with pages.
        version: the version of the state from which receipts and notes were chosen. They don't
            include later commits.
        receipts: the receipts of all windows.
        notes: all notes.

    Raises:
        RefusedError: another commit came since, and the list is still lost.
        OutcomeUnknownError: it is unknown whether the commit arrived.
    """

    def is_whole(state: TableState) -> Literal[True] | None:
        if not cast("PagedState", state).is_lost:
            return True  # another process has written the list
        if state.version == version:
            return None
        raise RefusedError(
            f"somebody committed to the table {store.location} while its list was made anew",
            "check",
            "Nothing was written to it. Stop what writes to it, and run this again.",
        )

    def on(state: TableState) -> TableChange:
        lines = {
            r.window.key: PageLine(r.generation, digest(text.encode()), version)
            for r, text in receipts
        }
        ranges = [offsets for r, _ in receipts for offsets in covered_ranges(r.plan)]
        cast("PagedState", state).pages = Pages([""], [page_of(lines, notes, ranges)])
        return TableChange(notes={SWEPT: youngest(store)})

    done = run_commit_loop(store, is_whole, on)
    if isinstance(done, Unanswered):
        raise OutcomeUnknownError.of(f"to {store.location}", done.reason, "Run this again")


# ------------------------------------------------------------------------------------ the table


def prepare(store: TableStore, columns: pa.Schema, owner: TableOwner) -> None:
    """Creates a table, or compares the columns of an existing one with the wanted columns.

    The owner is compared first: a table of another owner isn't touched.

    Raises:
        GridError, OwnerError: the table is bound to another owner.
        SchemaChangedError: its columns differ by more than the kind may change.
        SpecError: it would be inside another table's folder.
    """
    exists = is_fit(store, columns, owner)
    if not exists:
        _refuse_nested(store)
    store.ensure(columns, owner)
    if not exists and not is_fit(store, columns, owner):
        raise table_gone_error(store)


def _refuse_nested(store: TableStore) -> None:
    """Refuses a new table that is inside the folder of another table, or around it.

    A vacuum of the outer table removes all files of the inner one. Object stores aren't
    checked.

    Raises:
        SpecError: there is such a table; the error names its folder.
    """
    path, logs = Path(store.location.removeprefix("file://")), ("_delta_log", "_windrow")
    around = path.parents if path.is_absolute() else ()
    others = list[Path]()
    with suppress(OSError):  # for example, the name is too long: the first write reports it
        others += (folder for folder in around if any((folder / log).is_dir() for log in logs))
        others += (
            log_folder.parent for log in logs if around for log_folder in path.glob(f"*/{log}")
        )
    if others:
        with store.reading() as state:
            if state is not None:
                return
        raise SpecError(
            f"the table {store.location} would lie inside another one's folder, or around it:"
            f" {others[0]}. Cleaning up the outer one (VACUUM) removes all files of the inner one",
            "setup",
            "Set sink.path to a place beside that folder.",
        )


def is_fit(store: TableStore, columns: pa.Schema, owner: TableOwner) -> bool:
    """Returns whether there is a table.

    Raises:
        GridError, OwnerError, SchemaChangedError: as `prepare`, about an existing table.
    """
    with store.reading() as state:
        if state is None:
            return False
        refuse_other_owner(store.location, state.owner, owner)
        _column_changes(store, state, columns)
        return True


def _column_changes(store: TableStore, state: TableState, columns: pa.Schema) -> Sequence[str]:
    """Returns the changes by which a table accepts rows with these columns.

    It is `TableState.column_changes`, with more advice in the error.

    Raises:
        SchemaChangedError: the table can't accept them. If the table has no window, a refused
            run may have made its columns, so the error also advises to remove the table.
    """
    try:
        return state.column_changes(columns)
    except SchemaChangedError as error:
        if not state.committed():
            error.advice += (
                " No window is in the table yet: if a run made it that was refused, remove"
                f" {store.location}, and run this again."
            )
        raise


class ReceiptTable:
    """The methods of a sink that most kinds share (`ports.sink.Sink`).

    They read receipts from a state of the table, or have the answer of a kind without the
    feature.
    """

    def reading(self) -> AbstractContextManager[ReceiptState | None]:
        """Opens the newest state; None if there is no table."""
        raise NotImplementedError

    def owner(self) -> TableOwner | None:
        with self.reading() as state:
            return None if state is None else state.owner

    def look(self, window: Window) -> Committed | None:
        return next(self.looks([window]))

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        receipt_by_key: dict[str, Committed | Unreadable] = {}
        if windows:
            with self.reading() as state:
                if state is not None:
                    _refuse_foreign(state)
                    stored = state.receipts([window.key for window in windows])
                    receipt_by_key = {
                        stored_receipt.key: read_receipt(stored_receipt)
                        for stored_receipt in stored
                    }
        return (
            require_readable(receipt_by_key[w.key]) if w.key in receipt_by_key else None
            for w in windows
        )

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        keys: Collection[str] = ()
        if windows:
            with self.reading() as state:
                if state is not None:
                    _refuse_foreign(state)
                    keys = state.committed()
        return {window for window in windows if window.key in keys}

    def receipts(self) -> Iterator[Committed]:
        with self.reading() as state:
            if state is not None:
                yield from map(require_readable, receipts_of(state))

    def receipt_text(self, receipt: Receipt) -> str:
        with self.reading() as state:
            for stored in () if state is None else state.receipts([receipt.window.key]):
                committed = read_receipt(stored)
                if isinstance(committed, Committed) and committed.receipt == receipt:
                    assert isinstance(stored, StoredReceipt)
                    return stored.text
        return to_json(receipt)

    def warnings(self) -> Sequence[str]:
        return ()

    def wait_until_decided(self) -> None:
        """Returns at once: a commit is visible when it is done."""

    def size(self) -> tuple[int, int] | None:
        return None


class WindowTable(ReceiptTable):
    """A table that takes windows exactly once (`ports.sink.Sink`), over the store of any kind.

    Args:
        store: a store of this kind of table.
        rows: the columns of a row without the metadata columns, or a function that loads them.

    Raises:
        SpecError: the kind can't store such columns, two columns have the same name, or the
            primary key doesn't fit them. Columns that are loaded later are checked at the first
            write.
    """

    def __init__(self, store: TableStore, rows: Rows) -> None:
        refuse_wrong(rows.names if isinstance(rows, pa.Schema) else (), store.metadata)
        self.store, self.metadata, self._rows = store, dict(store.metadata), rows
        if isinstance(rows, pa.Schema):
            self._check(rows)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the metadata columns."""
        loaded = self._rows() if callable(self._rows) else self._rows
        self._check(loaded)
        return loaded

    def _check(self, rows: pa.Schema) -> None:
        if self.store.primary_key is not None:
            self.store.primary_key.refuse_unusable(rows)
        self.store.check_columns(rows)

    @cached_property
    def columns(self) -> pa.Schema:
        """All columns of the table."""
        key = self.store.primary_key
        marked = key is not None and key.marks
        rows = change_schema(self.schema, key.columns) if key and marked else self.schema
        return self.store.columns(rows)

    @property
    def identity(self) -> str:
        """The table's name in a plan's digest."""
        return self.store.identity

    @property
    def capabilities(self) -> Capabilities:
        """The promises of this kind of table."""
        return self.store.capabilities

    def is_at(self, identity: str) -> bool:
        return self.store.is_at(identity)

    def refuse_unwritable(self) -> None:
        self.store.check_write()
        _refuse_nested(self.store)

    def places(self) -> Sequence[str]:
        return self.store.places()

    # ------------------------------------------------------------------------------- preparing

    def reading(self) -> AbstractContextManager[TableState | None]:
        return self.store.reading()

    def prepare(self, owner: TableOwner, replaced: Collection[str] = ()) -> None:
        del replaced  # only a kind with append-only tables needs it
        prepare(self.store, self.columns, owner)

    def columns_to_come(self) -> Sequence[str]:
        with self.store.reading() as state:
            return () if state is None else _column_changes(self.store, state, self.columns)

    def size(self) -> tuple[int, int] | None:
        with self.store.reading() as state:
            return None if state is None else state.size()

    # ------------------------------------------------------------------------------ committing

    def stager(self, plan: Plan, generation: int, attempt: str) -> StagerFactory:
        """Makes stagers. No column has the generation, so it isn't passed on."""
        del generation
        key = self.store.primary_key
        layout = RowLayout(self.schema, self.metadata, attempt)
        if key is not None:
            changes = change_schema(self.schema, key.columns)
            layout = RowLayout(changes, self.metadata, attempt, UNAVAILABLE)
        return self.store.stager(layout, plan.window)

    def progress_folder(self) -> ProgressFolder | None:
        staged = self.store.staged
        return None if staged is None else staged.progress_folder()

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        done = run_commit_loop(
            self.store,
            lambda state: self.committed_in(state, receipt),
            lambda state: self.change_for(state, receipt, staged),
        )
        if not isinstance(done, Unanswered):
            self.remove_consumed(staged)
        return done.outcome_for(receipt)

    def change_for(
        self, state: TableState, receipt: Receipt, staged: Sequence[Staged]
    ) -> TableChange:
        """Returns the change that commits a window on this state.

        Raises:
            RefusedError: staged files are gone, or the table has rows that windrow didn't write.
        """
        committables = _committables(staged)
        check_staged(self.store, state, committables)
        if receipt.generation == 0 and self.capabilities.mode == "append":
            self.refuse_foreign_rows(state, receipt.window.key)
        return TableChange(
            window=receipt.window,
            staged=committables,
            replaces=receipt.generation > 0 and receipt.dead_replay is None,
            receipt=receipt,
            columns=self.columns if committables else None,
        )

    def remove_consumed(self, staged: Sequence[Staged]) -> None:
        """Removes staged files whose rows a commit has copied."""
        if self.store.staged is not None:
            self.store.staged.remove_consumed(_committables(staged))

    def committed_in(self, state: TableState, receipt: Receipt) -> Committed | None:
        return check_receipt(self.store.location, state, receipt)

    def refuse_foreign_rows(self, state: TableState, key: str) -> None:
        """Refuses a table with rows of a window that isn't committed.

        Raises:
            RefusedError: there are such rows.
        """
        if state.holding([key]):
            message = f"the table {self.store.location} holds rows of window {key}"
            raise RefusedError(
                f"{message} that no commit of windrow brought",
                "commit",
                "Nothing was committed. Find out what wrote them, and remove them.",
            )

    def maintain(self, settings: Maintenance, *, dry_run: bool = False) -> Maintained:
        return maintain(self.store, settings, dry_run=dry_run)

    def audit(self) -> TableAudit:
        return TableAudit(self)


def _committables(staged: Sequence[Staged]) -> tuple[str, ...]:
    return tuple(committable for s in staged for committable in s.rows)


def _refuse_foreign(state: ReceiptState) -> None:
    """Refuses a table that another program made: reading its owner raises SpecError."""
    _ = state.owner


def receipts_of(state: ReceiptState) -> Iterator[Committed | Unreadable]:
    """Returns the receipts of all committed windows, and an `Unreadable` for each damaged one."""
    _refuse_foreign(state)
    return map(read_receipt, state.receipts())


# ----------------------------------------------------------------------------------- verification

_MEMORY = "400MB"
"""The memory limit. DuckDB writes more data to a temporary folder, so any window can be counted."""

_COUNT = """
    SELECT topic, part, sum(rows)::BIGINT, count(*), min(position), max(position)
    FROM (
        SELECT coalesce({topic}, '') AS topic, coalesce({partition}, -1) AS part,
            coalesce({offset}, -1) AS position, count(*) AS rows
        FROM coordinates WHERE {window} = ? GROUP BY ALL
    )
    GROUP BY ALL ORDER BY ALL
"""
"""The query groups by offset first. A grouping can use the disk; a count of distinct values can't.

A null counts as -1. Only a damaged table has nulls in these columns.
"""

_COORDINATES = ("topic", "partition", "offset", "window")
_TYPES = (pa.string(), pa.int32(), pa.int64(), pa.string())


class TableAudit:
    """Answers the questions of verification with receipts and scans (`ports.sink.Audit`)."""

    def __init__(self, table: WindowTable) -> None:
        self._store, self.metadata, self.lists = table.store, table.metadata, (self,)
        self.location = self._store.location

    @property
    def keyed(self) -> KeyedTableAudit | None:
        return KeyedTableAudit(self._store) if self._store.primary_key is not None else None

    @property
    def lost_at(self) -> int | None:
        with self._store.reading() as state:
            return state.version if isinstance(state, PagedState) and state.is_lost else None

    def receipts(self) -> Iterator[Committed | Unreadable]:
        with self._store.reading() as state:
            if state is not None:
                yield from receipts_of(state)

    def stored_receipts(self) -> Iterator[WrittenReceipt]:
        with self._store.reading() as state:
            for text in read_receipt_texts(cast("PagedState", state).folder):
                committed = read_receipt(StoredReceipt("", text, None))
                if isinstance(committed, Committed):
                    yield committed.receipt, text

    def relist(self, version: int, receipts: Collection[WrittenReceipt]) -> None:
        relist(self._store, version, receipts, {})

    def windows(self) -> set[str]:
        with self._store.reading() as state:
            return set() if state is None else state.holding()

    def rows_held(self, window: Window) -> list[RowsHeld]:
        names = [self.metadata[name] for name in _COORDINATES]
        kinds = pa.schema(list(zip(names, _TYPES, strict=True)))
        try:
            return _counted(self.contents(window, names), kinds, self.metadata, window)
        except RefusedError as lost:
            replay_advice = f"windrow replay SPEC --window {window.key} reads the window again"
            raise RefusedError(
                lost.message,
                lost.stage,
                f"{lost.advice} Or {replay_advice}, as long as the topic holds its messages.",
            ) from lost

    def restore(self, window: Window, text: str, *, dry_run: bool = False) -> None:
        with self._store.writing() as state:
            for stored in () if state is None else state.receipts([window.key]):
                if isinstance(stored, StoredReceipt) and stored.text == text:
                    return
                assert state is not None
                state.restore(window, text, dry_run=dry_run)
                return
        raise RefusedError(
            f"window {window.key} is not committed in {self._store.location}",
            "check",
            "There is no receipt to restore: run the window.",
        )

    def contents(
        self, window: Window, names: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        with self._store.reading() as state:
            if state is not None:
                yield from state.scan(window, names)


class KeyedTableAudit:
    """Asks the newest state of a table with a primary key (`ports.sink.KeyedAudit`)."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def rows(self) -> int:
        with self._store.reading() as state:
            return 0 if state is None else cast("KeyedAudit", state).rows()

    def all_rows(self) -> Iterator[pa.RecordBatch]:
        return self._read_state(lambda state: state.all_rows())

    def tombstones(self) -> Iterator[pa.RecordBatch]:
        return self._read_state(lambda state: state.tombstones())

    def lost_tombstones(
        self, receipts: Sequence[Receipt]
    ) -> Iterator[tuple[Receipt, RefusedError | UnreachableError]]:
        return self._read_state(lambda state: state.lost_tombstones(receipts))

    def _read_state(self, ask: Callable[[KeyedAudit], Iterator[T]]) -> Iterator[T]:
        with self._store.reading() as state:
            if state is not None:
                yield from ask(cast("KeyedAudit", state))


@cache
def _open_database() -> DuckDBPyConnection:
    """Opens this process's database in memory, which takes longer than to count a window."""
    import duckdb  # imported here, because only verification needs it

    return duckdb.connect(config={"memory_limit": _MEMORY, "threads": "2"})


def _counted(
    batches: Iterator[pa.RecordBatch],
    columns: pa.Schema,
    metadata: Mapping[str, str],
    window: Window,
) -> list[RowsHeld]:
    """Counts a window's rows for each topic-partition.

    Args:
        batches: the table's rows.
        columns: the metadata columns that each batch has, in these types or narrower ones.
        metadata: names of the metadata columns in the table.
        window: the window of the rows.

    Raises:
        RefusedError, UnreachableError: an error of reading the batches. RefusedError also if
            they have other columns.
    """
    failed: list[Exception] = []

    def picked() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield batch.select(columns.names).cast(columns)
        except Exception as error:
            failed.append(error)
            raise

    count = _COUNT.format(**{name: quote_identifier(column) for name, column in metadata.items()})
    try:
        with _open_database().cursor() as connection:
            # DuckDB writes the progress bar to stdout.
            connection.execute("SET enable_progress_bar = false")
            rows = pa.RecordBatchReader.from_batches(columns, picked())
            connection.register("coordinates", rows)
            return [RowsHeld(*row) for row in connection.execute(count, [window.key]).fetchall()]
    except Exception as error:
        if failed and isinstance(failed[0], WindrowError):  # DuckDB wraps the reader's error
            raise failed[0] from None
        if isinstance(failed[0] if failed else error, KeyError | pa.ArrowException):
            raise RefusedError(
                f"a file of window {window.key} has other columns than windrow wrote",
                "check",
                "Restore the file from a backup.",
            ) from error
        raise
