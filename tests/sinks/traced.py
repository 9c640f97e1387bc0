"""Helpers for tests that compare real sinks with a model: recorded runs, each with its name in
the model.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.explore import Protocol, Scenario
from tests.protocols.traces import Event, Recorder, refused_events
from tests.warm import SERVER
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt, Staged
from windrow.ingest.ports.sink import Outcome
from windrow.ingest.testing.contracts.windows import run_together, staged_receipt


class Recorded:
    """A mix-in before a sink.

    Attributes:
        recorder: the recorder.
        who: the model's name of the run.
    """

    recorder: Recorder
    who: str

    def listen(self, recorder: Recorder, who: str) -> Any:
        """Records all later steps, and returns the sink."""
        self.recorder, self.who = recorder, who
        return self

    def commit_dead(self, plan: Plan, attempt: str, staged: Sequence[Staged]) -> None:
        with self.recorder.step(self.who, "keep_letters") as reply:
            super().commit_dead(plan, attempt, staged)  # type: ignore[misc]
            reply("ok")

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        outcome: Outcome = super().commit(receipt, staged)  # type: ignore[misc]
        self.recorder.says(self.who, type(outcome).__name__)
        return outcome


def record_sink(sink: Any, recorder: Recorder, who: str, kind: type[Any] = Recorded) -> Any:
    """Makes an opened sink a recorded one, and returns it."""
    sink.__class__ = type("Recorded", (kind, type(sink)), {})
    return sink.listen(recorder, who)


Make = Callable[[str], Any]
"""Opens the recorded sink of a run with this name."""


class SharedTraces:
    """Traces that every kind shares. Its module has the fixture `make`."""

    model: type[Protocol]

    def test_two_windows_at_once_are_followed(self, make: Make, recorder: Recorder) -> None:
        """The model follows two windows at once: both commit, and the second looks again."""
        run_together(
            [partial(commit_window, make("A")), partial(commit_window, make("B"), window=1)]
        )
        trace = follow_trace(self.model(), recorder, "two windows")
        assert [e.outcome for e in trace if e.outcome] == ["Done", "Done"]

    def test_replays_are_followed(self, make: Make, recorder: Recorder) -> None:
        """The model follows two replays, the second of them a replay of the first."""
        commit_window(make("Z"))
        recorder.file.write_text("")
        commit_window(make("B"), 1)
        commit_window(make("A"), 2)
        trace = follow_trace(self.model(), recorder, "two replays")
        assert [(e.who, e.outcome) for e in trace if e.outcome] == [("B", "Done"), ("A", "Done")]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """An empty recorder."""
    (tmp_path / "trace").touch()
    return Recorder(tmp_path / "trace")


def commit_window(sink: Any, generation: int = 0, window: int = 0) -> Any:
    """Runs a window to its end."""
    receipt, staged = staged_receipt(sink, window, generation, sink.who)
    sink.commit_dead(receipt.plan, sink.who, staged)
    return sink.commit(receipt, staged)


def follow_trace(
    model: Protocol, recorder: Recorder, scenario: str | Scenario = "one window twice"
) -> list[Event]:
    """Asserts that the model can follow the whole trace, and returns the trace."""
    trace = recorder.trace()
    assert refused_events(model, scenario, trace) == [], "\n".join(map(str, trace))
    return trace


def steps(trace: Sequence[Event]) -> list[tuple[str, str, str | None]]:
    """Returns run, name and reply of each step."""
    return [(event.who, event.name, event.reply) for event in trace]


def start_process(run: Callable[..., object], *args: Any) -> BaseProcess:
    """Starts a run in another process."""
    process = SERVER.Process(target=run, args=args)
    process.start()
    return process


def join_process(process: BaseProcess) -> int | None:
    """Waits for a process, and returns its exit code."""
    process.join(60)
    return process.exitcode


def is_killed(run: Callable[..., object], *args: Any) -> bool:
    """Returns whether a run in another process is killed by its crash point."""
    return join_process(start_process(run, *args)) == -signal.SIGKILL


def take_turn_before(owner: Any, name: str, turn: Callable[[], object]) -> None:
    """Calls `turn` once, before the first call of a sink's method."""
    real = getattr(owner, name)

    def once(*args: Any, **more: Any) -> Any:
        setattr(owner, name, real)
        turn()
        return real(*args, **more)

    setattr(owner, name, once)
