"""What tests that hold real sinks to a model have in common: runs that a recorder
listens to, each with its name in the model.
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
from windrow.ingest.testing.contracts.windows import staged_receipt, together


class Recorded:
    """Before a kind of sink. `who`: the run, as the model calls it."""

    recorder: Recorder
    who: str

    def listen(self, recorder: Recorder, who: str) -> Any:
        """The sink itself."""
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
    """Has the steps of an opened sink recorded."""
    sink.__class__ = type("Recorded", (kind, type(sink)), {})
    return sink.listen(recorder, who)


Make = Callable[[str], Any]
"""Opens the sink of a run of this name, recorded."""


class SharedTraces:
    """What every kind's runs do; its module has the fixture `make`."""

    model: type[Protocol]

    def test_two_windows_at_once_are_followed(self, make: Make, recorder: Recorder) -> None:
        """Both commit; whoever is second looks again."""
        together([partial(commit_window, make("A")), partial(commit_window, make("B"), window=1)])
        trace = follow_trace(self.model(), recorder, "two windows")
        assert [e.outcome for e in trace if e.outcome] == ["Done", "Done"]

    def test_replays_are_followed(self, make: Make, recorder: Recorder) -> None:
        """One replay stands on the other."""
        commit_window(make("Z"))
        recorder.file.write_text("")
        commit_window(make("B"), 1)
        commit_window(make("A"), 2)
        trace = follow_trace(self.model(), recorder, "two replays")
        assert [(e.who, e.outcome) for e in trace if e.outcome] == [("B", "Done"), ("A", "Done")]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """An empty one."""
    (tmp_path / "trace").touch()
    return Recorder(tmp_path / "trace")


def commit_window(sink: Any, generation: int = 0, window: int = 0) -> Any:
    """A run of a window up to its end."""
    receipt, staged = staged_receipt(sink, window, generation, sink.who)
    sink.commit_dead(receipt.plan, sink.who, staged)
    return sink.commit(receipt, staged)


def follow_trace(
    model: Protocol, recorder: Recorder, scenario: str | Scenario = "one window twice"
) -> list[Event]:
    """The trace, once the model has followed all of it."""
    trace = recorder.trace()
    assert refused_events(model, scenario, trace) == [], "\n".join(map(str, trace))
    return trace


def steps(trace: Sequence[Event]) -> list[tuple[str, str, str | None]]:
    """Whose, which, and what came of them."""
    return [(event.who, event.name, event.reply) for event in trace]


def start_process(run: Callable[..., object], *args: Any) -> BaseProcess:
    """A run in a process of its own."""
    process = SERVER.Process(target=run, args=args)
    process.start()
    return process


def join_process(process: BaseProcess) -> int | None:
    """Its exit code."""
    process.join(60)
    return process.exitcode


def is_killed(run: Callable[..., object], *args: Any) -> bool:
    """Returns whether a run in a process of its own ends as its crash point has it."""
    return join_process(start_process(run, *args)) == -signal.SIGKILL


def take_turn_before(owner: Any, name: str, turn: Callable[[], object]) -> None:
    """Another run gets its turn once, before the first call of a sink's method."""
    real = getattr(owner, name)

    def once(*args: Any, **more: Any) -> Any:
        setattr(owner, name, real)
        turn()
        return real(*args, **more)

    setattr(owner, name, once)
