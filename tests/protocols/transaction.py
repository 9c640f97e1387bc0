"""Transactions of one server: PostgreSQL.

Rows wait in staging tables that a crash of the server empties. A run's transaction first takes the table's lock, then looks, so that what
it sees stays so until it commits. Who is stopped holds the lock, until somebody terminates the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Again, Ask, Process, Program, Scenario
from tests.protocols.numbered import FIRST
from tests.protocols.world import TRIES, File, Receipt, SinkProtocol, World, begun, judge


class Session(NamedTuple):
    """An open transaction. `client`: whether anybody is still behind it."""

    run: str
    number: int
    locks: bool
    client: bool = True
    inserted: Inserted | None = None


class Inserted(NamedTuple):
    """A receipt and its rows; `empty`: the staging tables were, and so it has none. `removes`: the attempts whose rows it deletes."""

    receipt: Receipt
    empty: bool
    removes: frozenset[str]

    def __str__(self) -> str:
        return str(self.receipt)


class Server(NamedTuple):
    """`staging`: the runs whose staging tables are filled."""

    committed: tuple[Inserted, ...] = ()
    sessions: tuple[Session, ...] = ()
    staging: frozenset[str] = frozenset()
    crashes: int = 1


class ServerWorld(World):
    """One server."""

    def receipts(self) -> tuple[Receipt, ...]:
        """See `World.receipts`."""
        return tuple(i.receipt for i in self.store.committed)

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """See `World.rows`."""
        return ((m, i.receipt) for i in self.store.committed if not i.empty for m in i.receipt.messages())

    def _with(self, **changed: Any) -> Any:
        return self._replace(store=self.store._replace(**changed))

    def _session(self, who: str, number: int) -> Session | None:
        return next((s for s in self.store.sessions if (s.run, s.number) == (who, number)), None)

    def _without(self, session: Session) -> tuple[Session, ...]:
        return tuple(s for s in self.store.sessions if s != session)

    def stage(self, who: str, split: int) -> list[tuple[File, Any]]:
        """Into unlogged tables, one for each task; the last split's fills them."""
        filled = self.store.staging | ({who} if split else frozenset())
        return [(File(who, split, 1, 1), self._with(staging=filled))]

    def lock(self, who: str, number: int) -> list[tuple[str, Any]]:
        """Begin, and take the table's lock: the ledger's row, or an advisory one. It is waited for up to a limit."""
        if any(s.locks for s in self.store.sessions):
            return [("timeout", self)]
        return self.begin(who, number, locks=True)

    def begin(self, who: str, number: int, *, locks: bool = False) -> list[tuple[str, Any]]:
        """Begin; without the lock only in twins."""
        return [("ok", self._with(sessions=(*self.store.sessions, Session(who, number, locks))))]

    def terminate(self, who: str) -> list[tuple[None, Any]]:
        """The sessions that hold the lock, and are not the asker's."""
        return [(None, self._with(sessions=tuple(s for s in self.store.sessions if not s.locks or s.run == who)))]

    def look(self, who: str) -> list[tuple[tuple[Receipt, ...], Any]]:
        """What is committed, as a statement sees it."""
        return [(self.receipts(), self)]

    def insert(self, who: str, number: int, receipt: Receipt, seen: tuple[Receipt, ...]) -> list[tuple[str, Any]]:
        """Delete what is replaced; insert the receipt, and the rows from the staging tables, whose number is the answer."""
        session, mine = self._session(who, number), frozenset(r.attempt for r in seen if r.window == receipt.window)
        if session is None:
            return [("gone", self)]
        inserted = Inserted(receipt, who not in self.store.staging, mine)
        sessions = (*self._without(session), session._replace(inserted=inserted))
        return [("empty" if inserted.empty else "all", self._with(sessions=sessions))]

    def end(self, who: str, number: int) -> list[tuple[None, Any]]:
        """Roll back."""
        session = self._session(who, number)
        return [(None, self if session is None else self._with(sessions=self._without(session)))]

    def send_commit(self, who: str, number: int) -> list[tuple[str, Any]]:
        """The answer can be lost; so can the request, or it is under way. Of a session that is gone nobody can tell why."""
        session = self._session(who, number)
        if session is None:
            return [("unknown", self)]
        there = self.arrives(("commit", who, number))
        nothing = self._with(sessions=self._without(session))
        late = self._replace(flying=self.flying | {("commit", who, number)})
        return [("ok", there), ("unknown", there), ("unknown", nothing), ("unknown", late)]

    def arrives(self, request: Any) -> Any:
        """See `World.arrives`: a commit reaches a session that is still there."""
        _, who, number = request
        session = self._session(who, number)
        if session is None or session.inserted is None:
            return self
        kept = tuple(i for i in self.store.committed if i.receipt.attempt not in session.inserted.removes)
        return self._with(committed=(*kept, session.inserted), sessions=self._without(session))

    def dies(self, run: str) -> Any:
        """Its sessions stay until the server notices."""
        return self._with(sessions=tuple(s._replace(client=s.client and s.run != run) for s in self.store.sessions))

    def events(self) -> list[tuple[str, Any]]:
        """The server notices who is gone; and it crashes, once."""
        noticed = [
            (f"the server ends the session of {s.run}, who is gone", self._with(sessions=self._without(s)))
            for s in self.store.sessions if not s.client
        ]  # fmt: skip
        crash = self._with(sessions=(), staging=frozenset(), crashes=0)._replace(flying=frozenset())
        return [*super().events(), *noticed, *([("the server crashes and starts again", crash)] if self.store.crashes else [])]


class Transaction(SinkProtocol):
    """Lock, look, insert, commit; whatever the answer but ok, the same again."""

    name = "postgres"

    def __init__(self) -> None:
        super().__init__()
        empty = begun(ServerWorld, Server())
        held = begun(
            ServerWorld,
            Server((Inserted(FIRST, empty=False, removes=frozenset()),)),
            boundaries=((0, 0), (1, 2)),
            letters=frozenset({(0, "Z")}),
        )
        self.scenarios = {
            "one window twice": Scenario(empty, (Process("A", "run", (0,)), Process("B", "run", (0,))), ((0,),)),
            "two windows": Scenario(empty, (Process("A", "run", (0,)), Process("B", "run", (1,))), ((1,), (0,))),
            "two replays": Scenario(
                held, (Process("A", "run", (0, 2)), Process("B", "run", (0, 1))), ((0, 1), (0, 2)), frozenset({"generations left out"})
            ),
        }  # fmt: skip

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """See `SinkProtocol.commit`; each try has a session of its own."""
        if (yield self.fence(tries)) == "timeout":
            return (yield from self.wait(receipt, tries))
        seen: tuple[Receipt, ...] = yield Ask("look")
        return (yield from self.write(receipt, seen, tries))

    def fence(self, tries: int) -> Ask:
        """How a transaction begins."""
        return Ask("lock", (tries,))

    def wait(self, receipt: Receipt, tries: int) -> Program:
        """Somebody else has the lock, for longer than a commit takes."""
        yield Ask("terminate")
        return Again("commit", (receipt, tries))

    def write(self, receipt: Receipt, seen: tuple[Receipt, ...], tries: int) -> Program:
        """Decide on what was seen, move the rows, commit."""
        held = judge(receipt, seen)
        if held is not None:
            yield Ask("end", (tries,))
            return ("Refused", held) if isinstance(held, str) else ("Done" if held == receipt else "AlreadyDone", held)
        moved = yield Ask("insert", (tries, receipt, seen))
        if moved == "empty" and self.counts:
            yield Ask("end", (tries,))
            return ("Failed", "the staging tables were emptied")
        reply = "unknown" if moved == "gone" else (yield Ask("send_commit", (tries,)))
        if reply == "ok":
            return ("Done", receipt)
        return Again("commit", (receipt, tries - 1)) if tries > 1 else ("Unknown",)

    counts = True
    """Whether it compares the rows that it moved with those that were staged."""


# --------------------------------------------------------------------------------------------------------------------- broken twins


class SelectThenInsert(Transaction):
    """No lock and no key: whoever looks at the same moment sees nothing."""

    def fence(self, tries: int) -> Ask:
        """None."""
        return Ask("begin", (tries,))


class LookBeforeLock(Transaction):
    """Takes the lock behind the look, whose answer is old by then."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """The look first."""
        seen = yield Ask("look")
        if (yield self.fence(tries)) == "timeout":
            return (yield from self.wait(receipt, tries))
        return (yield from self.write(receipt, seen, tries))


class TrustsStaging(Transaction):
    """Doesn't count the rows that it moved: after a crash of the server there are none."""

    counts = False


class WaitsForTheLock(Transaction):
    """Terminates nobody: a run that was stopped holds the lock for ever."""

    def wait(self, receipt: Receipt, tries: int) -> Program:
        """Tries as often as it may."""
        return Again("commit", (receipt, tries - 1)) if tries > 1 else ("Unknown",)
        yield
