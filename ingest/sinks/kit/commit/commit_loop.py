"""The commit loop: windows become visible in a table exactly once, for every kind of table.

1. Look at the newest state of the table, which is locked or a snapshot.
2. Check whether a commit may change this state (`sinks.kit.commit.conflicts`, pure).
3. Put rows and receipt on exactly that state, or nothing at all.
4. Begin again if another commit came first, or if it is unknown whether the put arrived.

A race of two runs of one window:

1. A looks.
2. B looks. (With a lock, B waits until step 3 is done.)
3. A puts.
4. B's put fails, because the state isn't the one that B looked at.
5. B looks again, and finds A's receipt: the window is already done.

After a put, an error proves nothing. The put may have arrived, or a client library may have
sent it twice. So after any answer except "written", only the next look shows whether the window
is committed, and by which run.
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
from windrow.ingest.waiting import log_waiting

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
    def location(self) -> str: ...
    @property
    def waits(self) -> Sequence[float]: ...
    def writing(self) -> AbstractContextManager[S_co | None]: ...


class AlreadyWritten(msgspec.Struct, Generic[T], frozen=True):
    """The answer of `check`: the table already has the change.

    Attributes:
        value: the value that `check` returned.
        tries: number of puts of this call. One of them may have written the change.
    """

    value: T
    tries: int

    def outcome_for(self: AlreadyWritten[Committed], receipt: Receipt) -> Outcome:
        """Returns the outcome of a commit of this receipt.

        The two receipts are compared by attempt and generation only, because the sink may have
        added facts about the table to its own.
        """
        table_receipt = self.value.receipt
        same = (table_receipt.attempt, table_receipt.generation) == (
            receipt.attempt,
            receipt.generation,
        )
        return (Done if self.tries and same else AlreadyDone)(self.value, self.tries)


def run_commit_loop(
    store: Writable[S], check: Callable[[S], T | None], change: Callable[[S], Any]
) -> AlreadyWritten[T] | Written | Unanswered:
    """Looks, checks and puts, and begins again while other commits come first.

    Args:
        store: the store of a table of any kind, or of one transaction.
        check: returns a value if the table already has the change, else None. It raises if the
            change is refused.
        change: makes the change for this state. It raises if the change is refused.

    Returns:
        AlreadyWritten: the table already has the change. Written: this call wrote it.
            Unanswered: it is unknown, even after the last look, whether the table has it.

    Raises:
        RefusedError: the table doesn't exist any more, or `check` or `change` refuse. No put of
            this call can arrive later.
        UnreachableError: the table can't be read, or its disk is full. Surely nothing was put.
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
            # The error's advice may say that nothing was committed, which isn't sure here.
            return Unanswered(error.message)
        # The state is closed by now, so this process doesn't hold its lock while it waits.
        if isinstance(reply, Written):
            return msgspec.structs.replace(reply, tries=tries.count)
        if reply is None:
            tries.await_conflict()
        else:
            tries.record_failure(reply, version)
    return tries.given_up()


class _Tries:
    """Counts the tries to put one change, and waits between them.

    A conflict costs no wait if the table has changed, because another commit has arrived then.
    A try that leaves the table unchanged costs one of the store's waits.
    """

    def __init__(self, store: Writable[Any]) -> None:
        self._store, self._waits = store, list(store.waits)
        self._last: Conflict | Unanswered | None = None
        self._version, self._spent = -1, False
        self.count = 0

    @property
    def has_put(self) -> bool:
        """Whether anything was put. It may have arrived."""
        return self._last is not None

    def record_failure(self, reply: Conflict | Unanswered, version: int) -> None:
        """Records a put on the state of this version whose answer wasn't "written"."""
        self._last, self._version = reply, version
        if isinstance(reply, Unanswered):
            self.wait()

    def are_over(self, version: int) -> bool:
        """Returns whether no try is left, for a table at this version."""
        return self.has_put and self._spent and version == self._version

    def may_arrive(self, version: int | None) -> bool:
        """Returns whether a put may still arrive, for a table at this version.

        Args:
            version: the table's version; None if the table can't be read.
        """
        return self.has_put and version in {None, self._version}

    def hidden_conflict(self, version: int) -> bool:
        """Returns whether the last put failed because of a change that no look shows yet."""
        return isinstance(self._last, Conflict) and version == self._version

    def await_conflict(self) -> None:
        """Waits once until the other change of a hidden conflict is visible.

        After that the next try puts again, whether or not a look shows the other change.
        """
        assert isinstance(self._last, Conflict), "asked behind a hidden conflict only"
        self._last = Unanswered(self._last.reason)
        self.wait()

    def await_connection(self, error: LostConnectionError) -> bool:
        """Waits for the connection to the table; False if no wait is left.

        Logs a message if it is the first wait.
        """
        if len(self._waits) == len(self._store.waits):
            log_waiting(f"the table {self._store.location}: {error.message}")
        return self.wait()

    def wait(self) -> bool:
        """Waits before another try; False if no wait is left."""
        if self._waits:
            time.sleep(self._waits.pop(0))
        else:
            self._spent = True
        return not self._spent

    def given_up(self) -> Unanswered:
        """Returns the outcome after the last look, which didn't find the change.

        Raises:
            UnreachableError: a put failed because the disk is full.
        """
        last = self._last
        if isinstance(last, Unanswered) and last.full:
            raise UnreachableError(
                f"there is no room left for the table {self._store.location}: {last.reason}",
                "commit",
                "Nothing was committed: the table was looked at again. Make room, then run it"
                " again.",
            )
        return Unanswered("" if last is None else last.reason)


def _put(state: Puttable, change: Any) -> Answer:
    """Puts a change. A change with a receipt has crash points around it."""
    if not isinstance(change, TableChange) or not change.receipts:
        return state.put(change)
    crash_point("commit.before")
    reply = state.put(change)
    crash_point("commit.after")
    return reply


def table_gone_error(store: Writable[Any]) -> RefusedError:
    """Returns the error for a table that doesn't exist any more."""
    return RefusedError(
        f"the table {store.location} isn't there any more",
        "commit",
        "Was it removed meanwhile? Run the window again.",
    )
