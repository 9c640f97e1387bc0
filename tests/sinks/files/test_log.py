"""The log of a table of files: what is missing, damaged, foreign or made anew is noticed; checkpoints only save reading."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.beside import BINDING, DeltaBoth
from tests.sinks.files.world import FilesBoth, report
from tests.sinks.things import ROWS, staged_mending, staged_receipt, window
from windrow.ingest.errors import DamagedError, RefusedError, SchemaChangedError, SpecError, UnreachableError
from windrow.ingest.model.binding import Binding
from windrow.ingest.ports.sink import Done, Unknown, Unreadable
from windrow.ingest.sinks import exclusive
from windrow.ingest.sinks.files import log as logs
from windrow.ingest.sinks.files.columns import columns_after
from windrow.ingest.sinks.files.entry import path_of
from windrow.ingest.sinks.files.log import CHECKPOINTS, FilesLog
from windrow.ingest.sinks.files.stage import row_files
from windrow.ingest.sinks.place import Place

pytestmark = pytest.mark.slow  # its dead letters are a Delta table


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A prepared sink, with a checkpoint every third entry."""
    monkeypatch.setattr(logs, "EVERY", 3)
    monkeypatch.setattr(exclusive, "WAITS", (0.0, 0.0))
    made = FilesBoth(str(tmp_path / "orders"), ROWS)
    made.prepare()
    return made


def commit(sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
    """A window with its dead letters."""
    made, staged = staged_receipt(sink, number, generation, attempt)
    sink.commit_dead(made.plan, attempt, staged)
    return sink.commit(made, staged)


def fresh(sink: Any) -> FilesBoth:
    """As another process has it."""
    return FilesBoth(sink.uri, ROWS)


def test_a_checkpoint_saves_reading(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes to a table reads the newest one, and no entry from before it."""
    for n in range(8):
        commit(sink, n)
    read: list[str] = []
    get = Place.get
    monkeypatch.setattr(Place, "get", lambda place, path: (read.append(path), get(place, path))[1])
    assert fresh(sink).look(window(7)) is not None
    assert {path for path in read if "/log/" in path} == {path_of(n) for n in (6, 7, 8, 9)}


@pytest.mark.parametrize("damage", ["gone", "cut", "changed", "of another log"])
def test_no_checkpoint_is_needed(sink: Any, damage: str) -> None:
    """Lost, damaged, planted: who finds none that is whole reads the entries."""
    for n in range(8):
        commit(sink, n)
    folder = Path(sink.uri) / CHECKPOINTS
    newest = max(folder.iterdir())
    if damage == "gone":
        newest.unlink()
    elif damage == "cut":
        newest.write_bytes(newest.read_bytes()[:100])
    elif damage == "changed":
        newest.write_bytes(newest.read_bytes().replace(b'"generation":0', b'"generation":7'))
    else:
        newest.rename(folder / f"{99:020d}-{newest.name.partition('-')[2]}")
    assert report(fresh(sink), range(8)).ok


def checkpoints(sink: Any) -> list[int]:
    """The entries that there are checkpoints of."""
    return sorted(int(path.name.partition("-")[0]) for path in (Path(sink.uri) / CHECKPOINTS).iterdir())


def test_two_checkpoints_stay(sink: Any) -> None:
    """Who writes one removes those that nobody needs, and leaves later ones alone, which may be another process's."""
    for n in range(5):
        commit(sink, n)
    later = Path(sink.uri) / CHECKPOINTS / f"{99:020d}-x.json"
    later.write_bytes(b"another's")
    for n in range(5, 13):
        commit(sink, n)
    assert checkpoints(sink) == [9, 12, 99]
    assert report(fresh(sink), range(13)).ok


def test_a_checkpoint_that_is_removed_under_a_reader(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has listed it finds the newer ones, and reads no more entries for that."""
    for n in range(3):
        commit(sink, n)
    reader, names, read, get = fresh(sink), Place.names, list[str](), Place.get

    def late(place: Place, folder: str) -> set[str]:
        listed = names(place, folder)
        if folder == CHECKPOINTS and checkpoints(sink) == [3]:
            monkeypatch.undo()
            monkeypatch.setattr(logs, "EVERY", 3)
            for n in range(3, 10):
                commit(sink, n)
            monkeypatch.setattr(Place, "get", lambda place, path: (read.append(path), get(place, path))[1])
        return listed

    monkeypatch.setattr(Place, "names", late)
    assert reader.look(window(9)) is not None
    assert checkpoints(sink) == [6, 9]
    assert {path for path in read if "/log/" in path} == {path_of(n) for n in (9, 10, 11)}


def test_a_removal_that_fails_is_nobodys_failure(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may put and not delete commits all the same."""

    def fail(*_: object) -> None:
        raise UnreachableError("no rights", "setup", "")

    monkeypatch.setattr(Place, "remove", fail)
    for n in range(9):
        assert isinstance(commit(sink, n), Done)
    assert checkpoints(sink) == [3, 6, 9]


@pytest.mark.parametrize("damage", ["gone", "cut", "its receipt changed", "of another type"])
@pytest.mark.parametrize("mended", [False, True])
def test_a_lost_entry_is_put_back(sink: Any, damage: str, mended: bool) -> None:
    """Byte by byte, from a checkpoint and the ledger's copy of its receipt: an audit tells of it, and reads everything afterwards."""
    commit(sink, 0)
    if mended:
        sink.commit(*staged_mending(sink, sink.look(window(0)).receipt, "m"))
    lost = sink.look(window(0))
    text = sink.receipt_text(lost.receipt)
    for n in range(1, 6):
        commit(sink, n)
    path = Path(sink.uri) / path_of(lost.version)
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        changed = {"cut": whole[:-50], "its receipt changed": whole.replace(b'"request"', b'"request!"'),
                   "of another type": whole.replace(b'"attempt":', b'"attempt":[],"_":')}[damage]  # fmt: skip
        path.write_bytes(changed)
    if damage != "its receipt changed":  # what is a receipt still, a checkpoint doesn't tell from the one that was committed
        (unreadable,) = [one for one in fresh(sink).audit().receipts() if isinstance(one, Unreadable)]
        assert unreadable.key == window(0).key
        assert "--restore-receipts" in unreadable.do
    audit = fresh(sink).audit()
    with pytest.raises(RefusedError, match="not the text that its commit named"):
        audit.restore(window(0), text.replace("request", "another"))
    audit.restore(window(0), text, dry_run=True)
    assert not path.exists() or path.read_bytes() != whole
    audit.restore(window(0), text)
    assert path.read_bytes() == whole
    assert report(fresh(sink), range(6)).ok


def test_a_lost_entry_that_brought_columns(sink: Any) -> None:
    """Which columns it named is found out: those that the table had then, not the later ones."""
    import pyarrow as pa

    grown, before = ROWS, sink
    for name in ("more", "and more"):
        grown = grown.append(pa.field(name, pa.string()))
        wide = FilesBoth(before.uri, grown)
        wide.prepare()
        planned = staged_receipt(before, 0 if name == "more" else 1)
        state = FilesLog(sink.uri).look()
        assert state is not None
        FilesLog(sink.uri).put(state, wide._change(state, planned[0], row_files(word for s in planned[1] for word in s.rows)))
    text = sink.receipt_text(sink.look(window(0)).receipt)
    for n in range(2, 6):
        FilesBoth(sink.uri, grown).commit(*staged_receipt(sink, n, dead=False))
    path = Path(sink.uri) / path_of(1)
    whole = path.read_bytes()
    assert b'"more"' in whole
    path.unlink()
    fresh(sink).audit().restore(window(0), text)
    assert path.read_bytes() == whole


def test_what_cannot_be_put_back(sink: Any) -> None:
    """Where an entry beside it is lost too, or no checkpoint stands behind it, that is said, and nothing is written."""
    for n in range(6):
        commit(sink, n)
    texts = [sink.receipt_text(sink.look(window(n)).receipt) for n in range(6)]
    for number in (1, 2):
        (Path(sink.uri) / path_of(number)).unlink()
    audit = fresh(sink).audit()
    with pytest.raises(DamagedError, match="entry 2 of the log"):
        audit.restore(window(0), texts[0])
    with pytest.raises(DamagedError, match="entry 1 of the log"):
        audit.restore(window(1), texts[1])
    with pytest.raises(RefusedError, match="not the text"):
        audit.restore(window(5), texts[4])
    for checkpoint in (Path(sink.uri) / CHECKPOINTS).iterdir():
        checkpoint.unlink()
    with pytest.raises(DamagedError, match=r"entry 1 of the log.*backup"):
        audit.restore(window(0), texts[0])


def test_folders_of_the_log_follow_each_other(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand entries to a folder, here four: who lists them goes from one to the next."""
    from windrow.ingest.sinks.files import entry

    monkeypatch.setattr(entry, "_PER_FOLDER", 4)
    for n in range(10):
        commit(sink, n)
    assert len(list((Path(sink.uri) / "_windrow" / "log").iterdir())) == 3
    assert report(fresh(sink), range(10)).ok


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_an_entry_that_cannot_be_gone_by_stops_all(sink: Any, damage: str) -> None:
    """One that is gone in the middle, cut short or changed: every look says which file, and nothing is committed on top of it."""
    commit(sink, 0)
    commit(sink, 1)
    path = Path(sink.uri) / path_of(1)
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:-50] if damage == "cut" else whole.replace(b'"rows":9', b'"rows":8', 1))
    other = fresh(sink)
    made, staged = staged_receipt(other, 2)
    for ask in (lambda: other.look(window(0)), lambda: list(other.receipts()), lambda: other.commit(made, staged)):
        with pytest.raises(DamagedError, match="backup"):
            ask()
    path.write_bytes(whole)
    assert isinstance(other.commit(made, staged), Done)


def test_a_receipt_behind_a_checkpoint_that_is_damaged(sink: Any) -> None:
    """The table is known from the checkpoint, so an audit tells that one window's receipt and goes on; whoever needs it is refused."""
    for n in range(4):
        commit(sink, n)
    (Path(sink.uri) / path_of(2)).write_bytes(b"\0" * 100)
    found = list(fresh(sink).audit().receipts())
    assert [type(one) is Unreadable for one in found] == [False, True, False, False]
    with pytest.raises(DamagedError):
        fresh(sink).look(window(1))
    assert fresh(sink).look(window(3)) is not None


def test_a_table_made_anew_is_another_one(sink: Any, tmp_path: Path) -> None:
    """Removed and begun again under a process that has looked at it: the process doesn't read on in a table that isn't there."""
    for n in range(3):
        commit(sink, n)
    Path(sink.uri).rename(tmp_path / "away")
    again = FilesBoth(sink.uri, ROWS)
    again.prepare()
    for n in range(5):
        commit(again, n)
    assert sink.look(window(4)) == again.look(window(4))
    Path(sink.uri).rename(tmp_path / "away too")
    made, staged = staged_receipt(sink, 5)
    with pytest.raises(RefusedError, match="isn't there any more"):
        sink.commit(made, staged)


def test_a_later_form_is_not_read(sink: Any) -> None:
    """An entry of a windrow to come says that this one has to be updated."""
    path = Path(sink.uri) / path_of(0)
    path.write_bytes(path.read_bytes().replace(b'"windrow":1', b'"windrow":2'))
    with pytest.raises(DamagedError, match="update"):
        fresh(sink).look(window(0))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails(sink: Any, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """One that is full is told as that, for nothing can have arrived; another failure leaves the outcome open. Both can be run again."""

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    made, staged = staged_receipt(sink, 0)
    sink.commit_dead(made.plan, "a1", staged)
    with monkeypatch.context() as patch:
        patch.setattr(Place, "put_new", fail)
        if code == errno.ENOSPC:
            with pytest.raises(UnreachableError, match="no room"):
                sink.commit(made, staged)
        else:
            assert isinstance(sink.commit(made, staged), Unknown)
    assert isinstance(sink.commit(made, staged), Done)
    assert report(sink, range(1)).ok


def test_a_disk_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the table is begun: no commit there could be exactly once."""

    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", fail)
    with pytest.raises(SpecError, match="exactly once"):
        FilesBoth(str(tmp_path / "orders"), ROWS).prepare()


def test_a_table_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """A Delta table's folder is not made one of files."""
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    (tmp_path / "orders" / "_delta_log" / f"{0:020d}.json").write_text("{}")
    with pytest.raises(SpecError, match="another kind"):
        FilesBoth(str(tmp_path / "orders"), ROWS).prepare()


def test_its_folder_is_not_made_one_of_another_kind(sink: Any) -> None:
    """Nor is a folder of files made a Delta table: its sweep would remove files that its own log doesn't name."""
    with pytest.raises(SpecError, match="another kind"):
        DeltaBoth(sink.uri, ROWS).prepare()
    assert not (Path(sink.uri) / "_delta_log").exists()


COLUMNS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["int64", "string"]), st.booleans()), unique_by=lambda c: c[0])


@given(COLUMNS, COLUMNS)
def test_columns_only_grow(table: list[Any], wanted: list[Any]) -> None:
    """Whatever is taken has the table's columns as they were, and all of the wanted ones; what is new may be null."""
    try:
        after = columns_after(table, wanted, "parquet", "t")
    except SchemaChangedError:
        return
    assert after[: len(table)] == tuple(table)
    assert {*after} == {*table} | {*wanted}
    assert all(nullable for _, _, nullable in after[len(table) :])
    assert columns_after(after, wanted, "parquet", "t") == after


def test_new_columns_come_with_their_first_rows(sink: Any) -> None:
    """A schema that grew is told before, taken with the commit that brings rows of it, and older files are read back as they are."""
    import pyarrow as pa

    commit(sink, 0)
    grown = FilesBoth(sink.uri, ROWS.append(pa.field("more", pa.string())))
    assert grown.columns_to_come() == ["more (string)"]
    grown.prepare()
    state = FilesLog(sink.uri).look()
    assert state is not None
    assert "more" not in [name for name, *_ in state.columns]
    with pytest.raises(SchemaChangedError, match="amount: int64 in the table, string in the schema"):
        FilesBoth(sink.uri, pa.schema([ROWS.field("id"), pa.field("amount", pa.string())])).prepare()
    assert report(sink, range(1)).ok


def test_an_entry_is_for_people_too(sink: Any) -> None:
    """JSON on one line, with the window's files and its receipt in the open."""
    commit(sink, 0)
    (line,) = (Path(sink.uri) / path_of(1)).read_text().splitlines()
    entry = json.loads(line)["entry"]
    assert (entry["kind"], entry["receipt"]["counts"]["rows"], [f["rows"] for f in entry["files"]]) == ("window", 18, [9, 9])


def test_who_comes_with_another_binding_is_refused_before_anything(sink: Any) -> None:
    """Also where the table was begun by the other side while this one was about to."""
    with pytest.raises(RefusedError, match="returns"):
        FilesBoth(sink.uri, ROWS).prepare(Binding("returns", BINDING.ledger, BINDING.grid))
