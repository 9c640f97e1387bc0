"""A lost ledger gets a boundary from the receipt before or after it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.source.enumerator.things import boundary, hour, mark
from windrow.ingest.config.window import TimeWindows
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.freezing import foresee_boundary, freeze_boundaries

CUTS = [boundary(hour(n), mark(10 * n)) for n in range(3)]


def make_pipeline(path: Path, committed: int) -> Any:
    """Returns a pipeline with an empty ledger and one committed window, whose cluster can't be
    asked.
    """
    window = Window("p", hour(committed), hour(committed + 1))
    commit = SimpleNamespace(
        receipt=SimpleNamespace(
            plan=SimpleNamespace(start=CUTS[committed], stop=CUTS[committed + 1])
        )
    )
    grid = TimeWindows.model_construct(
        grid="hourly", start=hour(0), delay=timedelta(0), max_wait=timedelta(0)
    )
    return SimpleNamespace(
        spec=SimpleNamespace(id="p", window=grid),
        sink=SimpleNamespace(
            looks=lambda windows: [commit if requested == window else None for requested in windows]
        ),
        ledger=open_ledger(str(path / "state.db")),
        now=lambda: hour(5),
    )


@pytest.mark.parametrize("committed", [0, 1])
def test_a_lost_boundary_comes_from_the_window_beside_it(tmp_path: Path, committed: int) -> None:
    """A boundary comes from the end of the window before it, or from the start of the window
    after it, so that windows tile.
    """
    pipeline = make_pipeline(tmp_path, committed)
    assert foresee_boundary(pipeline, hour(1), None) == CUTS[1]
    assert pipeline.ledger.boundary("p", hour(1)) is None
    assert freeze_boundaries(pipeline, [hour(1)], lambda _: None) == {hour(1): CUTS[1]}
    assert pipeline.ledger.boundary("p", hour(1)) == CUTS[1]
