"""A full disk and a torn Delta log.

Each error says which file is affected, and has advice; the tests then follow the advice. These
tests rely on deltalake 1.6:

- A newest log entry that is half written makes the table unreadable. An empty entry counts as
  an empty commit. Renaming it is safe (`ingest/sinks/delta/table.py` says why): no commit can
  be built on it, and rows and receipt's name go together.
- An entry that was cut right at the end of a line loads. It has rows, but not the transactions
  after them, by which the next run of the window knows that it is committed. So a commit first
  checks the entry that it builds on: if windrow wrote it, its last line must be there. A
  window's first commit also checks whether the table already holds rows of the window.
- An error of deltalake is a tree whose first line says nothing ("Generic LocalFileSystem
  error"). A full disk is an `os error` among the causes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.full_disk import files_end_at
from tests.sinks.delta.pieces import delta_pieces
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import DamagedError, OutcomeUnknownError, RefusedError, UnreachableError
from windrow.ingest.ports.sink import Done
from windrow.ingest.sinks.delta.store import DeltaStore
from windrow.ingest.sinks.delta.table import reason
from windrow.ingest.testing.checker import check
from windrow.ingest.testing.contracts.windows import ROWS, produced_messages, staged_receipt, window

# --- a full disk


@contextmanager
def _nothing_longer(_folder: Path) -> Iterator[None]:
    with files_end_at(64):
        yield


@contextmanager
def _full(folder: Path) -> Iterator[None]:
    """Fills the folder's own file system to the last byte."""
    fill = folder / "fill"
    with fill.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(b"x" * 1024)
    try:
        yield
    finally:
        fill.unlink()


def _mount(folder: Path) -> bool:
    return (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder],
            check=False,
            capture_output=True,
            timeout=60,
        ).returncode
        == 0
    )


Way = Callable[[Path], object]
WAYS = {
    "a quota": (_nothing_longer, "File too large"),
    "a full disk": (_full, "No space left on device"),
}


@pytest.fixture(params=WAYS if os.geteuid() == 0 else ["a quota"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Way, str]]:
    """A folder, a way to use up its space, and the system's error text.

    Mounting a small file system needs rights; without them a quota is used.
    """
    fill_disk, says = WAYS[request.param]
    mounted = fill_disk is _full and _mount(tmp_path)
    if fill_disk is _full and not mounted:
        fill_disk, says = WAYS["a quota"]
    yield tmp_path, fill_disk, says
    if mounted:
        subprocess.run(["umount", tmp_path], check=True, capture_output=True, timeout=60)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the waits between tries."""
    monkeypatch.setattr(DeltaStore, "waits", (0.0,))


@pytest.fixture
def sink(tmp_path: Path) -> DeltaBoth:
    """A table with two windows."""
    return make_sink(tmp_path)


def make_sink(folder: Path) -> DeltaBoth:
    """Returns a table with two windows in this folder."""
    sink = DeltaBoth(str(folder / "orders"), ROWS)
    sink.prepare()
    for number in range(2):
        commit(sink, number)
    return sink


def commit(sink: DeltaBoth, number: int, attempt: str = "a1", generation: int = 0) -> object:
    """Stages and commits a window."""
    receipt, staged = staged_receipt(sink, number, generation, attempt)
    sink.commit_dead(receipt.plan, attempt, staged)
    return sink.commit(receipt, staged)


def content_is_right(sink: DeltaBoth, numbers: range) -> None:
    """Asserts that the checker finds each message of the windows once."""
    fresh = DeltaBoth(sink.uri, ROWS)
    receipts = [c.receipt for c in fresh.receipts()]
    assert [r.window for r in receipts] == [window(n) for n in numbers]
    report = check(
        produced_messages(numbers),
        delta_pieces(sink.uri),
        [fresh.read_dead(r.window) for r in receipts],
        receipts,
        content="id",
    )
    assert report.ok, report


@contextmanager
def full_in_deltalake(fill_disk: Way, folder: Path) -> Iterator[None]:
    """Lets windrow's own files be written, and fills the disk for the log entry."""
    write = DeltaTable.create_write_transaction

    def write_on_full_disk(*arguments: Any, **named: Any) -> None:
        with fill_disk(folder):  # type: ignore[attr-defined]
            write(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", write_on_full_disk)
        yield


def test_a_full_disk_in_the_commit_itself(disk: tuple[Path, Way, str]) -> None:
    """A full disk at the log entry raises UnreachableError with the table and "nothing was
    committed".

    With space, the same commit arrives once.
    """
    folder, fill_disk, says = disk
    sink = make_sink(folder)
    receipt, staged = staged_receipt(sink, 2)
    sink.commit_dead(receipt.plan, "a1", staged)
    with full_in_deltalake(fill_disk, folder), pytest.raises(UnreachableError) as raised:
        sink.commit(receipt, staged)
    assert not isinstance(raised.value, OutcomeUnknownError)
    assert says in raised.value.message
    assert f"there is no room left for the table {sink.uri}" in raised.value.message
    assert "Nothing was committed" in raised.value.advice
    assert "Make room" in raised.value.advice
    content_is_right(sink, range(2))
    assert isinstance(sink.commit(receipt, staged), Done)
    content_is_right(sink, range(3))


def test_a_full_disk_before_the_commit(disk: tuple[Path, Way, str]) -> None:
    """If windrow's own files can't be written, nothing is sent.

    With space, the same commits arrive once.
    """
    folder, fill_disk, says = disk
    sink = make_sink(folder)
    receipt, staged = staged_receipt(sink, 2)
    for commits in (
        lambda: sink.commit_dead(receipt.plan, "a1", staged),
        lambda: sink.commit(receipt, staged),
    ):
        with fill_disk(folder), pytest.raises(UnreachableError, match=says):  # type: ignore[attr-defined]
            commits()
        commits()
    content_is_right(sink, range(3))


def test_a_commit_that_arrived_before_the_disk_was_full_is_done(
    sink: DeltaBoth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that arrived before the error "no space left" is reported as committed, because
    a look decides.
    """
    real = DeltaTable.create_write_transaction

    def write_then_fail(*arguments: object, **named: object) -> None:
        real(*arguments, **named)  # type: ignore[arg-type]
        raise OSError("Generic LocalFileSystem error\n  ↳ No space left on device (os error 28)\n")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", write_then_fail)
    receipt, staged = staged_receipt(sink, 2)
    assert isinstance(sink.commit(receipt, staged), Done)


def test_causes_are_told_in_one_line() -> None:
    """deltalake's tree of causes, with colours and perhaps a trace, becomes one line."""
    tree = (
        "Generic LocalFileSystem error\n   \x1b[31m↳\x1b[0m Unable to copy\n    \x1b[31m↳\x1b[0m No"
        " space left\n  0: <unknown>\n"
    )
    assert reason(OSError(tree)) == "Generic LocalFileSystem error: Unable to copy: No space left"
    assert reason(ValueError("")) == "ValueError"
    chain = (
        "Kernel error\n  ↳ Operation not supported: no credentials found in chain. Attempted:: x"
    )
    assert reason(OSError(chain)) == "no credentials were found"


# --- a torn log

TORN: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda content: content[: len(content) // 2],
    "without its last bytes": lambda content: content[:-20],
    "zeros": lambda content: bytes(len(content)),
    "zeros at its end": lambda content: content[:100] + bytes(len(content) - 100),
}


def newest(uri: str) -> Path:
    """Returns the newest entry of the log."""
    return max(Path(uri, "_delta_log").glob("*.json"))


def _ask(sink: DeltaBoth) -> None:
    sink.look(window(1))


def _run(sink: DeltaBoth) -> None:
    commit(sink, 2)


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("question", [_ask, _run])
def test_a_torn_newest_entry_names_its_cure(
    sink: DeltaBoth, torn: str, question: Callable[[DeltaBoth], None]
) -> None:
    """The advice for a torn newest entry works.

    1. Power is lost in a commit.
    2. The error names the file and the advice.
    3. The advice is followed.
    4. The window runs again, and the content is right.
    """
    file = newest(sink.uri)
    file.write_bytes(TORN[torn](file.read_bytes()))
    with pytest.raises(UnreachableError) as raised:
        question(DeltaBoth(sink.uri, ROWS))
    assert str(file) in raised.value.message
    advice = f"mv '{file}' '{file}.torn'"
    assert advice in raised.value.advice
    subprocess.run(["sh", "-c", advice], check=True, timeout=60)
    fresh = DeltaBoth(sink.uri, ROWS)
    assert fresh.look(window(1)) is None
    content_is_right(sink, range(1))
    assert isinstance(commit(fresh, 1, "a2"), Done)
    assert isinstance(commit(fresh, 2), Done)
    content_is_right(sink, range(3))


def test_the_dead_letters_log_can_be_torn_too(sink: DeltaBoth) -> None:
    """A torn entry in the dead letters' log is handled the same way.

    The window's next attempt brings its dead letters again.
    """
    sink.commit_dead(staged_receipt(sink, 2)[0].plan, "a1", staged_receipt(sink, 2)[1])
    file = newest(f"{sink.uri}_dead")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UnreachableError, match=file.name) as raised:
        commit(sink, 2, "a2")
    subprocess.run(["sh", "-c", f"mv '{file}' '{file}.torn'"], check=True, timeout=60)
    assert str(file) in raised.value.advice
    assert isinstance(commit(sink, 2, "a3"), Done)
    content_is_right(sink, range(3))


def test_an_older_entry_is_not_to_be_taken_away(sink: DeltaBoth) -> None:
    """A torn entry below other commits raises DamagedError, and no error advises to remove it."""
    older = sorted(Path(sink.uri, "_delta_log").glob("*.json"))[-2]
    older.write_bytes(older.read_bytes()[:-20])
    with pytest.raises(DamagedError, match="restore them from a backup") as raised:
        sink.look(window(0))
    assert "mv " not in str(raised.value)


def _up_to(marker: bytes, content: bytes) -> bytes:
    """Returns the entry's lines before the first that contains `marker`."""
    lines = content.splitlines(keepends=True)
    return b"".join(lines[: next(n for n, line in enumerate(lines) if marker in line)])


@pytest.mark.parametrize("generation", [0, 1])
def test_nothing_is_built_on_an_entry_cut_at_a_lines_end(sink: DeltaBoth, generation: int) -> None:
    """An entry that lost its transaction, but loads with rows, is named, and no commit is built
    on it.

    1. A loss of power takes the newest entry's last lines.
    2. The next window is refused with the advice, and so is the window of the entry.
    3. The advice is followed.
    4. Both windows run, and the content is right.
    """
    if generation:
        commit(sink, 1, "a2", generation)
    file = newest(sink.uri)
    file.write_bytes(_up_to(b'"txn"', file.read_bytes()))
    with pytest.raises(UnreachableError) as raised:
        commit(DeltaBoth(sink.uri, ROWS), 2)
    assert f"mv '{file}' '{file}.torn'" in raised.value.advice
    with pytest.raises((UnreachableError, DamagedError)):
        commit(DeltaBoth(sink.uri, ROWS), 1, "a3", generation)
    file.rename(f"{file}.torn")
    fresh = DeltaBoth(sink.uri, ROWS)
    assert isinstance(commit(fresh, 1, "a4", generation), Done)
    assert isinstance(commit(fresh, 2), Done)
    content_is_right(sink, range(3))


def test_rows_that_no_commit_brought_are_not_doubled(sink: DeltaBoth) -> None:
    """Rows of a window that isn't committed, below entries of another program, refuse the
    window.

    Without them it runs.
    """
    file = newest(sink.uri)
    file.write_bytes(
        b"".join(line for line in file.read_bytes().splitlines(keepends=True) if b'"add"' in line)
    )
    fresh = DeltaBoth(sink.uri, ROWS)
    assert fresh.look(window(1)) is None
    with pytest.raises(
        RefusedError,
        match=f"holds rows of window {window(1).key} that no commit of windrow brought",
    ) as raised:
        commit(fresh, 1, "a2")
    assert "Nothing was committed" in raised.value.advice
    DeltaTable(sink.uri).delete(f"{fresh.metadata['window']} = '{window(1).key}'")
    assert isinstance(commit(DeltaBoth(sink.uri, ROWS), 1, "a3"), Done)
    content_is_right(sink, range(2))


def test_an_empty_entry_is_as_if_there_were_none(sink: DeltaBoth) -> None:
    """A window whose log entry is empty isn't committed, and the next run commits it once."""
    newest(sink.uri).write_bytes(b"")
    fresh = DeltaBoth(sink.uri, ROWS)
    assert fresh.look(window(1)) is None
    assert isinstance(commit(fresh, 1, "a2"), Done)
    content_is_right(sink, range(2))
