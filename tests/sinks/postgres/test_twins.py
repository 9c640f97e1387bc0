"""The checker catches each broken twin, in races of the same shape that the real sink passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.sinks.postgres.twins import BlindRetry, LookThenWrite, NoLock, ReceiptBehindTheRows, real
from tests.sinks.postgres.world import pieces, place_of
from tests.sinks.things import PER_WINDOW, plan, produced, receipt, stage, staged_receipt
from windrow.ingest.errors import WindrowError
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.postgres.server import TablePlace
from windrow.ingest.testing.checker import Report, check

pytestmark = pytest.mark.slow  # starts a server

Make = Callable[..., Any]


@pytest.fixture
def place(database: str) -> TablePlace:
    return place_of(f"{database}#orders")


def report(sink: Any, receipts: list[Receipt]) -> Report:
    """The same checker for all: rows against what was produced."""
    return check(produced([0]), pieces(sink), [], receipts, content="id")


def two_runs(make: Make, place: TablePlace) -> Report:
    """A looks; B runs from beginning to end; A writes."""
    make(place).prepare()
    other = make(place)
    b, b_files = staged_receipt(other, 0, 0, "B", dead=False)
    sink = make(place, lambda: other.commit(b, b_files))
    a, a_files = staged_receipt(sink, 0, 0, "A", dead=False)
    with suppress(WindrowError):
        sink.commit(a, a_files)
    return report(sink, [c.receipt for c in sink.receipts()])


def two_windows_that_overlap(make: Make, place: TablePlace) -> Report:
    """Of two ledgers: A looks at window 0; B commits most of the same offsets as window
    5; A writes.
    """
    make(place).prepare()
    other = make(place)
    planned = plan(other, 5, offsets=(0, PER_WINDOW - 1))
    files = stage(other, planned, 0, "B", dead=False)
    sink = make(place, lambda: other.commit(receipt(planned, files, 0, "B"), files))
    a, a_files = staged_receipt(sink, 0, 0, "A", dead=False)
    with suppress(WindrowError):
        sink.commit(a, a_files)
    return report(sink, [c.receipt for c in sink.receipts()])


def a_death_between(make: Make, place: TablePlace) -> Report:
    """A dies as soon as it has committed once; its retry runs to the end."""
    sink = make(place)
    sink.prepare()
    a, a_files = staged_receipt(sink, 0, 0, "A", dead=False)

    def die() -> None:
        raise KeyboardInterrupt

    sink.store.crash = die
    with suppress(KeyboardInterrupt):
        sink.commit(a, a_files)
    sink.store.crash = lambda: None
    retry, files = staged_receipt(sink, 0, 0, "retry", dead=False)
    sink.commit(retry, files)
    return report(sink, [retry if c is None else c.receipt for c in [sink.look(retry.window)]])


def a_lost_answer(make: Make, place: TablePlace) -> Report:
    """A's commit arrives, and its answer doesn't: its next try brings what it staged anew."""
    sink = make(place)
    sink.prepare()
    for name in ("A", "A again"):
        a, a_files = staged_receipt(sink, 0, 0, name, dead=False)
        sink.commit(a, a_files)
    return report(sink, [c.receipt for c in sink.receipts()])


@pytest.mark.parametrize(
    ("twin", "race"),
    [
        (LookThenWrite, two_runs),
        (NoLock, two_windows_that_overlap),
        (ReceiptBehindTheRows, a_death_between),
        (BlindRetry, a_lost_answer),
    ],
)
def test_the_checker_catches_the_twin(
    place: TablePlace, twin: Make, race: Callable[[Make, TablePlace], Report]
) -> None:
    """Both runs' rows are in the table, and the checker says so."""
    assert len(race(twin, place).duplicated) >= 2 * (PER_WINDOW - 1)


@pytest.mark.parametrize(
    "race", [two_runs, two_windows_that_overlap, a_death_between, a_lost_answer]
)
def test_the_real_sink_passes_the_same_races(
    place: TablePlace, race: Callable[[Make, TablePlace], Report]
) -> None:
    """One of the two runs' rows are in the table."""
    result = race(real, place)
    assert (result.duplicated, result.invented, result.out_of_order) == ((), (), ())
    # of which the one that came first is there
    assert not result.lost or race is two_windows_that_overlap
