"""The models of numbered logs, manifests and a catalog's swap against the code.

The models can do each step that real sinks do in races, deaths and lost answers: look, and put
under the next number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.numbered import Manifests, NumberedLog
from tests.protocols.pointer import Catalog
from tests.protocols.traces import Recorder, refused_events
from tests.sinks.delta.twins import lets_delta_rs_retry
from tests.sinks.files.twins import overwrites, takes_the_next_free_number
from tests.sinks.iceberg.twins import lets_pyiceberg_retry
from tests.sinks.traced import (
    Make,
    Recorded,
    SharedTraces,
    commit_window,
    follow_trace,
    is_killed,
    record_sink,
    recorder,
    steps,
)
from tests.sinks.twins import retries_blindly, writes_on_the_newest
from tests.sinks.world import Break
from tests.sinks.worlds import world_of
from windrow.ingest.crashpoints import CrashPoint
from windrow.ingest.model.receipt import Receipt, Staged
from windrow.ingest.ports.sink import AlreadyDone, Done, Outcome
from windrow.ingest.sinks.kit.commit.stored_receipts import committed_by_key
from windrow.ingest.sinks.kit.commit.table_store import (
    Answer,
    Conflict,
    TableChange,
    Unanswered,
    Written,
)
from windrow.ingest.testing.contracts.commit_hooks import on_put, run_between

__all__ = ["recorder"]

pytestmark = pytest.mark.slow

once = pytest.mark.some(1)
"""A mark: a case that both classes have is run by one of them."""


class RecordedTable(Recorded):
    """A mix-in before a `WindowTable`: it records looks and puts.

    A version is the model's number.

    Attributes:
        window: key of the window that is committed.
        loses: True if the first put arrives without an answer, False if it doesn't arrive.
    """

    window = ""
    loses: bool | None = None

    def listen(self, recorder: Recorder, who: str) -> Any:
        on_put(self, self._record_put)
        store: Any = self.store  # type: ignore[attr-defined]
        writing = store.writing

        @contextmanager
        def looks() -> Iterator[Any]:
            with ExitStack() as stack:
                with self.recorder.step(self.who, "look") as reply:
                    state = stack.enter_context(writing())
                    committed_window = committed_by_key(state, [self.window]).get(self.window)
                    reply(
                        None if committed_window is None else committed_window.receipt.attempt,
                        state.version - 1,
                    )
                yield state

        store.writing = looks
        return super().listen(recorder, who)

    def commit(self, receipt: Receipt, staged: Sequence[Staged]) -> Outcome:
        self.window = receipt.window.key
        return super().commit(receipt, staged)

    def _record_put(self, state: Any, change: TableChange) -> Answer:
        arrives, self.loses = self.loses, None
        with self.recorder.step(self.who, "put", state.version) as reply:
            put_answer: Answer = Unanswered("") if arrives is False else state.put(change)
            if arrives is not None:
                put_answer = Unanswered("the answer was lost")
            reply({Written: "ok", Conflict: "taken", Unanswered: "unknown"}[type(put_answer)])
        return put_answer


def open_recorded(kind: str, location: str, recorder: Recorder, who: str) -> Any:
    """Opens the recorded sink of a run."""
    return record_sink(world_of(kind).sink_at(location), recorder, who, RecordedTable)


@pytest.fixture
def make(kind: str, tmp_path: Path, recorder: Recorder) -> Make:
    """A function that opens runs' sinks on one prepared table."""
    location = world_of(kind).new_location(tmp_path / "table", None)
    world_of(kind).sink_at(location).prepare()
    return partial(open_recorded, kind, location, recorder)


def _killed_at(make: Make, point: CrashPoint) -> None:
    os.environ["WINDROW_CRASH"] = f"{point}:kill"
    commit_window(make("A"))


class NumberedTraces(SharedTraces):
    """Traces of sinks with numbered commits.

    Attributes:
        kind_: the kind of sink.
    """

    kind_: str

    @pytest.fixture
    def kind(self) -> str:
        return self.kind_

    def test_a_race_is_followed(self, make: Make, recorder: Recorder) -> None:
        """The model follows a race: A looks, B runs from beginning to end, A's put is refused,
        and A looks again.
        """
        waiting = make("A")
        run_between(waiting, partial(commit_window, make("B")))
        assert isinstance(commit_window(waiting), AlreadyDone)
        assert steps(follow_trace(self.model(), recorder)) == [
            ("A", "keep_letters", "ok"),
            ("A", "look", None),
            ("B", "keep_letters", "ok"),
            ("B", "look", None),
            ("B", "put", "ok"),
            ("A", "put", "taken"),
            ("A", "look", "B"),
        ]

    @pytest.mark.parametrize("arrives", [True, False])
    def test_a_lost_answer_is_followed(self, make: Make, recorder: Recorder, arrives: bool) -> None:
        """The model follows a put with a lost answer: the sink looks, and puts only what isn't
        there.
        """
        losing = make("A")
        losing.loses = arrives
        assert isinstance(commit_window(losing), Done)
        trace = follow_trace(self.model(), recorder)
        assert [e.reply for e in trace if e.name == "put"] == (
            ["unknown"] if arrives else ["unknown", "ok"]
        )

    @pytest.mark.parametrize("point", ["commit.before", "commit.after"])
    def test_a_kill_is_followed(self, make: Make, recorder: Recorder, point: CrashPoint) -> None:
        """The model follows a kill right before or after A's put: B finds what A left."""
        assert is_killed(_killed_at, make, point)
        assert isinstance(
            commit_window(make("B")), AlreadyDone if point == "commit.after" else Done
        )
        follow_trace(self.model(), recorder)

    def test_a_trace_without_a_look_is_not_followed(self, make: Make, recorder: Recorder) -> None:
        """The model doesn't follow a put without a look."""
        commit_window(make("A"))
        trace = [e for e in recorder.trace() if e.name != "look"]
        assert [e.name for e in refused_events(self.model(), "one window twice", trace)] == ["put"]


@once
class TestDelta(NumberedTraces):
    """Traces of Delta tables without a primary key."""

    kind_, model = "delta", NumberedLog


@once
class TestDeltaKeyed(NumberedTraces):
    """Traces of Delta tables with a primary key: each try merges the changes into the newest
    state.
    """

    kind_, model = "delta-keyed", NumberedLog


@pytest.mark.some(1)
class TestFiles(NumberedTraces):
    """Traces of tables of files, which put by hard links."""

    kind_, model = "files", Manifests


@pytest.mark.some(1)
class TestIceberg(NumberedTraces):
    """Traces of Iceberg tables in a folder, with the catalog in SQLite."""

    kind_, model = "iceberg", Catalog


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("kind", "twin", "version"),
    [
        ("delta", lets_delta_rs_retry, 0),
        ("delta-keyed", writes_on_the_newest, 1),
        ("files", overwrites, 0),
        ("files", takes_the_next_free_number, 0),
        ("files", retries_blindly, 1),
        ("iceberg", lets_pyiceberg_retry, 0),
        ("iceberg", writes_on_the_newest, 1),
        ("iceberg-keyed", writes_on_the_newest, 1),
    ],
)
def test_a_twin_is_not_followed(
    kind: str, make: Make, recorder: Recorder, twin: Break, version: int
) -> None:
    """The models don't follow a twin's put under a number that is taken, or that isn't the next
    after its look.
    """
    waiting = make("A")
    twin(waiting)
    run_between(waiting, partial(commit_window, make("B"), window=int(kind.endswith("-keyed"))))
    commit_window(waiting)
    model = {"files": Manifests, "iceberg": Catalog}.get(kind.partition("-")[0], NumberedLog)
    first, *_ = refused_events(model(), "one window twice", recorder.trace())
    assert (first.who, first.name, first.target, first.reply) == ("A", "put", version, "ok")
