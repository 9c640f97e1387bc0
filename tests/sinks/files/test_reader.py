"""Reads by the list of files: they see exactly what is committed, also in readers that don't
know windrow.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.docs.test_pages import ROOT, text
from tests.sinks.files.world import FilesBoth
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.files.reader import list_files, main
from windrow.ingest.testing.contracts.windows import (
    ROWS,
    staged_dead_replay,
    staged_receipt,
    window,
)

pytestmark = pytest.mark.slow  # another process


@pytest.fixture
def sink(tmp_path: Path) -> Any:
    """A table of three windows, one replaced and one replayed, with files of attempts that were
    not committed.
    """
    sink = FilesBoth(str(tmp_path / "lake" / "orders"), ROWS)
    sink.prepare()
    for n, generation, attempt in ((0, 0, "a"), (1, 0, "b"), (2, 0, "c"), (1, 1, "d")):
        receipt, staged = staged_receipt(sink, n, generation, attempt)
        sink.commit(receipt, staged)
    sink.commit(*staged_dead_replay(sink, sink.look(window(2)).receipt, "m"))
    staged_receipt(sink, 3, 0, "came to nothing")
    return sink


PAGE = "docs/sinks/files.md"


def offsets(files: list[str]) -> list[int]:
    """Returns the offsets that DuckDB reads from some files."""
    return sorted(n for (n,) in duckdb.sql(f"SELECT _offset FROM read_parquet({files})").fetchall())


COMMITTED = sorted([n for n in range(30) if n not in {3, 13}] * 2)
"""The committed offsets.

Each window's fourth message is a dead letter, except in the replayed window.
"""


def test_the_list_is_what_is_committed(sink: Any) -> None:
    """The list has no replaced generation and no uncommitted attempt.

    It has both generations' files of a replayed window.
    """
    assert offsets(list_files(sink.uri)) == COMMITTED
    ran = subprocess.run(
        [sys.executable, "-m", "windrow.ingest.sinks.files.reader", sink.uri],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.splitlines() == list_files(sink.uri)


def test_the_pages_sql_reads_the_same(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documentation's query for DuckDB alone sees the same rows."""
    _, query = text(PAGE).split("```sql\n")
    monkeypatch.chdir(Path(sink.uri).parents[1])
    with duckdb.connect() as database:
        *_, rows = [
            database.execute(part).fetchall()
            for part in query.partition("```")[0].split(";")
            if part.strip()
        ]
    assert len(rows) == len(COMMITTED)


def test_the_page_has_a_spec_that_loads(tmp_path: Path) -> None:
    """The documentation's YAML loads as a spec with a sink of files."""
    shutil.copy(ROOT / "assets" / "defs" / "orders" / "schema.py", tmp_path)
    (tmp_path / "orders.yaml").write_text(text(PAGE).split("```yaml\n")[1].partition("```")[0])
    assert load_spec(tmp_path / "orders.yaml").sink.kind == "files"


def test_where_no_table_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Listing a folder without a table raises SpecError, and isn't an empty table."""
    with pytest.raises(SpecError, match="no table of files"):
        list_files(str(tmp_path / "none"))
    assert (main([str(tmp_path / "none")]), main([])) == (2, 2)
    assert "no table of files" in capsys.readouterr().err
