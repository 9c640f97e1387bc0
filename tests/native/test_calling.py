"""Functions that numba compiled are kept on disk and loaded without numba.

Kept files can do no harm.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windrow.ingest.native import cache_folders
from windrow.ingest.native.calling import Compiled

pytestmark = pytest.mark.some(6, of="tests")  # most of them compile in a new process

ROOT = Path(__file__).parents[2]
FACTOR = (
    "from windrow.ingest.native.compiling import part\n\n@part\ndef factor(x):\n    return x * 3\n"
)
TIMES = """
import math
from factor import factor
from windrow.ingest.native.compiling import compiled

@compiled("int64(int64)")
def times(x):
    return factor(x) + 1

@compiled("int64(int64[:, ::1], uint8[::1], boolean)")
def fill(numbers, octets, upwards):
    for i in range(len(octets)):
        octets[i] = i if upwards else len(octets) - i
    return numbers[1, 2] + octets[len(octets) - 1]

@compiled("int64(int64[::1], int64)")
def at(numbers, i):
    return numbers[i]
"""
SINE = """
import math
from windrow.ingest.native.compiling import compiled

@compiled("int64(int64)")
def times(x):
    return int(math.sin(x) * 1000)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a compiled function that calls a function of another module.

    The user's cache is in a folder next to it.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "factor.py").write_text(FACTOR)
    (folder / "times.py").write_text(TIMES)
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def read_only(package: Path) -> Path:
    """The package, in a folder where nothing can be written."""
    (package / "__pycache__").write_text("no folder")
    return package


class CountingCompilations(Compiled):
    """Compiled functions that count how often they had to be compiled."""

    compilations = 0

    def _make_image(self) -> Any:
        self.compilations += 1
        return super()._make_image()


class Loaded:
    """The functions, loaded as in a new process, and whether they had to be compiled."""

    def __init__(self) -> None:
        for name in ("times", "factor"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        self.functions = CountingCompilations("times")
        self.times = self.functions.times
        self.came_from_disk = self.functions.compilations == 0


def load(_: Path) -> Loaded:
    return Loaded()


def came_from_disk(module: Loaded) -> bool:
    return module.came_from_disk


def code_files(below: Path) -> list[Path]:
    return sorted(below.rglob("*.code"))


def test_the_second_process_loads_what_the_first_compiled(package: Path) -> None:
    """The second process loads the code that the first one compiled, and gets the same results.

    The code is next to Python's own compiled modules.
    """
    first, second = load(package), load(package)
    assert (came_from_disk(first), came_from_disk(second)) == (False, True)
    assert (first.times(2), second.times(2)) == (7, 7)
    assert len(code_files(package / "__pycache__")) == 1


def test_python_that_writes_no_bytecode_keeps_machine_code(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONDONTWRITEBYTECODE doesn't apply to machine code, which takes a minute to compile.

    Containers set it, but it is meant for modules that compile quickly.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert [came_from_disk(load(package)) for _ in range(2)] == [False, True]
    assert code_files(package)


def test_code_is_loaded_where_another_user_has_kept_it(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may only read an environment loads its code and doesn't compile it again."""
    load(package)
    assert code_files(package)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    assert came_from_disk(load(package))


def test_code_is_compiled_anew_where_a_part_of_it_changed(package: Path) -> None:
    """Code is compiled again if any of its modules changed.

    numba itself checks only the function's own file.
    """
    assert load(package).times(2) == 7
    (package / "factor.py").write_text(FACTOR.replace("x * 3", "(x * 5)"))
    changed = load(package)
    assert (came_from_disk(changed), changed.times(2)) == (False, 11)


def test_code_with_bounds_checks_is_kept_apart(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code with bounds checks is kept in another file, as numba's environment changes the code."""
    load(package)
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    assert not came_from_disk(load(package))


def test_generic_code_is_for_every_processor_of_its_kind(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generic code is found on another processor, and other code isn't.

    NUMBA_CPU_NAME=generic is for images that are built on another machine.
    """
    named = list[str]()
    for kind in ("generic", ""):
        monkeypatch.setenv("NUMBA_CPU_NAME", kind)
        for processor in ("one", "another"):
            monkeypatch.setattr(cache_folders, "processor", lambda name=processor: [name])
            named.append(cache_folders.fingerprint(package / "times.py"))
    assert named[0] == named[1]
    assert named[2] != named[3]


@pytest.mark.some(1)
@pytest.mark.parametrize("end", [0, 10, 40, -1])
def test_damaged_files_do_no_harm(read_only: Path, tmp_path: Path, end: int) -> None:
    """A truncated file is compiled and kept again, even if it is the only copy.

    A full disk or a power cut may truncate it.
    """
    load(read_only)
    (damaged,) = code_files(tmp_path)
    damaged.write_bytes(damaged.read_bytes()[:end])
    assert load(read_only).times(2) == 7
    assert came_from_disk(load(read_only))


def test_a_changed_byte_is_found(package: Path) -> None:
    """A file with a changed byte is compiled again, because its code would be run."""
    load(package)
    (damaged,) = code_files(package)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    loaded = load(package)
    assert (came_from_disk(loaded), loaded.times(2)) == (False, 7)


def test_a_full_disk_takes_nothing_away(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full disk the function is compiled for this process only.

    The earlier file stays, and no partial file is left.
    """
    load(package)
    (file,) = code_files(package)
    image_bytes = file.read_bytes()
    file.write_bytes(image_bytes[:-1])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        module = load(package)
    assert (module.times(2), came_from_disk(module), file.read_bytes()) == (
        7,
        False,
        image_bytes[:-1],
    )
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_arrays_are_handed_over_as_they_are(package: Path) -> None:
    """Arrays and booleans reach the machine code as they reach numba's own function.

    The arrays are two-dimensional, or of bytes that the code writes to.
    """
    functions, numbers, octets = (
        load(package).functions,
        np.arange(6).reshape(2, 3),
        np.zeros(4, np.uint8),
    )
    assert (functions.fill(numbers, octets, True), octets.tolist()) == (8, [0, 1, 2, 3])
    assert (functions.fill(numbers, octets, False), octets.tolist()) == (6, [4, 3, 2, 1])


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "numbers",
    [
        np.zeros(4, np.int32),
        np.zeros((2, 2), np.int64),
        np.zeros(8, np.int64)[::2],
        [0, 0],
        np.frombuffer(bytes(32), np.int64),
    ],
)
def test_other_arrays_are_refused(package: Path, numbers: Any) -> None:
    """An array of another type, shape or stride, or a read-only one, raises TypeError."""
    with pytest.raises(TypeError, match="contiguous array of int64"):
        load(package).functions.at(numbers, 0)


def test_where_bounds_are_checked_code_that_goes_beyond_them_raises(package: Path) -> None:
    """Code with bounds checks raises IndexError and doesn't read beyond the array.

    Only tests compile it so.
    """
    script = (
        "import numpy as np; from windrow.ingest.native.calling import Compiled;"
        " Compiled('times').at(np.zeros(3, np.int64), 3)"
    )
    env = os.environ | {"PYTHONPATH": f"{package}:{ROOT}", "NUMBA_BOUNDSCHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "IndexError: compiled code went beyond the bounds" in done.stderr


def test_code_calls_functions_of_c(package: Path) -> None:
    """Compiled code can call functions of C, also after it is loaded from disk."""
    (package / "times.py").write_text(SINE)
    first, second = load(package), load(package)
    assert (first.times(1), second.times(1), came_from_disk(second)) == (841, 841, True)


@pytest.mark.some(1)
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_where_the_package_can_not_be_written_the_code_is_the_users(
    read_only: Path, tmp_path: Path, umask: int
) -> None:
    """If the package can't be written, the code is in the user's cache.

    Other users can neither read nor write its folder, whatever the umask is.
    """
    (tmp_path / "cache").mkdir()
    old_umask = os.umask(umask)
    try:
        assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, True)
    finally:
        os.umask(old_umask)
    assert code_files(tmp_path / "cache")
    for folder in ("windrow", "windrow/compiled"):
        assert (tmp_path / "cache" / folder).stat().st_mode & 0o077 == 0


@pytest.mark.some(1)
@pytest.mark.parametrize("open_to_all", [".", "windrow", "windrow/compiled"])
def test_what_others_could_have_put_there_is_not_loaded(
    read_only: Path, tmp_path: Path, open_to_all: str
) -> None:
    """Code isn't loaded from a folder that other users may write to or replace."""
    folder = tmp_path / "cache" / open_to_all
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, False)
    assert code_files(tmp_path) == []


@pytest.mark.some(1)
@pytest.mark.parametrize("link", ["windrow", "windrow/compiled"])
def test_a_folder_behind_a_link_is_not_trusted(read_only: Path, tmp_path: Path, link: str) -> None:
    """A symbolic link in the cache's path isn't trusted, as its owner may change its target.

    A real folder is trusted, even below a folder with the sticky bit that all may write to.
    """
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    link_path = tmp_path / "cache" / link
    link_path.parent.mkdir(parents=True, mode=0o700)
    (tmp_path / "cache").chmod(0o1777)
    link_path.symlink_to(tmp_path / "elsewhere")
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, False)
    link_path.unlink()
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, True)


def test_a_user_without_a_home_compiles(read_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home folder compiles in each process, as in a read-only container."""
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert (load(read_only).times(2), came_from_disk(load(read_only))) == (7, False)


SCRIPT = (
    "import sys; from windrow.ingest.native.calling import Compiled;"
    " print(Compiled('times').times(2), 'numba' in sys.modules)"
)


def test_kept_code_is_loaded_while_another_process_holds_the_lock(package: Path) -> None:
    """A process that stands still with the folder's lock doesn't hold up those that only load."""
    Compiled("times").keep()
    (file,) = code_files(package)
    lock_file = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        assert Compiled("times").times(2) == 7
    finally:
        os.close(lock_file)


def test_two_processes_may_begin_at_once(package: Path) -> None:
    """Two processes that start at once get the right result, and the code is compiled once.

    One waits for the other. Neither of them loads numba.
    """
    note = "with open(__file__ + '.made', 'a') as made:\n    made.write('x')\n"
    with (package / "times.py").open("a") as module:
        module.write(note)
    env = os.environ | {"PYTHONPATH": f"{package}:{ROOT}"}

    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
        )

    both = [begun(), begun()]
    assert [process.communicate(timeout=300)[0] for process in both] == ["7 False\n"] * 2
    assert len(code_files(package)) == 1
    assert (package / "times.py.made").read_text() == "x"


ASKING = """
import sys
from windrow.ingest.native.calling import Compiled
functions = Compiled('times')
print(functions.ready(), functions.ready(), flush=True)
if sys.argv[1:]:
    while not functions.ready():
        pass
    print(functions.times(2), flush=True)
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("words", [[], ["wait"]])
def test_who_asks_whether_it_is_ready_does_not_wait(package: Path, words: list[str]) -> None:
    """`ready` doesn't wait for the compilation.

    Another process compiles, even after the asking process has ended. Afterwards the function
    is ready and loaded.
    """
    done = subprocess.run(
        [sys.executable, "-c", ASKING, *words],
        env=os.environ | {"PYTHONPATH": f"{package}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "False False\n" + ("7\n" if words else ""), done.stderr
    until = time.monotonic() + 300
    while not code_files(package):
        assert time.monotonic() < until
    assert Compiled("times").ready()
    assert came_from_disk(load(package))


def test_where_nothing_can_be_kept_who_asks_is_told_to_call(
    read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ready` is true if nothing can be kept, as no other process could hand over the code.

    Otherwise a large window would be read slowly to its end.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(read_only / "__pycache__"))
    functions = Compiled("times")
    assert (functions.ready(), functions.times(2)) == (True, 7)


def test_all_who_may_read_the_package_may_read_its_code(package: Path) -> None:
    """All users who may read the package may read its code.

    Folder and file have the permissions of Python's own, but aren't writable for others.
    """
    old_umask = os.umask(0o002)
    try:
        load(package)
    finally:
        os.umask(old_umask)
    (code,) = code_files(package)
    assert code.stat().st_mode & 0o777 == 0o644
    assert code.parent.stat().st_mode & 0o777 == 0o755


def test_code_that_is_another_users_alone_is_made_anew(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder next to the package that can't be read is ignored."""
    load(package)
    (code,) = code_files(package)
    closed, stat, temporary = str(code.parent), os.stat, tempfile.TemporaryFile

    def refusing(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    def in_a_folder(*, dir: Path) -> Any:  # noqa: A002 - tempfile's own word
        if str(dir) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(dir))
        return temporary(dir=dir)

    monkeypatch.setattr(os, "stat", refusing)
    monkeypatch.setattr(tempfile, "TemporaryFile", in_a_folder)
    assert (load(package).times(2), code_files(tmp_path / "cache") != []) == (7, True)


def test_files_where_the_user_is_are_not_imported(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code is compiled with the modules of this process, not with files of the working folder."""
    (tmp_path / "numbers.py").write_text("raise RuntimeError('not ours')")
    monkeypatch.chdir(tmp_path)
    assert load(package).times(2) == 7


def test_code_that_cannot_be_made_is_told(package: Path) -> None:
    """A failed compilation raises RuntimeError with the module and the process's last output."""
    (package / "times.py").write_text(TIMES.replace("factor(x) + 1", "factor(x) + unknown"))
    with pytest.raises(RuntimeError, match=r"(?s)not compile times; .* with 1:\n.*unknown"):
        load(package)


def test_a_worker_loads_no_numba() -> None:
    """A worker doesn't load numba, which would need a hundred megabytes.

    The code of a task is compiled elsewhere, or kept.
    """
    script = """
import sys
import pyarrow as pa
from windrow.ingest.formats.shared.arrow_arrays import ENTRIES_CODE
from windrow.ingest.formats.json.layout import PASS
from windrow.ingest.source.reader.librdkafka import passes
from windrow.ingest.schema.checksum import checksum
passes.look
checksum(pa.record_batch({"a": ["text"]}))
ENTRIES_CODE.scatter, PASS.scan
print("numba" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == "False\n"
