"""The model of several tables doesn't drift from the code: what the real sink over real
tables does in races and deaths, it can do.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.protocols import traces
from tests.protocols.routed import LAST, TABLES, Routed
from tests.protocols.traces import Event, Recorder
from tests.sinks import traced
from tests.sinks.routes.world import RoutedBoth, RoutesWorld
from tests.sinks.traced import (
    Make,
    Recorded,
    SharedTraces,
    commits,
    in_turn,
    killed,
    recorded,
    recorder,
    steps,
)
from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown

__all__ = ["recorder"]

pytestmark = [pytest.mark.slow, pytest.mark.some(1)]


class RecordingRoutes(Recorded):
    """Before the sink, or a twin of it: each table's looks and commits are steps."""

    def listened_to(self, recorder: Recorder, who: str) -> Any:
        for name, table in zip(TABLES, (*self.tables, self.other), strict=True):  # type: ignore[attr-defined]
            _listen(recorder, who, name, table)
        return super().listened_to(recorder, who)


def _listen(recorder: Recorder, who: str, name: str, table: Any) -> None:
    look, commit = table.look, table.commit

    def looked(window: Any) -> Any:
        with recorder.step(who, "look_into", name) as reply:
            held = look(window)
            reply(None if held is None else held.receipt.attempt)
        return held

    def committed(receipt: Any, staged: Any) -> Any:
        with recorder.step(who, "commit_to", name) as reply:
            outcome = commit(receipt, staged)
            reply("unknown" if isinstance(outcome, Unknown) else outcome.committed.receipt.attempt)
        return outcome

    table.look, table.commit = looked, committed


class GoesOn(RoutedBoth):
    """A broken twin: a commit to a table that wasn't answered will have arrived."""

    def _commit_to(self, sink: Any, receipt: Any, *args: Any) -> Any:
        mine = super()._commit_to(sink, receipt, *args)
        return receipt if isinstance(mine, Unknown) else mine


WORLD = RoutesWorld()


def opened(place: str, recorder: Recorder, who: str) -> Any:
    """A run's sink, recorded."""
    return recorded(WORLD.sink_at(place), recorder, who, RecordingRoutes)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Three prepared tables."""
    made = WORLD.place(tmp_path, None)
    WORLD.sink_at(made).prepare()
    return made


@pytest.fixture
def make(place: str, recorder: Recorder) -> Make:
    """Runs' sinks on the tables."""
    return partial(opened, place, recorder)


def table_of(sink: Any, name: str) -> Any:
    """One of its tables, by its name in the model."""
    return [*sink.tables, sink.other][TABLES.index(name)]


def losing(
    place: str, recorder: Recorder, name: str, *, arrives: bool, kind: type[Any] = RoutedBoth
) -> Any:
    """A run whose commit to a table has no answer."""
    sink = WORLD.sink_at(place)
    sink.__class__ = kind
    table = table_of(sink, name)
    commit = table.commit

    def unanswered(receipt: Any, staged: Any) -> Unknown:
        if arrives:
            commit(receipt, staged)
        return Unknown("the answer was lost")

    table.commit = unanswered
    return recorded(sink, recorder, "A", RecordingRoutes)


def follows(recorder: Recorder, scenario: str = "one window twice") -> list[Event]:
    """The trace, once the model has followed all of it."""
    return traced.follows(Routed(), recorder, scenario)


def first_refused(recorder: Recorder) -> Event:
    """The first step of the trace that the model can't follow."""
    return traces.refused(Routed(), "one window twice", recorder.trace())[0]


@pytest.mark.parametrize("name", TABLES)
def test_a_race_is_followed(make: Make, recorder: Recorder, name: str) -> None:
    """B runs from beginning to end before A comes to a table: that one hears of B's,
    and the last one says so.
    """
    first = make("A")
    in_turn(table_of(first, name), "commit", partial(commits, make("B")))
    assert isinstance(commits(first), AlreadyDone)
    own = [
        reply for who, step, reply in steps(follows(recorder)) if (who, step) == ("A", "commit_to")
    ]
    at_ = TABLES.index(name)
    assert own == ["A"] * at_ + ["B"] * (3 - at_)


class TestShared(SharedTraces):
    """Two windows, and two replays; in whatever order in each table."""

    model = Routed


def _killed_at(make: Make, point: CrashPoint) -> None:
    os.environ["WINDROW_CRASH"] = f"{point}:kill"
    commits(make("A"))


@pytest.mark.parametrize("point", ["commit.before", "commit.after", "commit.between"])
def test_a_kill_is_followed(make: Make, recorder: Recorder, point: CrashPoint) -> None:
    """A is killed right before or behind its commit to the first table, or on its way
    to the second; B goes on from there.
    """
    assert killed(_killed_at, make, point)
    assert isinstance(commits(make("B")), Done)
    brought = [
        reply for who, step, reply in steps(follows(recorder)) if (who, step) == ("B", "commit_to")
    ]
    assert brought == ["B" if point == "commit.before" else "A", "B", "B"]


@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "never"])
@pytest.mark.parametrize("name", ["first", LAST])
def test_a_lost_answer_is_followed(
    place: str, make: Make, recorder: Recorder, name: str, arrives: bool
) -> None:
    """A says that it doesn't know, and asks no table behind; B finds out."""
    assert isinstance(commits(losing(place, recorder, name, arrives=arrives)), Unknown)
    assert isinstance(commits(make("B")), AlreadyDone if arrives and name == LAST else Done)
    follows(recorder)


def test_the_last_table_first_is_not_followed(make: Make, place: str, recorder: Recorder) -> None:
    """In the model the others come before it."""
    twin = WORLD.twin_at(place, "window-first")
    commits(recorded(twin, recorder, "A", RecordingRoutes))
    first = first_refused(recorder)
    assert (first.name, first.target) == ("commit_to", LAST)


def test_a_commit_behind_one_that_was_not_answered_is_not_followed(
    place: str, recorder: Recorder
) -> None:
    """The model's run ends there."""
    commits(losing(place, recorder, "first", arrives=False, kind=GoesOn))
    first = first_refused(recorder)
    assert (first.name, first.target) == ("look_into", "second")
