"""The protocol of one server's transactions, for PostgreSQL.

Rows wait in staged files. They aren't synced, so a loss of power may shorten them. A run's
transaction first takes the table's lock, then looks, so that the look stays true until the
commit. Then it streams the files, and notices one that isn't complete. A run that is stopped
keeps the lock until the server ends the idle session.
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
    """An open transaction.

    Attributes:
        run: the run.
        number: number of the session.
        locks: True if it has the table's lock.
        inserted: its inserted receipt and rows, if any.
    """

    run: str
    number: int
    locks: bool
    inserted: Inserted | None = None


class Inserted(NamedTuple):
    """A receipt and its rows.

    Attributes:
        receipt: the receipt.
        cut: True if a staged file was shortened, so that rows are missing.
        removes: attempts whose rows it deletes.
    """

    receipt: Receipt
    cut: bool
    removes: frozenset[str]

    def __str__(self) -> str:
        return str(self.receipt)


class Server(NamedTuple):
    """The server's state.

    Attributes:
        committed: the committed receipts and rows.
        sessions: the open transactions.
        staging: runs whose staged files are complete.
        faults: number of faults of the server or the staging folder that may still come.
    """

    committed: tuple[Inserted, ...] = ()
    sessions: tuple[Session, ...] = ()
    staging: frozenset[str] = frozenset()
    faults: int = 1


class ServerWorld(World):
    """One server."""

    def receipts(self) -> tuple[Receipt, ...]:
        """Returns the receipts; see `World.receipts`."""
        return tuple(i.receipt for i in self.store.committed)

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """Returns the rows; see `World.rows`."""
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
        """Stages a split into a file; with the last split the run's files are complete."""
        staging = self.store.staging | ({who} if split else frozenset())
        return [(File(who, split, 1, 1), self._with(staging=staging))]

    def lock(self, who: str, number: int) -> list[tuple[str, Any]]:
        """Begins a transaction with the table's lock.

        It waits until the holder is done, or the server ends the holder's session.
        """
        if any(s.locks for s in self.store.sessions):
            return []
        return self.begin(who, number, locks=True)

    def begin(self, who: str, number: int, *, locks: bool = False) -> list[tuple[str, Any]]:
        """Begins a transaction; without the lock only in twins."""
        return [("ok", self._with(sessions=(*self.store.sessions, Session(who, number, locks))))]

    def look(
        self, who: str, number: int, window: int
    ) -> list[tuple[tuple[Receipt, ...] | str, Any]]:
        """Reads the committed receipts in a session. The window only names the look in a trace."""
        return [("gone" if self._session(who, number) is None else self.receipts(), self)]

    def look_unlocked(self, who: str, window: int) -> list[tuple[tuple[Receipt, ...], Any]]:
        """Reads the committed receipts without the lock; for twins."""
        return [(self.receipts(), self)]

    def insert(
        self, who: str, number: int, receipt: Receipt, receipts: tuple[Receipt, ...]
    ) -> list[tuple[str, Any]]:
        """Deletes replaced rows, streams the staged files in, and inserts the receipt.

        The answer is whether the files are complete.
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
        """Rolls back."""
        session = self._session(who, number)
        return [(None, self if session is None else self._with(sessions=self._without(session)))]

    def send_commit(self, who: str, number: int) -> list[tuple[str, Any]]:
        """Commits. The answer can be lost, and so can the request, or it is still under way.

        For a session that is gone the reason is unknown.
        """
        session = self._session(who, number)
        if session is None:
            return [("unknown", self)]
        arrived = self.arrives(("commit", who, number))
        nothing = self._with(sessions=self._without(session))
        late = self._replace(flying=self.flying | {("commit", who, number)})
        return [("ok", arrived), ("unknown", arrived), ("unknown", nothing), ("unknown", late)]

    def arrives(self, request: Any) -> Any:
        """Commits a session that still exists; see `World.arrives`."""
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
        """Returns the server's own steps: it ends a session that is dead or idle.

        Once, it crashes, or the machine with the staging folder does.
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
    """The real protocol: lock, look, insert, commit. After any answer but ok, the same again."""

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
        """Commits a window; see `SinkProtocol.commit`. Each try has its own session."""
        yield self.fence(tries)
        look_reply = yield Ask("look", (tries, receipt.window))
        return (yield from self.write(receipt, look_reply, tries))

    def fence(self, tries: int) -> Ask:
        """Returns the request that begins a transaction."""
        return Ask("lock", (tries,))

    def write(self, receipt: Receipt, look_reply: tuple[Receipt, ...] | str, tries: int) -> Program:
        """Judges by the look, streams the files in, and commits."""
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
        """Tries again after a lost connection."""
        return Again("commit", (receipt, tries - 1)) if tries > 1 else ("Unknown",)

    sums = True
    """True if it compares length and checksum of the streamed files with the stager's."""


# --- broken twins


class SelectThenInsert(Transaction):
    """A twin without a lock or a key: two runs that look at the same time see nothing."""

    def fence(self, tries: int) -> Ask:
        """Returns a begin without the lock."""
        return Ask("begin", (tries,))


class LookBeforeLock(Transaction):
    """A twin that takes the lock after its look, which may be outdated by then."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits, and looks first."""
        look_reply = yield Ask("look_unlocked", (receipt.window,))
        yield self.fence(tries)
        return (yield from self.write(receipt, look_reply, tries))


class TrustsStaging(Transaction):
    """A twin that doesn't check staged files, which may be shorter after a loss of power."""

    sums = False
