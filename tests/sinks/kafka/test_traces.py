"""The model of Kafka's protocol against the code: the model can do each step that the real sink
does in races and deaths.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.produce import until_decided
from tests.protocols import traces
from tests.protocols.explore import Scenario
from tests.protocols.fenced import FencedIds
from tests.protocols.traces import Event, Recorder
from tests.sinks import traced
from tests.sinks.kafka.hooks import before_fence, behind_messages
from tests.sinks.kafka.recorded import RecordedKafka, record_the_wire, recorded
from tests.sinks.kafka.twins import LookBeforeFence, NoRecord, RandomId
from tests.sinks.kafka.world import create_location, open_sink, sink_at
from tests.sinks.traced import (
    commit_window,
    is_killed,
    join_process,
    recorder,
    start_process,
    steps,
)
from tests.warm import stops
from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.kafka import producers
from windrow.ingest.kafka.producers import ProducerError, TransactionalProducer
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.kafka import sink as sinks
from windrow.ingest.sinks.kafka import store

__all__ = ["recorder"]

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.some(1)]

TRIES = 4
"""Number of times that a run of the model starts again."""


@pytest.fixture
def location(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The location of a prepared table whose windows share their transactional ids."""
    location = create_location(kafka, str(tmp_path / "staging"), pool=1)
    sink_at(location).prepare()
    record_the_wire(monkeypatch)
    return location


def open_recorded(
    location: str, recorder: Recorder, who: str, kind: type[Any] = RecordedKafka
) -> Any:
    """Opens the recorded sink of a run."""
    return open_sink(location, kind).listen(recorder, who)


def run(location: str, recorder: Recorder, who: str, crash: str = "") -> None:
    """Runs window 0 in a process of its own."""
    os.environ["WINDROW_CRASH"] = crash
    record_the_wire(pytest.MonkeyPatch())
    commit_window(open_recorded(location, recorder, who))


def patient(name: str) -> Scenario:
    """Returns a scenario whose runs give up a look and start again, as the real ones do."""
    scenario = FencedIds().scenarios[name]
    world = scenario.world._replace(store=scenario.world.store._replace(gives_up=True))
    return scenario._replace(
        world=world, processes=tuple(p._replace(args=(*p.args, TRIES)) for p in scenario.processes)
    )


def follow_recorded(recorder: Recorder, scenario: str = "one window twice") -> list[Event]:
    """Asserts that the model can follow the whole trace, and returns the trace."""
    return traced.follow_trace(FencedIds(), recorder, patient(scenario))


def refused(recorder: Recorder) -> Sequence[Event]:
    """Returns the steps of the trace that the model can't follow."""
    return traces.refused_events(FencedIds(), patient("one window twice"), recorder.trace())


def test_one_run_is_followed(location: str, recorder: Recorder) -> None:
    """The model follows one run.

    The run glances at the control topic. For each split it fences, looks and writes. Then it
    looks and waits; it fences, looks, and writes the receipt.
    """
    sink = open_recorded(location, recorder, "A")
    assert isinstance(commit_window(sink), Done)
    split = ["init", "control", "send", "end"]
    assert [name for _, name, _ in steps(follow_recorded(recorder))] == [
        "glance",
        *split,
        *split,
        "control",
        "shown",
        *split,
    ]


def test_splits_at_the_same_time_are_followed(
    location: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model follows splits at the same time: a look after a fence waits until the other
    transaction is decided.
    """
    monkeypatch.setattr(store, "PARALLEL", 2)
    assert isinstance(commit_window(open_recorded(location, recorder, "A")), Done)
    follow_recorded(recorder)


@pytest.mark.parametrize("where", ["before a fence", "behind messages", "before the receipt"])
def test_a_race_is_followed(location: str, recorder: Recorder, where: str) -> None:
    """The model follows a race: B runs before A's first fence, after A's rows are written, or
    before A's receipt, and A finds B's commit.
    """
    first = open_recorded(location, recorder, "A")

    def turn() -> None:
        join_process(start_process(run, location, recorder, "B"))

    if where == "behind messages":
        behind_messages(first, turn)
    else:
        before_fence(first, turn, of_receipt=where == "before the receipt")
    assert isinstance(commit_window(first), AlreadyDone)
    run_steps = steps(follow_recorded(recorder))
    assert (("A", "send", "fenced") in run_steps) is (where == "behind messages")
    assert run_steps[-1] == ("A", "control", "B")


def test_two_windows_are_followed(location: str, recorder: Recorder) -> None:
    """The model follows two windows: B's splits are published, and A's window comes before B's
    receipt.
    """
    first, second = open_recorded(location, recorder, "A"), open_recorded(location, recorder, "B")
    dying = open_recorded(location, recorder, "B")
    before_fence(dying, lambda: pytest.fail("it dies before the receipt"), of_receipt=True)
    with pytest.raises(pytest.fail.Exception):
        commit_window(dying, window=1)
    recorder.file.write_text("")
    commit_window(first)
    commit_window(second, window=1)
    assert [(e.who, e.outcome) for e in follow_recorded(recorder, "two windows") if e.outcome] == [
        ("A", "Done"),
        ("B", "Done"),
    ]


@pytest.mark.parametrize("point", ["split.before", "split.after", "commit.before", "commit.after"])
def test_a_kill_is_followed(location: str, recorder: Recorder, point: CrashPoint) -> None:
    """The model follows a kill right before or after a commit: B ends A's open transaction, and
    finds A's commits.
    """
    assert is_killed(run, location, recorder, "A", f"{point}:kill")
    sink = open_recorded(location, recorder, "B")
    if point.endswith("after"):  # a broker answers a commit before its markers are in the logs
        for topic in (*sink.options.topics, sink.options.control):
            until_decided(sink.connection.servers, topic)
    assert isinstance(commit_window(sink), AlreadyDone if point == "commit.after" else Done)
    run_steps = steps(follow_recorded(recorder))
    first = next(n for n, (who, _, _) in enumerate(run_steps) if who == "B")
    fences = [name for _, name, _ in run_steps[first + 1 : first + 4]]
    assert (fences == ["init"] * 3) is point.endswith("before")


@pytest.mark.parametrize("point", ["split.before", "commit.before"])
def test_a_zombie_is_followed(location: str, recorder: Recorder, point: CrashPoint) -> None:
    """The model follows a zombie: A is stopped before a commit, B commits the window, and A's
    commit is refused when it wakes.
    """
    first = start_process(run, location, recorder, "A", f"{point}:stop")
    try:
        assert stops(first)
        assert isinstance(commit_window(open_recorded(location, recorder, "B")), Done)
        os.kill(first.pid or 0, signal.SIGCONT)
        assert join_process(first) == 0
    finally:
        first.kill()
        first.join(60)
    run_steps = steps(follow_recorded(recorder))
    assert ("A", "end", "fenced") in run_steps
    assert run_steps[-1] == ("A", "control", "B")


@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "never"])
@pytest.mark.parametrize("number", [0, 2], ids=["of a split", "of the receipt"])
def test_a_lost_answer_is_followed(
    location: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, number: int, arrives: bool
) -> None:
    """The model follows a commit with a lost answer: the sink fences again, and writes only
    what isn't there.
    """
    commit_, commits_ = TransactionalProducer.commit, count()

    def losing(producer: TransactionalProducer) -> None:
        if next(commits_) != number:
            commit_(producer)
            return
        if arrives:
            commit_(producer)
        raise ProducerError("failed", "the answer was lost", unanswered=True)

    monkeypatch.setattr(TransactionalProducer, "commit", losing)
    assert isinstance(commit_window(open_recorded(location, recorder, "A")), Done)
    ends = [e.reply for e in follow_recorded(recorder) if e.name == "end"]
    assert ends == ["ok"] * number + ["unknown"] + ["ok"] * (3 - number - arrives)


def test_a_commit_that_is_asked_for_again_is_one(
    location: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that takes longer than the client waits for an answer is waited for again, and
    is one commit in the model.
    """
    monkeypatch.setattr(producers, "CALL_SECONDS", 0.0)
    calls, retried = list[bool](), TransactionalProducer.retry_call

    def counted(producer: TransactionalProducer, call: Any, *, commits: bool = False) -> Any:
        def call_again() -> Any:
            calls.append(commits)
            return call()

        return retried(producer, call_again, commits=commits)

    monkeypatch.setattr(TransactionalProducer, "retry_call", counted)
    assert isinstance(commit_window(open_recorded(location, recorder, "A")), Done)
    assert [e.reply for e in follow_recorded(recorder) if e.name == "end"] == ["ok"] * 3
    assert sum(calls) > 3


# --- broken twins


def test_a_look_before_the_fence_is_not_followed(location: str, recorder: Recorder) -> None:
    """The model doesn't follow a twin that looks before it fences."""
    commit_window(open_recorded(location, recorder, "A", recorded(LookBeforeFence)))
    first, *_ = refused(recorder)
    assert (first.who, first.name, first.target) == ("A", "control", None)


def test_an_id_of_ones_own_is_not_followed(location: str, recorder: Recorder) -> None:
    """The model doesn't follow a twin with its own transactional id: all attempts share one id."""
    commit_window(open_recorded(location, recorder, "A", recorded(RandomId)))
    first, *_ = refused(recorder)
    assert first.name == "init"
    assert "part" not in str(first.target)


def test_rows_without_their_record_are_not_followed(location: str, recorder: Recorder) -> None:
    """The model doesn't follow a twin that sends rows without their record."""
    commit_window(open_recorded(location, recorder, "A", recorded(NoRecord)))
    first, *_ = refused(recorder)
    assert (first.name, first.target) == ("send", "part 0: ")


def test_a_receipt_before_its_rows_is_not_followed(location: str, recorder: Recorder) -> None:
    """The model doesn't follow a twin that writes the receipt before readers see the rows."""
    sink = open_recorded(location, recorder, "A")
    sink.topics.wait_until_seen = lambda _: None
    commit_window(sink)
    first, *_ = refused(recorder)
    assert (first.name, first.target) == ("init", "table")


def test_a_run_that_leaves_open_what_a_dead_one_left_is_not_followed(
    location: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model doesn't follow a twin that leaves a dead run's transaction open: it must end
    before anything is published.
    """
    assert is_killed(run, location, recorder, "A", "split.before:kill")
    monkeypatch.setattr(sinks, "abort_open", lambda *_: None)
    commit_window(open_recorded(location, recorder, "B"))
    first, *_ = refused(recorder)
    assert (first.who, first.name, first.target) == ("B", "init", "part 0")
