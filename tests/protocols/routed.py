"""The protocol of several tables with one receipt, for routes.

Each table is a sink that commits a window at most once per generation; here its whole protocol
is one step. The last table has the receipts: a window is committed if the last table has it. If
only other tables have a window, a run of that window has died, and its next run goes on from
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Again, Ask, Program
from tests.protocols.numbered import FIRST
from tests.protocols.world import (
    TRIES,
    Receipt,
    SinkProtocol,
    World,
    begin_world,
    judge,
    newest,
    pairs_of_runs,
)

TABLES = ("first", "second", "last")
"""The tables. Each takes some of a window's messages."""
LAST = TABLES[-1]


class Tables(NamedTuple):
    """The receipts of each table. A later generation replaces the one before."""

    first: tuple[Receipt, ...] = ()
    second: tuple[Receipt, ...] = ()
    last: tuple[Receipt, ...] = ()


class TablesWorld(World):
    """Three tables."""

    def receipts(self) -> tuple[Receipt, ...]:
        """Returns the last table's receipts; see `World.receipts`."""
        last: tuple[Receipt, ...] = self.store.last
        return last

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """Returns the rows; see `World.rows`."""
        return (
            (m, r)
            for table in TABLES
            for r in getattr(self.store, table)
            for m in r.messages()
            if TABLES[sum(m) % 3] == table
        )

    def look_into(self, who: str, table: str, window: int) -> list[tuple[tuple[Receipt, ...], Any]]:
        """Reads a table. The window only names the look in a trace."""
        return [(getattr(self.store, table), self)]

    def commit_to(self, who: str, table: str, receipt: Receipt) -> list[tuple[Receipt | str, Any]]:
        """Commits to a table as a whole, and returns the table's receipt of the window.

        A commit without an answer arrives at once, later or never.
        """
        judgment = judge(receipt, getattr(self.store, table))
        if judgment is not None:
            return [(judgment, self)]
        request = ("commit", table, receipt)
        arrived, late = self.arrives(request), self._replace(flying=self.flying | {request})
        return [(receipt, arrived), ("unknown", arrived), ("unknown", late)]

    def arrives(self, request: Any) -> Any:
        """Commits to a table if the window isn't taken there; see `World.arrives`."""
        _, table, receipt = request
        receipts: tuple[Receipt, ...] = getattr(self.store, table)
        if judge(receipt, receipts) is not None:
            return self
        kept_receipts = tuple(r for r in receipts if r.window != receipt.window)
        return self._replace(store=self.store._replace(**{table: (*kept_receipts, receipt)}))


class Routed(SinkProtocol):
    """The real protocol: look into the last table.

    If it lacks the window, commit to the others, then to the last.
    """

    name = "routes"
    atomic = False

    def __init__(self) -> None:
        super().__init__()
        empty = begin_world(TablesWorld, Tables())
        filled_world = begin_world(
            TablesWorld,
            Tables((FIRST,), (FIRST,), (FIRST,)),
            boundaries=((0, 0), (1, 2)),
            letters=frozenset({(0, "Z")}),
        )
        self.scenarios = pairs_of_runs(empty, filled_world)

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits a window; see `SinkProtocol.commit`."""
        receipts: tuple[Receipt, ...] = yield Ask("look_into", (LAST, receipt.window))
        judgment = judge(receipt, receipts)
        if isinstance(judgment, str):
            return ("Refused", judgment)
        return Again("close", (receipt,)) if judgment is not None else Again("fill", (receipt, 0))

    def fill(self, me: str, receipt: Receipt, number: int) -> Program:
        """Commits to one of the other tables.

        Its look gives its generation, and its commit whether there was anything to do.
        """
        yield Ask("look_into", (TABLES[number], receipt.window))
        reply = yield Ask("commit_to", (TABLES[number], receipt))
        if reply in self.ends:
            return ("Unknown",) if reply == "unknown" else ("Refused", reply)
        return (
            Again("close", (receipt,))
            if TABLES[number + 1] == LAST
            else Again("fill", (receipt, number + 1))
        )

    ends = frozenset(
        {"unknown", "another plan", "generations left out", "replays another attempt", "overlap"}
    )
    """Replies of a table without the window, after which no later table is asked."""

    def close(self, me: str, receipt: Receipt) -> Program:
        """Commits to the last table, whose reply is the run's verdict."""
        reply = yield Ask("commit_to", (LAST, receipt))
        if isinstance(reply, str):
            return ("Unknown",) if reply == "unknown" else ("Refused", reply)
        return ("Done" if reply == receipt else "AlreadyDone", reply)


# --- broken twins


class LastTableFirst(Routed):
    """A twin that commits to the table with the receipts first."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits in the wrong order."""
        reply = yield Ask("commit_to", (LAST, receipt))
        if reply != receipt:
            return (
                ("Unknown",)
                if reply == "unknown"
                else ("Refused", reply)
                if isinstance(reply, str)
                else ("AlreadyDone", reply)
            )
        for table in TABLES[:-1]:
            yield Ask("commit_to", (table, receipt))
        return ("Done", receipt)


class OneTableCounts(Routed):
    """A twin that takes a window in any table as committed."""

    def fill(self, me: str, receipt: Receipt, number: int) -> Program:
        """Ends if another run has brought the window to the table."""
        receipts: tuple[Receipt, ...] = yield Ask("look_into", (TABLES[number], receipt.window))
        newest_receipt = newest(receipt.window, receipts)
        if newest_receipt is not None and newest_receipt.generation >= receipt.generation:
            return ("AlreadyDone", newest_receipt)
        return (yield from super().fill(me, receipt, number))


class GoesOnUnknown(Routed):
    """A twin that takes a commit without an answer as arrived."""

    ends = Routed.ends - {"unknown"}
