"""What numba compiles is kept on disk, and nothing that is kept can do harm."""

from __future__ import annotations

import errno
import importlib.util
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
NUMBER = count()
FACTOR = "from ingest.compiled import part\n\n@part\ndef factor(x):\n    return x * 3\n"
TIMES = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
sys.modules.pop("factor", None)
from factor import factor
sys.path.pop(0)
from ingest.compiled import compiled

@compiled("int64(int64)")
def times(x):
    return factor(x) + 1
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a compiled function that calls a part in another module; the user's cache is beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "factor.py").write_text(FACTOR)
    (folder / "times.py").write_text(TIMES)
    return folder


@pytest.fixture
def read_only(package: Path) -> Path:
    """The package where nothing can be written beside it."""
    (package / "__pycache__").write_text("no folder")
    return package


def load(folder: Path) -> ModuleType:
    """The module, loaded as in a new process."""
    spec = importlib.util.spec_from_file_location(f"times_{next(NUMBER)}", folder / "times.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def came_from_disk(module: ModuleType) -> bool:
    return bool(module.times.stats.cache_hits)


def kept(below: Path) -> list[Path]:
    return sorted(below.rglob("*.nb?"))


def test_the_second_process_loads_what_the_first_compiled(package: Path) -> None:
    """Beside Python's own compiled modules; the function says the same both times."""
    first, second = load(package), load(package)
    assert (came_from_disk(first), came_from_disk(second)) == (False, True)
    assert (first.times(2), second.times(2)) == (7, 7)
    assert len(kept(package / "__pycache__")) == 2


def test_code_is_compiled_anew_where_a_part_of_it_changed(package: Path) -> None:
    """Also if only a module beside it was edited: numba itself looks at the function's own file alone."""
    assert load(package).times(2) == 7
    (package / "factor.py").write_text(FACTOR.replace("x * 3", "(x * 5)"))
    importlib.invalidate_caches()
    changed = load(package)
    assert (came_from_disk(changed), changed.times(2)) == (False, 11)


def test_code_with_bounds_checks_is_kept_apart(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba's settings by the environment make other code, and numba itself doesn't keep it apart."""
    load(package)
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    assert not came_from_disk(load(package))


@pytest.mark.parametrize("end", [0, 10, -1])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_damaged_files_do_no_harm(read_only: Path, tmp_path: Path, kind: str, end: int) -> None:
    """A file that a full disk or a power cut left short, in the only place there is: the function is compiled once more, and kept again."""
    load(read_only)
    (damaged,) = (path for path in kept(tmp_path) if path.suffix == f".{kind}")
    damaged.write_bytes(damaged.read_bytes()[:end])
    assert load(read_only).times(2) == 7
    assert came_from_disk(load(read_only))


def test_a_full_disk_takes_nothing_away(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is compiled for this process; what was kept before stays."""
    load(package)
    before = kept(package)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("numba.core.caching.IndexDataCacheFile.load", lambda *_: None)
        patch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
        module = load(package)
    assert (module.times(2), came_from_disk(module), kept(package)) == (7, False, before)
    assert came_from_disk(load(package))


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_where_the_package_can_not_be_written_the_code_is_the_users(read_only: Path, tmp_path: Path, umask: int) -> None:
    """In a folder that nobody else may write to, or read, whatever else the user shares."""
    (tmp_path / "cache").mkdir()
    before = os.umask(umask)
    try:
        assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, True)
    finally:
        os.umask(before)
    assert kept(tmp_path / "cache")
    for folder in ("windrow", "windrow/compiled"):
        assert (tmp_path / "cache" / folder).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("open_to_all", [".", "windrow", "windrow/compiled"])
def test_what_others_could_have_put_there_is_not_loaded(read_only: Path, tmp_path: Path, open_to_all: str) -> None:
    """Code in a folder that anybody may write to, or may put another one in the place of, could be anybody's."""
    folder = tmp_path / "cache" / open_to_all
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, False)
    assert kept(tmp_path) == []


@pytest.mark.parametrize("link", ["windrow", "windrow/compiled"])
def test_a_folder_behind_a_link_is_not_trusted(read_only: Path, tmp_path: Path, link: str) -> None:
    """Who made it may let it lead elsewhere a moment later. A folder is, also where everybody may write, but not to what is another's."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place = tmp_path / "cache" / link
    place.parent.mkdir(parents=True, mode=0o700)
    (tmp_path / "cache").chmod(0o1777)
    place.symlink_to(tmp_path / "elsewhere")
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, False)
    place.unlink()
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, True)


def test_a_user_without_a_home_compiles(read_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose number nobody knows, in a container that can't be written."""
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, False)


def test_two_processes_may_begin_at_once(package: Path) -> None:
    """Both compile or load, both are right, and what they leave is loaded by the next."""
    script = f"import sys; sys.path.insert(0, {str(package)!r}); from times import times; print(times(2), len(times.stats.cache_hits))"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPATH": str(ROOT)}

    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)

    both = [begun(), begun()]
    assert [process.communicate(timeout=300)[0].split()[0] for process in both] == ["7", "7"]
    assert begun().communicate(timeout=300)[0].split() == ["7", "1"]
