"""A log of numbered entries, each taken once by whoever puts it first: Delta's log, and
the manifests of files without a table format.

A run looks at the whole log, and puts its entry under the number that follows what it
saw. A sweep does likewise before it removes anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.protocols.explore import Again, Ask, Process, Program, Scenario
from tests.protocols.world import (
    TRIES,
    File,
    Receipt,
    SinkProtocol,
    World,
    begin_world,
    judge,
    newest,
)


class Entry(NamedTuple):
    """What is in the log under one number.

    `removes`: the attempts whose rows it takes back; `given_up`: files that may not come now.
    """

    receipt: Receipt | None
    removes: frozenset[str] = frozenset()
    given_up: frozenset[File] = frozenset()

    def __str__(self) -> str:
        return f"give up {len(self.given_up)} files" if self.receipt is None else str(self.receipt)


class Log(NamedTuple):
    """`staged`: the files that lie there, as far as a sweep looks at them."""

    entries: tuple[Entry, ...] = ()
    staged: frozenset[File] = frozenset()
    removed_files: frozenset[File] = frozenset()


class Seen(NamedTuple):
    """One look: the number of the newest entry (-1 if there is none), what is
    committed, and what was given up.
    """

    version: int
    receipts: tuple[Receipt, ...]
    given_up: frozenset[File]

    def __str__(self) -> str:
        return f"version {self.version}, {', '.join(map(str, self.receipts)) or 'nothing'}"


class LogWorld(World):
    """The log of one table."""

    def receipts(self) -> tuple[Receipt, ...]:
        """Those that no later entry takes back."""
        receipts: tuple[Receipt, ...] = ()
        for entry in self.store.entries:
            receipts = tuple(r for r in receipts if r.attempt not in entry.removes)
            receipts += () if entry.receipt is None else (entry.receipt,)
        return receipts

    def removed(self) -> frozenset[File]:
        """See `World.removed`."""
        return frozenset(self.store.removed_files)

    def look(self, who: str, window: int) -> list[tuple[Seen, Any]]:
        """The log as it is now; the window says whose look it is."""
        given_up = frozenset(f for e in self.store.entries for f in e.given_up)
        return [(Seen(len(self.store.entries) - 1, self.receipts(), given_up), self)]

    def intact(self, who: str, files: tuple[File, ...]) -> list[tuple[bool, Any]]:
        """Returns whether files are there still."""
        return [(not self.store.removed_files & {*files}, self)]

    def put(self, who: str, number: int, entry: Entry) -> list[tuple[str, Any]]:
        """Put-if-absent.

        Each answer can be lost; a request that isn't answered arrives at once, later or never.
        """
        if len(self.store.entries) != number:
            return [("taken", self), ("unknown", self)]
        arrived = self.arrives(("entry", number, entry))
        return [
            ("ok", arrived),
            ("unknown", arrived),
            ("unknown", self._replace(flying=self.flying | {("entry", number, entry)})),
        ]

    def put_anywhere(self, who: str, entry: Entry) -> list[tuple[str, Any]]:
        """For twins: the next free number, whatever was looked at."""
        return self.put(who, len(self.store.entries), entry)

    def put_over(self, who: str, number: int, entry: Entry) -> list[tuple[str, Any]]:
        """For twins: a name that is there is written over."""
        entries = (*self.store.entries[:number], entry, *self.store.entries[number + 1 :])
        return [("ok", self._replace(store=self.store._replace(entries=entries)))]

    def listed(self, who: str) -> list[tuple[frozenset[File], Any]]:
        """Every file that lies there: those of the runs of a scenario with a sweep."""
        return [(self.store.staged - self.store.removed_files, self)]

    def stage(self, who: str, split: int) -> list[tuple[File, Any]]:
        """Where somebody sweeps, files are listed, and one task a split is enough."""
        outcomes = super().stage(who, split)
        if not self.store.staged:
            return outcomes
        file = outcomes[0][0]
        return [(file, self._replace(store=self.store._replace(staged=self.store.staged | {file})))]

    def remove(self, who: str, files: frozenset[File]) -> list[tuple[None, Any]]:
        """For good."""
        return [
            (
                None,
                self._replace(
                    store=self.store._replace(removed_files=self.store.removed_files | files)
                ),
            )
        ]

    def arrives(self, request: Any) -> Any:
        """See `World.arrives`."""
        _, number, entry = request
        if len(self.store.entries) != number:
            return self
        return self._replace(store=self.store._replace(entries=(*self.store.entries, entry)))


GARBAGE = File("Z", 0, 1, 1)
"""Of an attempt that died long ago."""
FIRST = Receipt(0, 0, "Z", 0, 2, (File("Z", 0, 2, 2), File("Z", 1, 2, 2)))
"""A window that was committed before."""


def scenarios(kind: type[World]) -> dict[str, Scenario]:
    """What is explored."""
    empty = begin_world(kind, Log())
    world_state = {"boundaries": ((0, 0), (1, 2)), "letters": frozenset({(0, "Z")})}
    first = begin_world(kind, Log((Entry(FIRST),)), **world_state)
    swept = begin_world(
        kind, Log((Entry(FIRST),), frozenset({*FIRST.files, GARBAGE})), **world_state
    )
    replays = (Process("A", "run", (0, 2)), Process("B", "run", (0, 1)))
    return {
        "one window twice": Scenario(
            empty, (Process("A", "run", (0,)), Process("B", "run", (0,))), ((0,),)
        ),
        "two windows": Scenario(
            empty, (Process("A", "run", (0,)), Process("B", "run", (1,))), ((1,), (0,))
        ),
        "two replays": Scenario(
            first, replays, ((0, 1), (0, 2)), frozenset({"generations left out"})
        ),
        "a replay and a dead-letter replay": Scenario(
            first,
            (Process("A", "replay_dead_letters", (0,)), Process("B", "run", (0, 1))),
            ((0, 1),),
            frozenset({"replays another attempt"}),
        ),
        "a sweep": Scenario(
            swept,
            (Process("A", "run", (1,)), Process("S", "sweep")),
            ((1,),),
            frozenset({"given up"}),
        ),
    }


class NumberedLog(SinkProtocol):
    """Look, put under the number that follows; whatever the answer but ok, look again."""

    name = "delta"

    def __init__(self, kind: type[World] = LogWorld) -> None:
        super().__init__()
        self.scenarios = scenarios(kind)

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """See `SinkProtocol.commit`."""
        snapshot: Seen = yield Ask("look", (receipt.window,))
        judgment = judge(receipt, snapshot.receipts)
        if isinstance(judgment, str):
            return ("Refused", judgment)
        if judgment is not None:
            return ("Done" if judgment == receipt else "AlreadyDone", judgment)
        if not (yield Ask("intact", (receipt.files,))) or snapshot.given_up & {*receipt.files}:
            return ("Refused", "given up")
        reply = yield self.write(snapshot, receipt)
        return self.handle_reply(receipt, reply, tries)

    def write(self, snapshot: Seen, receipt: Receipt) -> Ask:
        """The one atomic operation."""
        return Ask("put", (snapshot.version + 1, self.entry(snapshot, receipt)))

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """What follows from an answer."""
        if reply == "ok":
            return ("Done", receipt)
        remaining_tries = tries - (reply == "unknown")
        return Again("commit", (receipt, remaining_tries)) if remaining_tries else ("Unknown",)

    def entry(self, snapshot: Seen, receipt: Receipt) -> Entry:
        """A replacement takes back what it saw of its window."""
        replaced_attempts = frozenset(
            r.attempt for r in snapshot.receipts if r.window == receipt.window
        )
        return Entry(
            receipt, replaced_attempts if receipt.replayed_attempt is None else frozenset()
        )

    def replay_dead_letters(self, me: str, window: int) -> Program:
        """The dead letter becomes a row beside those that are there; nothing is left to be kept."""
        snapshot: Seen = yield Ask("look", (window,))
        newest_receipt = newest(window, snapshot.receipts)
        assert newest_receipt is not None
        if newest_receipt.replayed_attempt is not None:
            return ("AlreadyDone", newest_receipt)
        file = yield Ask("stage", (1,))
        return Again(
            "commit",
            (
                Receipt(
                    window,
                    newest_receipt.generation + 1,
                    me,
                    newest_receipt.start,
                    newest_receipt.stop,
                    (file,),
                    newest_receipt.attempt,
                ),
            ),
        )

    def sweep(self, me: str, tries: int = TRIES) -> Program:
        """List, look, give up what no commit names on exactly that state; then remove it.

        The grace period is none at all.
        """
        lying: frozenset[File] = yield Ask("listed")
        snapshot: Seen = yield Ask("look", (-1,))
        orphans = lying - {f for r in snapshot.receipts for f in r.files}
        if not orphans:
            return ("Swept",)
        reply = yield Ask("put", (snapshot.version + 1, Entry(None, given_up=orphans)))
        if reply == "ok":
            yield Ask("remove", (orphans,))
            return ("Swept",)
        remaining_tries = tries - (reply == "unknown")
        return Again("sweep", (remaining_tries,)) if remaining_tries else ("Unknown",)


class Manifests(NumberedLog):
    """The same with manifests of files; what is broken there, its twins do."""

    name = "files"


# --------------------------------------------------------------------------------------------------


class PathWrite(NumberedLog):
    """Looks, then writes by path: the write finds the newest number by itself."""

    def write(self, snapshot: Seen, receipt: Receipt) -> Ask:
        """Not under the number that follows the look."""
        return Ask("put_anywhere", (self.entry(snapshot, receipt),))


class DefaultRetries(NumberedLog):
    """A conflict is met by the library's own retry, which takes the next number and
    looks at nothing.
    """

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Goes on without a look."""
        return (
            Again("retry", (receipt,))
            if reply == "taken"
            else super().handle_reply(receipt, reply, tries)
        )

    def retry(self, me: str, receipt: Receipt) -> Program:
        """The library's."""
        reply = yield Ask("put_anywhere", (Entry(receipt),))
        return self.handle_reply(receipt, reply, 1)


class GenerationInTheId(NumberedLog):
    """Each generation has an id of its own, and only commits with the same id meet."""

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Asks for its own generation alone."""
        snapshot: Seen = yield Ask("look", (receipt.window,))
        own_receipt = next(
            (
                r
                for r in snapshot.receipts
                if (r.window, r.generation) == (receipt.window, receipt.generation)
            ),
            None,
        )
        if own_receipt is not None:
            return ("AlreadyDone", own_receipt)
        reply = yield Ask("put_anywhere", (self.entry(snapshot, receipt),))
        return self.handle_reply(receipt, reply, tries)


class LookOnce(NumberedLog):
    """After a commit that was not answered it is sent again, under the next number,
    without a look.
    """

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Doesn't ask whether it arrived."""
        return (
            Again("put_second", (receipt,))
            if reply == "unknown" and tries > 1
            else super().handle_reply(receipt, reply, tries)
        )

    def put_second(self, me: str, receipt: Receipt) -> Program:
        """The second time."""
        reply = yield Ask("put_anywhere", (Entry(receipt),))
        return self.handle_reply(receipt, reply, 1)


class DeleteOnUnknown(NumberedLog):
    """What was not answered counts as failed, and is cleaned up."""

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Removes the files that the commit may have named."""
        return (
            Again("clean", (receipt,))
            if reply == "unknown"
            else super().handle_reply(receipt, reply, tries)
        )

    def clean(self, me: str, receipt: Receipt) -> Program:
        """The attempt's own files."""
        yield Ask("remove", (frozenset(receipt.files),))
        return ("Failed",)


class SweepWithoutWord(NumberedLog):
    """A sweep that removes what it saw no commit name, and tells nobody."""

    def sweep(self, me: str, tries: int = TRIES) -> Program:
        """No commit before the removal."""
        lying, snapshot = (yield Ask("listed")), (yield Ask("look", (-1,)))
        yield Ask("remove", (lying - {f for r in snapshot.receipts for f in r.files},))
        return ("Swept",)


class LettersLast(NumberedLog):
    """Dead letters behind the data: a run that dies in between has lost them."""

    def keep(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits first."""
        return Again("commit", (receipt, tries))
        yield

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Then the letters."""
        return (
            Again("letters", (receipt,))
            if reply == "ok"
            else super().handle_reply(receipt, reply, tries)
        )

    def letters(self, me: str, receipt: Receipt) -> Program:
        """As `keep`, too late."""
        yield Ask("keep_letters", (receipt.window,))
        return ("Done", receipt)


class _Unfrozen(LogWorld):
    def freeze(self, who: str, label: int) -> list[tuple[int, Any]]:
        """Each run's own view of the topic's end, kept nowhere."""
        return [(2 * label + (who != "A" and label > 0), self)]


class NoFreeze(NumberedLog):
    """Each run cuts its window where it sees the topic's end."""

    def __init__(self) -> None:
        super().__init__(_Unfrozen)


class _OneName(LogWorld):
    overwrites = True

    def named(self, who: str, split: int) -> File:
        """Without the task in the name, two tasks of a split write one file."""
        return File(who, split, 1, 1)


class OneNameForTwoTasks(NumberedLog):
    """The second task of a split writes under the first one's name, and the first one
    isn't dead.
    """

    def __init__(self) -> None:
        super().__init__(_OneName)


class RenameOver(Manifests):
    """A manifest is renamed to its name, which takes whatever is there away."""

    def write(self, snapshot: Seen, receipt: Receipt) -> Ask:
        """Not put-if-absent."""
        return Ask("put_over", (snapshot.version + 1, self.entry(snapshot, receipt)))


class OneManifestAnAttempt(Manifests):
    """Manifests are named by window and attempt: nothing says that the window is taken."""

    def write(self, snapshot: Seen, receipt: Receipt) -> Ask:
        """A name that nobody else takes."""
        return Ask("put_anywhere", (self.entry(snapshot, receipt),))
