"""What real sinks do, step by step, written down by who does it, so that the model can be asked whether it would do so, too.

A recorder lies around a sink's steps (a look, a put), each as a whole: under a lock that all processes of a test share, so that the order
of the lines is the order of the steps. A step that has begun and has no end is one that its process was killed in: its reply was lost.

    with recorder.step("A", "put", 3) as reply:
        ... put ...
        reply("ok")
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.protocols.explore import OVER, Scenario, Step, accepts
from tests.protocols.explore import Protocol as Model
from tests.protocols.numbered import Seen
from tests.protocols.world import newest

LOST = "unknown"


class Event(NamedTuple):
    """A step of a run. `said`: what the run then said of itself, if this was its last; None if that isn't known."""

    who: str
    name: str
    at: int | None
    reply: str | None
    said: str | None = None


class Recorder:
    """Lines of a file that processes share."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @contextmanager
    def step(self, who: str, name: str, at: int | None = None) -> Iterator[Callable[..., None]]:
        """One step, alone of all steps. `at` may be known only with the reply."""
        with self.file.open("a") as out:
            fcntl.flock(out, fcntl.LOCK_EX)

            def write(**more: Any) -> None:
                out.write(json.dumps({"who": who, "name": name, "at": at, **more}) + "\n")
                out.flush()

            write(begun=True)
            yield lambda reply, at=at: write(reply=reply, at=at)

    def says(self, who: str, said: str) -> None:
        """What a run ended with."""
        with self.file.open("a") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            out.write(json.dumps({"who": who, "said": said}) + "\n")

    def trace(self) -> list[Event]:
        """The steps in their order."""
        events: list[Event] = []
        for line in map(json.loads, self.file.read_text().splitlines()):
            if "said" in line:
                last = max(n for n, event in enumerate(events) if event.who == line["who"])
                events[last] = events[last]._replace(said=line["said"])
            elif "begun" in line:
                events.append(Event(line["who"], line["name"], line["at"], LOST))
            else:
                events[-1] = Event(line["who"], line["name"], line["at"], line["reply"])
        return events


def refused(model: Model, scenario: str | Scenario, trace: list[Event]) -> list[Event]:
    """What of a trace the model can't follow, from the first such event on."""
    return accepts(model, model.scenarios[scenario] if isinstance(scenario, str) else scenario, trace, _fits)


def _fits(step: Step, event: Event | None) -> bool:
    if step.name == "dies":  # who is dead and who is never heard of again leave the same world
        return False
    told = _told(step)
    if event is None or told is None:
        return event is None and (told is None or told.reply == "gone")  # which a statement between two steps may notice
    return told._replace(said=None) == event._replace(said=None) and (event.said is None or event.said == told.said)


def _told(step: Step) -> Event | None:
    """What a recorder would have told of a step of the model; None of one that it doesn't see."""
    said = next((p.args[0][0] for p in step.after.processes if p.name == step.who and p.program == OVER), None)
    match step.name, step.args, step.reply:
        case "look", (window,), Seen() as seen:
            held = newest(window, seen.receipts)
            return Event(step.who, "look", seen.version, None if held is None else held.attempt, said)
        case "look", (_, window), tuple() as receipts:
            held = newest(window, receipts)
            return Event(step.who, "look", None, None if held is None else held.attempt, said)
        case "put", (number, _), reply:
            return Event(step.who, "put", number, reply, said)
        case "terminate", _, "waits":
            return None
        case "keep_letters" | "lock" | "look" | "insert" | "terminate" | "end" | "send_commit", _, reply:
            return Event(step.who, step.name, None, reply, said)
    return None
