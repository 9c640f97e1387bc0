"""The Delta sink: rows and receipt in one commit, exactly once.

A commit goes: load afresh -> look -> refuse overlaps -> write the receipt file -> commit on exactly that snapshot; if that didn't surely
arrive, again from the top. Four application transactions in it, all of which outlive the log's clean-up:

    window    of (pipeline, window), version = generation + 1: at most once per generation
    receipt   of (pipeline, window), version = 63 bits of the receipt file's SHA-256: which file counts
    version   of (pipeline, window), version = the Delta version: for people
    commits   of the table, version = one more: with any other commit in between, this one fails, so what was looked at still holds

Race of two runs of one window:  1 A loads version 7.  2 B loads version 7.  3 A commits version 8.  4 B's commit finds version 8, fails.
5 B loads version 8, looks, finds A's receipt: already done.  A commit by path in step 4 would load version 8 itself and write twice.

The application transaction per window, the conflict on the snapshot that was looked at, and deleting nothing are the Delta
protocol's own advice for idempotent writers; kafka-delta-ingest keeps its offsets the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import DamagedError, RefusedError, UnreachableError
from windrow.ingest.model.binding import Binding
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import AlreadyDone, Audit, Done, Outcome, Promises, Unknown, Unreadable
from windrow.ingest.schema.metadata import refuse_wrong
from windrow.ingest.sinks.columns import file_schema
from windrow.ingest.sinks.decision import Seen, adjacent, decide, is_this
from windrow.ingest.sinks.delta import table as tables
from windrow.ingest.sinks.delta.columns import Evolution, Evolve, check_rows, in_files
from windrow.ingest.sinks.delta.demands import refuse_demands
from windrow.ingest.sinks.delta.janitor import sweep
from windrow.ingest.sinks.delta.names import COMMITS_APP, RANGES_APP, SWEPT_APP, receipt_app, receipts_among, version_app, window_app
from windrow.ingest.sinks.delta.newest import Newest, State, append_on
from windrow.ingest.sinks.delta.prepare import Wanted, columns_to_come, ensure, evolved, is_as_wanted
from windrow.ingest.sinks.delta.receipts import ReceiptFiles, TableSnapshot
from windrow.ingest.sinks.delta.stage import DeltaStagerFactory, StagedFile, staged_files
from windrow.ingest.sinks.delta.table import Writing
from windrow.ingest.sinks.delta.wide import WideFiles
from windrow.ingest.sinks.gone import refuse_gone
from windrow.ingest.sinks.place import Place, dead_place, is_same, normal
from windrow.ingest.sinks.rights import refuse_unwritable
from windrow.ingest.sinks.staging import RowLayout

_KIND = "delta:"


class DeltaSink:
    """`ports.sink.Sink` on a Delta table.

    Args:
        uri: the table's path or URI; it belongs to one pipeline.
        schema: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        metadata: those that it adds, by name (see `ingest.schema.metadata`): which ones, and what they are called.
        evolve: what may become of the columns of a table that is there (`ingest.sinks.delta.columns`).

    Raises:
        SpecError: if Delta can't store these columns as they are, or two of them have one name; of a schema to load, at the first write.
    """

    promises = Promises(atomic="window", replaces=True, mode="append")

    def __init__(
        self, uri: str, schema: pa.Schema | Callable[[], pa.Schema], metadata: Mapping[str, str] = DEFAULT, evolve: Evolve = "add_columns"
    ) -> None:  # fmt: skip
        if isinstance(schema, pa.Schema):
            check_rows(schema, metadata)
        else:
            refuse_wrong((), metadata)
        self.uri, self.metadata = normal(uri), dict(metadata)
        self._laid = tables.Laid(metadata["window"])
        self._evolve = evolve
        self._load = schema
        self._place = Place(self.uri)
        self._newest = Newest(self.uri, self._place)
        self._receipts = ReceiptFiles(self._place)
        self._named: dict[str, int] = {}  # receipts that looks have named since the last commit, whose files that one has seen

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        loaded = self._load() if callable(self._load) else self._load
        check_rows(loaded, self.metadata)
        return loaded

    @cached_property
    def _file(self) -> pa.Schema:
        return file_schema(self.schema, self.metadata)

    @cached_property
    def _wanted(self) -> Wanted:
        return Wanted(self._file, self._laid, self._evolve)

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
        state = self._newest.look()
        return None if state is None else tables.binding(self.uri, state.table, self._laid)

    def prepare(self, binding: Binding) -> None:
        """See `ports.sink.Sink.prepare`."""
        state = self._newest.look()
        if state is None or not is_as_wanted(self.uri, state.table, self._wanted, binding):
            ensure(self.uri, self._wanted, binding)

    def size(self) -> tuple[int, int]:
        """See `ports.sink.Sized`: by the table's log."""
        state = self._newest.look()
        if state is None:
            return 0, 0
        files = tables.listed(state.table)
        rows, size = (int(pc.sum(files[name]).as_py() or 0) for name in ("num_records", "size_bytes"))
        return rows, size

    def columns_to_come(self) -> Sequence[str]:
        """See `ports.sink.Sink.columns_to_come`."""
        state = self._newest.look()
        return () if state is None else columns_to_come(self.uri, state.table, self._wanted)

    def look(self, window: Window) -> Committed | None:
        """See `ports.sink.Sink.look`."""
        return next(self.looks([window]))

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        """See `ports.sink.Sink.looks`."""
        state = self._newest.look() if windows else None
        if state is None:
            yield from (None for _ in windows)
            return
        tables.binding(self.uri, state.table, self._laid)
        self._list_named(windows[0].pipeline)
        yield from (self._committed(state, window.pipeline, window.key) for window in windows)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """See `ports.sink.Sink.committed`."""
        state = self._newest.look() if windows else None
        if state is None:
            return set()
        tables.binding(self.uri, state.table, self._laid)
        return {window for window in windows if state.version_of(receipt_app(window.key, window.pipeline)) is not None}

    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`."""
        for key, receipt in self._windows(self._receipts):
            if isinstance(receipt, Committed):
                yield receipt
            elif receipt is not None:
                raise DamagedError(receipt.what, "commit", receipt.do)
            else:
                what = f"the table {self.uri} holds rows of window {key} that no commit of windrow brought"
                raise RefusedError(what, "commit", "Something else writes into this table: windrow verify shows what; remove those rows.")

    def receipt_text(self, receipt: Receipt) -> str:
        """See `ports.sink.Sink.receipt_text`."""
        return self._receipts.text(receipt)

    def stager(self, plan: Plan, generation: int, attempt: str) -> DeltaStagerFactory:
        """See `ports.sink.Sink.stager`; a file of rows says nothing of its generation."""
        del generation
        return DeltaStagerFactory(self.uri, RowLayout(self.schema, self.metadata, attempt), plan.window.key)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """See `ports.sink.Sink.commit`.

        Raises:
            RefusedError: the window is there under another plan, or has rows that no commit brought; a generation was left out; or staged
                files are gone, or were given up.
            UnreachableError: the log's newest entry is a commit of windrow's without its last lines.
        """
        files = staged_files(word for s in staged for word in s.rows)
        waits, sent, wide = list(tables.WAITS), False, WideFiles(self._place, receipt, self.metadata)
        while True:
            outcome = self._single_try(receipt, files, wide, sent=sent)
            if not isinstance(outcome, _Unanswered):
                return outcome
            sent = True
            if not tables.is_conflict(outcome.why):  # what others committed in between is followed like any other commit
                self._newest.forget()
            if not tables.again(self.uri, outcome.version, waits):
                tables.refuse_full(self.uri, outcome.version, outcome.why)
                return Unknown(outcome.why)

    def audit(self) -> Audit:
        """See `ports.sink.Sink.audit`."""
        from windrow.ingest.sinks.delta.audit import DeltaAudit  # noqa: PLC0415  # brings DuckDB

        return DeltaAudit(self.uri, self.metadata, self._receipts_or_damage, self._restore)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        """See `ports.sink.Sink.sweep`. Receipt files stay, all of them."""
        return sweep(self.uri, older_than, dry_run=dry_run)

    # ------------------------------------------------------------------------------------------------------------- look, decide, write

    def _single_try(self, receipt: Receipt, files: Sequence[StagedFile], wide: WideFiles, *, sent: bool) -> Outcome | _Unanswered:
        """Look, decide, write: each once, on one snapshot. `sent`: whether an earlier try may have arrived."""
        try:
            state, seen = self._look_for(receipt)
            committed = decide(receipt, seen)
            if committed is None:
                self._refuse_unfit(state, receipt, files)
        except UnreachableError as error:
            if sent:
                return Unknown(str(error))
            raise
        if committed is not None:
            return Done(committed) if sent and is_this(committed.receipt, receipt) else AlreadyDone(committed)
        try:
            whole, writing = self._writing(state, receipt, files, wide)
            tables.refuse_append_only(self.uri, state.table, state.version, writing)
        except CommitFailedError as error:  # it goes by the state that was looked at, which is over
            return _Unanswered(state.version, tables.conflict(error))
        refuse_gone(self._place, wide.files, state.version_of(SWEPT_APP))
        why = self._try_commit(state, whole, writing)
        return Done(Committed(whole, state.version + 1)) if why is None else _Unanswered(state.version, why)

    def _look_for(self, receipt: Receipt) -> tuple[State, Seen]:
        """The table as it is now, and what it holds that bears on a receipt."""
        state, pipeline = self._look_now(), receipt.window.pipeline
        binding = tables.binding(self.uri, state.table, self._laid)
        self._list_named(pipeline)
        committed = self._committed(state, pipeline, receipt.window.key)
        before, after = (None if key is None else self._committed(state, pipeline, key) for key in adjacent(receipt))
        named, own = None if state.every is None else self._named, None if committed is None else committed.receipt
        others = self._receipts.overlapping(TableSnapshot(state.version_of, pipeline), receipt, named, own)
        self._named = {}
        return state, Seen(self.uri, binding, committed, before, after, others)

    def _list_named(self, pipeline: str) -> None:
        """Know the files of the receipts that have come since this was done before."""
        new = self._newest.take_new()
        named = None if new is None else receipts_among(new, pipeline)
        self._receipts.list_named(named)
        self._named |= named or {}

    def _committed(self, state: State, pipeline: str, key: str) -> Committed | None:
        return self._receipts.committed_receipt(TableSnapshot(state.version_of, pipeline, self._receipts.names_of(key)), key)

    def _look_now(self) -> State:
        """The table as it is now, with a newest entry that is whole."""
        state = self._newest.look()
        if state is None:
            raise RefusedError(f"the table {self.uri} isn't there any more", "commit", "Was it removed meanwhile? Run the window again.")
        tables.refuse_unfinished(self.uri, self._place, state.version)
        return state

    def _refuse_unfit(self, state: State, receipt: Receipt, files: Sequence[StagedFile]) -> None:
        """What would make a commit on this snapshot a wrong one: other demands, files that are gone, rows that nobody committed."""
        refuse_demands(self.uri, state.table)
        refuse_gone(self._place, files, state.version_of(SWEPT_APP))
        if receipt.generation == 0:
            self._refuse_strange_rows(state, receipt.window.key)

    def _refuse_strange_rows(self, state: State, key: str) -> None:
        tables.refuse_strange_rows(self.uri, state.filled, key)

    def _become(self, state: State, files: Sequence[StagedFile]) -> Evolution:
        """What becomes of the table's columns: nothing without rows."""
        return evolved(self.uri, state.table, self._wanted if files else None)

    def _writing(self, state: State, receipt: Receipt, files: Sequence[StagedFile], wide: WideFiles) -> tuple[Receipt, Writing]:
        """The receipt as it is to be committed, and what becomes of the table."""
        become, key = self._become(state, files), receipt.window.key
        parts = {key} if receipt.generation > 0 and receipt.mending is None else set[str]()
        columns = in_files(become.schema, self._laid.column)
        staged = [fit for file in files for fit in (wide.of(file.path, columns) if become.narrow else [file])]
        actions = tables.add_actions(state.table, staged, key)
        if not become.widened:
            return receipt, Writing(actions, become.schema if become.changes else None, parts)
        tables.refuse_hidden_rows(self.uri, state.table)
        for file in tables.data_files(tables.brought_to(state.table, state.version)):
            if file.part not in parts:
                actions += tables.add_actions(state.table, wide.of(file.path, columns), file.part)
        return receipt, Writing(actions, become.schema, None)

    def _try_commit(self, state: State, receipt: Receipt, writing: Writing) -> str | None:
        """Commit on exactly this snapshot; None if it surely arrived, else why that isn't known."""
        key, pipeline = receipt.window.key, receipt.window.pipeline
        apps = {
            window_app(key, pipeline): receipt.generation + 1,
            receipt_app(key, pipeline): self._receipts.write(receipt),
            version_app(key, pipeline): state.version + 1,
            COMMITS_APP: (state.version_of(COMMITS_APP) or 0) + 1,
        }
        ranges = None if state.every is None else self._receipts.keep_ranges(TableSnapshot(state.version_of, pipeline))
        properties = tables.once(apps | ({} if ranges is None else {RANGES_APP: ranges}), _note(receipt))
        crash_point("commit.before")
        why = tables.attempt(lambda: self._write(state, writing, properties))
        crash_point("commit.after")
        return why

    def _write(self, state: State, writing: Writing, properties: CommitProperties) -> None:
        if writing.appends:
            append_on(state, writing.actions, properties)
        else:
            tables.overwrite(tables.brought_to(state.table, state.version), writing, properties)

    # ------------------------------------------------------------------------------------------------------------------------ receipts

    def _windows(self, files: ReceiptFiles) -> Iterator[tuple[str, Committed | Unreadable | None]]:
        """Every window that was committed, in the order of keys, and those that have rows all the same: None."""
        state = Newest(self.uri, self._place).look()
        if state is None:
            return
        pipeline = tables.binding(self.uri, state.table, self._laid).pipeline
        names = files.by_window()
        filled = self._filled(state)
        for key in sorted(filled | names.keys() | receipts_among(state.every or {}, pipeline).keys()):
            receipt = files.receipt_or_damage(TableSnapshot(state.version_of, pipeline, names.get(key, [])), key)
            if receipt is not None or key in filled:
                yield key, receipt

    def _filled(self, state: State) -> set[str]:
        """The windows that the table holds rows of, as far as that is told without reading them."""
        return state.filled.every()

    def _receipts_or_damage(self) -> Iterator[Committed | Unreadable]:
        """Reads every file anew: one that was damaged since this process read it is what is looked for."""
        return (receipt for _, receipt in self._windows(ReceiptFiles(self._place)) if receipt is not None)

    def _restore(self, window: Window, text: str, dry_run: bool) -> None:
        table = tables.load(self.uri)
        if table is None:
            raise RefusedError(f"the table {self.uri} isn't there", "check", "There is no receipt to restore: check sink.path.")
        tables.binding(self.uri, table, self._laid)
        self._receipts.restore(tables.versions(self.uri, table), window, text, dry_run=dry_run)


class _Unanswered(msgspec.Struct, frozen=True):
    """A commit on a version that was sent and is not known to have arrived."""

    version: int
    why: str


def _note(receipt: Receipt) -> dict[str, str]:
    """For people who read the table's history; windrow never reads it back: commitInfo goes with the log."""
    ranges = [[s.topic, s.partition, s.start, s.stop] for s in receipt.plan.splits]
    said = {
        "window": receipt.window.key,
        "pipeline": receipt.window.pipeline,
        "generation": receipt.generation,
        "digest": receipt.digest,
        "attempt": receipt.attempt,
        "counts": receipt.counts,
        "ranges": ranges,
    }
    return {"windrow": msgspec.json.encode(said).decode()}
