"""Several tables behind one receipt: routes.

Each table is a sink of its own, which commits a window at most once a generation,
whatever its protocol is: here that is one step. The table that has the receipts is the
last one, and what it has is committed; what the others have of a window that it hasn't,
some run of that window brought, and the next one goes on from there.
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
"""Of each window's messages each table takes some."""
LAST = TABLES[-1]


class Tables(NamedTuple):
    """What is committed to each; a later generation takes the place of the one before."""

    first: tuple[Receipt, ...] = ()
    second: tuple[Receipt, ...] = ()
    last: tuple[Receipt, ...] = ()


class TablesWorld(World):
    """Three tables."""

    def receipts(self) -> tuple[Receipt, ...]:
        """See `World.receipts`: the last table's."""
        last: tuple[Receipt, ...] = self.store.last
        return last

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """See `World.rows`."""
        return (
            (m, r)
            for table in TABLES
            for r in getattr(self.store, table)
            for m in r.messages()
            if TABLES[sum(m) % 3] == table
        )

    def look_into(self, who: str, table: str, window: int) -> list[tuple[tuple[Receipt, ...], Any]]:
        """What a table has; the window says whose look it is."""
        return [(getattr(self.store, table), self)]

    def commit_to(self, who: str, table: str, receipt: Receipt) -> list[tuple[Receipt | str, Any]]:
        """A sink's commit, as a whole: its own word of what is there now.

        Without an answer it came, comes later or never.
        """
        judgment = judge(receipt, getattr(self.store, table))
        if judgment is not None:
            return [(judgment, self)]
        request = ("commit", table, receipt)
        arrived, late = self.arrives(request), self._replace(flying=self.flying | {request})
        return [(receipt, arrived), ("unknown", arrived), ("unknown", late)]

    def arrives(self, request: Any) -> Any:
        """See `World.arrives`: it comes into its place in a table, if that isn't taken."""
        _, table, receipt = request
        receipts: tuple[Receipt, ...] = getattr(self.store, table)
        if judge(receipt, receipts) is not None:
            return self
        kept_receipts = tuple(r for r in receipts if r.window != receipt.window)
        return self._replace(store=self.store._replace(**{table: (*kept_receipts, receipt)}))


class Routed(SinkProtocol):
    """Look into the last table; if it doesn't have the window, commit to the others;
    then to the last one, whatever it has.
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
        """See `SinkProtocol.commit`."""
        receipts: tuple[Receipt, ...] = yield Ask("look_into", (LAST, receipt.window))
        judgment = judge(receipt, receipts)
        if isinstance(judgment, str):
            return ("Refused", judgment)
        return Again("close", (receipt,)) if judgment is not None else Again("fill", (receipt, 0))

    def fill(self, me: str, receipt: Receipt, number: int) -> Program:
        """One of the other tables: its look says what generation it has, and its commit
        whether there was anything to do.
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
    """What a table says without having the window, behind which no other one is asked."""

    def close(self, me: str, receipt: Receipt) -> Program:
        """The last table's word is the run's."""
        reply = yield Ask("commit_to", (LAST, receipt))
        if isinstance(reply, str):
            return ("Unknown",) if reply == "unknown" else ("Refused", reply)
        return ("Done" if reply == receipt else "AlreadyDone", reply)


# --------------------------------------------------------------------------------------------------


class LastTableFirst(Routed):
    """The table with the receipts comes first, as if the others were copies."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """The wrong order."""
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
    """Takes a window that is in one of its tables for committed."""

    def fill(self, me: str, receipt: Receipt, number: int) -> Program:
        """Doesn't go on behind what another run brought."""
        receipts: tuple[Receipt, ...] = yield Ask("look_into", (TABLES[number], receipt.window))
        newest_receipt = newest(receipt.window, receipts)
        if newest_receipt is not None and newest_receipt.generation >= receipt.generation:
            return ("AlreadyDone", newest_receipt)
        return (yield from super().fill(me, receipt, number))


class GoesOnUnknown(Routed):
    """Takes a commit to a table that wasn't answered for one that will have arrived."""

    ends = Routed.ends - {"unknown"}
