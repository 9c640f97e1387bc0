"""What a worker on another machine does before its first split."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest.engine.arrival import _differences, _unpacked
from ingest.engine.cluster import is_local, project


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


@pytest.mark.parametrize(("master", "here"), [("local", True), ("local[*,4]", True), ("spark://a:7077", False), ("yarn", False)])
def test_a_master_is_here_or_elsewhere(master: str, here: bool) -> None:
    """Only to workers elsewhere does the code travel."""
    assert is_local(master) is here
