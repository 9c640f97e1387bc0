"""The protocol of a log of numbered entries, for Delta's log and the manifests of a table of
files.

Each number is taken once, by the first put. A run looks at the whole log, and puts its entry
under the next number. A sweep does the same before it removes files.
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
    """The entry of one number.

    Attributes:
        receipt: the receipt; None for a sweep.
        removes: attempts whose rows it removes.
        given_up: files that no later commit may name.
    """

    receipt: Receipt | None
    removes: frozenset[str] = frozenset()
    given_up: frozenset[File] = frozenset()

    def __str__(self) -> str:
        return f"give up {len(self.given_up)} files" if self.receipt is None else str(self.receipt)


class Log(NamedTuple):
    """A log and its files.

    Attributes:
        entries: the entries.
        staged: the staged files, in scenarios with a sweep.
        removed_files: the removed files.
    """

    entries: tuple[Entry, ...] = ()
    staged: frozenset[File] = frozenset()
    removed_files: frozenset[File] = frozenset()


class Seen(NamedTuple):
    """The result of a look.

    Attributes:
        version: number of the newest entry; -1 if there is none.
        receipts: the committed receipts.
        given_up: the files that were given up.
    """

    version: int
    receipts: tuple[Receipt, ...]
    given_up: frozenset[File]

    def __str__(self) -> str:
        return f"version {self.version}, {', '.join(map(str, self.receipts)) or 'nothing'}"


class LogWorld(World):
    """The log of one table."""

    def receipts(self) -> tuple[Receipt, ...]:
        """Returns the receipts that no later entry removes."""
        receipts: tuple[Receipt, ...] = ()
        for entry in self.store.entries:
            receipts = tuple(r for r in receipts if r.attempt not in entry.removes)
            receipts += () if entry.receipt is None else (entry.receipt,)
        return receipts

    def removed(self) -> frozenset[File]:
        """Returns the removed files; see `World.removed`."""
        return frozenset(self.store.removed_files)

    def look(self, who: str, window: int) -> list[tuple[Seen, Any]]:
        """Reads the log. The window only names the look in a trace."""
        given_up = frozenset(f for e in self.store.entries for f in e.given_up)
        return [(Seen(len(self.store.entries) - 1, self.receipts(), given_up), self)]

    def intact(self, who: str, files: tuple[File, ...]) -> list[tuple[bool, Any]]:
        """Returns whether files still exist."""
        return [(not self.store.removed_files & {*files}, self)]

    def put(self, who: str, number: int, entry: Entry) -> list[tuple[str, Any]]:
        """Puts an entry if its number is free.

        Each answer can be lost. A request without an answer arrives at once, later or never.
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
        """Puts an entry at the next free number, whatever the look saw; for twins."""
        return self.put(who, len(self.store.entries), entry)

    def put_over(self, who: str, number: int, entry: Entry) -> list[tuple[str, Any]]:
        """Puts an entry over an existing one; for twins."""
        entries = (*self.store.entries[:number], entry, *self.store.entries[number + 1 :])
        return [("ok", self._replace(store=self.store._replace(entries=entries)))]

    def listed(self, who: str) -> list[tuple[frozenset[File], Any]]:
        """Lists the files of the scenario's runs; only scenarios with a sweep have any."""
        return [(self.store.staged - self.store.removed_files, self)]

    def stage(self, who: str, split: int) -> list[tuple[File, Any]]:
        """Stages a split.

        In scenarios with a sweep there is one task per split, and its file is listed.
        """
        outcomes = super().stage(who, split)
        if not self.store.staged:
            return outcomes
        file = outcomes[0][0]
        return [(file, self._replace(store=self.store._replace(staged=self.store.staged | {file})))]

    def remove(self, who: str, files: frozenset[File]) -> list[tuple[None, Any]]:
        """Removes files for good."""
        return [
            (
                None,
                self._replace(
                    store=self.store._replace(removed_files=self.store.removed_files | files)
                ),
            )
        ]

    def arrives(self, request: Any) -> Any:
        """Adds the entry if its number is free; see `World.arrives`."""
        _, number, entry = request
        if len(self.store.entries) != number:
            return self
        return self._replace(store=self.store._replace(entries=(*self.store.entries, entry)))


GARBAGE = File("Z", 0, 1, 1)
"""A file of an attempt that died long ago."""
FIRST = Receipt(0, 0, "Z", 0, 2, (File("Z", 0, 2, 2), File("Z", 1, 2, 2)))
"""A receipt that is committed before a scenario begins."""


def scenarios(kind: type[World]) -> dict[str, Scenario]:
    """Returns the scenarios."""
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
    """The real protocol: look, and put under the next number.

    After any answer but ok, look again.
    """

    name = "delta"

    def __init__(self, kind: type[World] = LogWorld) -> None:
        super().__init__()
        self.scenarios = scenarios(kind)

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits a window; see `SinkProtocol.commit`."""
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
        """Returns the atomic operation."""
        return Ask("put", (snapshot.version + 1, self.entry(snapshot, receipt)))

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Returns the verdict after an answer, or the next program."""
        if reply == "ok":
            return ("Done", receipt)
        remaining_tries = tries - (reply == "unknown")
        return Again("commit", (receipt, remaining_tries)) if remaining_tries else ("Unknown",)

    def entry(self, snapshot: Seen, receipt: Receipt) -> Entry:
        """Returns the entry. A replacement removes the receipts of its window that the look saw."""
        replaced_attempts = frozenset(
            r.attempt for r in snapshot.receipts if r.window == receipt.window
        )
        return Entry(
            receipt, replaced_attempts if receipt.replayed_attempt is None else frozenset()
        )

    def replay_dead_letters(self, me: str, window: int) -> Program:
        """Replays a dead letter: it becomes a row beside the others, and no dead letter is left."""
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
        """Sweeps: lists files, looks, gives up the orphans on exactly that state, then removes
        them.

        There is no grace period.
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
    """The same protocol with manifests of files, and its own twins."""

    name = "files"


# --- broken twins


class PathWrite(NumberedLog):
    """A twin that writes by path: the write finds the newest number by itself."""

    def write(self, snapshot: Seen, receipt: Receipt) -> Ask:
        """Returns a put that doesn't use the look's number."""
        return Ask("put_anywhere", (self.entry(snapshot, receipt),))


class DefaultRetries(NumberedLog):
    """A twin whose library retries after a conflict under the next number, without a look."""

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Retries without a look."""
        return (
            Again("retry", (receipt,))
            if reply == "taken"
            else super().handle_reply(receipt, reply, tries)
        )

    def retry(self, me: str, receipt: Receipt) -> Program:
        """Puts the entry again, as the library does."""
        reply = yield Ask("put_anywhere", (Entry(receipt),))
        return self.handle_reply(receipt, reply, 1)


class GenerationInTheId(NumberedLog):
    """A twin whose generations have different ids, so that only commits of one generation
    conflict.
    """

    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits a window, and looks only for its own generation."""
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
    """A twin that sends a commit without an answer again under the next number, without a look."""

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Sends again without asking whether the first put arrived."""
        return (
            Again("put_second", (receipt,))
            if reply == "unknown" and tries > 1
            else super().handle_reply(receipt, reply, tries)
        )

    def put_second(self, me: str, receipt: Receipt) -> Program:
        """Puts the entry a second time."""
        reply = yield Ask("put_anywhere", (Entry(receipt),))
        return self.handle_reply(receipt, reply, 1)


class DeleteOnUnknown(NumberedLog):
    """A twin that takes a commit without an answer as failed, and removes its files."""

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Removes the files that the commit may have named."""
        return (
            Again("clean", (receipt,))
            if reply == "unknown"
            else super().handle_reply(receipt, reply, tries)
        )

    def clean(self, me: str, receipt: Receipt) -> Program:
        """Removes the attempt's own files."""
        yield Ask("remove", (frozenset(receipt.files),))
        return ("Failed",)


class SweepWithoutWord(NumberedLog):
    """A twin whose sweep removes files that no commit names, without giving them up first."""

    def sweep(self, me: str, tries: int = TRIES) -> Program:
        """Sweeps without a commit before the removal."""
        lying, snapshot = (yield Ask("listed")), (yield Ask("look", (-1,)))
        yield Ask("remove", (lying - {f for r in snapshot.receipts for f in r.files},))
        return ("Swept",)


class LettersLast(NumberedLog):
    """A twin that stores dead letters after the data: a run that dies in between has lost them."""

    def keep(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits first."""
        return Again("commit", (receipt, tries))
        yield

    def handle_reply(self, receipt: Receipt, reply: str, tries: int) -> Any:
        """Stores the dead letters after the commit."""
        return (
            Again("letters", (receipt,))
            if reply == "ok"
            else super().handle_reply(receipt, reply, tries)
        )

    def letters(self, me: str, receipt: Receipt) -> Program:
        """Stores the dead letters too late; see `keep`."""
        yield Ask("keep_letters", (receipt.window,))
        return ("Done", receipt)


class _Unfrozen(LogWorld):
    def freeze(self, who: str, label: int) -> list[tuple[int, Any]]:
        """Returns each run's own view of the topic's end, without storing it."""
        return [(2 * label + (who != "A" and label > 0), self)]


class NoFreeze(NumberedLog):
    """A twin whose runs cut their window where each sees the topic's end."""

    def __init__(self) -> None:
        super().__init__(_Unfrozen)


class _OneName(LogWorld):
    overwrites = True

    def named(self, who: str, split: int) -> File:
        """Returns the same name for two tasks of a split."""
        return File(who, split, 1, 1)


class OneNameForTwoTasks(NumberedLog):
    """A twin whose second task of a split writes under the first one's name, although the first
    isn't dead.
    """

    def __init__(self) -> None:
        super().__init__(_OneName)


class RenameOver(Manifests):
    """A twin that renames a manifest to its name, which replaces an existing one."""

    def write(self, snapshot: Seen, receipt: Receipt) -> Ask:
        """Returns a put that replaces an existing manifest."""
        return Ask("put_over", (snapshot.version + 1, self.entry(snapshot, receipt)))


class OneManifestAnAttempt(Manifests):
    """A twin that names manifests by window and attempt, so that a taken window is not noticed."""

    def write(self, snapshot: Seen, receipt: Receipt) -> Ask:
        """Returns a put under a name that no other attempt uses."""
        return Ask("put_anywhere", (self.entry(snapshot, receipt),))
