"""What other readers of Delta see of a table: findings about them that README and DESIGN tell, and that a new version may change."""

from __future__ import annotations

from pathlib import Path

import polars as pl

TABLE = Path(__file__).parents[2] / "operate" / "first_form" / "table"
"""A table that windrow has written; only read here."""


def test_polars_sees_the_windows_by_way_of_pyarrow_only() -> None:
    """By itself polars takes a partition column's values from folders' names, so each window is null; with use_pyarrow they are there."""
    assert pl.read_delta(str(TABLE))["_window"].null_count() == 30
    assert pl.read_delta(str(TABLE), use_pyarrow=True)["_window"].n_unique() == 3
