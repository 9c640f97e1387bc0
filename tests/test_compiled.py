"""What numba compiles is kept on disk, and nothing that is kept can do harm."""

from __future__ import annotations

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
def test_damaged_files_do_no_harm(package: Path, kind: str, end: int) -> None:
    """A file that a full disk or a power cut left short: the function is compiled for this process."""
    load(package)
    (damaged,) = (path for path in kept(package) if path.suffix == f".{kind}")
    damaged.write_bytes(damaged.read_bytes()[:end])
    assert load(package).times(2) == 7


def test_where_the_package_can_not_be_written_the_code_is_the_users(package: Path, tmp_path: Path) -> None:
    """In a folder that nobody else may write to, or read."""
    (package / "__pycache__").write_text("no folder")
    assert (load(package).times(2), came_from_disk(load(package))) == (7, True)
    assert kept(tmp_path / "cache")
    for folder in ("windrow", "windrow/compiled"):
        assert (tmp_path / "cache" / folder).stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("open_to_all", ["windrow", "windrow/compiled"])
def test_what_others_could_have_put_there_is_not_loaded(package: Path, tmp_path: Path, open_to_all: str) -> None:
    """Code in a folder that anybody may write to could be anybody's."""
    (package / "__pycache__").write_text("no folder")
    folder = tmp_path / "cache" / open_to_all
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert (load(package).times(2), came_from_disk(load(package))) == (7, False)
    assert kept(tmp_path) == []


def test_two_processes_may_begin_at_once(package: Path) -> None:
    """Both compile or load, both are right, and what they leave is loaded by the next."""
    script = f"import sys; sys.path.insert(0, {str(package)!r}); from times import times; print(times(2), len(times.stats.cache_hits))"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPATH": str(ROOT)}

    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)

    both = [begun(), begun()]
    assert [process.communicate(timeout=300)[0].split()[0] for process in both] == ["7", "7"]
    assert begun().communicate(timeout=300)[0].split() == ["7", "1"]
