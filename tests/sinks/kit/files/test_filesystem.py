"""The folder of a table: paths without meaning, storage that fails, and the errors of both."""

from __future__ import annotations

import errno
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError, WindrowError
from windrow.ingest.model.plan import Split
from windrow.ingest.sinks.delta.table import reason
from windrow.ingest.sinks.kit.commit.stored_receipts import RECEIPTS
from windrow.ingest.sinks.kit.files.file_stager import explain_write_errors
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.parquet_files import explain_file_errors
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window


class _Down:
    """A storage whose region can't be found out."""

    @staticmethod
    def from_uri(_: str) -> None:
        raise OSError(errno.EHOSTUNREACH, "No route to host")


class _Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, _: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


METHODS: list[Callable[[Place], object]] = [
    lambda p: p.create("a/b"),
    lambda p: p.finish("a/b"),
    lambda p: p.fsync("a/b"),
    lambda p: p.put("a/b", b"x"),
    lambda p: p.get("a/b"),
    lambda p: p.names("a"),
    lambda p: list(p.walk("a")),
    lambda p: p.stat_files(["a/b"]),
    lambda p: p.remove("a/b"),
    lambda p: p.is_local,
]


@pytest.mark.parametrize("uri", ["foo://x", "az://c/x", "file://host/x", "/tmp/a%20b", "50%/x"])
def test_no_table_lies_there(uri: str) -> None:
    """A path that can't hold a table raises SpecError before any server is asked."""
    with pytest.raises(SpecError, match=r"sink\.path"):
        DeltaBoth(uri, ROWS)


@pytest.mark.parametrize("ask", METHODS)
def test_a_place_that_arrow_does_not_know(ask: Callable[[Place], object]) -> None:
    """Each question about a path of an unknown scheme says what is wrong, without user,
    password and options.
    """
    folder = Place("foo://me:hunter2@x/y?key=hunter3")
    with pytest.raises(SpecError, match=r"foo://x/y") as caught:
        ask(folder)
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("ask", METHODS)
def test_a_place_that_fails(
    ask: Callable[[Place], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question to a store that doesn't answer names the path and the settings to check.

    Making the sink asks nothing.
    """
    monkeypatch.setattr("windrow.ingest.sinks.kit.files.filesystem.fs.FileSystem", _Down)
    DeltaBoth("s3://bucket", ROWS)
    with pytest.raises(
        UnreachableError, match=r"s3://bucket.*No route to host.*AWS_REGION.*credentials"
    ):
        ask(Place("s3://bucket"))


def test_a_missing_file_stays_missing(tmp_path: Path) -> None:
    """Reading a missing file raises FileNotFoundError; removing it does nothing; its size is
    None.
    """
    folder = Place(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        folder.get("none")
    folder.remove("none")
    assert folder.stat_files(["none"]) == {"none": None}
    assert folder.names("none") == set()


@pytest.mark.parametrize("look", [Place.folders, lambda *arguments: list(Place.walk(*arguments))])
def test_a_folder_that_another_run_makes(look: Callable[[Place, str], Any], tmp_path: Path) -> None:
    """Listing a folder while another process makes it finds nothing, and doesn't raise an error."""
    folder, number = Place(str(tmp_path)), 3_000
    make_folder = f"    os.mkdir(f'{tmp_path}/{{n}}'); sum(range(9999))"
    make = f"import os\nfor n in range({number}):\n{make_folder}"
    with subprocess.Popen([sys.executable, "-c", make]) as maker:
        for n in range(number):
            while not (tmp_path / str(n)).is_dir():
                assert not look(folder, str(n))
                assert maker.poll() in {None, 0}


def test_a_draft_that_was_swept(tmp_path: Path) -> None:
    """A draft that a sweep removed raises an error that says so, not one about the storage."""
    folder = Place(str(tmp_path))
    folder.create("a/b").close()
    (draft,) = folder.walk("a")
    folder.remove(draft.path)
    with pytest.raises(
        UnreachableError, match=r"removed while it was being written.*Did a sweep remove it"
    ):
        folder.finish("a/b")


def test_a_full_disk_at_the_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at the receipt commits nothing, the error names the file, and the next try
    succeeds.
    """
    sink = DeltaBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    receipt, staged = staged_receipt(sink, 0)
    with monkeypatch.context() as full:
        full.setattr(Place, "open_output", lambda *_: _Full())
        with pytest.raises(
            UnreachableError, match=rf"{RECEIPTS}/2026-01-02T00_00_00Z.*No space left"
        ):
            sink.commit(receipt, staged)
    assert sink.look(window(0)) is None
    sink.commit(receipt, staged)
    assert sink.look(window(0)) is not None


def test_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path, an absolute one, one with a slash, and a URI with escapes are the same
    table.
    """
    monkeypatch.chdir(tmp_path)
    spelled = ["a b/t", "a b/t/", f"{tmp_path}/a b/t", f"file://{tmp_path}/a%20b/t"]
    assert {Place.normalized(uri).uri for uri in spelled} == {f"{tmp_path}/a b/t"}
    assert Place.normalized("s3://bucket/t/").uri == "s3://bucket/t"


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("/", "is no folder for a table"),
        ("/lake/a%20b", "with a % in it"),
        ("/lake/a\\b", "with a backslash"),
        ("/lake/a\tb", "with a backslash"),
        ("s3://bucket/two words", "makes no sense at s3://bucket/two words"),
        ("s3://bucket/\u00fc", "makes no sense at s3://bucket/\u00fc"),
    ],
)
def test_what_no_table_can_be_called(uri: str, says: str) -> None:
    """A path that libraries read differently is refused with SpecError, before a library is
    asked.
    """
    with pytest.raises(SpecError, match=re.escape(says)):
        assert Place.normalized(uri).is_local


@pytest.mark.parametrize(
    ("client_error", "later"),
    [
        ("AWS Error SLOW_DOWN during PutObject operation: ", True),
        ("AWS Error SERVICE_UNAVAILABLE during GetObject operation: ", True),
        ("Error performing GET http://s3/b/t: Server returned non-2xx status code: 503 ...", True),
        ("SlowDown", True),
        ("503", True),
        (
            "AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: ",
            True,
        ),
        (
            "key 'internal_errors/t' in bucket 'b': AWS Error ACCESS_DENIED during Head",
            False,
        ),
        (
            "AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: ",
            False,
        ),
        ("Error performing GET http://s3/bucket-503/t: status code: 403 Forbidden", False),
        ("Error performing GET http://s3/b/slowdown/t: status code: 403 Forbidden", False),
        ("503 folders", False),
    ],
)
def test_a_store_that_refuses_for_now(client_error: str, later: bool) -> None:
    """A store that is busy, in each client's words, gives the advice to wait.

    Other errors give the advice to check credentials.
    """
    advice = Place("s3://bucket/table").advice(client_error)
    assert ("run this again later" in advice, "credentials" in advice) == (later, not later)


def test_a_code_behind_a_long_name_counts() -> None:
    """An error code after a long file name still decides the advice, however much of the text
    is shown.
    """
    name = "x" * 400
    arrows = f"key '{name}' in bucket 'b': AWS Error SLOW_DOWN during PutObject operation: "
    with (
        pytest.raises(UnreachableError, match="Wait, for the store has too much to do"),
        explain_write_errors("s3://b/t", Split("shop.orders", 0, 0, 1)),
    ):
        raise OSError(arrows)
    deltas = f"S3 error\n ↳ Error performing GET http://s3/{name} - status code\n ↳ 503 Slow"
    assert "run this again later" in Place("s3://b/t").advice(reason(OSError(deltas)))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 52",
            UnreachableError,
        ),
        ("Couldn't deserialize thrift: TProtocolException: Invalid data", RefusedError),
    ],
)
def test_a_store_without_an_answer_damages_no_file(text: str, error: type[WindrowError]) -> None:
    """An error of S3's client while a file is read isn't damage of the file."""
    with pytest.raises(error, match=text[:20]), explain_file_errors("a.parquet"):
        raise OSError(text)
