"""Several tables as one sink: a window is committed to one table after the other.

Each table is a sink of its own kind, and takes every window: its rows, perhaps none, with a receipt
of its own, which counts the messages that went elsewhere as filtered. The last table takes what no
route takes, and has the receipt of the whole window. Until that is there the window isn't
committed, whatever the other tables show.

A run dies between two tables:

    1 A commits W to the first table.  2 A dies.  3 B runs W: the last table doesn't have it, so B
    reads it again, from the same offsets.  4 B finds W in the first table with the same checksum,
    and leaves it.  5 B commits W to the others, the last one last.

Two runs of a window:

    1 A and B find W nowhere.  2 A commits to the first table; B's commit there is already done,
    with the same rows.  3 So it goes on; in the last table one of them is done, the other already
    done. Either may be first in any table, for both have the same rows.

If they haven't (the schema, a transform or the routes changed in between), the later one is refused
at the table that has other rows: else one receipt would count rows of two attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property

import msgspec
import pyarrow as pa

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt, Routed
from windrow.ingest.model.staged import Staged
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import AlreadyDone, Audit, Capabilities, Outcome, Sink, Unknown
from windrow.ingest.sinks.conflicts import adjacent, already_committed, refuse_gap, refuse_overlap
from windrow.ingest.sinks.routes.apart import refuse_not_apart
from windrow.ingest.sinks.routes.audit import RoutedAudit
from windrow.ingest.sinks.routes.parts import (
    emptied,
    expected,
    parts_for,
    receipt_for,
    refuse_unknown,
    routed,
    staged_for,
)
from windrow.ingest.sinks.routes.router import By, Router, Rule
from windrow.ingest.sinks.routes.stage import RoutedStagerFactory


class RoutedSink:
    """A sink over several tables (`ports.sink.Sink`).

    Args:
        by: what leads a row to its table: a column, a header or the topic.
        name: the column's or header's.
        routes: each table with its rule, in the order in which they are asked.
        other: the table of all other rows, with the receipts of windows.
        rows: the columns of a row without windrow's own; or what loads them.
        metadata: the names of windrow's own columns.

    Raises:
        SpecError: two tables are one, or one is in the other's folder; a table's kind can't take
            part; or rows can't be routed so.
    """

    def __init__(
        self,
        by: By,
        name: str,
        routes: Sequence[tuple[Rule, Sink]],
        other: Sink,
        rows: pa.Schema | Callable[[], pa.Schema],
        metadata: Mapping[str, str],
    ) -> None:
        self._router, self._tables = (
            Router(by, name, tuple(rule for rule, _ in routes)),
            tuple(sink for _, sink in routes),
        )
        self._other, self._load = other, rows
        self.metadata = dict(metadata)
        refuse_not_apart(self._tables, other)
        _refuse_unfit(self._every)
        self._router.refuse_no_pattern()
        if isinstance(rows, pa.Schema):
            self._router.refuse_unfit(rows)

    @property
    def _every(self) -> tuple[Sink, ...]:
        return (*self._tables, self._other)

    @cached_property
    def _fitting(self) -> Router:
        """The router, checked against the rows' columns."""
        self._router.refuse_unfit(self._load() if callable(self._load) else self._load)
        return self._router

    @property
    def identity(self) -> str:
        """The last table's, so that a pipeline may begin with one table."""
        return self._other.identity

    @property
    def capabilities(self) -> Capabilities:
        """What every table can do."""
        return Capabilities(
            atomic="table",
            replaces=all(sink.capabilities.replaces for sink in self._every),
            mode="append",
        )

    def is_at(self, identity: str) -> bool:
        return self._other.is_at(identity)

    def refuse_unwritable(self) -> None:
        for sink in self._every:
            sink.refuse_unwritable()

    def places(self) -> Sequence[str]:
        return [place for sink in self._every for place in sink.places()]

    def owner(self) -> TableOwner | None:
        return self._other.owner()

    def prepare(self, owner: TableOwner) -> None:
        """The last table comes first: whoever gets it may go on."""
        assert self._fitting
        for sink in (self._other, *self._tables):
            sink.prepare(owner)

    def columns_to_come(self) -> Sequence[str]:
        assert self._fitting
        return [
            f"{sink.identity}: {change}"
            for sink in self._every
            for change in sink.columns_to_come()
        ]

    def look(self, window: Window) -> Committed | None:
        return self._other.look(window)

    def looks(self, windows: Sequence[Window]) -> Iterator[Committed | None]:
        return self._other.looks(windows)

    def committed(self, windows: Sequence[Window]) -> set[Window]:
        return self._other.committed(windows)

    def receipts(self) -> Iterator[Committed]:
        return self._other.receipts()

    def receipt_text(self, receipt: Receipt) -> str:
        return self._other.receipt_text(receipt)

    def stager(self, plan: Plan, generation: int, attempt: str) -> RoutedStagerFactory:
        return RoutedStagerFactory(
            self._fitting,
            tuple((s.identity, s.stager(plan, generation, attempt)) for s in self._every),
        )

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        """Commit to the other tables, then to the last one.

        Raises:
            RefusedError: a table has other rows of this window; or rows of it are in a table that
                no route names.
        """
        refuse_unknown([sink.identity for sink in self._every], staged)
        receipt = msgspec.structs.replace(receipt, routed=())
        held = self._other.look(receipt.window)
        if already_committed(receipt, held) is None:
            self._refuse_left_behind(receipt, held)
            self._refuse_elsewhere(receipt)
            told = []
            for sink in self._tables:
                mine = self._commit_to(sink, receipt, staged, held)
                if isinstance(mine, Unknown):
                    return mine
                told.append(routed(sink.identity, mine))
                crash_point("commit.between")
            receipt = msgspec.structs.replace(receipt, routed=tuple(told))
        return self._other.commit(
            receipt, staged_for(parts_for(self._other.identity, staged), staged)
        )

    def audit(self) -> Audit:
        return RoutedAudit(self._tables, self._other)

    def sweep(self, older_than: timedelta, *, dry_run: bool = False) -> list[str]:
        return [what for sink in self._every for what in sink.sweep(older_than, dry_run=dry_run)]

    def _commit_to(
        self, sink: Sink, receipt: Receipt, staged: Sequence[Staged], whole: Committed | None
    ) -> Receipt | Unknown:
        """Commit this generation to one table; return its receipt."""
        parts = parts_for(sink.identity, staged)
        held = self._filled(sink, receipt, whole)
        if isinstance(held, Unknown):
            return held
        outcome = sink.commit(receipt_for(parts, receipt, held), staged_for(parts, staged))
        if isinstance(outcome, Unknown):
            return Unknown(f"{sink.identity}: {outcome.why}")
        if isinstance(outcome, AlreadyDone):
            wanted = expected(
                sink.identity, parts, receipt, None if whole is None else whole.receipt
            )
            _refuse_other_rows(wanted, receipt, outcome.committed.receipt)
        return outcome.committed.receipt

    def _filled(
        self, sink: Sink, receipt: Receipt, whole: Committed | None
    ) -> Receipt | Unknown | None:
        """Return a table's newest receipt of the window.

        A table that is newer than the window first gets the earlier generations, without rows.
        """
        committed = sink.look(receipt.window)
        held = None if committed is None else committed.receipt
        missing = (
            range(-1 if held is None else held.generation, receipt.generation - 1)
            if whole is not None
            else range(0)
        )
        for below in missing:
            assert whole is not None
            outcome = sink.commit(emptied(whole.receipt, below + 1), [])
            if isinstance(outcome, Unknown):
                return Unknown(f"{sink.identity}: {outcome.why}")
            held = outcome.committed.receipt
        return held

    def _refuse_left_behind(self, receipt: Receipt, held: Committed | None) -> None:
        """Refuse to replace a window with rows in a table that no route names any more."""
        names = {sink.identity for sink in self._every}
        for table in () if held is None else held.receipt.routed:
            if table.table not in names and table.rows:
                what = (
                    f"window {receipt.window.key} has {table.rows} rows in {table.table}, which no"
                    " route names now"
                )
                raise RefusedError(
                    what,
                    "commit",
                    "Nothing was committed. Name the table under sink.tables again, then replay.",
                )

    def _refuse_elsewhere(self, receipt: Receipt) -> None:
        """Refuse what the last table would refuse, before any other table has the rows.

        A table that has all windows refuses an overlap by itself; one that came later doesn't have
        all: then all receipts are read. Which it is, the adjacent windows tell.
        """
        before, after = beside = adjacent(receipt)
        asked = [window for window in beside if window is not None]
        seen = dict(zip(asked, self._other.looks(asked), strict=True))
        refuse_gap(receipt.plan, None if before is None else seen[before], seen[after])
        there = [held is not None for held in seen.values()]
        if any(there) and all(
            [held is not None for held in sink.looks(asked)] == there for sink in self._tables
        ):
            return
        refuse_overlap(receipt.plan, (committed.receipt for committed in self._other.receipts()))


def _refuse_other_rows(wanted: Routed, proposed: Receipt, held: Receipt) -> None:
    """Refuse a table whose rows of this generation aren't this attempt's."""
    if held.generation > proposed.generation or routed(wanted.table, held) == wanted:
        return
    what = (
        f"{wanted.table} has rows of window {proposed.window.key} by attempt {held.attempt} that"
        " are not those of this one"
    )
    do = (
        "That attempt ended before the window was committed everywhere, and the schema, a transform"
        " or the routes changed since. Set them back and run the window again; then change them and"
        " replay it."
    )
    raise RefusedError(what, "commit", do)


def _refuse_unfit(sinks: Sequence[Sink]) -> None:
    for sink in sinks:
        if sink.capabilities.mode != "append" or sink.capabilities.atomic != "window":
            what = (
                f"{sink.identity} can't be one of several tables: only tables that rows are"
                " appended to, window by window, can"
            )
            raise SpecError(
                what, "spec", "Leave primary_key out, or give this table a pipeline of its own."
            )
        if sink.capabilities.delivery != "exactly-once":
            what = (
                f"{sink.identity} can't be one of several tables: it is written with"
                f" delivery_guarantee {sink.capabilities.delivery}"
            )
            raise SpecError(
                what,
                "spec",
                "Leave delivery_guarantee out, or give this table a pipeline of its own.",
            )
