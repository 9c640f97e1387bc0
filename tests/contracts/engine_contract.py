"""The contract that every `ports.engine.Engine` keeps when it runs tasks."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runner.spark.tasks import (
    Breaks,
    Counts,
    Dies,
    MissesItsFile,
    Name,
    Panics,
    Raises,
    Refuses,
    StaysAtHome,
    WaitsForEver,
    staged,
)
from windrow.ingest.errors import (
    BugError,
    DataLossError,
    DeadWorkerError,
    SpecError,
)
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.engine import Engine

SPLITS = [
    Split("t", partition, 10 * partition, 10 * partition + 10, 4, 5)
    for partition in (3, 0, 4, 1, 2)
]
"""Splits that are not sorted."""

ONE = SPLITS[:1]
LIMIT = 120.0
"""Seconds for a task to begin or end; it needs far less."""


class InterruptedHereError(KeyboardInterrupt):
    """The error that an interrupt raises in these tests."""


def shown(error: BaseException) -> str:
    """Returns an error's stack trace without the source lines of the test's own tasks."""
    return "".join(traceback.format_exception(error)).replace('"secret-payload"', "")


@contextmanager
def interrupted_after(begun: Path) -> Iterator[None]:
    """Sends one SIGINT to this process as soon as a folder has a file."""

    def raised(*_: object) -> None:
        raise InterruptedHereError

    over = threading.Event()

    def wait_and_send() -> None:
        deadline = time.monotonic() + LIMIT
        while not over.wait(0.02) and time.monotonic() < deadline:
            if list(begun.iterdir()):
                os.kill(os.getpid(), signal.SIGINT)
                return

    old_handler = signal.signal(signal.SIGINT, raised)
    watcher = threading.Thread(target=wait_and_send, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(LIMIT)
        signal.signal(signal.SIGINT, old_handler)


class EngineContract:
    """The promises of an engine.

    Attributes:
        dies: the task whose worker dies, made for this engine's workers.
    """

    dies: type[Dies]

    @pytest.fixture
    def engine(self) -> Engine:
        """The engine under test."""
        raise NotImplementedError

    def test_one_whole_result_per_split_in_order(self, engine: Engine) -> None:
        """The results have all fields, and come in the order of the splits."""
        results = list(engine.run(Name(), SPLITS))
        assert results == [
            staged(split, result.rows[0]) for split, result in zip(SPLITS, results, strict=True)
        ]

    def test_without_splits_nothing_is_started(self, engine: Engine) -> None:
        """Without splits, the engine doesn't even pickle the task."""
        assert list(engine.run(StaysAtHome(), [])) == []

    def test_each_try_has_a_task_of_its_own(self, engine: Engine) -> None:
        """State that a task keeps in itself reaches neither the next split's task nor the
        caller's.
        """
        task = Counts()
        assert [r.rows[0] for r in engine.run(task, SPLITS)] == ["1"] * len(SPLITS)
        assert task.calls == 0

    def test_a_task_that_can_not_travel_is_a_bug(self, engine: Engine) -> None:
        """A task that can't be pickled raises BugError before anything runs."""
        with pytest.raises(BugError, match="this is a bug in windrow") as caught:
            list(engine.run(StaysAtHome(), SPLITS))
        assert caught.value.stage == "setup"

    def test_a_task_may_refuse_to_travel(self, engine: Engine) -> None:
        """An error of windrow that is raised at pickling reaches the caller unchanged.

        For example, a schema's file doesn't exist any more. Nothing runs before the error.
        """
        with pytest.raises(SpecError, match="gone"):
            list(engine.run(MissesItsFile(), SPLITS))

    def test_an_error_comes_back_as_it_was_raised(self, engine: Engine, tmp_path: Path) -> None:
        """A task's own error keeps its class and its fields.

        Of several errors, the first split's is raised. Each split was tried once.
        """
        with pytest.raises(DataLossError) as caught:
            list(engine.run(Refuses(tmp_path), sorted(SPLITS)))
        assert vars(caught.value) == vars(DataLossError("gone", "read", "Do something.", "t", 1, 7))
        assert sorted(call.name[0] for call in tmp_path.iterdir()) == ["0", "1", "2", "3", "4"]

    def test_what_comes_before_an_error_has_come(self, engine: Engine, tmp_path: Path) -> None:
        """An error is raised at its split's turn.

        The results of the splits before it are given, and nothing after it.
        """
        results = engine.run(Refuses(tmp_path), sorted(SPLITS))
        assert next(results).split.partition == 0
        with pytest.raises(DataLossError):
            next(results)
        assert list(results) == []

    def test_a_bug_comes_back_as_a_bug_without_its_text(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """A bug names its type, its place and its split, and keeps the stack trace.

        The text of the original error is left out, because it may quote a message.
        """
        with pytest.raises(
            BugError,
            match=(
                r"^ArrowInvalid: this is a bug in windrow, at .+:\d+ \(write, t\[1\]@10\)\."
                r" .*--debug"
            ),
        ) as caught:
            list(engine.run(Breaks(tmp_path), SPLITS))
        assert "in __call__" in shown(caught.value)
        assert "tests/runner/spark/tasks.py" in shown(caught.value)
        assert "secret-payload" not in shown(caught.value)
        assert len(list(tmp_path.iterdir())) == len(SPLITS), "a bug was tried again"

    def test_a_panic_is_a_bug(self, engine: Engine) -> None:
        """A panic of Rust code is a bug like any other, although it isn't an Exception.

        Its text is left out.
        """
        with pytest.raises(BugError, match=r"^PanicException: this is a bug in windrow") as caught:
            list(engine.run(Panics(), ONE))
        assert "secret-payload" not in shown(caught.value)

    def test_too_little_memory_is_no_bug(self, engine: Engine) -> None:
        """A task that runs out of memory raises DeadWorkerError, like a worker that was killed
        for it.

        The run may succeed where there is more memory.
        """
        with pytest.raises(DeadWorkerError, match=r"ran out of memory .*t\[3\]@30"):
            list(engine.run(Raises(MemoryError), ONE))

    def test_a_dead_worker_costs_one_try(self, engine: Engine, tmp_path: Path) -> None:
        """A task whose worker dies is tried again, and each split has one result."""
        results = list(engine.run(self.dies(tmp_path, times=1), SPLITS))
        assert [r.split for r in results] == SPLITS
        assert len(list(tmp_path.iterdir())) == 2

    def test_workers_that_always_die_are_an_outage(self, engine: Engine, tmp_path: Path) -> None:
        """A task whose worker dies in every try raises DeadWorkerError, not BugError."""
        with pytest.raises(DeadWorkerError, match="Nothing was committed"):
            list(engine.run(self.dies(tmp_path, times=1000), [Split("t", 1, 0, 10)]))
        assert len(list(tmp_path.iterdir())) == 4

    def test_an_interrupt_ends_the_run(self, engine: Engine, tmp_path: Path) -> None:
        """An interrupt reaches the caller unchanged, and the running tasks end.

        Then a new run has free workers.
        """
        with pytest.raises(InterruptedHereError), interrupted_after(tmp_path):
            list(engine.run(WaitsForEver(tmp_path), SPLITS))
        thread = ThreadPoolExecutor(1)
        later_run = thread.submit(lambda: [r.split for r in engine.run(Name(), ONE)])
        thread.shutdown(wait=False)
        assert later_run.result(LIMIT) == ONE
