"""Races of two runs: every real sink passes them, and each broken twin fails one by the same
checker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.delta.twins import appends_by_path, lets_delta_rs_retry
from tests.sinks.files.twins import overwrites, takes_the_next_free_number
from tests.sinks.iceberg.twins import lets_pyiceberg_retry
from tests.sinks.memory import MemoryWorld
from tests.sinks.postgres.twins import locks_nothing, looks_then_writes
from tests.sinks.twins import (
    retries_blindly,
    sends_again,
    takes_a_conflict_for_its_own,
    writes_on_the_newest,
)
from tests.sinks.world import Break, SinkWorld
from tests.sinks.worlds import world_of
from windrow.ingest.errors import WindrowError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.receipt import Receipt, Staged
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.commit_hooks import run_between
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    identity,
    plan,
    receipt,
    stage,
    staged_receipt,
)

pytestmark = pytest.mark.slow

Race = Callable[["Course", Any, Any], None]
KINDS = (
    "memory",
    "delta",
    "delta-keyed",
    "files",
    "iceberg",
    "iceberg-keyed",
    "postgres",
    "sqlite",
    "routes",
)


class Course:
    """A world in which two runs race.

    Attributes:
        breaks: breaks the late run, which then waits for no lock; None for the real sink.
        reported: receipts of all commits that were reported as done.
    """

    def __init__(self, world: SinkWorld, breaks: Break | None = None) -> None:
        self.world, self.breaks, self.reported = world, breaks, list[Receipt]()

    def run(self, race: Race, location: str) -> Report:
        """Runs a race, and returns the checker's report: the table must hold all reported
        commits.
        """
        early = self.world.sink_at(location)
        early.prepare()
        race(self, early, self.world.reopen(early))
        fresh, ids_by_partition = (
            self.world.reopen(early),
            dict[TopicPartition, dict[int, object]](),
        )
        for split in (
            split for window_receipt in self.reported for split in window_receipt.plan.splits
        ):
            offsets = range(split.start, split.stop)
            ids_by_partition.setdefault(split.tp, {}).update(
                {o: identity(split.tp, o) for o in offsets}
            )
        try:
            receipts = [c.receipt for c in fresh.receipts()]
            return check(ids_by_partition, self.world.pieces(fresh), [], receipts, content="id")
        except WindrowError as error:
            return Report(receipts=(str(error),))

    def commit(self, sink: Any, window_receipt: Receipt, staged: Sequence[Staged]) -> None:
        if isinstance(sink.commit(window_receipt, staged), Done | AlreadyDone):
            self.reported.append(window_receipt)

    def late(self, sink: Any, window_receipt: Any, staged: Any, turn: Callable[[], object]) -> None:
        """Commits the late run, which is overtaken between its look and its put."""
        if self.breaks is None:
            self.world.let_overtake(sink, turn)
        else:
            self.breaks(sink)
            run_between(sink, turn)
        with suppress(WindrowError if self.breaks is None else Exception):
            self.commit(sink, window_receipt, staged)


def _meet(numbers: tuple[int, int], generation: int, course: Course, early: Any, late: Any) -> None:
    b = staged_receipt(early, numbers[1], generation, "B", dead=False)
    a = staged_receipt(late, numbers[0], generation, "A", dead=False)
    course.late(late, *a, lambda: course.commit(early, *b))


def an_empty_window(course: Course, early: Any, late: Any) -> None:
    """Races two replacements of generation 0, which has no row because of a wrong schema."""
    course.commit(early, receipt(plan(early, 0), [], 0, "nothing"), [])
    _meet((0, 0), 1, course, early, late)


def windows_that_overlap(course: Course, early: Any, late: Any) -> None:
    """Races A with window 5 of another ledger, which has most of A's offsets."""
    planned = plan(early, 5, offsets=(0, PER_WINDOW - 1))
    files = stage(early, planned, 0, "B", dead=False)
    b = receipt(planned, files, 0, "B")
    a = staged_receipt(late, 0, 0, "A", dead=False)
    course.late(late, *a, lambda: course.commit(early, b, files))


RACES: dict[str, Race] = {
    "one window": partial(_meet, (0, 0), 0),
    "two windows": partial(_meet, (0, 1), 0),
    "an empty window": an_empty_window,
    "windows that overlap": windows_that_overlap,
}


def make_world(kind: str) -> SinkWorld:
    return MemoryWorld() if kind == "memory" else world_of(kind)


@pytest.fixture
def location(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    server = make_world(kind).server
    return make_world(kind).new_location(
        tmp_path, request.getfixturevalue(server) if server else None
    )


@pytest.mark.some(10)
@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_real_sink_wins(kind: str, location: str, race: str) -> None:
    """A race of the real sink (A looks, B runs, A writes) leaves one row of each reported
    message.
    """
    race_report = Course(make_world(kind)).run(RACES[race], location)
    assert race_report.ok, str(race_report)


TWINS: list[tuple[str, Break, str]] = [
    *(
        (kind, twin, race)
        for kind in ("memory", "delta", "files", "iceberg")
        for twin, race in (
            (retries_blindly, "one window"),
            (writes_on_the_newest, "one window"),
            (sends_again, "one window"),
            (takes_a_conflict_for_its_own, "two windows"),
        )
    ),
    ("delta", appends_by_path, "one window"),
    ("delta", lets_delta_rs_retry, "one window"),
    ("files", takes_the_next_free_number, "two windows"),
    ("files", overwrites, "two windows"),
    ("iceberg", lets_pyiceberg_retry, "one window"),
    ("iceberg", lets_pyiceberg_retry, "an empty window"),
    ("postgres", looks_then_writes, "one window"),
    ("postgres", locks_nothing, "windows that overlap"),
]


@pytest.mark.some(10)
@pytest.mark.parametrize(("kind", "twin", "race"), TWINS)
def test_the_checker_catches_the_twin(kind: str, location: str, twin: Break, race: str) -> None:
    """The checker finds a doubled row, a lost window or a torn log of each twin."""
    assert not Course(make_world(kind), twin).run(RACES[race], location).ok
