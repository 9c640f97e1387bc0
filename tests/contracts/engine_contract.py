"""What every `ports.engine.Engine` must do with the tasks it is given."""

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
from windrow.ingest.errors import BugError, DataLossError, SpecError, UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.engine import Engine

SPLITS = [
    Split("t", partition, 10 * partition, 10 * partition + 10, 4, 5)
    for partition in (3, 0, 4, 1, 2)
]
"""In an order of their own."""

ONE = SPLITS[:1]
LIMIT = 120.0
"""Seconds in which a task has begun or ended: far more than it takes."""


class InterruptedHereError(KeyboardInterrupt):
    """What an interrupt raises in these tests."""


def shown(error: BaseException) -> str:
    """All that a stack trace shows of an error, without the source of the test's own tasks."""
    return "".join(traceback.format_exception(error)).replace('"secret-payload"', "")


@contextmanager
def interrupted_after(begun: Path) -> Iterator[None]:
    """Sends this process one SIGINT as soon as there is a file in a folder."""

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
    """A suite gives `engine`, and as `dies` the task whose worker dies where this
    engine runs it.
    """

    dies: type[Dies]

    @pytest.fixture
    def engine(self) -> Engine:
        """The engine that is tested."""
        raise NotImplementedError

    def test_one_whole_result_per_split_in_order(self, engine: Engine) -> None:
        """The results come back with every field, in the order of the splits, whatever
        order that is.
        """
        results = list(engine.run(Name(), SPLITS))
        assert results == [
            staged(split, result.rows[0]) for split, result in zip(SPLITS, results, strict=True)
        ]

    def test_without_splits_nothing_is_started(self, engine: Engine) -> None:
        """Nothing to read: the task isn't even looked at."""
        assert list(engine.run(StaysAtHome(), [])) == []

    def test_each_try_has_a_task_of_its_own(self, engine: Engine) -> None:
        """What a task keeps in itself reaches neither the next split's task nor whoever gave it."""
        task = Counts()
        assert [r.rows[0] for r in engine.run(task, SPLITS)] == ["1"] * len(SPLITS)
        assert task.calls == 0

    def test_a_task_that_can_not_travel_is_a_bug(self, engine: Engine) -> None:
        """A task that can't be pickled is told as a bug, before anything runs."""
        with pytest.raises(BugError, match="this is a bug in windrow") as caught:
            list(engine.run(StaysAtHome(), SPLITS))
        assert caught.value.stage == "setup"

    def test_a_task_may_refuse_to_travel(self, engine: Engine) -> None:
        """An error of windrow's own at pickling, as of a schema's file that is gone, is
        told as it is, before anything runs.
        """
        with pytest.raises(SpecError, match="gone"):
            list(engine.run(MissesItsFile(), SPLITS))

    def test_an_error_comes_back_as_it_was_raised(self, engine: Engine, tmp_path: Path) -> None:
        """A task's own error keeps its class and all its fields.

        Of several it is the first split's; each split was tried once.
        """
        with pytest.raises(DataLossError) as caught:
            list(engine.run(Refuses(tmp_path), sorted(SPLITS)))
        assert vars(caught.value) == vars(DataLossError("gone", "read", "Do something.", "t", 1, 7))
        assert sorted(call.name[0] for call in tmp_path.iterdir()) == ["0", "1", "2", "3", "4"]

    def test_what_comes_before_an_error_has_come(self, engine: Engine, tmp_path: Path) -> None:
        """An error stands in the place of its split's result: those of the splits
        before it are given, and nothing after it.
        """
        results = engine.run(Refuses(tmp_path), sorted(SPLITS))
        assert next(results).split.partition == 0
        with pytest.raises(DataLossError):
            next(results)
        assert list(results) == []

    def test_a_bug_comes_back_as_a_bug_without_its_text(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """A bug names its type, its place and its split, and with the stack trace how
        it came there; what its text quotes stays behind.
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
        """A panic of Rust code, which is no Exception to Python, is a bug as any other,
        and its text stays behind.
        """
        with pytest.raises(BugError, match=r"^PanicException: this is a bug in windrow") as caught:
            list(engine.run(Panics(), ONE))
        assert "secret-payload" not in shown(caught.value)

    def test_too_little_memory_is_no_bug(self, engine: Engine) -> None:
        """A task that runs out of memory may be run again where there is more, as one
        whose worker was killed for it.
        """
        with pytest.raises(UnreachableError, match=r"ran out of memory .*t\[3\]@30"):
            list(engine.run(Raises(MemoryError), ONE))

    def test_a_dead_worker_costs_one_try(self, engine: Engine, tmp_path: Path) -> None:
        """A task whose worker dies is tried again, and each split has one result."""
        results = list(engine.run(self.dies(tmp_path, times=1), SPLITS))
        assert [r.split for r in results] == SPLITS
        assert len(list(tmp_path.iterdir())) == 2

    def test_workers_that_always_die_are_an_outage(self, engine: Engine, tmp_path: Path) -> None:
        """When a task's worker has died as often as it is tried, that is something to
        try again later, and no bug of windrow's.
        """
        with pytest.raises(UnreachableError, match="Nothing was committed"):
            list(engine.run(self.dies(tmp_path, times=1000), [Split("t", 1, 0, 10)]))
        assert len(list(tmp_path.iterdir())) == 4

    def test_an_interrupt_ends_the_run(self, engine: Engine, tmp_path: Path) -> None:
        """An interrupt comes through as it is while tasks run wherever they can, which
        end too: there is room for other work.
        """
        with pytest.raises(InterruptedHereError), interrupted_after(tmp_path):
            list(engine.run(WaitsForEver(tmp_path), SPLITS))
        thread = ThreadPoolExecutor(1)
        later_run = thread.submit(lambda: [r.split for r in engine.run(Name(), ONE)])
        thread.shutdown(wait=False)
        assert later_run.result(LIMIT) == ONE
