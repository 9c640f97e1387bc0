"""Held to the model of a numbered log (`tests.protocols.numbered`): what sinks do that
look, and put under the number that follows.

A kind of sink gives its runs, and a place with a prepared table; the races, deaths and
lost answers are the same for all.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.numbered import NumberedLog
from tests.protocols.traces import Event, Recorder, refused
from tests.sinks import traced
from tests.sinks.things import together
from tests.sinks.traced import Recorded, commits, killed, recorder, steps
from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.staged import Staged
from windrow.ingest.ports.sink import AlreadyDone, Done, Outcome
from windrow.ingest.sinks.table_store import Answer, Conflict, TableChange, Unanswered
from windrow.ingest.sinks.window_table import committed_by_key

__all__ = ["recorder"]

Open = Callable[[str], "RecordedPuts"]


class RecordedPuts(Recorded):
    """Before a kind of sink that puts.

    `first`: the newest number when the scenario begins, which the model calls -1.

    `meanwhile`: another run has its turn once, between look and put. `loses`: the first
    put isn't answered, and whether it arrives.
    """

    first = 0
    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    loses: bool | None = None
    taken: type[Exception] = FileExistsError
    """What a put is answered with under a number that is taken."""

    def told_put(self, number: int, put: Callable[[], Any]) -> Any:
        """A put, as a step. `number`: the one that it is put under."""
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        with self.recorder.step(self.who, "put", number - self.first - 1) as reply:
            try:
                done = self._sent(put)
            except self.taken:
                reply("taken")
                raise
            except Exception:
                reply("unknown")
                raise
            reply("ok")
        return done

    def _sent(self, put: Callable[[], Any]) -> Any:
        arrives, self.loses = self.loses, None
        done = put() if arrives is not False else None
        if arrives is not None:
            raise OSError("the answer was lost")
        return done


class RecordedTable(RecordedPuts):
    """Before a `WindowTable` whose puts go through its method `once`
    (`tests.sinks.hooks.on_put`), or a twin of it.
    """

    window = ""

    def listened_to(self, recorder: Recorder, who: str) -> Any:
        store: Any = self.store  # type: ignore[attr-defined]
        writing = store.writing

        @contextmanager
        def looks() -> Iterator[Any]:
            with ExitStack() as stack:
                with self.recorder.step(self.who, "look") as reply:
                    state = stack.enter_context(writing())
                    held = committed_by_key(state, [self.window]).get(self.window)
                    reply(
                        None if held is None else held.receipt.attempt,
                        state.version - self.first - 1,
                    )
                yield state

        store.writing = looks
        return super().listened_to(recorder, who)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        self.window = receipt.window.key
        return super().commit(receipt, staged)

    def once(self, state: Any, change: TableChange) -> Answer:
        def sent() -> Answer:
            answer: Answer = super(RecordedTable, self).once(state, change)  # type: ignore[misc]
            if isinstance(answer, Conflict):
                raise FileExistsError
            if isinstance(answer, Unanswered):
                raise OSError(answer.why)
            return answer

        try:
            return self.told_put(state.version + 1, sent)  # type: ignore[no-any-return]
        except FileExistsError:
            return Conflict("taken")
        except OSError as error:
            return Unanswered(str(error))


def _killed_at(open_: Open, point: CrashPoint) -> None:
    os.environ["WINDROW_CRASH"] = f"{point}:kill"
    commits(open_("A"))


class NumberedTraces(ABC):
    """`begun` prepares a place; `opened`, which other processes find by its name, makes
    a run's sink there.
    """

    model: type[NumberedLog]

    @staticmethod
    @abstractmethod
    def begun(place: Path) -> None:
        """Prepare a table."""

    @staticmethod
    @abstractmethod
    def opened(place: Path, recorder: Recorder, who: str) -> Any:
        """A run's sink, listened to."""

    @pytest.fixture
    def make(self, tmp_path: Path, recorder: Recorder) -> Open:
        """Runs' sinks on one prepared table."""
        self.begun(tmp_path / "orders")
        return partial(self.opened, tmp_path / "orders", recorder)

    def follows(self, recorder: Recorder, scenario: str = "one window twice") -> list[Event]:
        """The trace, once the model has followed all of it."""
        return traced.follows(self.model(), recorder, scenario)

    def refused(self, recorder: Recorder) -> list[Event]:
        """What of a trace the model can't follow."""
        return refused(self.model(), "one window twice", recorder.trace())

    def test_a_race_is_followed(self, make: Open, recorder: Recorder) -> None:
        """A looks; B runs from beginning to end; A's put is taken, and it looks again."""
        waiting = make("A")
        waiting.meanwhile = partial(commits, make("B"))
        assert isinstance(commits(waiting), AlreadyDone)
        assert steps(self.follows(recorder)) == [
            ("A", "keep_letters", "ok"),
            ("A", "look", None),
            ("B", "keep_letters", "ok"),
            ("B", "look", None),
            ("B", "put", "ok"),
            ("A", "put", "taken"),
            ("A", "look", "B"),
        ]

    def test_two_windows_at_once_are_followed(self, make: Open, recorder: Recorder) -> None:
        """Both commit; whoever is second looks again."""
        together([partial(commits, make("A")), partial(commits, make("B"), window=1)])
        assert [e.said for e in self.follows(recorder, "two windows") if e.said] == ["Done", "Done"]

    def test_replays_are_followed(self, make: Open, recorder: Recorder) -> None:
        """One replay stands on the other."""
        commits(make("Z"))
        recorder.file.write_text("")
        commits(make("B"), 1)
        commits(make("A"), 2)
        assert [(e.who, e.said) for e in self.follows(recorder, "two replays") if e.said] == [
            ("B", "Done"),
            ("A", "Done"),
        ]

    @pytest.mark.parametrize("arrives", [True, False])
    def test_a_lost_answer_is_followed(self, make: Open, recorder: Recorder, arrives: bool) -> None:
        """Whether the put arrived or not, the sink looks, and puts only what isn't there."""
        losing = make("A")
        losing.loses = arrives
        assert isinstance(commits(losing), Done)
        assert [e.reply for e in self.follows(recorder) if e.name == "put"] == (
            ["unknown"] if arrives else ["unknown", "ok"]
        )

    @pytest.mark.parametrize("point", ["commit.before", "commit.after"])
    def test_a_kill_is_followed(self, make: Open, recorder: Recorder, point: CrashPoint) -> None:
        """A is killed right before or behind its put; B finds what A left."""
        assert killed(_killed_at, make, point)
        assert isinstance(commits(make("B")), AlreadyDone if point == "commit.after" else Done)
        self.follows(recorder)

    def test_a_trace_without_a_look_is_not_followed(self, make: Open, recorder: Recorder) -> None:
        """A put that nothing was looked at before is no step of the model's."""
        commits(make("A"))
        trace = [e for e in recorder.trace() if e.name != "look"]
        assert [e.name for e in refused(self.model(), "one window twice", trace)] == ["put"]
