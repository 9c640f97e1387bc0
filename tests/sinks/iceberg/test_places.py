"""Places of Iceberg tables: odd names, an object store, folders that can't be written, and
errors on the way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.iceberg.world import IcebergBoth, pieces, sink_at
from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.sinks.iceberg import file_io
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window

pytestmark = pytest.mark.slow


def runs(sink: IcebergBoth) -> None:
    """Makes a table; commits a window, finds it, replaces it; and sweeps nothing."""
    sink.prepare()
    receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(receipt.plan, "a1", staged)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert isinstance(sink.commit(*staged_receipt(sink, 0, 0, "again")), AlreadyDone)
    assert isinstance(sink.commit(*staged_receipt(sink, 0, 1, "b1", dead=False)), Done)
    assert sum(piece.num_rows for piece in pieces(sink)) == 20
    assert sink.read_dead(window(0), attempt="a1").num_rows == 2
    assert sink.sweep(timedelta(hours=1)) == []


@pytest.mark.parametrize(
    "table", ["a.b", "select.from", "na'm\"e.ta `ble`", "größe.日本", "a.b.c", "A.B;DROP TABLE x"]
)
def test_names_of_tables(tmp_path: Path, table: str) -> None:
    """Keywords, quotes, spaces and non-ASCII letters are allowed in a table's name and in the
    path of the warehouse.
    """
    runs(IcebergBoth(CatalogTable.in_folder(str(tmp_path / "la ke ü"), table), ROWS))


def test_two_tables_in_one_catalog(tmp_path: Path) -> None:
    """Tables of several pipelines in one catalog don't affect each other."""
    for table in ("shop.orders", "shop.returns"):
        runs(IcebergBoth(CatalogTable.in_folder(str(tmp_path), table), ROWS))


def test_a_folder_that_is_reached_by_a_link_is_the_same(tmp_path: Path) -> None:
    """A warehouse that is reached by a link is the same place.

    A table in another folder is another place.
    """
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real_sink, linked_sink = sink_at(str(tmp_path / "real")), sink_at(str(tmp_path / "link"))
    assert real_sink.is_at(linked_sink.identity)
    assert not real_sink.is_at(sink_at(str(tmp_path / "none")).identity)


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    """A warehouse that isn't a folder is refused before anything is read.

    The error names the setting.
    """
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"is no folder.*set sink.warehouse to a place"):
        sink_at(str(tmp_path / "file")).refuse_unwritable()


def test_an_executor_loads_no_pyiceberg() -> None:
    """A task on a local table imports neither PyIceberg nor deltalake."""
    script = "import sys, windrow.ingest.sinks.iceberg.stage, windrow.ingest.sinks.iceberg.kind\n"
    script += "print({'pyiceberg', 'deltalake'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "set()"


@pytest.fixture
def sink(tmp_path: Path) -> Any:
    """A prepared table whose sink doesn't wait between tries."""
    sink: IcebergBoth = sink_at(str(tmp_path))
    sink.prepare()
    sink.store.waits = sink.dead_letters.store.waits = (0.0, 0.0)
    return sink


def make_failing(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_full_disk_is_no_unknown_outcome(sink: Any) -> None:
    """A full disk raises UnreachableError, not an unknown outcome, because a look finds the
    table unchanged.
    """
    receipt, staged = staged_receipt(sink, 0)
    sink.store.send = make_failing(
        OSError("[Errno 28] Error writing bytes to file. No space left on device")
    )
    with pytest.raises(UnreachableError, match="there is no room left"):
        sink.commit(receipt, staged)


def test_what_cannot_be_prepared_was_not_sent(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that can't be written raises UnreachableError with "nothing was committed"."""
    receipt, staged = staged_receipt(sink, 0)
    with monkeypatch.context() as patch:
        patch.setattr(file_io.SyncedFileIO, "new_output", make_failing(OSError("read-only")))
        with pytest.raises(UnreachableError, match=r"can't be prepared.*Nothing was committed"):
            sink.commit(receipt, staged)
        with pytest.raises(UnreachableError, match=r"can't be prepared.*Nothing was committed"):
            sink.commit_dead(receipt.plan, "a1", staged)
    assert isinstance(sink.commit(receipt, staged), Done)


def test_a_commit_is_synced_before_it_is_reported(
    sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit syncs each new file and each folder: data, receipt, page, manifest, list of
    manifests, metadata.
    """
    synced, fsync = set[str](), os.fsync

    def sync_watched(handle: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    old_paths = {path for path in Path(sink.catalog_table.warehouse).rglob("*") if path.is_file()}
    monkeypatch.setattr(os, "fsync", sync_watched)
    receipt, staged = staged_receipt(sink, 0, dead=False)
    sink.commit(receipt, staged)
    monkeypatch.undo()
    new = {
        path for path in Path(sink.catalog_table.warehouse).rglob("*") if path.is_file()
    } - old_paths
    names = {path.name.rpartition(".")[2] for path in new}
    assert names == {"parquet", "json", "avro"}
    assert {str(path) for path in new} | {str(path.parent) for path in new} <= synced


def test_processes_that_make_a_catalog_at_once(tmp_path: Path) -> None:
    """Several processes that make a catalog at once all find a bound table."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from tests.sinks.iceberg.world import"
        " sink_at; sink_at(sys.argv[1]).prepare()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "new"), str(Path(__file__).parents[3])]
    racers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    error_texts = [racer.communicate(timeout=120)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 3, error_texts
    assert sink_at(str(tmp_path / "new")).owner() is not None
