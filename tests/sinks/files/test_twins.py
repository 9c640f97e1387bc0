"""The races that the files sink must win, and broken twins of it that lose them to the
same checker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.files.twins import (
    NextFreeNumber,
    Overwrites,
    RealSink,
    RetriesBlindly,
    TakenMeansDone,
)
from tests.sinks.files.world import FilesBoth, pieces
from tests.sinks.things import ROWS, produced, staged_receipt
from windrow.ingest.errors import RefusedError
from windrow.ingest.testing.checker import Report, check

pytestmark = pytest.mark.slow  # their dead letters are Delta tables

Make = Callable[..., Any]


def race(make: Make, uri: str, numbers: tuple[int, int]) -> Report:
    """A looks; B runs its window from beginning to end; A writes.

    What both were told they did, the table must hold.
    """
    make(uri, ROWS).prepare()
    other = FilesBoth(uri, ROWS)
    b, b_files = staged_receipt(other, numbers[1], 0, "B", dead=False)
    sink = make(uri, ROWS, lambda: other.commit(b, b_files))
    a, a_files = staged_receipt(sink, numbers[0], 0, "A", dead=False)
    with suppress(RefusedError):
        sink.commit(a, a_files)
    fresh = FilesBoth(uri, ROWS)
    with suppress(RefusedError):
        return check(
            produced(sorted({*numbers})),
            pieces(fresh),
            [],
            [c.receipt for c in fresh.receipts()],
            content="id",
        )
    return Report(receipts=("the log can't be gone by",))


@pytest.mark.parametrize("numbers", [(0, 0), (0, 1)], ids=["one window", "two windows"])
def test_the_real_sink_passes(tmp_path: Path, numbers: tuple[int, int]) -> None:
    """Two runs of one window leave it there once; of two windows both are there."""
    found = race(RealSink, str(tmp_path / "orders"), numbers)
    assert found.ok, str(found)


@pytest.mark.parametrize(
    ("twin", "numbers"),
    [
        (RetriesBlindly, (0, 0)),
        (NextFreeNumber, (0, 1)),
        (Overwrites, (0, 1)),
        (TakenMeansDone, (0, 1)),
    ],
)
def test_the_checker_catches_the_twin(tmp_path: Path, twin: Make, numbers: tuple[int, int]) -> None:
    """A window is lost, there twice, or its log is torn; and the checker says so."""
    assert not race(twin, str(tmp_path / "orders"), numbers).ok
