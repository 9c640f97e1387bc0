"""The checker catches each broken twin, in races of the same shape that the real sink passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.delta.twins import AppendByPath, RealSink, delta_rs_retries
from tests.sinks.things import ROWS, plan, produced, receipt, staged_receipt
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.sink import Done
from windrow.ingest.testing.checker import Report, check

Make = Callable[[str, pa.Schema, Callable[[], object]], Any]


def two_first_runs(make: Make, uri: str) -> Report:
    """A looks; B runs from beginning to end; A writes."""
    make(uri, ROWS, lambda: None).prepare()
    other = make(uri, ROWS, lambda: None)
    b, b_files = staged_receipt(other, 0, 0, "B", dead=False)
    sink = make(uri, ROWS, lambda: other.commit(b, b_files))
    a, a_files = staged_receipt(sink, 0, 0, "A", dead=False)
    with suppress(CommitFailedError):
        sink.commit(a, a_files)
    return report(uri, [sink, other], [a, b])


def two_replacements_of_an_empty_window(make: Make, uri: str) -> Report:
    """Generation 0 took no row (a wrong schema).

    A replaces it, and so does B, which looks after A looked and ends before A writes.

    B's target is generation 1; A's, of a request that counted once more, is generation 2.
    """
    first = make(uri, ROWS, lambda: None)
    first.prepare()
    nothing = receipt(plan(first, 0), [], 0, "nothing")
    assert isinstance(first.commit(nothing, []), Done)
    other = make(uri, ROWS, lambda: None)
    b, b_files = staged_receipt(other, 0, 1, "B", dead=False)
    sink = make(uri, ROWS, lambda: other.commit(b, b_files))
    a, a_files = staged_receipt(sink, 0, 2, "A", dead=False)
    with suppress(CommitFailedError, RefusedError):
        sink.commit(a, a_files)
    for again, made, files in ((other, b, b_files), (sink, a, a_files)):  # as their retries would
        again.commit(made, files)
    return report(uri, [sink, other], [a, b])


def report(uri: str, sinks: list[DeltaBoth], tried: list[Receipt]) -> Report:
    """The same checker for all: rows against what was produced."""
    held = sinks[0].look(tried[0].window)
    receipts = [tried[0] if held is None else held.receipt]
    return check(produced([0]), delta_pieces(uri), [], receipts, content="id")


def test_the_checker_catches_the_twin(tmp_path: Path) -> None:
    """Both runs' rows are in the table, and the checker says so."""
    found = two_first_runs(AppendByPath, str(tmp_path / "orders"))
    assert len(found.duplicated) == 20, str(found)


@pytest.mark.parametrize("race", [two_first_runs, two_replacements_of_an_empty_window])
def test_the_real_sink_passes_the_same_races(
    tmp_path: Path, race: Callable[[Make, str], Report]
) -> None:
    """One of the two runs' rows are in the table."""
    found = race(RealSink, str(tmp_path / "orders"))
    assert found.ok, str(found)


def test_the_snapshot_carries_the_promise(tmp_path: Path) -> None:
    """The real sink without its commit properties fails the race: it is they that hold,
    not luck.
    """
    with delta_rs_retries():
        found = two_first_runs(RealSink, str(tmp_path / "orders"))
    assert len(found.duplicated) == 20
