"""The model of several tables against the code: the model can do each step that the real sink
does in races and deaths.
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
    commit_window,
    is_killed,
    record_sink,
    recorder,
    steps,
    take_turn_before,
)
from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown

__all__ = ["recorder"]

pytestmark = [pytest.mark.slow, pytest.mark.some(1)]


class RecordingRoutes(Recorded):
    """A mix-in before the sink, or a twin: it records each table's looks and commits."""

    def listen(self, recorder: Recorder, who: str) -> Any:
        for name, table in zip(TABLES, (*self.tables, self.other), strict=True):  # type: ignore[attr-defined]
            _listen(recorder, who, name, table)
        return super().listen(recorder, who)


def _listen(recorder: Recorder, who: str, name: str, table: Any) -> None:
    look, commit = table.look, table.commit

    def look_recorded(window: Any) -> Any:
        with recorder.step(who, "look_into", name) as reply:
            committed = look(window)
            reply(None if committed is None else committed.receipt.attempt)
        return committed

    def commit_recorded(receipt: Any, staged: Any) -> Any:
        with recorder.step(who, "commit_to", name) as reply:
            outcome = commit(receipt, staged)
            reply("unknown" if isinstance(outcome, Unknown) else outcome.committed.receipt.attempt)
        return outcome

    table.look, table.commit = look_recorded, commit_recorded


class GoesOn(RoutedBoth):
    """A broken twin that takes a commit without an answer as done."""

    def _commit_to(self, sink: Any, receipt: Any, *args: Any) -> Any:
        outcome = super()._commit_to(sink, receipt, *args)
        return receipt if isinstance(outcome, Unknown) else outcome


WORLD = RoutesWorld()


def open_recorded(location: str, recorder: Recorder, who: str) -> Any:
    """Opens the recorded sink of a run."""
    return record_sink(WORLD.sink_at(location), recorder, who, RecordingRoutes)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """The location of three prepared tables."""
    location = WORLD.new_location(tmp_path, None)
    WORLD.sink_at(location).prepare()
    return location


@pytest.fixture
def make(location: str, recorder: Recorder) -> Make:
    """A function that opens runs' sinks on the tables."""
    return partial(open_recorded, location, recorder)


def table_of(sink: Any, name: str) -> Any:
    """Returns a table of the sink by its name in the model."""
    return [*sink.tables, sink.other][TABLES.index(name)]


def open_losing(
    location: str, recorder: Recorder, name: str, *, arrives: bool, kind: type[Any] = RoutedBoth
) -> Any:
    """Opens a run whose commit to one table has no answer."""
    sink = WORLD.sink_at(location)
    sink.__class__ = kind
    table = table_of(sink, name)
    commit = table.commit

    def commit_unanswered(receipt: Any, staged: Any) -> Unknown:
        if arrives:
            commit(receipt, staged)
        return Unknown("the answer was lost")

    table.commit = commit_unanswered
    return record_sink(sink, recorder, "A", RecordingRoutes)


def follow_recorded(recorder: Recorder, scenario: str = "one window twice") -> list[Event]:
    """Asserts that the model can follow the whole trace, and returns the trace."""
    return traced.follow_trace(Routed(), recorder, scenario)


def first_refused(recorder: Recorder) -> Event:
    """Returns the first step of the trace that the model can't follow."""
    return traces.refused_events(Routed(), "one window twice", recorder.trace())[0]


@pytest.mark.parametrize("name", TABLES)
def test_a_race_is_followed(make: Make, recorder: Recorder, name: str) -> None:
    """The model follows a race: B runs before A comes to a table; that table and the later ones
    have B's receipt.
    """
    first = make("A")
    take_turn_before(table_of(first, name), "commit", partial(commit_window, make("B")))
    assert isinstance(commit_window(first), AlreadyDone)
    own_replies = [
        reply
        for who, step, reply in steps(follow_recorded(recorder))
        if (who, step) == ("A", "commit_to")
    ]
    table_index = TABLES.index(name)
    assert own_replies == ["A"] * table_index + ["B"] * (3 - table_index)


class TestShared(SharedTraces):
    """Traces that every kind shares: two windows, and two replays, in any order in each table."""

    model = Routed


def _killed_at(make: Make, point: CrashPoint) -> None:
    os.environ["WINDROW_CRASH"] = f"{point}:kill"
    commit_window(make("A"))


@pytest.mark.parametrize("point", ["commit.before", "commit.after", "commit.between"])
def test_a_kill_is_followed(make: Make, recorder: Recorder, point: CrashPoint) -> None:
    """The model follows a kill before or after A's first commit, or before its second: B goes
    on from there.
    """
    assert is_killed(_killed_at, make, point)
    assert isinstance(commit_window(make("B")), Done)
    brought = [
        reply
        for who, step, reply in steps(follow_recorded(recorder))
        if (who, step) == ("B", "commit_to")
    ]
    assert brought == ["B" if point == "commit.before" else "A", "B", "B"]


@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "never"])
@pytest.mark.parametrize("name", ["first", LAST])
def test_a_lost_answer_is_followed(
    location: str, make: Make, recorder: Recorder, name: str, arrives: bool
) -> None:
    """The model follows a lost answer: A's outcome is unknown, A asks no later table, and B
    finds out.
    """
    assert isinstance(
        commit_window(open_losing(location, recorder, name, arrives=arrives)), Unknown
    )
    assert isinstance(commit_window(make("B")), AlreadyDone if arrives and name == LAST else Done)
    follow_recorded(recorder)


def test_the_last_table_first_is_not_followed(
    make: Make, location: str, recorder: Recorder
) -> None:
    """The model doesn't follow a twin that writes the last table first."""
    twin = WORLD.twin_at(location, "window-first")
    commit_window(record_sink(twin, recorder, "A", RecordingRoutes))
    first = first_refused(recorder)
    assert (first.name, first.target) == ("commit_to", LAST)


def test_a_commit_behind_one_that_was_not_answered_is_not_followed(
    location: str, recorder: Recorder
) -> None:
    """The model doesn't follow a commit after one without an answer, because its run ends there."""
    commit_window(open_losing(location, recorder, "first", arrives=False, kind=GoesOn))
    first = first_refused(recorder)
    assert (first.name, first.target) == ("look_into", "second")
