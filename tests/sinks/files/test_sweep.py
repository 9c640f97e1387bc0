"""Sweeping a table of files keeps a replaced generation that readers may have listed."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from tests.clock import clock_ahead
from tests.sinks.files.test_log import commit, fresh
from tests.sinks.files.world import FilesBoth, report
from windrow.ingest.sinks.files.manifest import path_of
from windrow.ingest.sinks.files.reader import list_files
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt

pytestmark = pytest.mark.slow  # its dead letters are a Delta table

GRACE = timedelta(hours=2)


@pytest.mark.parametrize("later", [0, 1], ids=["the newest commit", "behind later commits"])
def test_a_replaced_generation_stays_for_those_who_read_it(tmp_path: Path, later: int) -> None:
    """Replaced files stay until the grace period since their replacement is over.

    Later commits keep that time.
    """
    sink = FilesBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    commit(sink, 0)
    listed = list_files(sink.uri)
    receipt, staged = staged_receipt(sink, 0, 1, "b1")
    sink.commit_dead(receipt.plan, "b1", staged)
    sink.commit(receipt, staged)
    for number in range(later):
        commit(sink, 1 + number)
    for file in (Path(sink.uri) / "data").rglob("*.parquet"):
        os.utime(file, (1_000_000_000,) * 2)
    assert fresh(sink).sweep(GRACE) == []
    assert all(Path(path).exists() for path in listed)
    with clock_ahead(timedelta(hours=1)):
        assert fresh(sink).sweep(GRACE) == []
    with clock_ahead(timedelta(hours=3)):
        assert sorted(fresh(sink).sweep(GRACE)) == sorted(listed)
    assert report(sink, range(1 + later)).ok


def test_a_manifest_that_is_missing(tmp_path: Path) -> None:
    """If the manifest of a replacement is missing, its files stay until the next manifest is
    older than the grace period.

    The time of the replacement is then unknown, but it is before the next manifest.
    """
    sink = FilesBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    commit(sink, 0)
    replaced = list_files(sink.uri)
    for number, generation in ((0, 1), (1, 0), (2, 0)):
        commit(sink, number, generation)
    Path(sink.uri, path_of(2)).unlink()
    for file in (Path(sink.uri) / "data").rglob("*.parquet"):
        os.utime(file, (1_000_000_000,) * 2)
    assert fresh(sink).sweep(GRACE) == []
    os.utime(Path(sink.uri, path_of(3)), (1_000_000_000,) * 2)
    assert sorted(fresh(sink).sweep(GRACE)) == sorted(replaced)
    assert report(sink, range(3)).ok
