"""The model of Delta's protocol doesn't drift from the code: what the real sink does in races and deaths, it can do, too."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ingest.crashpoints import CrashPoint
from ingest.ports.sink import AlreadyDone, Done
from ingest.sinks.delta import newest
from tests.protocols.numbered import NumberedLog
from tests.protocols.traces import Event, Recorder, refused
from tests.sinks.beside import DeltaBoth
from tests.sinks.delta.recorded import RecordedDelta
from tests.sinks.delta.test_twins import delta_rs_retries
from tests.sinks.things import ROWS, staged_receipt, together
from tests.warm import SERVER

pytestmark = pytest.mark.slow

Make = Callable[..., RecordedDelta]


class Waiting(RecordedDelta):
    """Another run gets its turn between its first look and its first put."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def _try_commit(self, *args: Any) -> str | None:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        return super()._try_commit(*args)


class Losing(RecordedDelta):
    """Its first put isn't answered."""

    arrives, lost = True, False

    def _send(self, *args: Any) -> None:
        if self.lost:
            super()._send(*args)
            return
        self.lost = True
        if self.arrives:
            super()._send(*args)
        raise OSError("the answer was lost")


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """An empty one."""
    (tmp_path / "trace").touch()
    return Recorder(tmp_path / "trace")


@pytest.fixture
def make(tmp_path: Path, recorder: Recorder) -> Callable[..., Any]:
    """Runs' sinks on one prepared table."""
    DeltaBoth(str(tmp_path / "orders"), ROWS).prepare()
    return lambda kind, who, first=0: kind(str(tmp_path / "orders"), recorder, who, first)


def commits(sink: RecordedDelta, generation: int = 0, window: int = 0) -> Any:
    """A run of a window up to its end."""
    made, staged = staged_receipt(sink, window, generation, sink.who)
    sink.commit_dead(made.plan, sink.who, staged)
    return sink.commit(made, staged)


def follows(recorder: Recorder, scenario: str = "one window twice") -> list[Event]:
    """The trace, once the model has followed all of it."""
    trace = recorder.trace()
    assert refused(NumberedLog(), scenario, trace) == [], "\n".join(map(str, trace))
    return trace


def test_a_race_is_followed(make: Make, recorder: Recorder) -> None:
    """A looks; B runs from beginning to end; A's put is taken, and it looks again."""
    waiting, other = make(Waiting, "A"), make(RecordedDelta, "B")
    waiting.meanwhile = partial(commits, other)
    assert isinstance(commits(waiting), AlreadyDone)
    assert [(e.who, e.name, e.reply) for e in follows(recorder)] == [
        ("A", "keep_letters", "ok"), ("A", "look", None), ("B", "keep_letters", "ok"), ("B", "look", None), ("B", "put", "ok"),
        ("A", "put", "taken"), ("A", "look", "B"),
    ]  # fmt: skip


def test_two_windows_at_once_are_followed(make: Make, recorder: Recorder) -> None:
    """Both commit; whoever is second looks again."""
    first, second = make(RecordedDelta, "A"), make(RecordedDelta, "B")
    together([partial(commits, first), partial(commits, second, window=1)])
    assert [e.said for e in follows(recorder, "two windows") if e.said] == ["Done", "Done"]


def test_replays_are_followed(make: Make, recorder: Recorder) -> None:
    """One replay stands on the other."""
    commits(make(RecordedDelta, "Z"))
    recorder.file.write_text("")
    commits(make(RecordedDelta, "B"), 1)
    commits(make(RecordedDelta, "A"), 2)
    assert [(e.who, e.said) for e in follows(recorder, "two replays") if e.said] == [("B", "Done"), ("A", "Done")]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_followed(make: Make, recorder: Recorder, arrives: bool) -> None:
    """Whether the put arrived or not, the sink looks, and puts only what isn't there."""
    losing = make(Losing, "A")
    losing.arrives = arrives
    assert isinstance(commits(losing), Done)
    assert [e.reply for e in follows(recorder) if e.name == "put"] == (["unknown"] if arrives else ["unknown", "ok"])


def killed_at(uri: str, recorder: Recorder, point: CrashPoint) -> None:
    """A run, in a process of its own."""
    os.environ["WINDROW_CRASH"] = f"{point}:kill"
    commits(RecordedDelta(uri, recorder, "A"))


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_kill_is_followed(make: Make, recorder: Recorder, point: CrashPoint) -> None:
    """A is killed right before or behind its put; B finds what A left."""
    second = make(RecordedDelta, "B")
    first = SERVER.Process(target=killed_at, args=(second.uri, recorder, point))
    first.start()
    first.join(60)
    assert first.exitcode == -signal.SIGKILL
    assert isinstance(commits(second), AlreadyDone if point == "commit.after" else Done)
    follows(recorder)


def test_a_twin_is_not_followed(make: Make, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """With delta-rs's own retry, and without application ids, A's put is answered ok under a number that was taken: the model can't."""
    monkeypatch.setattr(newest, "is_plain", lambda *_: False)
    waiting = make(Waiting, "A")
    waiting.meanwhile = partial(commits, make(RecordedDelta, "B"))
    with delta_rs_retries():
        commits(waiting)
    assert [(e.who, e.name, e.reply) for e in refused(NumberedLog(), "one window twice", recorder.trace())] == [("A", "put", "ok")]


def test_a_trace_without_a_look_is_not_followed(make: Make, recorder: Recorder) -> None:
    """A put that nothing was looked at before is no step of the model's."""
    commits(make(RecordedDelta, "A"))
    trace = [e for e in recorder.trace() if e.name != "look"]
    assert [e.name for e in refused(NumberedLog(), "one window twice", trace)] == ["put"]
