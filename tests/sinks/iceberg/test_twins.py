"""The checker catches each broken twin, in races of the same shape that the real sink passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from tests.sinks.iceberg.twins import NoAssertion, OwnRetry, RealSink, Repeated
from tests.sinks.iceberg.world import pieces
from tests.sinks.things import ROWS, plan, produced, receipt, staged_receipt
from windrow.ingest.ports.sink import Done
from windrow.ingest.testing.checker import Report, check

pytestmark = pytest.mark.slow

Race = Callable[[Any, str], Report]


def two_first_runs(make: Any, place: str) -> Report:
    """A looks; B runs from beginning to end; A writes."""
    RealSink(place, ROWS).prepare()
    other = RealSink(place, ROWS)
    b, b_files = staged_receipt(other, 0, 0, "B", dead=False)
    sink = make(place, ROWS, lambda: other.commit(b, b_files))
    a, a_files = staged_receipt(sink, 0, 0, "A", dead=False)
    with suppress(CommitFailedException):
        sink.commit(a, a_files)
    return report(other)


def two_replacements(make: Any, place: str) -> Report:
    """Generation 0 took no row (a wrong schema).

    A replaces it, and so does B, which looks after A looked and ends before A writes.
    """
    first = RealSink(place, ROWS)
    first.prepare()
    assert isinstance(first.commit(receipt(plan(first, 0), [], 0, "nothing"), []), Done)
    b, b_files = staged_receipt(first, 0, 1, "B", dead=False)
    sink = make(place, ROWS, lambda: first.commit(b, b_files))
    a, a_files = staged_receipt(sink, 0, 1, "A", dead=False)
    sink.commit(a, a_files)
    return report(first)


def report(sink: RealSink) -> Report:
    """What the checker says of window 0."""
    receipts = [c.receipt for c in sink.receipts()]
    return check(
        produced([0]),
        pieces(sink),
        [sink.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )


@pytest.mark.parametrize("race", [two_first_runs, two_replacements])
def test_the_real_sink_passes(tmp_path: Path, race: Race) -> None:
    """Each message once, whoever wins."""
    found = race(RealSink, str(tmp_path))
    assert found.ok, str(found)


@pytest.mark.parametrize("twin", [OwnRetry, NoAssertion, Repeated])
@pytest.mark.parametrize("race", [two_first_runs, two_replacements])
def test_each_twin_is_caught(tmp_path: Path, race: Race, twin: type[RealSink]) -> None:
    """Every message of the window is there twice."""
    assert len(race(twin, str(tmp_path)).duplicated) == 20
