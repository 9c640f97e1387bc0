"""One case: a command whose n-th call fails, the same command again, and a look at the table."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import reduction
from pathlib import Path

import msgspec

from tests.faults import child, syscalls
from tests.faults.child import Produced
from tests.faults.injector import LIMIT, Channel, Injector, Mode, Target
from tests.faults.places import BOTH, COMMANDS, RUN, Command, Place, Servers, fill, open_place
from tests.warm import SERVER
from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.runner.progress import INTERVAL_SECONDS
from windrow.ingest.sinks.kit.commit.maintain import LEASE_TIME
from windrow.ingest.waiting import SECONDS

SILENT_SECONDS = SECONDS + INTERVAL_SECONDS + 8.0
"""The seconds after which a command that waits without a message counts as silent.

The waits of tasks come with the progress of a run. A busy machine may take some seconds more.
"""

MODES: dict[Channel, Sequence[Mode]] = {
    "kafka": ("cut", "half", "lost", "stall", "gone"),
    "postgres": ("cut", "half", "lost", "stall", "gone"),
    "http": ("error", "cut", "half", "lost", "stall", "gone"),
}
"""The modes of calls to servers."""

FILE_MODES: dict[str, Sequence[Mode]] = {
    "open": ("error",),
    "create": ("error", "full"),
    "write": ("error", "full"),
    "pwrite": ("error", "full"),
    "fsync": ("error",),
    "rename": ("error", "lost"),
    "link": ("error", "lost"),
    "unlink": ("error", "lost"),
    "mkdir": ("error", "lost", "full"),
}
"""The modes of calls for files, by their names."""


ADVISED = r"windrow (?:[a-z]+ ){1,2}(?:things|aged)\.yaml(?: --[a-z-]+(?: [0-9][^ .,;]+)?)*"
"""A command in a message."""


class Case(msgspec.Struct, frozen=True):
    """A fault of a command at a place.

    Attributes:
        place: the name of the place.
        command: the name of the command.
        target: the call that fails.
    """

    place: str
    command: str
    target: Target

    def __str__(self) -> str:
        target = self.target
        return f"{self.place}: {self.command}: {target.channel} {target.index} {target.mode}"


class Ended(msgspec.Struct, frozen=True):
    """The end of a command.

    Attributes:
        answer: its exit code, or the checker's report.
        text: what it printed.
        silent: whether it waited for a stalled call without a message.
    """

    answer: int | str
    text: str
    silent: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """The result of a case.

    Attributes:
        case: the case.
        hit: the name of the call that failed; empty if the command did without it.
        code: the exit code of the command.
        text: what it printed.
        wrong: what is wrong.
        seconds: the seconds that it took.
    """

    case: Case
    hit: str
    code: int
    text: str
    wrong: Sequence[str]
    seconds: float


class Process:
    """The process of a case."""

    def __init__(self, place: Place, injector: Injector, twin: str) -> None:
        self.place, self._injector = place, injector
        self._owner, other = SERVER.Pipe()
        self._process = SERVER.Process(
            target=child.serve,
            args=(other, os.getpid(), place.folder, place.env, twin),
            daemon=True,
        )
        self._process.start()
        other.close()
        handle = reduction.recv_handle(self._owner)
        self._supervisor = threading.Thread(
            target=syscalls.supervise, args=(handle, self._process.pid, place.folder, injector)
        )
        self._supervisor.start()

    def ask(self, request: Sequence[str] | Produced | timedelta) -> Ended:
        """Runs a command, makes the checker's report, or waits by the clock of the sinks."""
        self._owner.send(request)
        injector, texts, deadline = self._injector, [], time.monotonic() + LIMIT
        silent, said_time = False, 0.0
        while True:
            if self._owner.poll(0.05):
                try:
                    kind, value = self._owner.recv()
                except EOFError:
                    return Ended(BugError.exit_code, f"{''.join(texts)} The process died.", silent)
                if kind == "done":
                    return Ended(value, "".join(texts), silent)
                texts.append(value)
                said_time = time.monotonic()
            now = time.monotonic()
            if injector.stalls and not injector.released.is_set():
                silent |= now > injector.hit_time + SILENT_SECONDS and said_time < injector.hit_time
                if silent or said_time > injector.hit_time:
                    injector.released.set()
            if now > deadline:
                return Ended(-1, "".join(texts), silent)

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._owner.close()
        self._supervisor.join(LIMIT)


@contextmanager
def begun(
    place_name: str, command: str, servers: Servers, injector: Injector, twin: str = ""
) -> Iterator[tuple[Process, list[str]]]:
    """Yields a process in which the commands before a command have run, and its arguments."""
    with (
        tempfile.TemporaryDirectory(prefix="windrow-faults-") as folder,
        open_place(place_name, servers, Path(folder), injector) as place,
    ):
        process = Process(place, injector, twin)
        try:
            for setup in COMMANDS[command].setup:
                ended = process.ask([fill(word, place.words) for word in setup])
                assert ended.answer == 0, ended.text
            yield process, [fill(word, place.words) for word in COMMANDS[command].arguments]
        finally:
            injector.disarm()
            process.end()


def cases_of(place: str, command: str, servers: Servers) -> list[Case]:
    """Runs a command once, and returns a case for each way in which one of its calls may fail.

    Of calls with the same name but for digits, only the first and the last one count.
    """
    injector = Injector()
    with begun(place, command, servers, injector) as (process, arguments):
        injector.arm()
        ended = process.ask(arguments)
        injector.disarm()
        assert ended.answer == COMMANDS[command].code, ended.text
    cases = []
    for channel, names in injector.calls.items():
        plain = [re.sub(r"[0-9a-f]*\d[0-9a-f]*", "", name) for name in names]
        ends = {plain.index(name) for name in plain}
        ends |= {len(plain) - 1 - plain[::-1].index(name) for name in plain}
        for index in sorted(ends):
            modes = MODES.get(channel) or FILE_MODES[names[index].split()[0]]
            cases += [Case(place, command, Target(channel, index, mode)) for mode in modes]
    return cases


def judge(case: Case, servers: Servers, twin: str = "") -> Verdict:
    """Runs a case; `twin` names a way to break windrow (`child.TWINS`)."""
    injector, began, wrong = Injector(), time.monotonic(), list[str]()
    with begun(case.place, case.command, servers, injector, twin) as (process, arguments):
        injector.arm(case.target)
        failed = process.ask(arguments)
        injector.disarm()
        wrong += wrong_of(failed)
        if failed.answer != -1:
            wrong += _recover(process, COMMANDS[case.command], arguments, failed)
    seconds = round(time.monotonic() - began, 2)
    return Verdict(case, injector.hit, int(failed.answer), failed.text, wrong, seconds)


def wrong_of(failed: Ended) -> list[str]:
    """Returns what is wrong with the end of a command that met a fault."""
    wrong = []
    if failed.answer == -1:
        wrong.append(f"it didn't end in {LIMIT} s")
    if failed.answer == BugError.exit_code or "Traceback" in failed.text:
        wrong.append("it ended by a bug")
    if failed.silent:
        wrong.append("it waited without a message")
    # a mistake in a file is fixed there
    advises = re.search(r"\bagain\b|\bwindrow [a-z]+", failed.text)
    if failed.answer not in {-1, 0, SpecError.exit_code} and not advises:
        wrong.append("its message has no advice")
    return wrong


def _recover(
    process: Process,
    command: Command,
    arguments: Sequence[str],
    failed: Ended,
) -> list[str]:
    """Follows the advice, runs the command again, and looks at the table."""
    advised = re.findall(ADVISED, failed.text) if failed.answer else []
    steps = [line.split()[1:] for line in advised]
    run = [word.replace("SPEC", "things.yaml") for word in (*RUN[:-1], BOTH)]
    again = [] if command.once and failed.answer == command.code else [arguments]
    after = [[word.replace("SPEC", "things.yaml") for word in step] for step in command.after]
    if "another one is refused until" in failed.text:
        process.ask(LEASE_TIME)
    for step in (*steps, *again, *after, run, ["verify", "things.yaml", "--deep"]):
        ended = process.ask(step)
        if ended.answer != (command.code if step is arguments else 0):
            return [f"`windrow {shlex.join(step)}` ended with {ended.answer}: {ended.text}"]
    two_hours = {
        tp: {offset: id_ for offset, id_ in messages.items() if offset < 10}
        for tp, messages in process.place.produced.items()
    }
    report = process.ask(two_hours)
    return [f"the checker says: {report.answer}"] if report.answer else []
