"""Transactions of one server: PostgreSQL.

Rows wait in staged files, which a loss of power may cut short: nobody syncs them. A
run's transaction first takes the table's lock, then looks, so that what it sees stays
so until it commits; then it streams its files in, and notices one that isn't whole. Who
is stopped holds the lock, until the server ends the session for idling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Again, Ask, Program
from tests.protocols.numbered import FIRST
from tests.protocols.world import (
    TRIES,
    File,
    Receipt,
    SinkProtocol,
    World,
    begin_world,
    judge,
    pairs_of_runs,
)


class Session(NamedTuple):
    """An open transaction."""

    run: str
    number: int
    locks: bool
    inserted: Inserted | None = None


class Inserted(NamedTuple):
    """A receipt and its rows; `cut`: a staged file was, and so it hasn't all of them.

    `removes`: the attempts whose rows it deletes.
    """

    receipt: Receipt
    cut: bool
    removes: frozenset[str]

    def __str__(self) -> str:
        return str(self.receipt)


class Server(NamedTuple):
    """`staging`: the runs whose staged files are whole.

    `faults`: how many are still to come, of the server or of the staging folder.
    """

    committed: tuple[Inserted, ...] = ()
    sessions: tuple[Session, ...] = ()
    staging: frozenset[str] = frozenset()
    faults: int = 1


class ServerWorld(World):
    """One server."""

    def receipts(self) -> tuple[Receipt, ...]:
        """See `World.receipts`."""
        return tuple(i.receipt for i in self.store.committed)

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """See `World.rows`."""
        return (
            (m, i.receipt) for i in self.store.committed if not i.cut for m in i.receipt.messages()
        )

    def _with(self, **changed: Any) -> Any:
        return self._replace(store=self.store._replace(**changed))

    def _session(self, who: str, number: int) -> Session | None:
        return next((s for s in self.store.sessions if (s.run, s.number) == (who, number)), None)

    def _without(self, session: Session) -> tuple[Session, ...]:
        return tuple(s for s in self.store.sessions if s != session)

    def stage(self, who: str, split: int) -> list[tuple[File, Any]]:
        """Into files, one for each task; with the last split's they are whole."""
        staging = self.store.staging | ({who} if split else frozenset())
        return [(File(who, split, 1, 1), self._with(staging=staging))]

    def lock(self, who: str, number: int) -> list[tuple[str, Any]]:
        """Begin, and take the table's lock.

        It is waited for, until who holds it is done, or the server ends that session.
        """
        if any(s.locks for s in self.store.sessions):
            return []
        return self.begin(who, number, locks=True)

    def begin(self, who: str, number: int, *, locks: bool = False) -> list[tuple[str, Any]]:
        """Begin; without the lock only in twins."""
        return [("ok", self._with(sessions=(*self.store.sessions, Session(who, number, locks))))]

    def look(
        self, who: str, number: int, window: int
    ) -> list[tuple[tuple[Receipt, ...] | str, Any]]:
        """What is committed, as a statement of a session sees it; the window says whose
        look it is.
        """
        return [("gone" if self._session(who, number) is None else self.receipts(), self)]

    def look_unlocked(self, who: str, window: int) -> list[tuple[tuple[Receipt, ...], Any]]:
        """For twins: in no session that has the lock."""
        return [(self.receipts(), self)]

    def insert(
        self, who: str, number: int, receipt: Receipt, receipts: tuple[Receipt, ...]
    ) -> list[tuple[str, Any]]:
        """Delete what is replaced; stream the staged files in, and insert the receipt;
        whether the files are whole is the answer.
        """
        session, replaced_attempts = (
            self._session(who, number),
            frozenset(r.attempt for r in receipts if r.window == receipt.window),
        )
        if session is None:
            return [("gone", self)]
        inserted = Inserted(receipt, who not in self.store.staging, replaced_attempts)
        sessions = (*self._without(session), session._replace(inserted=inserted))
        return [("cut" if inserted.cut else "all", self._with(sessions=sessions))]

    def end(self, who: str, number: int) -> list[tuple[None, Any]]:
        """Roll back."""
        session = self._session(who, number)
        return [(None, self if session is None else self._with(sessions=self._without(session)))]

    def send_commit(self, who: str, number: int) -> list[tuple[str, Any]]:
        """The answer can be lost; so can the request, or it is under way.

        Of a session that is gone nobody can tell why.
        """
        session = self._session(who, number)
        if session is None:
            return [("unknown", self)]
        arrived = self.arrives(("commit", who, number))
        nothing = self._with(sessions=self._without(session))
        late = self._replace(flying=self.flying | {("commit", who, number)})
        return [("ok", arrived), ("unknown", arrived), ("unknown", nothing), ("unknown", late)]

    def arrives(self, request: Any) -> Any:
        """See `World.arrives`: a commit reaches a session that is still there."""
        _, who, number = request
        session = self._session(who, number)
        if session is None or session.inserted is None:
            return self
        kept_inserts = tuple(
            i for i in self.store.committed if i.receipt.attempt not in session.inserted.removes
        )
        return self._with(
            committed=(*kept_inserts, session.inserted), sessions=self._without(session)
        )

    def events(self) -> list[tuple[str, Any]]:
        """The server ends who is gone, or idles; and once, it crashes, or the machine
        with the staging folder does.
        """
        ended = [
            (
                f"the server ends the session of {s.run}, who is gone or idles",
                self._with(sessions=self._without(s)),
            )
            for s in self.store.sessions
        ]
        crash = self._with(sessions=(), faults=0)._replace(flying=frozenset())
        cut = self._with(staging=frozenset(), faults=0)
        faults = [
            ("the server crashes and starts again", crash),
            ("a loss of power cuts the staged files short", cut),
        ]
        return [*super().events(), *ended, *(faults if self.store.faults else [])]


class Transaction(SinkProtocol):
    """Lock, look, insert, commit; whatever the answer but ok, the same again."""

    name = "postgres"

    def __init__(self) -> None:
        super().__init__()
        empty = begin_world(ServerWorld, Server())
        filled_world = begin_world(
            ServerWorld,
            Server((Inserted(FIRST, cut=False, removes=frozenset()),)),
            boundaries=((0, 0), (1, 2)),
            letters=frozenset({(0, "Z")}),
        )
        self.scenarios = pairs_of_runs(empty, filled_world)

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """See `SinkProtocol.commit`; each try has a session of its own."""
        yield self.fence(tries)
        look_reply = yield Ask("look", (tries, receipt.window))
        return (yield from self.write(receipt, look_reply, tries))

    def fence(self, tries: int) -> Ask:
        """How a transaction begins."""
        return Ask("lock", (tries,))

    def write(self, receipt: Receipt, look_reply: tuple[Receipt, ...] | str, tries: int) -> Program:
        """Decide on what was seen, stream the files in, commit."""
        if isinstance(look_reply, str):
            return self.retry_commit(receipt, tries)
        judgment = judge(receipt, look_reply)
        if judgment is not None:
            yield Ask("end", (tries,))
            return (
                ("Refused", judgment)
                if isinstance(judgment, str)
                else ("Done" if judgment == receipt else "AlreadyDone", judgment)
            )
        brought = yield Ask("insert", (tries, receipt, look_reply))
        if brought == "cut" and self.sums:
            yield Ask("end", (tries,))
            return ("Failed", "a staged file isn't what was staged")
        reply = "unknown" if brought == "gone" else (yield Ask("send_commit", (tries,)))
        return ("Done", receipt) if reply == "ok" else self.retry_commit(receipt, tries)

    def retry_commit(self, receipt: Receipt, tries: int) -> Any:
        """The connection was lost."""
        return Again("commit", (receipt, tries - 1)) if tries > 1 else ("Unknown",)

    sums = True
    """True if it compares length and checksum of what it streamed with those that the
    stager told.
    """


# --------------------------------------------------------------------------------------------------


class SelectThenInsert(Transaction):
    """No lock and no key: whoever looks at the same moment sees nothing."""

    def fence(self, tries: int) -> Ask:
        """None."""
        return Ask("begin", (tries,))


class LookBeforeLock(Transaction):
    """Takes the lock behind the look, whose answer is old by then."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """The look first."""
        look_reply = yield Ask("look_unlocked", (receipt.window,))
        yield self.fence(tries)
        return (yield from self.write(receipt, look_reply, tries))


class TrustsStaging(Transaction):
    """Takes a file for what was staged under its name: after a loss of power there is
    less in it.
    """

    sums = False
