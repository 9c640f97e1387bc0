"""What a worker on another machine does before its first split."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.engine.arrival import Arrival, _differences, _held, _is_at, _remove_unused, _unpacked
from ingest.engine.cluster import is_local, project
from ingest.engine.outcome import brought_back
from ingest.errors import UnreachableError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, without a cache yet."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_each_difference_is_named() -> None:
    """What is missing, and what is of another version, with both versions; what agrees isn't mentioned."""
    ours = dict(project().versions)
    assert list(_differences(ours)) == []
    wrong = list(_differences({**ours, "msgspec": "0.0.1", "no-such-package": "1"}))
    assert wrong == [f"msgspec is {ours['msgspec']}, the driver's is 0.0.1", "no-such-package is missing, the driver has 1"]


def test_what_travels_is_windrows_own_code(home: Path) -> None:
    """All of the package's modules and files are there, byte for byte, and nothing that was compiled of them."""
    folder = _unpacked(project().code, project().digest)
    assert folder == home / ".cache" / "windrow" / "code" / project().digest
    ours = Path(__file__).parents[2] / "ingest"
    sent = {path.relative_to(folder / "ingest"): path.read_bytes() for path in (folder / "ingest").rglob("*") if path.is_file()}
    assert sent == {
        path.relative_to(ours): path.read_bytes() for path in ours.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


def test_workers_that_begin_at_once_share_one_folder(home: Path) -> None:
    """However many unpack at the same time, one folder is left, whole, and all have it."""
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: _unpacked(project().code, project().digest), range(8)))
    [folder] = found
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert (folder / "ingest" / "errors.py").is_file()
    assert home in folder.parents


def test_a_cache_that_others_may_write_to_is_not_trusted(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """There a process takes a folder of its own."""
    above = home / ".cache" / "windrow" / "code"
    above.mkdir(parents=True)
    above.chmod(0o777)
    folder = _unpacked(project().code, project().digest)
    assert above not in folder.parents
    assert (folder / "ingest" / "errors.py").is_file()
    assert list(above.iterdir()) == []


WORKER = """
import sys
from pathlib import Path
from ingest.engine.arrival import _held

print(_held(Path(sys.argv[1])), flush=True)
input()
"""
"""Takes hold of a folder until it is told to end."""


def aged(above: Path, name: str, days: int) -> Path:
    """Code of another version, which was taken up last so many days ago."""
    folder = above / name
    (folder / "ingest").mkdir(parents=True)
    then = time.time() - days * 24 * 3600
    os.utime(folder, (then, then))
    return folder


def test_code_that_nobody_uses_is_removed(home: Path) -> None:
    """Who brings a new version removes what no worker took up for a month, and half of an unpacking that was killed; nothing younger."""
    above = home / ".cache" / "windrow" / "code"
    old, killed, young = aged(above, "a" * 32, 31), aged(above, "tmpx1", 40), aged(above, "b" * 32, 29)
    folder = _unpacked(project().code, project().digest)
    assert sorted(above.iterdir()) == sorted([folder, young])
    assert not old.exists()
    assert not killed.exists()


def test_code_in_use_stays(home: Path) -> None:
    """However long ago a worker took its code up: as long as the worker lives, the code stays."""
    above = home / ".cache" / "windrow" / "code"
    old = aged(above, "a" * 32, 0)
    with subprocess.Popen([sys.executable, "-c", WORKER, str(old)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "True\n"
        os.utime(old, (0, 0))
        _unpacked(project().code, project().digest)
        assert old.exists()
        worker.communicate("\n", timeout=60)
    _remove_unused(above)
    assert not old.exists()


def test_code_that_is_being_removed_is_not_taken(home: Path) -> None:
    """A worker that begins while its folder is locked for removal has one of its own; one that lost the name behind its handle, too."""
    folder = _unpacked(project().code, project().digest)
    copy = folder.with_name("c" * 32)
    shutil.copytree(folder, copy)
    handle = os.open(copy, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert not _held(copy)
        other = _unpacked(project().code, copy.name)
        assert folder.parent not in other.parents
        assert (other / "ingest" / "errors.py").is_file()
        copy.rename(folder.with_name("away"))
        assert not _is_at(handle, copy)
    finally:
        os.close(handle)
    shutil.rmtree(other)


@pytest.mark.parametrize(("master", "here"), [("local", True), ("local[*,4]", True), ("spark://a:7077", False), ("yarn", False)])
def test_a_master_is_here_or_elsewhere(master: str, here: bool) -> None:
    """Only to workers elsewhere does the code travel."""
    assert is_local(master) is here


@pytest.mark.parametrize(("shares", "told"), [([[2], [0, 1]], [2, 0, 1]), (None, [0, 1])])
def test_a_task_that_can_not_begin_says_so_of_each_split(shares: list[list[int]] | None, told: list[int]) -> None:
    """In the columns that its job gives, whatever else these are: a worker that has loaded another windrow reads nothing."""
    schema = pa.schema([("windrow_index", pa.int64()), ("windrow_outcome", pa.string()), ("id", pa.int32())])
    arrival = Arrival(b"", shares, schema, b"", "another", {})
    [batch] = arrival([pa.record_batch({"id": pa.array([0, 1, 1])})])
    assert batch.schema == schema
    assert batch.column(0).to_pylist() == told
    with pytest.raises(UnreachableError, match="has loaded another windrow than the driver's"):
        brought_back(batch.column(1)[0].as_py())
