"""`make demo CHANGES=1`, which types the commands of docs/debezium-to-iceberg.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changes.demo import Demo
from tests.shape.readme import ROOT


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_table_is_the_databases_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The page's commands make a table with the database's rows, on a real broker and Spark.

    Snapshots expire a week later, and verification finds nothing wrong. A row that no event
    has changed is found.
    """
    demo = Demo(tmp_path / "changes", 1200)
    assert demo.run() == []
    said = capfd.readouterr().out
    assert "snapshots expired" in said
    assert "nothing is wrong" in said
    row = demo.database.rows()[0]["id"]
    demo.database.connection.execute("UPDATE customers SET name = 'Eve' WHERE id = ?", (row,))
    (mistake,) = demo.compare("later")
    assert mistake == f"2 rows differ later, the first: [{row}, {row}]"


def test_make_runs_it() -> None:
    """`make demo CHANGES=1` runs the demo that the test runs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"$(if $(CHANGES),{Demo.__module__}," in makefile
