"""A round of chaos: the windows of a table are committed under random faults.

A reader process looks at the table meanwhile. Two windows are committed at the same time. After
a window's faults, it must commit within a few runs.

The random numbers of each window come from the round's seed, so a repeated round has the same
faults. The exact moment at which a fault hits a process depends on the machine.

The first fault of each window is dealt like a card: six successive windows have six different
kinds of faults. In every second group of six windows, attempts that die or stop at a named
point do so between look and write, where most can go wrong. The first group is such a group. So
a sink that is broken there is found in any round of six windows, with any seed.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal

import msgspec

from tests.chaos import reader, worker
from tests.chaos.verdict import unmerged, verdict
from tests.chaos.worker import COMMITTED, FAILED, UNKNOWN, WAKE, WHERE, Job, signalled
from tests.sinks.world import SinkWorld
from tests.sinks.worlds import world_of
from tests.warm import stops
from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.errors import WindrowError
from windrow.ingest.ports.sink import Capabilities, Delivered

THREADS = 2
LIMIT = 180
"""Seconds after which an attempt without faults must be hanging."""
TELLS = 2
"""Seconds in which a hanging attempt writes the stack of each thread."""
UP = 300
"""Seconds that a server may take to come back, even if it was struck twice in a row."""
ENOUGH = 6
"""Number of runs without faults within which a window must commit."""


class RoundOptions(msgspec.Struct, frozen=True):
    """The options of a round.

    Attributes:
        kind: the kind of sink.
        seed: the seed of all random numbers.
        windows: the number of windows.
        rows: the number of messages of a window.
        twin: the broken sink to use instead of the real one.
        calm: whether there are no faults. A broken twin must pass such a round too.
    """

    kind: str
    seed: int
    windows: int = 25
    rows: int = 20
    twin: str | None = None
    calm: bool = False


class RoundSummary(msgspec.Struct):
    """The result of a round.

    Attributes:
        options: the round's options.
        faults: how often each fault struck.
        outcomes: how often attempts ended in each way.
        rows: the number of messages of all windows.
        lost_messages: the number of messages without a row.
        doubled: the number of messages with more than one row.
        foreign: the number of rows without a message.
        violations: all other violations, as texts.
        looks: how often the reader looked while others wrote.
        missed: how many looks failed.
        seconds: the duration.
        delivery: the sink's guarantee. Lost or doubled rows that it allows are counted, but
            aren't wrong.
    """

    options: RoundOptions = msgspec.field(name="asked")
    faults: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    rows: int = 0
    lost_messages: int = msgspec.field(default=0, name="lost")
    doubled: int = 0
    foreign: int = 0
    violations: list[str] = msgspec.field(default_factory=list, name="wrong")
    looks: int = 0
    missed: int = 0
    seconds: float = 0.0
    delivery: Delivered = "exactly-once"

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        promised = Capabilities(delivery=self.delivery)
        is_lost, is_doubled = (
            self.lost_messages and not promised.allows(loss=True),
            self.doubled and not promised.allows(loss=False),
        )
        return not (is_lost or is_doubled or self.foreign or self.violations)

    @property
    def hit(self) -> int:
        """The number of faults."""
        return sum(self.faults.values())


def chaos(options: RoundOptions, folder: Path) -> RoundSummary:
    """Runs a round in an empty folder."""
    began, kind = time.monotonic(), world_of(options.kind)
    with kind.serve_location(folder) as location:
        sink = kind.sink_at(location)
        sink.prepare()
        watching = reader.start(options.kind, location, options.rows, folder)
        in_round = _Round(options, location, folder, sink.capabilities)
        in_round.run()
        looks = reader.last_look(watching, folder)
        summary = _summarize(in_round, looks)
        try:
            _check(summary, kind, kind.sink_at(location), in_round.begun)
        except WindrowError as error:
            summary.violations.append(f"the table can't be checked: {error}")
    summary.seconds = round(time.monotonic() - began, 1)
    return summary


def _summarize(done: _Round, looks: reader.Looks) -> RoundSummary:
    return RoundSummary(
        done.options,
        dict(sorted(done.faults.items())),
        dict(sorted(done.outcomes.items())),
        done.options.windows * done.options.rows,
        # a twin may show half a window for a moment, so a calm round judges only its final table
        violations=[
            *done.violations,
            *(() if done.options.calm and done.options.twin else looks.violations),
        ],
        looks=looks.looks,
        missed=looks.missed,
        delivery=done.capabilities.delivery,
    )


def _check(summary: RoundSummary, world: SinkWorld, sink: Any, windows: int) -> None:
    """Compares the whole table, at its end, with the windows that were begun."""
    report = verdict(world, sink, range(windows), summary.options.rows)
    summary.lost_messages, summary.doubled, summary.foreign = (
        len(report.missing),
        len(report.duplicated),
        len(report.invented),
    )
    summary.violations += [
        *report.receipts,
        *report.accounting,
        *(f"out of order: {where}" for where in report.out_of_order),
        *unmerged(sink),
    ]


class _Round:
    """The state of a round: its windows, faults and outcomes. Threads share it."""

    def __init__(
        self, options: RoundOptions, location: str, folder: Path, capabilities: Capabilities
    ) -> None:
        self.options, self.location, self.folder, self.capabilities = (
            options,
            location,
            folder,
            capabilities,
        )
        self.faults: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.took = 0.1
        self.strikes = 0
        self.stuck = False
        self.up = threading.Event()
        self.up.set()
        self._remaining: SimpleQueue[int] = SimpleQueue()
        self._lock, self._server = threading.Lock(), threading.Lock()

    @property
    def begun(self) -> int:
        """The number of windows that were begun: all, unless one never commits."""
        return self.options.windows - self._remaining.qsize()

    def run(self) -> None:
        """Runs all windows, a few at the same time.

        After a window that doesn't commit, no other window is begun, because each might wait as
        long before the round ends.
        """
        for number in range(self.options.windows):
            self._remaining.put(number)
        threads = [threading.Thread(target=self._run_windows, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3600)
            assert not thread.is_alive(), "a thread hangs"

    def _run_windows(self) -> None:
        while not self.stuck:
            try:
                number = self._remaining.get_nowait()
            except Empty:
                return
            try:
                Ordeal(self, number).run()
            except Exception as error:  # told with the rest  # noqa: BLE001
                self.tell(f"window {number}: {error!r}")

    def hit(self, fault: str) -> None:
        """Counts a fault that struck."""
        with self._lock:
            self.faults[fault] += 1

    def ended(self, outcome: str) -> None:
        """Counts how an attempt ended."""
        with self._lock:
            self.outcomes[outcome] += 1

    def strike(self, act: Callable[[str], None], delay: float) -> None:
        """Disturbs the server after a delay, one disturbance at a time.

        Runs during a disturbance don't count.
        """
        time.sleep(delay)
        with self._server:
            self.up.clear()
            self.strikes += 1
            try:
                act(self.location)
            except Exception as error:  # told with the rest  # noqa: BLE001
                self.tell(f"the server could not be struck, or is not up again: {error!r}")
            finally:
                self.up.set()

    def tell(self, message: str) -> None:
        """Records a violation, and prints it at once because the round may take long."""
        print(f"chaos: {message}", file=sys.stderr, flush=True)
        with self._lock:
            self.violations.append(message)


class Ordeal:
    """A window with its random faults, until its commit."""

    def __init__(self, among: _Round, number: int) -> None:
        self.round, self.number = among, number
        self.chance = random.Random(f"{among.options.seed} {number}")
        self.kind = world_of(among.options.kind)
        self.attempts = 0

    def run(self) -> None:
        """Commits the first generation, and by chance further ones."""
        if self.round.options.calm:
            self.commit(0)
            return
        with self._struck():
            self._sweep_beside(self._dealt(), 0)
        self.commit(0)
        if not self.round.capabilities.replaces or self.chance.random() > 0.4:
            return
        dead_replay = self.chance.random() < 0.4
        (self.dead_letters_replayed if dead_replay else self.replayed)()
        # in such a table a row from a dead-letter replay can't be removed again
        keeps = dead_replay and self.round.capabilities.mode == "upsert"
        if not keeps and self.chance.random() < 0.3:
            self.chance.choice([self.kills, self.stops, self.crowds])(2)
            self.commit(2)

    # ----------------------------------------------------------------------------------------------

    def _dealt(self) -> Callable[[int], None]:
        """Returns the window's first fault."""
        cards = [self.kills, self.dies, self.stops, self.pauses, self.crowds, self.starves]
        turn, card_index = divmod(self.number, len(cards))
        fault = random.Random(f"{self.round.options.seed} turn {turn}").sample(cards, len(cards))[
            card_index
        ]
        is_between = turn % 2 == 0 and fault in {self.dies, self.stops}
        return partial(fault, point=self.kind.race_point) if is_between else fault

    def kills(self, generation: int) -> None:
        """Kills up to three successive attempts, each after a random delay."""
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            process = worker.start(self.job(generation))
            process.join(self.chance.uniform(0, 1.2 * self.round.took))
            if process.is_alive():
                process.kill()
                self.round.hit("killed")
            self.end(process)

    def dies(self, generation: int, point: CrashPoint | None = None) -> None:
        """Lets up to three successive attempts die at named points, by a kill or an exception.

        Args:
            generation: the generation that the attempts write.
            point: the point of the first attempt; None for a random one.
        """
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            crash_at, death = (
                point or self.chance.choice(self.kind.points),
                self.chance.choice(["kill", "raise"]),
            )
            code = self.end(worker.start(self.job(generation, crash=f"{crash_at}:{death}")))
            if code in {worker.CRASHED, -signal.SIGKILL}:
                self.round.hit(f"{death} at {crash_at}")
            point = None

    def stops(self, generation: int, point: CrashPoint | None = None) -> None:
        """Stops an attempt at a named point, and wakes it when its retry has finished."""
        point = point or self.chance.choice(self.kind.points)
        zombie = worker.start(self.job(generation, crash=f"{point}:stop"))
        if stops(zombie):
            self.round.hit(f"stopped at {point}")
            self._outlived(zombie, generation, holds=self.kind.locks)
        self.end(zombie)

    def pauses(self, generation: int) -> None:
        """Stops an attempt after a random delay, and wakes it when its retry has finished."""
        zombie = worker.start(self.job(generation))
        zombie.join(self.chance.uniform(0, 1.2 * self.round.took))
        if zombie.is_alive() and signalled(zombie, signal.SIGSTOP):
            self.round.hit("stopped")
            self._outlived(zombie, generation, holds=self.kind.locks or self.kind.locks_between)
        self.end(zombie)

    def _outlived(self, zombie: BaseProcess, generation: int, *, holds: bool) -> None:
        if holds:  # while the zombie holds a lock, a retry may have to wait for it
            retry = worker.start(self.job(generation))
            signalled(zombie, WAKE)
            self.end(retry)
            return
        if self.chance.random() < 0.3:
            self.kills(generation)
        self.commit(generation)
        signalled(zombie, WAKE)

    def crowds(self, generation: int) -> None:
        """Runs two or three attempts that commit at the same moment; by chance one is
        killed.
        """
        gate, crowd_size = (
            time.monotonic() + 0.5 * self.round.took + 0.05,
            self.chance.choice([2, 2, 3]),
        )
        crowd = [worker.start(self.job(generation, gate=gate)) for _ in range(crowd_size)]
        self.round.hit("doubled" if crowd_size == 2 else "tripled")
        if self.chance.random() < 0.3:
            crowd[0].join(
                max(0.0, gate - time.monotonic()) + self.chance.uniform(0, 0.5 * self.round.took)
            )
            if crowd[0].is_alive():
                crowd[0].kill()
                self.round.hit("killed")
        for process in crowd:
            self.end(process)

    def starves(self, generation: int) -> None:
        """Runs an attempt whose files have a size limit, like on a full disk."""
        code = self.end(
            worker.start(self.job(generation, disk=int(2 ** self.chance.uniform(0, 16))))
        )
        if code not in COMMITTED:
            self.round.hit("no room")

    def replayed(self) -> None:
        """Replays the window with another generation and another fault."""
        self.chance.choice([self.kills, self.dies, self.stops, self.crowds])(1)
        self.round.hit("dead_letters_replayed")
        self.commit(1)

    def dead_letters_replayed(self) -> None:
        """Replays the dead letters in two attempts at the same time; one of them may die."""
        crash = self.chance.choice(
            ["", "commit.before:kill", "commit.after:kill", "write.after:kill"]
        )
        gate = time.monotonic() + 0.5 * self.round.took
        crowd = [
            worker.start(self.job(0, what="replay_dead_letters", crash=crash_of_one, gate=gate))
            for crash_of_one in (crash, "")
        ]
        codes = [self.end(process) for process in crowd]
        self.round.hit("dead_letters_replayed")
        if codes[-1] not in COMMITTED:
            self.commit(0, what="replay_dead_letters")

    def _sweep_beside(self, fault: Callable[[int], None], generation: int) -> None:
        """Runs a fault, by chance together with a sweep, which may die where it has rows expire.

        The sweep's clock is ahead, so everything staged is old for it.
        """
        if self.chance.random() > 0.25:
            fault(generation)
            return
        crash = self.chance.choice(["", "", "commit.before:kill", "commit.after:kill"])
        sweep = worker.start(self.job(0, what="sweep", crash=crash))
        self.round.hit("swept")
        fault(generation)
        self.end(sweep)

    @contextmanager
    def _struck(self) -> Iterator[None]:
        """Disturbs the server by chance while the block runs."""
        if not self.kind.strikes or self.chance.random() > 0.15:
            yield
            return
        strike = self.chance.choice(self.kind.strikes)
        delay, name = self.chance.uniform(0, self.round.took), strike.__name__.replace("_", " ")
        thread = threading.Thread(target=self.round.strike, args=(strike, delay), daemon=True)
        thread.start()
        self.round.hit(name)
        try:
            yield
        finally:
            thread.join(UP)
            assert not thread.is_alive(), f"the server isn't up again after: {name}"

    # ----------------------------------------------------------------------------------------------

    def job(self, generation: int, **more: object) -> Job:
        """Returns the job of the next attempt."""
        self.attempts += 1
        options, name = self.round.options, f"w{self.number}-{self.attempts}"
        job = Job(
            options.kind,
            self.round.location,
            str(self.round.folder),
            self.number,
            name,
            options.rows,
            generation,
            twin=options.twin,
        )
        return job.but(**more)

    def commit(self, generation: int, what: Literal["run", "replay_dead_letters"] = "run") -> None:
        """Runs attempts without faults until the window is committed.

        An attempt that met another thread's disturbance of the server doesn't count.
        """
        codes: list[int] = []
        while len(codes) < ENOUGH:
            # read before the wait, so that a strike that begins after it is noticed
            strikes = self.round.strikes
            assert self.round.up.wait(UP), "the server isn't up again"
            began = time.monotonic()
            code = self.end(worker.start(self.job(generation, what=what)))
            if code in COMMITTED:
                if code == worker.DONE and what == "run":
                    self.round.took += 0.3 * (time.monotonic() - began - self.round.took)
                return
            if strikes == self.round.strikes:
                codes.append(code)
        message = (
            f"window {self.number}.{generation} did not commit ({what}) in {ENOUGH} runs without"
            f" faults: {codes}; {self._errors()}"
        )
        self.round.stuck = True
        self.round.tell(message)

    def _errors(self) -> str:
        files: Sequence[Path] = sorted(
            self.round.folder.glob(f"w{self.number}-*.error"), key=lambda f: f.stat().st_mtime
        )
        return files[-1].read_text()[-500:] if files else "no error was told"

    def end(self, process: BaseProcess) -> int:
        """Waits for the end of an attempt, and returns its exit code."""
        process.join(LIMIT)
        if process.is_alive():
            signalled(process, WHERE)
            process.join(TELLS)
            process.kill()
            process.join(60)
            where = self.round.folder / "stderr"
            self.round.tell(
                f"window {self.number}: an attempt hung, and was killed after {LIMIT} s; {where}"
                " says where it stood"
            )
        code = process.exitcode
        assert code is not None
        names = {
            worker.DONE: "done",
            worker.ALREADY: "already done",
            UNKNOWN: "unknown",
            worker.REFUSED: "refused",
            FAILED: "failed",
        }
        self.round.ended(names.get(code, "died"))
        return code
