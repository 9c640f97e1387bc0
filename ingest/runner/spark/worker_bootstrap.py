"""Preparation of a worker on another machine before its first split, and tasks of RDDs.

It checks that the worker has the packages that tasks need, and installs windrow's code. This
module is pickled by value, because the worker doesn't have windrow. So it must not import
anything of windrow.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
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
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # Spark's own


class Code:
    """Windrow's code, to be installed on a worker.

    Attributes:
        files: the code as a zip.
        digest: the digest of the code.
        versions: versions of Python and of packages that a worker must have.
    """

    def __init__(self, files: bytes, digest: str, versions: Mapping[str, str]) -> None:
        self.files, self.digest, self.versions = files, digest, dict(versions)

    def trouble(self) -> tuple[str, str] | None:
        """Installs the code if needed; returns why no task can run here, and what to do.

        None if tasks can run. If a task's worker has loaded other code of a client, it ends
        itself, and Spark runs the task again in a new worker.
        """
        host, loaded = socket.gethostname(), sys.modules.get("windrow")
        known_digest, checked_versions = getattr(loaded, "__windrow_checked__", (None, None))
        if (known_digest, checked_versions) == (self.digest, self.versions):
            return None
        if known_digest not in {None, self.digest} and TaskContext.get() is not None:
            os._exit(1)
        same = self.digest in {known_digest, _digest_here()}
        if loaded is not None and not same:
            return (
                f"A Python worker on {host} has loaded another windrow than the driver's",
                _DO_ENVIRONMENT,
            )
        mismatches = list(differences(self.versions))
        if mismatches:
            return (
                (
                    f"A worker on {host}, which runs {sys.executable}, is not as the driver is:"
                    f" {'; '.join(mismatches)}"
                ),
                _DO_ENVIRONMENT,
            )
        if not same:
            try:
                folder = unpack_code(self.files, self.digest)
            except OSError as failed:
                places = "neither in its user's cache nor in its temporary folder"
                return (
                    f"A worker on {host} can't keep windrow's code, {places} ({failed.strerror})",
                    _DO_ROOM,
                )
            sys.path.insert(0, str(folder))
            importlib.invalidate_caches()
        package: Any = importlib.import_module("windrow")
        package.__windrow_checked__ = self.digest, self.versions
        return None


_DO_ENVIRONMENT = (
    "Give the workers an environment with windrow's requirements and the plugins that a spec"
    " uses, by spark.pyspark.python."
)
_DO_ROOM = "Make room there, or name another folder by XDG_CACHE_HOME in the workers' environment."


def install_code(code: Code | None) -> None:
    """Installs windrow's code, so that it can be imported.

    Args:
        code: the code; None if windrow is installed.

    Raises:
        RuntimeError: this Python differs from the driver's. It is no WindrowError, because
            windrow can't be imported here.
    """
    trouble = None if code is None else code.trouble()
    if trouble is not None:
        message, advice = trouble
        raise RuntimeError(f"{message}. Nothing was committed. {advice}")


def on_numbers(
    job: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]], numbers: Iterable[int]
) -> Iterator[tuple[int, str]]:
    """Runs a Spark task of an RDD of numbers; yields its splits' indices and outcomes.

    Args:
        job: a `SparkJob`, or a `WorkerBootstrap`.
        numbers: the numbers of the task.
    """
    for results in job([pa.record_batch({"number": pa.array(numbers, pa.int64())})]):
        yield from zip(*(column.to_pylist() for column in results.columns[:2]), strict=True)


class WorkerBootstrap:
    """A job and windrow's code that it needs.

    If the task can't begin, it returns an error as the outcome of each of its splits.

    Args:
        job: the job, pickled.
        shares: the indices of the splits for each number of a batch; None: a number is the
            index of a split.
        schema: the columns of the job's output. The first two are index and outcome.
        code: windrow's code.
    """

    def __init__(
        self, job: bytes, shares: Sequence[Sequence[int]] | None, schema: pa.Schema, code: Code
    ) -> None:
        self._job, self._shares, self._schema, self._code = job, shares, schema, code

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs one Spark task of the job, or yields the reason why it can't run here."""
        trouble = self._code.trouble()
        if trouble is None:
            yield from pickle.loads(self._job)(batches)  # safe: the driver's bytes  # noqa: S301
            return
        message, advice = trouble
        nowhere = {"topic": None, "partition": None, "offset": None}
        failure = {
            "kind": "UnreachableError",
            "what": message,
            "stage": "setup",
            "do": f"Nothing was committed. {advice}",
            **nowhere,
        }
        outcome = json.dumps({"failure": failure})
        for batch in batches:
            numbers = batch.column(0).unique().to_pylist()
            indices = (
                numbers
                if self._shares is None
                else [index for number in numbers for index in self._shares[number]]
            )
            nothing = [pa.nulls(len(indices), f.type) for f in list(self._schema)[2:]]
            columns = [pa.array(indices, pa.int64()), pa.repeat(outcome, len(indices)), *nothing]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def files_of(package: Path) -> dict[str, bytes]:
    """Returns the files of windrow that tasks may load, by their names in a zip.

    Windrow's Dagster part and compiled files are left out.
    """
    candidates = (package / "__init__.py", *(package / "ingest").rglob("*"))
    files = sorted(
        path for path in candidates if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in files}


def digest_of(files: Mapping[str, bytes]) -> str:
    """Returns the digest of windrow's code. The same files give the same digest."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()[:32]


def _digest_here() -> str | None:
    """Returns the digest of the windrow that this Python has loaded, or would load.

    None if there is none.
    """
    module_spec = importlib.util.find_spec("windrow")
    return (
        None
        if module_spec is None or module_spec.origin is None
        else digest_of(files_of(Path(module_spec.origin).parent))
    )


def differences(versions: Mapping[str, str]) -> Iterator[str]:
    """Yields the differences from the driver's versions, one short phrase each."""
    for name, driver_version in versions.items():
        try:
            own_version = platform.python_version() if name == "python" else version(name)
        except PackageNotFoundError:
            yield f"{name} is missing, the driver has {driver_version}"
            continue
        if own_version != driver_version:
            yield f"{name} is {own_version}, the driver's is {driver_version}"


def unpack_code(code: bytes, digest: str) -> Path:
    """Unpacks windrow's code, and returns its folder.

    The folder is one of these, the first that this user can write to and others can't:

    1. A folder in the user's cache. All workers of this user on this machine share it.
    2. A folder of this user among the temporary folders, shared in the same way.
    3. A temporary folder for this process alone.

    Raises:
        OSError: none of them can be written.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "windrow" / "code"
    for above in (cache, Path(tempfile.gettempdir()) / f"windrow-code-{os.geteuid()}"):
        with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
            return _unpack_shared(code, digest, above.expanduser())
    return _extract_code(code, Path(tempfile.mkdtemp(prefix="windrow-")))


def _unpack_shared(code: bytes, digest: str, above: Path) -> Path:
    """Unpacks the code into `above / digest` unless it is there, and returns this folder.

    The folder is never removed, because workers may use it. Several workers may begin at
    once:

    1. Each unpacks the code into a folder of its own.
    2. The first worker renames its folder to the final name.
    3. The other workers can't rename, and use the first worker's folder.

    Raises:
        OSError: the code can't be kept there, or other users may write to the folder.
    """
    above.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = above / digest
    if _private(above) and not folder.is_dir():
        new_folder = _extract_code(code, Path(tempfile.mkdtemp(dir=above)))
        try:
            new_folder.rename(folder)
        except OSError:  # another worker was first
            shutil.rmtree(new_folder, ignore_errors=True)
    if not _private(above) or not _private(folder):
        raise PermissionError(folder)
    return folder


def _extract_code(code: bytes, folder: Path) -> Path:
    """Unpacks the code into the folder; removes the folder if there is no room."""
    try:
        with zipfile.ZipFile(io.BytesIO(code)) as archive:
            archive.extractall(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _private(folder: Path) -> bool:
    """Returns whether this user owns a folder, and no other user may write to it."""
    about = folder.lstat()
    return (
        stat.S_ISDIR(about.st_mode)
        and about.st_uid == os.geteuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
