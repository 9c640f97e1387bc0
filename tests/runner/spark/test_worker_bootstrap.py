"""A worker's start on another machine, before its first split."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

import windrow
from tests.full_disk import files_end_at
from windrow.ingest.errors import UnreachableError
from windrow.ingest.runner.outcome import result_of
from windrow.ingest.runner.spark import cluster
from windrow.ingest.runner.spark.cluster import code_to_send, own_code
from windrow.ingest.runner.spark.jobs import RESULT
from windrow.ingest.runner.spark.local import is_local
from windrow.ingest.runner.spark.worker_bootstrap import (
    Code,
    WorkerBootstrap,
    differences,
    unpack_code,
)

CONNECT = "pyspark.sql.connect.session"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home without a cache."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path


def test_each_difference_is_named() -> None:
    """Each missing package is named, and each with another version, with both versions.

    Packages that agree aren't mentioned.
    """
    ours = dict(own_code().versions)
    assert list(differences(ours)) == []
    mismatches = list(differences({**ours, "msgspec": "0.0.1", "no-such-package": "1"}))
    assert mismatches == [
        f"msgspec is {ours['msgspec']}, the driver's is 0.0.1",
        "no-such-package is missing, the driver has 1",
    ]


def test_a_worker_that_has_the_code_is_still_asked_for_plugins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker with the right code is still checked for plugins, because a later job may need
    another distribution.
    """
    ours = own_code()
    checked = ours.digest, ours.versions
    monkeypatch.setattr(windrow, "__windrow_checked__", checked, raising=False)
    assert Code(b"", *checked).trouble() is None
    trouble = Code(b"", ours.digest, {**ours.versions, "acme-kinds": "1.0"}).trouble()
    assert trouble is not None
    assert "acme-kinds is missing, the driver has 1.0" in trouble[0]
    assert "plugins that a spec uses" in trouble[1]


def test_what_travels_is_windrows_own_code(home: Path) -> None:
    """All of the package's modules and files are sent unchanged, without compiled files, in
    less than half of their size.
    """
    folder = unpack_code(own_code().files, own_code().digest)
    assert folder == home / ".cache" / "windrow" / "code" / own_code().digest
    root = Path(__file__).parents[3]
    sent_files = {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    ours = (
        path
        for path in (root / "ingest").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    package = {Path("windrow/__init__.py"): (root / "windrow" / "__init__.py").read_bytes()}
    assert sent_files == package | {
        Path("windrow") / path.relative_to(root): path.read_bytes() for path in ours
    }
    assert len(own_code().files) < sum(map(len, sent_files.values())) / 2


def test_workers_that_begin_at_once_share_one_folder(home: Path) -> None:
    """Workers that unpack the code at the same time share one complete folder."""
    with ThreadPoolExecutor(8) as pool:
        folders = set(
            pool.map(lambda _: unpack_code(own_code().files, own_code().digest), range(8))
        )
    [folder] = folders
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert (folder / "windrow" / "ingest" / "errors.py").is_file()
    assert home in folder.parents


def test_a_cache_that_others_may_write_to_is_not_trusted(home: Path) -> None:
    """If others may write to the cache, a user's workers share one private folder among the
    temporary folders.

    No worker leaves more files.
    """
    above = home / ".cache" / "windrow" / "code"
    above.mkdir(parents=True)
    above.chmod(0o777)
    folders = {unpack_code(own_code().files, own_code().digest) for _ in range(3)}
    assert folders == {home / "tmp" / f"windrow-code-{os.geteuid()}" / own_code().digest}
    assert (folders.pop() / "windrow" / "ingest" / "errors.py").is_file()
    assert list(above.iterdir()) == []
    assert len(list((home / "tmp").iterdir())) == 1


def test_a_home_that_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cache can't be made, because a file is in its place or its path, the workers share
    a private temporary folder.
    """
    for cache in (home / "file", home / "file" / "below"):
        (home / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        assert (
            unpack_code(own_code().files, own_code().digest).parent
            == home / "tmp" / f"windrow-code-{os.geteuid()}"
        )


def test_a_temporary_folder_that_others_made_is_not_trusted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary folder in which others may write, or a link to one, isn't used: each process
    makes its own.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    (home / "file").touch()
    shared = home / "tmp" / f"windrow-code-{os.geteuid()}"
    (home / "else").mkdir(0o700)
    shared.symlink_to(home / "else")
    assert shared not in unpack_code(own_code().files, own_code().digest).parents
    shared.unlink()
    shared.mkdir()
    shared.chmod(0o777)
    assert shared not in unpack_code(own_code().files, own_code().digest).parents
    assert list(shared.iterdir()) == list((home / "else").iterdir()) == []


def test_a_full_disk_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that can't store the code reports place, reason and advice for each of its
    splits.

    No half of the code stays.
    """
    monkeypatch.setitem(sys.modules, "windrow", None)  # a worker doesn't have windrow
    index_batch = pa.RecordBatch.from_pydict({"index": pa.array([0], pa.int64())})
    arrival = WorkerBootstrap(b"", [[3, 4]], RESULT, Code(own_code().files, own_code().digest, {}))
    with files_end_at(1024):
        [result_batch] = list(arrival([index_batch]))
    assert result_batch.column("index").to_pylist() == [3, 4]
    for outcome in result_batch.column("outcome").to_pylist():
        failure = json.loads(outcome)["failure"]
        assert (
            "can't keep windrow's code, neither in its user's cache nor in its temporary folder"
            " (File too large)" in failure["what"]
        )
        assert "Make room there, or name another folder by XDG_CACHE_HOME" in failure["do"]
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("master", "is_here"),
    [("local", True), ("local[*,4]", True), ("spark://a:7077", False), ("yarn", False)],
)
def test_a_master_is_here_or_elsewhere(master: str, is_here: bool) -> None:
    """The code is sent only to workers on other machines."""
    assert is_local(master) is is_here


class Sessions:
    """A fake of Spark Connect's sessions, with an active one if `master` is given."""

    def __init__(self, master: str | None) -> None:
        self.master = master

    def active(self) -> Any:
        if self.master is None:
            raise PySparkRuntimeError(
                errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={}
            )
        return SimpleNamespace(conf={"spark.master": self.master})


@pytest.mark.parametrize(
    ("own_master", "connected", "is_sent"),
    [
        (None, "not loaded", False),
        ("local[2]", "not loaded", False),
        ("spark://a:7077", "not loaded", True),
        (None, "local[*,4]", False),
        (None, "spark://a:7077", True),
        ("local[2]", "spark://a:7077", True),
        (None, None, True),
    ],
)
def test_code_goes_along_where_it_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, own_master: str | None, connected: str | None, *, is_sent: bool
) -> None:
    """Registered functions contain windrow's code, unless all sessions of this process have
    their workers on this machine.
    """
    context = None if own_master is None else SimpleNamespace(master=own_master)
    monkeypatch.setattr(cluster, "own_context", lambda: context)
    if connected == "not loaded":
        monkeypatch.delitem(sys.modules, CONNECT, raising=False)
    else:
        monkeypatch.setitem(sys.modules, CONNECT, SimpleNamespace(SparkSession=Sessions(connected)))  # type: ignore[arg-type]  # what is asked
    assert code_to_send() is (own_code() if is_sent else None)


@pytest.mark.parametrize(
    ("shares", "expected_indices"), [([[2], [0, 1]], [2, 0, 1]), (None, [0, 1])]
)
def test_a_task_that_can_not_begin_says_so_of_each_split(
    shares: list[list[int]] | None, expected_indices: list[int]
) -> None:
    """A worker that has loaded another windrow reports that for each split, in the columns of
    its job, and reads nothing.
    """
    schema = pa.schema(
        [("windrow_index", pa.int64()), ("windrow_outcome", pa.string()), ("id", pa.int32())]
    )
    arrival = WorkerBootstrap(b"", shares, schema, Code(b"", "another", {}))
    [batch] = arrival([pa.record_batch({"id": pa.array([0, 1, 1])})])
    assert batch.schema == schema
    assert batch.column(0).to_pylist() == expected_indices
    with pytest.raises(UnreachableError, match="has loaded another windrow than the driver's"):
        result_of(batch.column(1)[0].as_py())
