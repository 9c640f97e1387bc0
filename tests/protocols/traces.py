"""Traces: the steps of real sinks, recorded by run, so that they can be compared with the
model.

A recorder wraps each step of a sink (a look, a put) as a whole. It takes a lock that all
processes of a test share, so the order of the lines is the order of the steps. If a process was
killed in a step, the step has a begin and no end: its reply was lost.

    with recorder.step("A", "put", 3) as reply:
        ... put ...
        reply("ok")
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tests.protocols.explore import OVER, Scenario, Step, accepts
from tests.protocols.explore import Protocol as Model
from tests.protocols.fenced import Glance, Published
from tests.protocols.numbered import Seen
from tests.protocols.world import Receipt, newest

LOST = "unknown"
UNDECIDED = "undecided"
LIMIT = 60
"""Maximum seconds until a step can begin."""


class Event(NamedTuple):
    """A recorded step of a run.

    Attributes:
        who: the run.
        name: name of the step.
        target: number or id of the step, if it has one.
        reply: its reply.
        outcome: the run's verdict if this was its last step; None if it isn't known.
    """

    who: str
    name: str
    target: int | str | None
    reply: str | None
    outcome: str | None = None


class Recorder:
    """A recorder that writes lines to a file that processes share."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @contextmanager
    def step(
        self,
        who: str,
        name: str,
        target: int | str | None = None,
        *,
        once: Callable[[], bool] = lambda: True,
    ) -> Iterator[Callable[..., None]]:
        """Records a step, during which no other step runs.

        Args:
            who: the run.
            name: name of the step.
            target: number or id of the step; it may also be given with the reply.
            once: a function that returns whether the step may begin. Until then other runs'
                steps go on.
        """
        with self.file.open("a") as out:
            self._lock_alone(out, once)

            def write(**more: Any) -> None:
                out.write(json.dumps({"who": who, "name": name, "at": target, **more}) + "\n")
                out.flush()

            write(begun=True)
            yield lambda reply, target=target: write(reply=reply, at=target)

    def _lock_alone(self, out: TextIO, once: Callable[[], bool] = lambda: True) -> None:
        deadline = time.monotonic() + LIMIT
        fcntl.flock(out, fcntl.LOCK_EX)  # in turn: the first that asks gets it first
        while not once():
            fcntl.flock(out, fcntl.LOCK_UN)
            assert time.monotonic() < deadline, "a step waits for another one that doesn't come"
            time.sleep(0.002)
            fcntl.flock(out, fcntl.LOCK_EX)

    def says(self, who: str, outcome: str) -> None:
        """Records a run's verdict."""
        with self.file.open("a") as out:
            self._lock_alone(out)
            out.write(json.dumps({"who": who, "said": outcome}) + "\n")

    def trace(self) -> list[Event]:
        """Returns the steps in order."""
        events: list[Event] = []
        for line in map(json.loads, self.file.read_text().splitlines()):
            if "said" in line:
                last = max(n for n, event in enumerate(events) if event.who == line["who"])
                events[last] = events[last]._replace(outcome=line["said"])
            elif "begun" in line:
                events.append(Event(line["who"], line["name"], line["at"], LOST))
            else:
                events[-1] = Event(line["who"], line["name"], line["at"], line["reply"])
        return events


def refused_events(model: Model, scenario: str | Scenario, trace: list[Event]) -> list[Event]:
    """Returns the events of a trace from the first one on that the model can't follow."""
    return accepts(
        model, model.scenarios[scenario] if isinstance(scenario, str) else scenario, trace, _fits
    )


def _fits(step: Step, event: Event | None) -> bool:
    if step.name == "dies":  # a dead run and one that never moves again leave the same world
        return False
    event_of_step = _event_of(step)
    if event is None or event_of_step is None:
        # a statement between two steps may notice that its session is gone
        return event is None and (event_of_step is None or event_of_step.reply == "gone")
    return event_of_step._replace(outcome=None) == event._replace(outcome=None) and (
        event.outcome is None or event.outcome == event_of_step.outcome
    )


def _event_of(step: Step) -> Event | None:
    """Returns the event that a recorder writes for a step of the model; None for a step that it
    doesn't see.
    """
    outcome = next(
        (
            p.args[0][0]
            for p in step.next_state.processes
            if p.name == step.who and p.program == OVER
        ),
        None,
    )
    event = _event_of_several(step, outcome)
    if event is not None:
        return event
    match step.name, step.args, step.reply:
        case "look", (window,), Seen() as seen:
            newest_receipt = newest(window, seen.receipts)
            return Event(
                step.who,
                "look",
                seen.version,
                None if newest_receipt is None else newest_receipt.attempt,
                outcome,
            )
        case "look", (_, window), tuple() as receipts:
            newest_receipt = newest(window, receipts)
            return Event(
                step.who,
                "look",
                None,
                None if newest_receipt is None else newest_receipt.attempt,
                outcome,
            )
        case "put", (number, _), reply:
            return Event(step.who, "put", number, reply, outcome)
        case (
            "keep_letters" | "lock" | "look" | "insert" | "end" | "send_commit",
            _,
            reply,
        ):
            return Event(step.who, step.name, None, reply, outcome)
    return None


def _event_of_several(step: Step, outcome: str | None) -> Event | None:
    """Returns the event of a step in a protocol with several places of commits: Kafka's ids, or
    several tables.
    """
    match step.name, step.args, step.reply:
        case "look_into", (table, window), tuple() as receipts:
            newest_receipt = newest(window, receipts)
            return Event(
                step.who,
                "look_into",
                table,
                None if newest_receipt is None else newest_receipt.attempt,
                outcome,
            )
        case "commit_to", (table, _), reply:
            return Event(
                step.who,
                "commit_to",
                table,
                reply.attempt if isinstance(reply, Receipt) else reply,
                outcome,
            )
        case "glance", (window,), Glance() as glance:
            newest_receipt = newest(window, glance.receipts)
            return Event(
                step.who,
                "glance",
                "whole" if glance.is_decided else UNDECIDED,
                None if newest_receipt is None else newest_receipt.attempt,
                outcome,
            )
        case "control", _, None:
            return Event(step.who, "control", None, UNDECIDED, outcome)
        case "control", (window,), tuple() as log:
            return Event(step.who, "control", None, control_text(window, log), outcome)
        case "init", (name,), _:
            return Event(step.who, "init", name, None, outcome)
        case "send", (name, _, Published() as published), reply:
            content = "receipt" if published.split is None else f"split {published.split}"
            return Event(step.who, "send", f"{name}: {content}", reply, outcome)
        case "end", (name, _), reply:
            return Event(step.who, "end", name, reply, outcome)
        case "shown", _, _:
            return Event(step.who, "shown", None, None, outcome)
    return None


def control_text(window: int, log: tuple[Published, ...]) -> str | None:
    """Returns a control topic's text about a window: the attempt of its receipt, or else its
    published splits and their attempts.
    """
    newest_receipt = newest(window, [p.receipt for p in log if p.split is None])
    attempt_by_split = {
        p.split: p.receipt.attempt
        for p in log
        if p.split is not None and p.receipt.window == window
    }
    return splits_text(attempt_by_split) if newest_receipt is None else newest_receipt.attempt


def splits_text(published: Mapping[int, str]) -> str | None:
    """Returns a text of splits and the attempts that published them."""
    return (
        ", ".join(f"{split} by {attempt}" for split, attempt in sorted(published.items())) or None
    )
