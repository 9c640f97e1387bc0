"""Parts that all protocols share: frozen boundaries, staged files, dead letters, requests under
way, and promises of every sink.

There are two topic-partitions, and each window has a split of both. A message of a window is
(split, offset). The first message of split 1 is a dead letter, until it is replayed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.protocols.explore import Again, Ask, Process, Program, Protocol, Scenario

SPLITS = (0, 1)
TRIES = 2
"""Number of commits without an answer before a run says that its outcome is unknown."""


class File(NamedTuple):
    """A staged file. Its name has the attempt; its content is of `content_run`."""

    run: str
    split: int
    task: int
    content_run: int

    def __str__(self) -> str:
        return f"{self.run}.{self.split}.{self.task}"


class Receipt(NamedTuple):
    """A receipt.

    Attributes:
        window: number of its window.
        generation: its generation.
        attempt: its attempt.
        start: first offset of each split.
        stop: end of each split.
        files: its files.
        replayed_attempt: attempt whose dead letters it replays; None if it is no replay.
    """

    window: int
    generation: int
    attempt: str
    start: int
    stop: int
    files: tuple[File, ...]
    replayed_attempt: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.attempt}'s window {self.window}.{self.generation} [{self.start}, {self.stop})"
        )

    def messages(self) -> list[tuple[int, int]]:
        """Returns the messages of its rows."""
        dead = (1, self.start)
        if self.replayed_attempt is not None:
            return [dead]
        return [(s, o) for s in SPLITS for o in range(self.start, self.stop) if (s, o) != dead]


class World(NamedTuple):
    """A world.

    Attributes:
        boundaries: label and offset of each frozen boundary.
        torn: committed files that a stopped task has overwritten.
        letters: window and attempt of stored dead letters.
        flying: requests under way.
        store: the sink's own state.
    """

    boundaries: tuple[tuple[int, int], ...]
    torn: frozenset[File]
    letters: frozenset[tuple[int, str]]
    flying: frozenset[Any]
    store: Any

    # --- questions to any sink

    def receipts(self) -> tuple[Receipt, ...]:
        """Returns all receipts that are committed and not removed, in the order of their
        commits.
        """
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[tuple[int, int], Receipt]]:
        """Returns the visible rows: message and receipt of each."""
        return ((message, r) for r in self.receipts() for message in r.messages())

    def coming(self) -> Iterator[tuple[int, int]]:
        """Returns the messages of rows that are committed for good, but not visible yet."""
        return iter(())

    def removed(self) -> frozenset[File]:
        """Returns the files that were removed."""
        return frozenset()

    # --- steps of any run

    def freeze(self, who: str, label: int) -> list[tuple[int, Any]]:
        """Freezes a boundary, if it isn't frozen: each run sees another end of the topic, and
        the first one stays.
        """
        offset_by_label = dict(self.boundaries)
        if label not in offset_by_label:
            low = max(
                (
                    offset
                    for frozen_label, offset in offset_by_label.items()
                    if frozen_label < label
                ),
                default=0,
            )
            high = min(
                (
                    offset
                    for frozen_label, offset in offset_by_label.items()
                    if frozen_label > label
                ),
                default=99,
            )
            offset_by_label[label] = min(max(2 * label + (who != "A" and label > 0), low), high)
        return [
            (
                offset_by_label[label],
                self._replace(boundaries=tuple(sorted(offset_by_label.items()))),
            )
        ]

    def stage(self, who: str, split: int) -> list[tuple[File, Any]]:
        """Stages a split by a task; or by a second one, if the first was killed, or was stopped
        and writes again when it wakes.

        Under its own name the woken task changes nothing that others see. So it wakes only in
        worlds where tasks share a name.
        """
        zombie = self.flying | ({("task", who, split)} if self.overwrites else frozenset())
        return [
            (File(who, split, 1, 1), self),
            (self.named(who, split), self._replace(flying=zombie)),
        ]

    def named(self, who: str, split: int) -> File:
        """Returns the file of the second task of a split."""
        return File(who, split, 2, 2)

    def keep_letters(self, who: str, window: int) -> list[tuple[str, Any]]:
        """Stores the dead letters of an attempt in their own commit, and again if that wasn't
        answered.
        """
        arrived = self._replace(letters=self.letters | {(window, who)})
        return (
            [("ok", arrived)]
            if arrived == self
            else [("ok", arrived), ("unknown", arrived), ("unknown", self)]
        )

    def events(self) -> list[tuple[str, Any]]:
        """Returns the world's own steps."""
        events = []
        for request in sorted(self.flying, key=str):
            rest = self._replace(flying=self.flying - {request})
            if request[0] == "task":
                _, who, split = request
                torn = {self.named(who, split)} & {f for r in self.receipts() for f in r.files}
                events.append(
                    (
                        f"{who}'s stopped task of split {split} wakes and writes",
                        rest._replace(torn=self.torn | torn),
                    )
                )
            else:
                events.append((f"{_whose(request)} arrives late", rest.arrives(request)))
        return events

    overwrites = False
    """True if two tasks of a split write under one name, as in a broken twin."""

    def arrives(self, request: Any) -> Any:
        """Applies a request whose run no longer waits for it."""
        raise NotImplementedError


def _whose(request: tuple[Any, ...]) -> str:
    return " ".join(map(str, request))


def begin_world(kind: type[World], store: Any, **more: Any) -> World:
    """Returns a world in which nothing has happened yet."""
    return kind(
        **(
            {
                "boundaries": ((0, 0),),
                "torn": frozenset(),
                "letters": frozenset(),
                "flying": frozenset(),
                "store": store,
            }
            | more
        )
    )


def newest(window: int, receipts: Iterable[Receipt]) -> Receipt | None:
    """Returns a window's receipt of the highest generation."""
    window_receipts = [r for r in receipts if r.window == window]
    return max(window_receipts, key=lambda r: r.generation) if window_receipts else None


def judge(receipt: Receipt, receipts: Iterable[Receipt]) -> Receipt | str | None:
    """Judges a receipt as a small `ingest.sinks.kit.commit.conflicts.decide`.

    Returns:
        The committed receipt that counts instead, the reason of a refusal, or None if it may be
        committed.
    """
    all_receipts = [*receipts]
    newest_receipt = newest(receipt.window, all_receipts)
    if newest_receipt is not None and (newest_receipt.start, newest_receipt.stop) != (
        receipt.start,
        receipt.stop,
    ):
        return "another plan"
    if newest_receipt is not None and newest_receipt.generation >= receipt.generation:
        return newest_receipt
    if receipt.generation != (0 if newest_receipt is None else newest_receipt.generation + 1):
        return "generations left out"
    if receipt.replayed_attempt is not None and (
        newest_receipt is None or newest_receipt.attempt != receipt.replayed_attempt
    ):
        return "replays another attempt"
    if any(
        r.window != receipt.window and r.start < receipt.stop and receipt.start < r.stop
        for r in all_receipts
    ):
        return "overlap"
    return None


def pairs_of_runs(empty: World, filled: World) -> dict[str, Scenario]:
    """Returns scenarios of two runs at once: of one window, of two windows, and two replays of
    a window.

    Args:
        empty: a table without windows.
        filled: a table with window 0 and a dead letter.
    """
    return {
        "one window twice": Scenario(
            empty, (Process("A", "run", (0,)), Process("B", "run", (0,))), ((0,),)
        ),
        "two windows": Scenario(
            empty, (Process("A", "run", (0,)), Process("B", "run", (1,))), ((1,), (0,))
        ),
        "two replays": Scenario(
            filled,
            (Process("A", "run", (0, 2)), Process("B", "run", (0, 1))),
            ((0, 1), (0, 2)),
            frozenset({"generations left out"}),
        ),
    }


class SinkProtocol(Protocol):
    """The steps of a run up to its commit, and the promises of every sink."""

    atomic = True
    """True if a window's rows become visible all at once."""

    def run(self, me: str, window: int, generation: int = 0) -> Program:
        """Runs a window: freezes boundaries, stages, stores the dead letters, commits."""
        start, stop = (yield Ask("freeze", (window,))), (yield Ask("freeze", (window + 1,)))
        files = ((yield Ask("stage", (SPLITS[0],))), (yield Ask("stage", (SPLITS[1],))))
        return Again("keep", (Receipt(window, generation, me, start, stop, files),))

    def keep(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Stores the dead letters first: without them nothing is committed."""
        if (yield Ask("keep_letters", (receipt.window,))) == "ok":
            return Again("commit", (receipt,))
        return Again("keep", (receipt, tries - 1)) if tries > 1 else ("Unknown",)

    @abstractmethod
    def commit(self, me: str, receipt: Receipt, tries: int = TRIES) -> Program:
        """Commits by the sink's own protocol, and returns the run's verdict."""

    # --- promises

    def find_violation(self, world: World) -> str | None:
        """Returns the violation of INV-1, INV-2, INV-4 or INV-5 in a world, or None."""
        return next(self._violations(world), None)

    def _violations(self, world: World) -> Iterator[str]:
        rows, receipts = [*world.rows()], world.receipts()
        times, covered_messages = (
            Counter([*(message for message, _ in rows), *world.coming()]),
            {(message, r.window) for message, r in rows},
        )
        yield from (
            f"INV-2: message {message} is there {n} times" for message, n in times.items() if n > 1
        )
        windows = {r.window for r in receipts}
        if self.atomic:
            yield from (
                f"INV-1: a row of window {r.window} without a receipt"
                for _, r in rows
                if r.window not in windows
            )
        for r in receipts:
            short = [m for m in r.messages() if (m, r.window) not in covered_messages]
            yield from (f"INV-1: the receipt of {r} without its row of {m}" for m in short)
            yield from (
                f"INV-4: {r} names a file that was removed" for f in r.files if f in world.removed()
            )
            yield from (
                f"INV-1: {r} names a file that another task wrote over"
                for f in r.files
                if f in world.torn
            )
            if r.replayed_attempt is None and (r.window, r.attempt) not in world.letters:
                yield f"INV-1: the receipt of {r} without its dead letter"
        for window in sorted(windows):
            yield from self._mismatches(
                [r for r in receipts if r.window == window], newest(window + 1, receipts)
            )
            yield from self._letters(window, receipts, times)

    def _mismatches(
        self, window_receipts: list[Receipt], next_receipt: Receipt | None
    ) -> Iterator[str]:
        if len({(r.start, r.stop) for r in window_receipts}) > 1:
            yield f"INV-5: window {window_receipts[0].window} is committed under two plans"
        if len({r.generation for r in window_receipts}) < len(window_receipts):
            yield f"INV-2: a generation of window {window_receipts[0].window} has two receipts"
        if next_receipt is not None and next_receipt.start != window_receipts[0].stop:
            yield (
                f"INV-5: window {window_receipts[0].window} stops at {window_receipts[0].stop}, the"
                f" next one starts at {next_receipt.start}"
            )

    def _letters(
        self, window: int, receipts: tuple[Receipt, ...], rows: Counter[tuple[int, int]]
    ) -> Iterator[str]:
        """Yields a violation if a dead letter is both open and a row, or neither."""
        newest_receipt = newest(window, receipts)
        assert newest_receipt is not None
        if (newest_receipt.replayed_attempt is None) == bool(rows[1, newest_receipt.start]):
            yield (
                f"message {(1, newest_receipt.start)} is"
                f" {'a row and a dead letter' if newest_receipt.replayed_attempt is None else 'neither a row nor a dead letter'}"  # noqa: E501
            )

    def find_loss(self, old_world: World, new_world: World) -> str | None:
        """Returns a violation if a committed receipt is gone without a later generation."""
        old, new = old_world.receipts(), new_world.receipts()
        for r in (newest(window, old) for window in sorted({r.window for r in old})):
            assert r is not None
            newest_receipt = newest(r.window, new)
            if newest_receipt is None or (
                newest_receipt != r and newest_receipt.generation <= r.generation
            ):
                return f"INV-4: the receipt of {r} is gone"
        return None

    def refute(self, verdict: Any, world: World, scenario: Scenario) -> str | None:
        """Returns the error in a verdict, or None: Done needs a commit, AlreadyDone an existing
        receipt, a refusal an allowed reason.
        """
        match verdict:
            case ("Done" | "AlreadyDone", Receipt() as receipt):
                newest_receipt = newest(receipt.window, self.decided(world))
                if newest_receipt is None or newest_receipt.generation < receipt.generation:
                    return f"INV-1: {verdict[0]}, but {receipt} isn't there"
            case ("Refused", why) if why not in scenario.refusable:
                return f"a run is refused: {why}"
        return None

    def decided(self, world: World) -> tuple[Receipt, ...]:
        """Returns the receipts that are committed for good, also if readers don't see them yet."""
        return world.receipts()
