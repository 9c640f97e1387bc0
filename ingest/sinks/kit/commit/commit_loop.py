"""The commit loop: windows become visible in a table exactly once, whatever its kind.

    look   at the newest state of the table (locked, or a snapshot)
    check  what a commit may do on it (`sinks.kit.commit.conflicts`, pure)
    put    rows and receipt on exactly that state, or nothing at all
    again  while others win, or while nobody knows whether the put arrived

Race of two runs of one window:

    1 A looks.   2 B looks.   3 A puts.   4 B's put meets another state than the one B looked at.
    5 B looks again, and finds A's receipt: already done. Under a lock step 2 waits for step 3.

After a put no error is believed: the put may have arrived, or a client library may have sent it
again in between. So after any answer but "written" only the next look tells whether the window is
committed, and by which run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import (
    LostConnectionError,
    RefusedError,
    SpecError,
    UnreachableError,
)
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.sink import AlreadyDone, Done, Outcome
from windrow.ingest.sinks.kit.commit.table_store import (
    Answer,
    Conflict,
    TableChange,
    Unanswered,
    Written,
)
from windrow.ingest.waiting import say

T = TypeVar("T")


class Puttable(Protocol):
    """The part of a table's state that the loop needs (`table_store.TableState`)."""

    @property
    def version(self) -> int: ...
    def put(self, change: Any, /) -> Answer: ...


S = TypeVar("S", bound=Puttable)
S_co = TypeVar("S_co", bound=Puttable, covariant=True)


class Writable(Protocol[S_co]):
    """The part of a table that the loop needs (`table_store.TableStore`)."""

    @property
    def place(self) -> str: ...
    @property
    def waits(self) -> Sequence[float]: ...
    def writing(self) -> AbstractContextManager[S_co | None]: ...


class AlreadyWritten(msgspec.Struct, Generic[T], frozen=True):
    """The answer of `check`: the table has already what was to be put.

    `tries`: the puts of this call, which may have brought it.
    """

    value: T
    tries: int

    def outcome_for(self: AlreadyWritten[Committed], sent: Receipt) -> Outcome:
        """What became of a receipt that was to be put, as a sink says it.

        The one that was found is compared by attempt and generation only: the sink may have added
        to its own what only the table knew.
        """
        table_receipt = self.value.receipt
        same = (table_receipt.attempt, table_receipt.generation) == (sent.attempt, sent.generation)
        return (Done if self.tries and same else AlreadyDone)(self.value, self.tries)


def run_commit_loop(
    store: Writable[S], check: Callable[[S], T | None], change: Callable[[S], Any]
) -> AlreadyWritten[T] | Written | Unanswered:
    """Looks, checks and puts; again while others win.

    Args:
        store: of a table of any kind, or of one transaction.
        check: returns what the table has already of the change, or None; raises if the change is
            refused.
        change: makes the change for this state; raises if it is refused.

    Returns:
        Found: the table has the change already. Written: this call wrote it. Unanswered: nobody
        knows, even after the last look.

    Raises:
        RefusedError: the table doesn't exist any more, or check or change refuse; and no put of
            this call can arrive later.
        UnreachableError: the table can't be read, or its disk is full; surely nothing was put.
    """
    tries = _Tries(store)
    while True:
        version: int | None = None
        try:
            with store.writing() as state:
                if state is None:
                    raise table_gone_error(store)
                version = state.version
                written = check(state)
                if written is not None:
                    return AlreadyWritten(written, tries.count)
                if tries.are_over(version):
                    break
                reply = None if tries.hidden_conflict(version) else _put(state, change(state))
                tries.count += reply is not None
        except (UnreachableError, RefusedError, SpecError) as error:
            if isinstance(error, LostConnectionError) and tries.await_connection(error):
                continue
            if not tries.may_arrive(None if isinstance(error, UnreachableError) else version):
                raise
            # its advice may say that nothing was committed: the next run's look says what is true
            return Unanswered(error.what)
        # The state is closed by now: nobody sleeps with a lock.
        if isinstance(reply, Written):
            return msgspec.structs.replace(reply, tries=tries.count)
        if reply is None:
            tries.await_conflict()
        else:
            tries.record_failure(reply, version)
    return tries.given_up()


class _Tries:
    """Counts the tries to put one change, and waits between them.

    A conflict costs nothing as long as the table moves on, because another commit has arrived then.
    A try that leaves the table as it was costs one of the store's waits.
    """

    def __init__(self, store: Writable[Any]) -> None:
        self._store, self._waits = store, list(store.waits)
        self._last: Conflict | Unanswered | None = None
        self._version, self._spent = -1, False
        self.count = 0

    @property
    def has_put(self) -> bool:
        """Returns whether anything was put, which may have arrived."""
        return self._last is not None

    def record_failure(self, reply: Conflict | Unanswered, version: int) -> None:
        """Records that a put on the state of this version wasn't answered with "written"."""
        self._last, self._version = reply, version
        if isinstance(reply, Unanswered):
            self.wait()

    def are_over(self, version: int) -> bool:
        """Returns whether no try is left, when the table is at this version."""
        return self.has_put and self._spent and version == self._version

    def may_arrive(self, version: int | None) -> bool:
        """Returns whether a put may still arrive, when the table is at this version.

        None stands for a table that can't be read.
        """
        return self.has_put and version in {None, self._version}

    def hidden_conflict(self, version: int) -> bool:
        """Returns whether the last put lost against a change that no look shows yet."""
        return isinstance(self._last, Conflict) and version == self._version

    def await_conflict(self) -> None:
        """Waits once for the change that the last put lost against.

        After that the change is put again, whether or not a look shows the other one.
        """
        assert isinstance(self._last, Conflict), "asked behind a hidden conflict only"
        self._last = Unanswered(self._last.why)
        self.wait()

    def await_connection(self, error: LostConnectionError) -> bool:
        """Waits for the connection to the table to come back; False if no wait is left.

        Says so if it is the first wait.
        """
        if len(self._waits) == len(self._store.waits):
            say(f"the table {self._store.place}: {error.what}")
        return self.wait()

    def wait(self) -> bool:
        """Waits before another try; False if no wait is left."""
        if self._waits:
            time.sleep(self._waits.pop(0))
        else:
            self._spent = True
        return not self._spent

    def given_up(self) -> Unanswered:
        """The outcome after the last look, which didn't find the change.

        Raises:
            UnreachableError: a put failed because the disk is full.
        """
        last = self._last
        if isinstance(last, Unanswered) and last.full:
            raise UnreachableError(
                f"there is no room left for the table {self._store.place}: {last.why}",
                "commit",
                "Nothing was committed: the table was looked at again. Make room, then run it"
                " again.",
            )
        return Unanswered("" if last is None else last.why)


def _put(state: Puttable, change: Any) -> Answer:
    """Puts a change. A change with a receipt has crash points around it."""
    if not isinstance(change, TableChange) or change.receipt is None:
        return state.put(change)
    crash_point("commit.before")
    reply = state.put(change)
    crash_point("commit.after")
    return reply


def table_gone_error(store: Writable[Any]) -> RefusedError:
    """The error for a table that doesn't exist any more."""
    return RefusedError(
        f"the table {store.place} isn't there any more",
        "commit",
        "Was it removed meanwhile? Run the window again.",
    )
