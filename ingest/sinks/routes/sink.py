"""Several tables as one sink: a window is committed to one table after the other.

If one database has all tables, the window is committed to them in one transaction
(`sinks.kit.commit.one_transaction`). Otherwise each table has a commit of its own.

Each table is a sink of its own kind. Every window is committed to each table, with the table's
rows, if any, and with the table's own receipt. This receipt counts messages of other tables as
filtered. The last table has the rows that no route takes, and the receipt of the whole window.
Until the last table has that receipt, the window isn't committed, even if the other tables have
it.

A run dies between two tables:

1. A commits W to the first table.
2. A dies.
3. B runs W. The last table doesn't have W, so B reads it again, from the same offsets.
4. B finds W in the first table with the same checksum, and leaves it.
5. B commits W to the other tables, and to the last table at the end.

Two runs of a window race:

1. A and B find W in no table.
2. A commits to the first table. B finds W there, with the same rows, and goes on.
3. One of them commits to the last table, and the other one finds W there. Either may be first
   in any table, because both have the same rows.

If they don't have the same rows (the schema, a transform or the routes changed in between), the
later run is refused at the first table with other rows. Otherwise one receipt would count rows
of two attempts.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import cast

import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError, SpecError, format_count
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Committed, Receipt, Routed, Staged
from windrow.ingest.ports.sink import (
    AlreadyDone,
    Audit,
    Capabilities,
    Maintained,
    Maintenance,
    Outcome,
    ProgressFolder,
    ShowsProgress,
    Sink,
    Unknown,
)
from windrow.ingest.settings.paths import is_url
from windrow.ingest.sinks.kit import (
    Place,
    WindowTable,
    already_committed,
    crash_point,
    find_transaction,
    refuse_gap,
    refuse_overlap,
)
from windrow.ingest.sinks.routes.audit import RoutedAudit
from windrow.ingest.sinks.routes.parts import (
    expected_routed,
    parts_for,
    receipt_for,
    staged_for,
    to_empty_receipt,
    to_routed,
)
from windrow.ingest.sinks.routes.stage import RoutedStagerFactory, Router


class RoutedSink:
    """A sink over several tables (`ports.sink.Sink`).

    Args:
        router: the rules by which rows find their tables.
        sinks: the tables, in the order of the rules; the last one is that of all other rows,
            with the receipts of windows.
        rows: the columns of a row without metadata columns, or a function that loads them.
        metadata: names of the metadata columns.

    Raises:
        SpecError: two tables are the same, one is in the other's folder, or the rows have no
            column to route by.
    """

    def __init__(
        self,
        router: Router,
        sinks: Sequence[Sink],
        rows: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str],
    ) -> None:
        self._router, self._load, self.metadata = router, rows, dict(metadata)
        *tables, self._default_sink = sinks
        self._tables = tuple(tables)
        refuse_shared_tables(self._tables, self._default_sink)
        if isinstance(rows, pa.Schema):
            self._check_columns(rows)

    @property
    def _all_sinks(self) -> tuple[Sink, ...]:
        return (*self._tables, self._default_sink)

    @cached_property
    def _checked_router(self) -> Router:
        """The router, checked against the rows' columns."""
        self._check_columns(self._load() if callable(self._load) else self._load)
        return self._router

    def _check_columns(self, rows: pa.Schema) -> None:
        """Checks the rules against the columns that all tables share."""
        if self._router.keyed is None:
            self._router.check_columns(rows)

    @property
    def identity(self) -> str:
        """The identity of the last table. So a pipeline may begin with that table alone."""
        return self._default_sink.identity

    @property
    def capabilities(self) -> Capabilities:
        """The promises of this sink.

        A window becomes visible in all tables of one database at once, otherwise in one table
        after the other.
        """
        keyed = any(self._router.keyed or ())
        return Capabilities(
            atomic="table" if find_transaction(self._all_sinks) is None else "window",
            mode="changes" if keyed else "append",
        )

    def is_at(self, identity: str) -> bool:
        return self._default_sink.is_at(identity)

    def refuse_unwritable(self) -> None:
        for sink in self._all_sinks:
            sink.refuse_unwritable()

    def owners(self) -> Mapping[str, TableOwner | None]:
        return {sink.identity: sink.owner() for sink in self._tables}

    def places(self) -> Sequence[str]:
        return [location for sink in self._all_sinks for location in sink.places()]

    def warnings(self) -> Sequence[str]:
        return [warning for sink in self._all_sinks for warning in sink.warnings()]

    def owner(self) -> TableOwner | None:
        return self._default_sink.owner()

    def prepare(self, owner: TableOwner, replaced: Collection[str] = ()) -> None:
        """Prepares all tables, the last table first.

        If the last table has another owner, no other table is touched.
        """
        assert self._checked_router
        for sink in (self._default_sink, *self._tables):
            sink.prepare(owner, replaced)

    def columns_to_come(self) -> Sequence[str]:
        assert self._checked_router
        return [
            f"{sink.identity}: {change}"
            for sink in self._all_sinks
            for change in sink.columns_to_come()
        ]

    def look(self, window: Window) -> Committed | None:
        return self._default_sink.look(window)

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        return self._default_sink.looks(windows)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        """Returns the windows that are committed in all tables with rows of them.

        A table may lack a window with rows in it, if it was restored from an older copy. Such a
        window is left out. A table that was added later lacks windows too: all windows before
        its first one. Only the newest receipt of these windows is read. It names the table only
        if the table had the window.
        """
        committed_windows = self._default_sink.committed(windows)
        for sink in self._tables:
            table_windows = sink.committed(sorted(committed_windows))
            absent = sorted(committed_windows - table_windows)
            first = bisect(absent, min(table_windows)) if table_windows else 0
            if first and _rows_in(sink, self.look(absent[first - 1])) is not None:
                first = 0
            committed_windows -= {
                committed.receipt.window
                for committed in self._default_sink.looks(absent[first:])
                if committed is not None and _rows_in(sink, committed)
            }
        return committed_windows

    def receipts(self) -> Iterator[Committed]:
        return self._default_sink.receipts()

    def wait_until_decided(self) -> None:
        self._default_sink.wait_until_decided()

    def size(self) -> None:
        """Returns None, because no single table has the size of all."""

    def receipt_text(self, receipt: Receipt) -> str:
        return self._default_sink.receipt_text(receipt)

    def stager(self, plan: Plan, generation: int, attempt: str) -> RoutedStagerFactory:
        return RoutedStagerFactory(
            self._checked_router,
            tuple((s.identity, s.stager(plan, generation, attempt)) for s in self._all_sinks),
        )

    def progress_folder(self) -> ProgressFolder | None:
        return (
            self._default_sink.progress_folder()
            if isinstance(self._default_sink, ShowsProgress)
            else None
        )

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Commits to the other tables, then to the last table; in one transaction if possible.

        Raises:
            RefusedError: a table has other rows of this window, or a table that no route names
                has rows of it.
        """
        receipt = msgspec.structs.replace(receipt, routed=())
        transaction = find_transaction(self._all_sinks)
        if transaction is None:
            return self._commit_to_all(self._all_sinks, receipt, staged)
        outcome = transaction.commit(
            receipt, lambda tables: self._commit_to_all(tables, receipt, staged)
        )
        if not isinstance(outcome, Unknown):
            for sink in self._all_sinks:
                cast("WindowTable", sink).remove_consumed(_staged_in(sink, staged))
        return outcome

    def _commit_to_all(
        self, sinks: Sequence[Sink], receipt: Receipt, staged: Sequence[Staged]
    ) -> Outcome:
        """Commits to one table after the other; returns the outcome of the last one."""
        *tables, last_table = sinks
        newest = last_table.look(receipt.window)
        if already_committed(receipt, newest) is None:
            self._refuse_left_behind(receipt, newest)
            _refuse_conflicts(tables, last_table, receipt)
            entries = []
            for table in tables:
                table_receipt = self._commit_to(table, receipt, staged, newest)
                if isinstance(table_receipt, Unknown):
                    return table_receipt
                entries.append(to_routed(table.identity, table_receipt))
                crash_point("commit.between")
            receipt = msgspec.structs.replace(receipt, routed=tuple(entries))
        return last_table.commit(receipt, _staged_in(last_table, staged))

    def audit(self) -> Audit:
        return RoutedAudit(self._tables, self._default_sink)

    def maintain(self, settings: Maintenance, *, dry_run: bool = False) -> Maintained:
        return Maintained.sum(sink.maintain(settings, dry_run=dry_run) for sink in self._all_sinks)

    def _commit_to(
        self,
        sink: Sink,
        receipt: Receipt,
        staged: Sequence[Staged],
        newest: Committed | None,
    ) -> Receipt | Unknown:
        """Commits this generation to one table; returns the table's receipt."""
        parts = parts_for(sink.identity, staged)
        table_newest = self._catch_up(sink, receipt, newest)
        if isinstance(table_newest, Unknown):
            return table_newest
        outcome = sink.commit(receipt_for(parts, receipt, table_newest), staged_for(parts, staged))
        if isinstance(outcome, Unknown):
            return Unknown(f"{sink.identity}: {outcome.reason}")
        if isinstance(outcome, AlreadyDone):
            expected_rows = expected_routed(
                sink.identity, parts, receipt, None if newest is None else newest.receipt
            )
            _refuse_other_rows(expected_rows, receipt, outcome.committed.receipt)
        return outcome.committed.receipt

    def _catch_up(
        self, sink: Sink, receipt: Receipt, newest: Committed | None
    ) -> Receipt | Unknown | None:
        """Returns a table's newest receipt of the window.

        If the table was added after the window's first commit, the earlier generations are
        first committed to it, without rows.
        """
        committed = sink.look(receipt.window)
        table_receipt = None if committed is None else committed.receipt
        missing = (
            range(-1 if table_receipt is None else table_receipt.generation, receipt.generation - 1)
            if newest is not None
            else range(0)
        )
        for below in missing:
            assert newest is not None
            outcome = sink.commit(to_empty_receipt(newest.receipt, below + 1), [])
            if isinstance(outcome, Unknown):
                return Unknown(f"{sink.identity}: {outcome.reason}")
            table_receipt = outcome.committed.receipt
        return table_receipt

    def _refuse_left_behind(self, receipt: Receipt, newest: Committed | None) -> None:
        """Refuses to replace a window with rows in a table that no route names any more."""
        names = {sink.identity for sink in self._all_sinks}
        for table in () if newest is None else newest.receipt.routed:
            if table.table not in names and table.rows:
                raise RefusedError(
                    f"window {receipt.window.key} has {format_count(table.rows, 'row')} in"
                    f" {table.table}, which no route names now",
                    "commit",
                    "Nothing was committed. Name the table under sink.tables again, then replay.",
                )


def _rows_in(sink: Sink, newest: Committed | None) -> int | None:
    """Returns the number of a window's rows in a table; None if its receipt lacks the table."""
    entries = () if newest is None else newest.receipt.routed
    return {table_rows.table: table_rows.rows for table_rows in entries}.get(sink.identity)


def _staged_in(table: Sink, staged: Sequence[Staged]) -> list[Staged]:
    """Returns the results of tasks for one table."""
    return staged_for(parts_for(table.identity, staged), staged)


def _refuse_conflicts(tables: Sequence[Sink], last_table: Sink, receipt: Receipt) -> None:
    """Refuses a window that the last table would refuse, before any other table has the rows.

    A table with all windows refuses an overlap by itself. A table that was added later
    doesn't have all windows, and then all receipts are read. The adjacent windows show
    whether a table was added later.
    """
    previous, following = neighbours = receipt.adjacent_windows
    adjacent = [window for window in neighbours if window is not None]
    committed_by_window = dict(zip(adjacent, last_table.looks(adjacent), strict=True))
    refuse_gap(
        receipt.plan,
        None if previous is None else committed_by_window[previous],
        committed_by_window[following],
    )
    committed = [existing is not None for existing in committed_by_window.values()]
    if any(committed) and all(
        [existing is not None for existing in table.looks(adjacent)] == committed
        for table in tables
    ):
        return
    refuse_overlap(
        receipt.plan,
        (committed_window.receipt for committed_window in last_table.receipts()),
    )


def _refuse_other_rows(expected_rows: Routed, proposed: Receipt, table_receipt: Receipt) -> None:
    """Refuses a table whose rows of this generation aren't those of this attempt."""
    if (
        table_receipt.generation > proposed.generation
        or to_routed(expected_rows.table, table_receipt) == expected_rows
    ):
        return
    raise RefusedError(
        f"{expected_rows.table} has rows of window {proposed.window.key} by attempt"
        f" {table_receipt.attempt} that are not those of this one",
        "commit",
        "That attempt ended before the window was committed everywhere, and the schema, a transform"
        " or the routes changed since. Set them back and run the window again; then change them and"
        " replay it.",
    )


def refuse_shared_tables(tables: Sequence[Sink], default_sink: Sink) -> None:
    """Refuses routes to the same table, or to tables in each other's folders, also through links.

    A second commit to one table would find the window there already, and leave out its rows. A
    table in another table's folder loses its files to the other table's clean-up.

    Raises:
        SpecError: there are such tables; the error names two of them.
    """
    sinks = (*tables, default_sink)
    for sink, another in combinations(sinks, 2):
        if sink.identity == another.identity or sink.is_at(another.identity):
            raise SpecError(
                f"two routes lead to {sink.identity}",
                "spec",
                "Put their values under one route, or name another table.",
            )
    folders = [
        *_folders(sink.identity for sink in sinks),
        *(Place(folder).dead.uri for folder in _folders([default_sink.identity])),
    ]
    for one_folder, another_folder in combinations(folders, 2):
        if _overlap(one_folder, another_folder):
            raise SpecError(
                f"{one_folder} and {another_folder}, for a table or dead letters each, are one"
                " folder, or one lies in the other",
                "spec",
                "Give each table a folder beside the others: one's clean-up would remove the"
                " other's files.",
            )


def _folders(identities: Iterable[str]) -> list[str]:
    """Returns the folders of the tables that are folders: their identities without the kind."""
    places = (identity.partition(":")[2] for identity in identities)
    return [folder for folder in places if is_url(folder) or Path(folder).is_absolute()]


def _overlap(folder: str, another: str) -> bool:
    first, second = (
        f"{path if is_url(path) else os.path.realpath(path)}/" for path in (folder, another)
    )
    return first.startswith(second) or second.startswith(first)
