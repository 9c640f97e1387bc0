"""Maintenance of a table: expires rows, joins small files, and removes what nobody needs.

Each change is made by the commit loop on exactly the state that was looked at, as windows are.
So a run at the same time loses nothing, and neither does a second maintenance:

1. M looks, and writes a file with the rows of the files A and B.
2. A run replaces the window of A and B.
3. M's put fails, because the table has another state.
4. M looks again. A and B aren't in the table any more, so M leaves them out.

A lease keeps two maintenances from writing the same files for nothing. It is a note in the
table with the instant until which it holds, in epoch microseconds. Each commit of the
maintenance renews the lease, and is refused if the note isn't its own. The clocks of two
machines only decide how long one waits for the other; the commit loop protects the rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec

from windrow.ingest.errors import (
    OutcomeUnknownError,
    RefusedError,
    UnreachableError,
    WindrowError,
    format_count,
)
from windrow.ingest.model.boundary import instant
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Maintained, Maintenance
from windrow.ingest.sinks.kit.commit.commit_loop import run_commit_loop
from windrow.ingest.sinks.kit.commit.pages import PagedState
from windrow.ingest.sinks.kit.commit.stored_receipts import committed_by_key
from windrow.ingest.sinks.kit.commit.sweep import check_staged, sweep
from windrow.ingest.sinks.kit.commit.table_store import (
    JoinedFiles,
    TableChange,
    TableState,
    TableStore,
    Unanswered,
)
from windrow.ingest.sinks.kit.files.filesystem import epoch_millis
from windrow.ingest.sinks.kit.files.staged_files import JOINING

LEASE = "maintained_until"
"""The name of the note with the end of the lease, in epoch microseconds."""

LEASE_TIME = timedelta(minutes=15)
"""The time after a commit of a maintenance from which another process may begin one."""

JOINS_PER_COMMIT = 16
"""The most new files of one commit."""

EXPIRED_PER_COMMIT = 500
"""The most windows whose rows one commit removes."""


def maintain(store: TableStore, settings: Maintenance, *, dry_run: bool) -> Maintained:
    """Maintains a table (`ports.sink.Sink.maintain`).

    A table without anything to join or to expire gets no commit.
    """
    rows, done, removed = _expire_rows(store, settings, dry_run=dry_run), Maintained(), list[str]()
    if store.staged is not None and not store.staged.consumed:
        done, removed = _maintain_files(store, settings, dry_run=dry_run)
    removed += sweep(store, settings.keep_files, dry_run=dry_run)
    return msgspec.structs.replace(done, expired_rows=rows, removed_files=tuple(removed))


def _expire_rows(store: TableStore, settings: Maintenance, *, dry_run: bool) -> int:
    """Removes the rows of old windows, some windows in each commit, the oldest first.

    Returns:
        The number of rows.
    """
    if settings.keep_rows is None:
        return 0
    kept_since = datetime.now(UTC) - settings.keep_rows
    with store.reading() as state:
        held = set[str]() if state is None else state.holding() & {*state.committed()}
        old = [] if state is None else _old_receipts(state, held, kept_since)
    if dry_run or not old:
        return sum(receipt.table_rows for receipt in old)
    with _Lease(store).hold() as lease:
        keys = [receipt.window.key for receipt in old]
        return sum(
            lease.expire_rows(keys[first : first + EXPIRED_PER_COMMIT], kept_since)
            for first in range(0, len(keys), EXPIRED_PER_COMMIT)
        )


def _old_receipts(
    state: TableState, keys: Collection[str], kept_since: datetime
) -> Sequence[Receipt]:
    """Returns the receipts of those windows among some whose rows are too old."""
    receipts = [committed.receipt for committed in committed_by_key(state, keys).values()]
    return [r for r in receipts if r.table_rows and r.aging_since < kept_since]


def _maintain_files(
    store: TableStore, settings: Maintenance, *, dry_run: bool
) -> tuple[Maintained, list[str]]:
    """Joins small files, expires snapshots, and removes the files of old versions.

    Returns:
        The changes, and the URIs of the removed files.
    """
    assert store.staged is not None
    with store.reading() as state:
        if not isinstance(state, PagedState):
            return Maintained(), []
        _ = state.owner  # refuses a table that another program made
        joins = settings.file_size > 0 and store.primary_key is None
        bundles = list(bundles_of(state, settings.file_size)) if joins else []
        kept_since = 0
        if settings.keep_versions is not None:
            kept_since = epoch_millis(datetime.now(UTC) - settings.keep_versions)
        expired = len(state.snapshots_until(kept_since))
        done = Maintained(sum(map(len, bundles)), len(bundles), expired)
        if not dry_run and (bundles or expired):
            with _Lease(store).hold() as lease:
                done = Maintained.sum(_join(lease, state, bundles))
                expired = lease.expire(kept_since) if expired else 0
            done = msgspec.structs.replace(done, expired_versions=expired)
    with store.reading() as newest:
        assert isinstance(newest, PagedState)
        replaced = newest.replaced_until(kept_since) if kept_since else ()
        return done, store.staged.remove(replaced, dry_run=dry_run)


def bundles_of(state: PagedState, file_size: int) -> Iterator[Sequence[str]]:
    """Yields the paths of the files to join, several for each new file.

    Files of at least three quarters of the size stay as they are. The others are taken in
    their order, up to the size. So a file isn't rewritten each night.
    """
    for files in state.files_by_partition().values():
        bundle, size = list[str](), 0
        for file in files:
            if file.size * 4 >= file_size * 3:
                continue
            if size + file.size > file_size:
                if len(bundle) > 1:
                    yield bundle
                bundle, size = [], 0
            bundle.append(file.path)
            size += file.size
        if len(bundle) > 1:
            yield bundle


def _join(
    lease: _Lease, state: PagedState, bundles: Sequence[Sequence[str]]
) -> Iterator[Maintained]:
    """Writes and commits the files that take the place of smaller ones."""
    attempt = f"{JOINING}-{uuid.uuid4().hex}"
    for first in range(0, len(bundles), JOINS_PER_COMMIT):
        some_bundles = bundles[first : first + JOINS_PER_COMMIT]
        committed = lease.put_joined([_write_joined_file(state, b, attempt) for b in some_bundles])
        yield Maintained(sum(len(j.replaced) for j in committed), len(committed))


def _write_joined_file(state: PagedState, paths: Sequence[str], attempt: str) -> JoinedFiles:
    """Writes a file with the rows of some files. It is visible once a commit names it."""
    try:
        file = state.join_files(paths, attempt)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(
            f"{format_count(len(paths), 'file')} can't be joined in a new one: {reason}",
            "commit",
            "The table is as before, or has larger files with the same rows. Make room or repair"
            " the storage, then run the maintenance again.",
        ) from error
    return JoinedFiles(tuple(paths), () if file is None else (to_json(file),))


class _Lease:
    """The right of this process to maintain a table, until it ends or another process has it.

    Args:
        store: the store of the table.
    """

    def __init__(self, store: TableStore) -> None:
        self._store, self._end = store, 0

    @contextmanager
    def hold(self) -> Iterator[_Lease]:
        """Takes the lease, and gives it up at the end.

        After a kill it ends by itself.

        Raises:
            RefusedError: another process has it.
        """
        self.put(lambda _: TableChange())
        try:
            yield self
            self.put(lambda _: TableChange(), timedelta())
        except Exception as error:
            end = self._end
            try:
                self.put(lambda _: TableChange(), timedelta())
            except WindrowError as unnoted:
                if isinstance(error, WindrowError) and not isinstance(unnoted, RefusedError):
                    error.advice += (
                        " The end of this maintenance may not be noted in the table: then another"
                        f" one is refused until {_instant_of(end)}."
                    )
            raise

    def put(
        self, change: Callable[[TableState], TableChange], lease_time: timedelta = LEASE_TIME
    ) -> None:
        """Commits a change together with the new end of the lease.

        Raises:
            RefusedError: another process has the lease.
            OutcomeUnknownError: it is unknown whether the commit arrived.
        """
        now = int(datetime.now(UTC).timestamp() * 1e6)
        end = now + lease_time // timedelta(microseconds=1)
        end += end == self._end  # each commit has a value of its own, which a look can tell

        def check(state: TableState) -> bool | None:
            noted = state.note(LEASE) or 0
            if noted != end and (noted != self._end if self._end else noted > now):
                self._refuse(noted)
            return True if noted == end else None

        def on(state: TableState) -> TableChange:
            return msgspec.structs.replace(change(state), notes={LEASE: end})

        done = run_commit_loop(self._store, check, on)
        if isinstance(done, Unanswered):
            again = "Run the maintenance again"
            raise OutcomeUnknownError.of(f"to {self._store.location}", done.reason, again)
        self._end = end

    def expire(self, kept_since: int) -> int:
        """Commits the removal of snapshots up to an instant; returns their number."""
        expired: Sequence[int] = ()

        def change(state: TableState) -> TableChange:
            nonlocal expired
            expired = cast("PagedState", state).snapshots_until(kept_since)
            return TableChange(expired_snapshots=tuple(expired))

        self.put(change)
        return len(expired)

    def expire_rows(self, keys: Sequence[str], kept_since: datetime) -> int:
        """Commits the removal of the rows of windows; returns the number of rows.

        The rows of a window stay if it was committed meanwhile, and isn't old any more.
        """
        old: Sequence[Receipt] = ()

        def change(state: TableState) -> TableChange:
            nonlocal old
            old = _old_receipts(state, keys, kept_since)
            expired_at = datetime.now(UTC)
            return TableChange(expired=tuple(r.without_rows(expired_at) for r in old))

        self.put(change)
        return sum(receipt.table_rows for receipt in old)

    def put_joined(self, joined: Sequence[JoinedFiles]) -> Sequence[JoinedFiles]:
        """Commits joined files, except those of which a run has replaced a file meanwhile.

        Returns:
            The files that were committed.
        """
        committed: Sequence[JoinedFiles] = ()

        def change(state: TableState) -> TableChange:
            nonlocal committed
            partitions = cast("PagedState", state).files_by_partition().values()
            paths = {file.path for files in partitions for file in files}
            committed = [j for j in joined if paths.issuperset(j.replaced)]
            check_staged(self._store, state, [c for j in committed for c in j.staged])
            return TableChange(joined=tuple(committed))

        self.put(change)
        return committed

    def _refuse(self, noted: int) -> None:
        raise RefusedError(
            f"another process maintains the table {self._store.location}, until"
            f" {_instant_of(noted)} at the latest",
            "setup",
            "What was committed stays. Run it again when that process has ended; if it was killed,"
            " after that instant.",
        )


def _instant_of(lease_end: int) -> str:
    return instant(datetime.fromtimestamp(lease_end / 1e6, UTC))
