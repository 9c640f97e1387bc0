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
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from ingest.crashpoints import crash_point
from ingest.errors import DamagedError, RefusedError, UnreachableError
from ingest.model.plan import Plan
from ingest.model.receipt import Committed, Receipt
from ingest.model.staged import Staged
from ingest.model.window import Window
from ingest.ports.sink import AlreadyDone, Done, Outcome, Unknown, Unreadable
from ingest.schema.metadata import DEFAULT, refuse_wrong
from ingest.sinks.columns import DEAD_FILE, file_schema
from ingest.sinks.decision import adjacent, refuse_overlap, refuse_torn, settled
from ingest.sinks.delta import table as tables
from ingest.sinks.delta.columns import check_rows, table_schema
from ingest.sinks.delta.dead import DeadLetters
from ingest.sinks.delta.janitor import GRACE, sweep
from ingest.sinks.delta.log import transactions
from ingest.sinks.delta.names import COMMITS_APP, parse_app_id, receipt_app, version_app, window_app
from ingest.sinks.delta.place import Place, is_same, normal
from ingest.sinks.delta.receipts import ReceiptFiles, VersionOf
from ingest.sinks.delta.stage import DeltaStagerFactory, StagedFile, refuse_gone
from ingest.sinks.delta.table import Binding

_KIND, _DEAD = "delta:", "_dead"


class DeltaSink:
    """`ports.sink.Sink` on a Delta table, with its dead letters in a second one beside it (`<table>_dead`).

    Args:
        uri: the table's path or URI; it belongs to one pipeline.
        schema: the columns of a row, without the ones that windrow adds; or what loads them, called at the first write.
        metadata: those that it adds, by name (see `ingest.schema.metadata`): which ones, and what they are called.

    Raises:
        SpecError: if Delta can't store these columns as they are, or two of them have one name; of a schema to load, at the first write.
    """

    def __init__(self, uri: str, schema: pa.Schema | Callable[[], pa.Schema], metadata: Mapping[str, str] = DEFAULT) -> None:
        if isinstance(schema, pa.Schema):
            check_rows(schema, metadata)
        else:
            refuse_wrong((), metadata)
        self.uri, self.metadata, self._window = normal(uri), dict(metadata), metadata["window"]
        self._load = schema
        self._place = Place(self.uri)
        self._receipts = ReceiptFiles(self._place)
        self._dead = DeadLetters(f"{self.uri}{_DEAD}")
        self._seen_all = False  # whether this process held all receipts that count against the files that are there: at its first commit

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row, without the ones that windrow adds."""
        loaded = self._load() if callable(self._load) else self._load
        check_rows(loaded, self.metadata)
        return loaded

    @cached_property
    def _file(self) -> pa.Schema:
        return file_schema(self.schema, self.metadata)

    @property
    def identity(self) -> str:
        """Which table this is."""
        return f"{_KIND}{self.uri}"

    def is_at(self, identity: str) -> bool:
        """See `ports.sink.Sink.is_at`. A link may lead to the table alone, and not to the dead letters' beside it: that is another one."""
        there = identity.removeprefix(_KIND)
        return all(is_same(f"{there}{of}", f"{self.uri}{of}") for of in ("", _DEAD))

    def refuse_other(self, ledger: str, pipeline: str, grid: str) -> None:
        """See `ports.sink.Sink.refuse_other`."""
        there = self.binding()
        if there is not None:
            tables.refuse_other(self.uri, there, Binding(pipeline, ledger, grid))

    def prepare(self, ledger: str, pipeline: str, grid: str) -> None:
        """See `ports.sink.Sink.prepare`; the dead letters' table too."""
        here = Binding(pipeline, ledger, grid)
        tables.ensure(self.uri, self._file, self._window, here)
        tables.ensure(self._dead.uri, DEAD_FILE, DEFAULT["window"], here)

    def binding(self) -> Binding | None:
        """What the table is bound to; None if it isn't there."""
        table = tables.load(self.uri)
        return None if table is None else tables.binding(self.uri, table, self._window)

    def look(self, window: Window) -> Committed | None:
        """See `ports.sink.Sink.look`.

        Raises:
            DamagedError: the window is committed, but its receipt is missing or damaged.
        """
        table = tables.load(self.uri)
        if table is None:
            return None
        tables.binding(self.uri, table, self._window)
        return self._receipts.held(tables.versions(self.uri, table), window.key, window.pipeline, self._receipts.names())

    def receipts(self) -> Iterator[Committed]:
        """See `ports.sink.Sink.receipts`."""
        for key, found in self._windows(self._receipts):
            if isinstance(found, Committed):
                yield found
            elif found is not None:
                raise DamagedError(found.what, "commit", found.do)
            else:
                what = f"the table {self.uri} holds rows of window {key} that no commit of windrow brought"
                raise RefusedError(what, "commit", "Something else writes into this table: windrow verify shows what; remove those rows.")

    def inspect(self) -> Iterator[Committed | Unreadable]:
        """See `ports.sink.Sink.inspect`. Reads every file anew: one that was damaged since this process read it is what is looked for."""
        return (found for _, found in self._windows(ReceiptFiles(self._place)) if found is not None)

    def written(self, receipt: Receipt) -> str:
        """See `ports.sink.Sink.written`."""
        return self._receipts.written(receipt)

    def restore(self, window: Window, written: str, *, dry_run: bool = False) -> None:
        """See `ports.sink.Sink.restore`."""
        table = tables.load(self.uri)
        if table is None:
            raise RefusedError(f"the table {self.uri} isn't there", "check", "There is no receipt to restore: check sink.path.")
        tables.binding(self.uri, table, self._window)
        self._receipts.restore(tables.versions(self.uri, table), window, written, dry_run=dry_run)

    def _windows(self, files: ReceiptFiles) -> Iterator[tuple[str, Committed | Unreadable | None]]:
        """Every window that was committed, in the order of keys, and those that have rows all the same: None."""
        table = tables.load(self.uri)
        if table is None:
            return
        pipeline = tables.binding(self.uri, table, self._window).pipeline
        names = files.by_window()
        every = self._transactions(table)
        version = self._version_of(table, every)
        filled = {p[self._window] for p in table.partitions()}
        for key in sorted(filled | names.keys() | _named(every, pipeline).keys()):
            found = files.find(version, key, pipeline, names.get(key, []))
            if found is not None or key in filled:
                yield key, found

    def stager(self, plan: Plan, generation: int, attempt: str) -> DeltaStagerFactory:
        """See `ports.sink.Sink.stager`."""
        key, pipeline = plan.window.key, plan.window.pipeline
        return DeltaStagerFactory(self.uri, self._dead.uri, self.schema, self.metadata, key, pipeline, generation, attempt)

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        """See `ports.sink.Sink.commit_dead`.

        Raises:
            OutcomeUnknownError: it was sent and can't be told to have arrived.
        """
        self._dead.commit(plan, attempt, [msgspec.json.decode(word, type=StagedFile) for s in staged for word in s.dead])

    def read_dead(self, window: Window, limit: int | None = None, attempt: str | None = None) -> pa.Table:
        """See `ports.sink.Sink.read_dead`; none if no attempt is named and the window isn't committed."""
        held = self.look(window) if attempt is None else None
        return self._dead.read(window, attempt if held is None else held.receipt.attempt, limit)

    def refused(self) -> dict[str, str]:
        """See `ports.sink.Sink.refused`."""
        newest, table = self._dead.newest(), tables.load(self.uri)
        if not newest or table is None:
            return {}
        pipeline, every = tables.binding(self.uri, table, self._window).pipeline, self._transactions(table)
        version = self._version_of(table, every)
        return {key: self._dead.attempt(path) for key, path in newest.items() if version(window_app(key, pipeline)) is None}

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """See `ports.sink.Sink.commit`.

        Raises:
            RefusedError: the window is there under another plan, or has rows that no commit brought; a generation was left out; or staged
                files are gone.
            UnreachableError: the log's newest entry is a commit of windrow's without its last lines.
        """
        files = [msgspec.json.decode(word, type=StagedFile) for s in staged for word in s.rows]
        waits, sent = list(tables.WAITS), False
        while True:
            try:
                table = self._bound(receipt)
                names = self._receipts.names()
                version = tables.versions(self.uri, table)
                pipeline = receipt.window.pipeline
                held = self._receipts.held(version, receipt.window.key, pipeline, names)
                before, after = (None if k is None else self._receipts.held(version, k, pipeline, names) for k in adjacent(receipt))
                named = None if self._seen_all else _named(self._transactions(table), pipeline)
                overlapping = self._receipts.overlapping(version, receipt, names, named)
                self._seen_all = True
            except UnreachableError as error:
                if sent:
                    return Unknown(str(error))
                raise
            found = settled(receipt, held)
            if found is not None:
                return Done(found) if sent and found.receipt == receipt else AlreadyDone(found)
            refuse_overlap(receipt.plan, overlapping)
            refuse_torn(receipt.plan, before, after)
            refuse_gone(self._place, files)
            if receipt.generation == 0:
                tables.refuse_strange_rows(self.uri, table, receipt.window.key)
            why = self._write(table, receipt, files)
            if why is None:
                return Done(Committed(receipt, table.version() + 1))
            sent = True
            if not tables.again(self.uri, table.version(), waits):
                tables.refuse_full(self.uri, table.version(), why)
                return Unknown(why)

    def janitor(self, older_than: timedelta = GRACE) -> list[str]:
        """Remove staged files that no commit names and that are older than the grace period; the paths removed. Receipts stay, all of them.

        Raises:
            ValueError: for a grace period under an hour: runs that are still staging would lose their files.
        """
        return [f"{place}/{path}" for place in (self.uri, self._dead.uri) for path in sweep(place, older_than, datetime.now(UTC))]

    def _transactions(self, table: DeltaTable) -> dict[str, int] | None:
        """The snapshot's application versions, all at once where that agrees with deltalake; else None: ask it one by one."""
        every = transactions(self._place, table.version())
        agree = every is not None and every.get(COMMITS_APP) == tables.versions(self.uri, table)(COMMITS_APP)
        return every if agree else None

    def _version_of(self, table: DeltaTable, every: Mapping[str, int] | None) -> VersionOf:
        """The snapshot's answer to which version an application id has, from `_transactions` where that knows."""
        return tables.versions(self.uri, table) if every is None else every.get

    def _bound(self, receipt: Receipt) -> DeltaTable:
        """The table as it is now, and still the one that the receipt was made for."""
        table = tables.load(self.uri)
        if table is None:
            raise RefusedError(f"the table {self.uri} isn't there any more", "commit", "Was it removed meanwhile? Run the window again.")
        tables.refuse_unfinished(self.uri, self._place, table)
        here = Binding(receipt.window.pipeline, receipt.ledger, receipt.grid)
        tables.refuse_other(self.uri, tables.binding(self.uri, table, self._window), here)
        tables.refuse_unfit(self.uri, table, table_schema(self._file, self._window))
        return table

    def _write(self, table: DeltaTable, receipt: Receipt, files: Sequence[StagedFile]) -> str | None:
        """One try on exactly this snapshot; None if it surely arrived."""
        key, pipeline = receipt.window.key, receipt.window.pipeline
        apps = {
            window_app(key, pipeline): receipt.generation + 1,
            receipt_app(key, pipeline): self._receipts.write(receipt),
            version_app(key, pipeline): table.version() + 1,
            COMMITS_APP: (tables.versions(self.uri, table)(COMMITS_APP) or 0) + 1,
        }
        properties = tables.once(apps, _note(receipt))
        actions = tables.add_actions(table, files, key)
        write = tables.append if receipt.generation == 0 else partial(tables.replace, window_key=key)
        crash_point("commit.before")
        why = tables.attempt(lambda: write(table=table, actions=actions, properties=properties))
        crash_point("commit.after")
        return why


def _named(every: Mapping[str, int] | None, pipeline: str) -> dict[str, int]:
    """Of a snapshot's application versions: each committed window's key, and the fingerprint of its receipt."""
    parsed = ((parse_app_id(app), version) for app, version in (every or {}).items())
    return {app[1]: version for app, version in parsed if app is not None and app[0] == "receipt" and app[2:] == [pipeline]}


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
