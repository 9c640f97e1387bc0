"""What a worker on another machine does before its first split: see that it has what tasks need, and take up windrow's own code.

This module travels by value, for the worker has none of windrow's: nothing of windrow may be imported here.
"""

from __future__ import annotations

import fcntl
import importlib
import io
import json
import os
import pickle
import platform
import shutil
import socket
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa

_UNUSED_SECONDS = 30 * 24 * 3600
"""So long code is kept that no worker begins with; one that has begun keeps its own for as long as it lives."""


class Arrival:
    """A job and what it needs: windrow's own code as a zip, named by its `digest`, and the versions of what must be there.

    `job`: a pickled callable of batches. `shares`: the indices of the splits that each number of a batch stands for; None: a number is such
    an index itself. A task that can't begin says so for each of its splits, in the first two columns of `schema`, which is of what the job
    gives. `versions`: of Python (`python`) and of packages, as the driver has them.
    """

    def __init__(
        self, job: bytes, shares: Sequence[Sequence[int]] | None, schema: pa.Schema, code: bytes, digest: str, versions: Mapping[str, str]
    ) -> None:  # fmt: skip
        self._job, self._shares, self._schema = job, shares, schema
        self._code, self._digest, self._versions = code, digest, dict(versions)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One Spark task: the job's, or the reason why it can't be done here."""
        trouble = self._trouble()
        if trouble is None:
            yield from pickle.loads(self._job)(batches)  # noqa: S301  # the driver's own
            return
        do = "Nothing was committed. Give the workers an environment with windrow's requirements, by spark.pyspark.python."
        nowhere = {"topic": None, "partition": None, "offset": None}
        outcome = json.dumps({"failure": {"kind": "UnreachableError", "what": trouble, "stage": "setup", "do": do, **nowhere}})
        for batch in batches:
            numbers = batch.column(0).unique().to_pylist()
            indices = numbers if self._shares is None else [index for number in numbers for index in self._shares[number]]
            nothing = [pa.nulls(len(indices), f.type) for f in list(self._schema)[2:]]
            told = [pa.array(indices, pa.int64()), pa.repeat(outcome, len(indices)), *nothing]
            yield pa.RecordBatch.from_arrays(told, schema=self._schema)

    def _trouble(self) -> str | None:
        """Why nothing can be done here; None if all is well, and windrow can be imported."""
        loaded = sys.modules.get("ingest")
        if loaded is not None:
            known = getattr(loaded, "__windrow_digest__", None)
            return None if known == self._digest else f"A worker on {socket.gethostname()} has loaded another windrow than the driver's"
        wrong = list(_differences(self._versions))
        if wrong:
            return f"A worker on {socket.gethostname()}, which runs {sys.executable}, is not as the driver is: {'; '.join(wrong)}"
        folder = _unpacked(self._code, self._digest)
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        package: Any = importlib.import_module("ingest")
        package.__windrow_digest__ = self._digest
        return None


def _differences(versions: Mapping[str, str]) -> Iterator[str]:
    """What differs from the driver's, one short phrase each."""
    for name, wanted in versions.items():
        try:
            found = platform.python_version() if name == "python" else version(name)
        except PackageNotFoundError:
            yield f"{name} is missing, the driver has {wanted}"
            continue
        if found != wanted:
            yield f"{name} is {found}, the driver's is {wanted}"


def _unpacked(code: bytes, digest: str) -> Path:
    """The folder with windrow's code: this user's own on this machine, else one of this process's own.

    Several workers may begin at once: each unpacks beside it, the first one's becomes the folder, and all take that. Who brings a new one
    removes those that nobody has used for long.
    """
    try:
        above = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "windrow" / "code"
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(above):
            raise PermissionError(above)
        folder = above / digest
        if folder.is_dir() and _private(folder) and _held(folder):
            return folder
        made = Path(tempfile.mkdtemp(dir=above))
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return _extracted(code, Path(tempfile.mkdtemp(prefix="windrow-")))
    _extracted(code, made)
    try:
        made.rename(folder)
    except OSError:  # another one was first
        shutil.rmtree(made, ignore_errors=True)
    held = _held(folder)
    _remove_unused(above)
    return folder if held else _extracted(code, Path(tempfile.mkdtemp(prefix="windrow-")))


def _held(folder: Path) -> bool:
    """Take hold of a folder for as long as this process lives, so that nobody removes it; False if somebody is just doing that.

    The hold is a shared lock of the folder itself, through a handle that is never closed. When it was taken last, its own time says.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return False
    except OSError:  # a file system that locks no folders: there nothing is removed either
        pass
    if not _is_at(handle, folder):
        os.close(handle)
        return False
    os.utime(handle)
    return True


def _remove_unused(above: Path) -> None:
    """Remove what nobody has taken hold of for long: other versions' code, and what a process that was killed had begun to unpack.

    Whoever removes holds the folder alone, and takes it away under another name first:
    1. A finds it old, and opens it. 2. B finds it old too, locks it, renames and removes it. 3. A worker unpacks the same version again.
    4. A gets the lock, of what B has removed, and must not take the worker's folder for it: so it looks whether the name is still its own.
    """
    for folder in above.iterdir():
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # no folder, or gone
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_mtime < time.time() - _UNUSED_SECONDS and _is_at(handle, folder):
                away = Path(tempfile.mkdtemp(dir=above))
                folder.rename(away)
                shutil.rmtree(away, ignore_errors=True)
        except OSError:  # in use, or no such locks here
            continue
        finally:
            os.close(handle)


def _is_at(handle: int, folder: Path) -> bool:
    """Whether what a handle has open still has that name."""
    try:
        there, here = folder.lstat(), os.fstat(handle)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _extracted(code: bytes, folder: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(code)) as archive:
        archive.extractall(folder)
    return folder


def _private(folder: Path) -> bool:
    """Whether it is this user's own, and nobody else may write to it."""
    about = folder.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
