"""The log of a table of files: missing, damaged, foreign or new manifests are noticed, and only
the newest is read.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sinks.files.world import FilesBoth, report
from tests.sinks.with_dead_letters import DeltaBoth
from windrow.ingest.errors import (
    DamagedError,
    RefusedError,
    SchemaChangedError,
    SpecError,
    UnreachableError,
)
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.ports.sink import AlreadyDone, Done, Unknown
from windrow.ingest.sinks.files import manifest
from windrow.ingest.sinks.files.manifest import path_of
from windrow.ingest.sinks.kit.columns.schema_evolution import Evolution
from windrow.ingest.sinks.kit.commit import pages
from windrow.ingest.sinks.kit.files import put_if_absent
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.testing.contracts.commit_hooks import run_between
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window
from windrow.ingest.testing.contracts.with_dead_letters import OWNER

pytestmark = pytest.mark.slow  # its dead letters are a Delta table


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A prepared sink, with four manifests to a folder."""
    monkeypatch.setattr(manifest, "PER_FOLDER", 4)
    monkeypatch.setattr(put_if_absent.PutIfAbsent, "waits", (0.0, 0.0))
    sink = FilesBoth(str(tmp_path / "orders"), ROWS)
    sink.prepare()
    return sink


def commit(sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
    """Commits a window and its dead letters."""
    receipt, staged = staged_receipt(sink, number, generation, attempt)
    sink.commit_dead(receipt.plan, attempt, staged)
    return sink.commit(receipt, staged)


def fresh(sink: Any) -> FilesBoth:
    """Returns the sink of another process, without cached state."""
    return FilesBoth(sink.uri, ROWS)


def test_who_opens_a_table_reads_its_newest_manifest(
    sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a table reads only its newest two manifests, however many windows there are."""
    for n in range(10):
        commit(sink, n)
    assert len(list((Path(sink.uri) / "_windrow" / "log").iterdir())) == 3
    read: list[str] = []
    get = Place.get
    monkeypatch.setattr(
        Place, "get", lambda location, path: (read.append(path), get(location, path))[1]
    )
    assert fresh(sink).look(window(7)) is not None
    assert {path for path in read if "/log/" in path} == {path_of(n) for n in (9, 10, 11)}
    monkeypatch.undo()
    monkeypatch.setattr(manifest, "PER_FOLDER", 4)
    assert report(fresh(sink), range(10)).ok
    (Path(sink.uri) / path_of(2)).write_bytes(b"rubbish")
    assert report(fresh(sink), range(10)).ok


@pytest.mark.parametrize("folder", [0, 1])
def test_older_folders_may_be_gone(sink: Any, folder: int) -> None:
    """Old folders of manifests may be deleted: no window is forgotten, and no file is swept."""
    for n in range(10):
        commit(sink, n)
    for path in (Path(sink.uri) / "_windrow" / "log" / f"{folder:010d}").iterdir():
        path.unlink()
    fresh_sink = fresh(sink)
    assert report(fresh_sink, range(10)).ok
    assert isinstance(
        fresh_sink.commit(*staged_receipt(fresh_sink, 2, 0, "again", dead=False)), AlreadyDone
    )


def test_what_is_no_manifest_is_passed_over(sink: Any) -> None:
    """Other files in the log's folder, such as a copy or a note, are ignored."""
    commit(sink, 0)
    for name in ("notes.json", "copy of 5.json"):
        (Path(sink.uri) / "_windrow" / "log" / "0000000000" / name).write_text("{}")
    assert report(fresh(sink), range(1)).ok


def test_a_table_made_anew_between_look_and_put(sink: Any, tmp_path: Path) -> None:
    """A commit to a table that was made again between look and put raises DamagedError, which
    names the file to remove.
    """

    def anew() -> None:
        Path(sink.uri).rename(tmp_path / "away")
        FilesBoth(sink.uri, ROWS).prepare()

    commit(sink, 0)
    receipt, staged = staged_receipt(sink, 1, dead=False)
    run_between(sink, anew)
    with pytest.raises(DamagedError, match=rf"{path_of(2)}.*remove what that run left"):
        sink.commit(receipt, staged)


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_manifest_that_cannot_be_gone_by_stops_all(sink: Any, damage: str) -> None:
    """A manifest that is gone in the middle, cut short or changed fails every look with its
    path, and stops commits.
    """
    commit(sink, 0)
    commit(sink, 1)
    path = Path(sink.uri) / path_of(1)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            content[:-50] if damage == "cut" else content.replace(b'"parquet"', b'"csv"')
        )
    fresh_sink = fresh(sink)
    receipt, staged = staged_receipt(fresh_sink, 2)
    for ask in (
        lambda: fresh_sink.look(window(0)),
        lambda: list(fresh_sink.receipts()),
        lambda: fresh_sink.commit(receipt, staged),
    ):
        with pytest.raises(DamagedError, match="backup"):
            ask()
    path.write_bytes(content)
    assert isinstance(fresh_sink.commit(receipt, staged), Done)


def test_a_table_made_anew_is_another_one(sink: Any, tmp_path: Path) -> None:
    """A process that knows a table notices that it was deleted and made again."""
    for n in range(3):
        commit(sink, n)
    Path(sink.uri).rename(tmp_path / "away")
    new_sink = FilesBoth(sink.uri, ROWS)
    new_sink.prepare()
    for n in range(5):
        commit(new_sink, n)
    assert sink.look(window(4)) == new_sink.look(window(4))
    Path(sink.uri).rename(tmp_path / "away too")
    receipt, staged = staged_receipt(sink, 5)
    with pytest.raises(DamagedError, match="is gone, and files of rows are left"):
        sink.commit(receipt, staged)


def test_a_table_that_is_made_during_a_look_is_no_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that another run makes during a look doesn't count as lost.

    1. The look finds no log.
    2. The other run makes the table and commits.
    3. The look lists the data folder.
    """
    uri = str(tmp_path / "t")
    looking_sink, creating_sink = FilesBoth(uri, ROWS), FilesBoth(uri, ROWS)

    looked = Place.folders

    def create_then_list(self: Place, folder: str) -> set[str]:
        if folder == "data":
            monkeypatch.undo()
            creating_sink.prepare()
            commit(creating_sink, 0)
        return looked(self, folder)

    monkeypatch.setattr(Place, "folders", create_then_list)
    assert looking_sink.look(window(0)) == creating_sink.look(window(0)) is not None


def test_a_later_form_is_not_read(sink: Any) -> None:
    """A manifest of another form raises SpecError, not DamagedError."""
    path = Path(sink.uri) / path_of(0)
    content = path.read_bytes()
    for form, message in ((5, "a later one"), (3, "an older one")):
        path.write_bytes(content.replace(b'"windrow":4', b'"windrow":%d' % form))
        with pytest.raises(SpecError, match=message):
            fresh(sink).look(window(0))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails(sink: Any, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A full disk raises UnreachableError, because nothing can have arrived.

    Another disk error leaves the outcome unknown. The commit can be run again after both.
    """

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    receipt, staged = staged_receipt(sink, 0)
    sink.commit_dead(receipt.plan, "a1", staged)
    with monkeypatch.context() as patch:
        patch.setattr(sink.store.puts, "put", fail)
        if code == errno.ENOSPC:
            with pytest.raises(UnreachableError, match="no room"):
                sink.commit(receipt, staged)
        else:
            assert isinstance(sink.commit(receipt, staged), Unknown)
    assert isinstance(sink.commit(receipt, staged), Done)
    assert report(sink, range(1)).ok


def test_a_disk_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk without hard links is refused before the table is begun: no commit there could be
    exactly once.
    """

    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", fail)
    with pytest.raises(SpecError, match="exactly once"):
        FilesBoth(str(tmp_path / "orders"), ROWS).prepare()


def test_a_table_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """A Delta table's folder doesn't become a table of files."""
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    (tmp_path / "orders" / "_delta_log" / f"{0:020d}.json").write_text("{}")
    with pytest.raises(SpecError, match="another kind"):
        FilesBoth(str(tmp_path / "orders"), ROWS).prepare()


def test_its_folder_is_not_made_one_of_another_kind(sink: Any) -> None:
    """A folder of files doesn't become a Delta table: its sweep would remove files that its own
    log doesn't name.
    """
    with pytest.raises(SpecError, match="another kind"):
        DeltaBoth(sink.uri, ROWS).prepare()
    assert not (Path(sink.uri) / "_delta_log").exists()


COLUMNS = st.lists(
    st.builds(
        pa.field, st.sampled_from("abcd"), st.sampled_from([pa.int64(), pa.string()]), st.booleans()
    ),
    unique_by=lambda field: field.name,
).map(pa.schema)


@given(COLUMNS, COLUMNS)
def test_columns_only_grow(table: pa.Schema, new_columns: pa.Schema) -> None:
    """An accepted schema keeps the table's columns and adds all wanted ones, which are nullable."""
    try:
        evolved = Evolution.compare_added(table, new_columns, "t").columns
    except SchemaChangedError:
        return
    assert list(evolved)[: len(table)] == list(table)
    assert {*evolved} == {*table} | {*new_columns}
    assert all(field.nullable for field in list(evolved)[len(table) :])
    assert not Evolution.compare_added(evolved, new_columns, "t").changes


def struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("table_type", "schema_type", "message"),
    [
        (
            struct(a=pa.int64(), b=pa.list_(struct(c=pa.decimal128(10, 2)))),
            struct(a=pa.int64(), b=pa.list_(struct(c=pa.string()))),
            "x: at x.b[].c: decimal128(10, 2) in the table, string in the schema",
        ),
        (
            struct(a=pa.int64()),
            pa.struct([("a", pa.int64()), pa.field("at", pa.date32(), nullable=False)]),
            "x: at x.at: nothing in the table, date32[day] not null in the schema",
        ),
        (
            pa.struct([("a", pa.int32()), ("a", pa.string())]),
            pa.struct([("a", pa.float32()), ("a", pa.string())]),
            (
                "x: struct<a: int32, a: string> in the table,"
                " struct<a: float, a: string> in the schema"
            ),
        ),
        (
            pa.list_(pa.int64()),
            pa.int64(),
            "x: list<item: int64> in the table, int64 in the schema",
        ),
    ],
)
def test_a_nested_change_is_told_by_its_place(
    table_type: pa.DataType, schema_type: pa.DataType, message: str
) -> None:
    """The error has the path inside the column, and both types there."""
    with pytest.raises(SchemaChangedError) as refused:
        Evolution.compare_added(
            pa.schema([("x", table_type)]), pa.schema([("x", schema_type)]), "t"
        )
    assert refused.value.message == f"the columns of the table t are not the schema's: {message}"


def test_new_columns_come_with_their_first_rows(sink: Any) -> None:
    """A new column is announced before, added by the first commit with its rows, and older
    files are read unchanged.
    """
    commit(sink, 0)
    grown = FilesBoth(sink.uri, ROWS.append(pa.field("more", pa.string())))
    assert grown.columns_to_come() == ("more (string)",)
    grown.prepare()
    assert "more" not in sink.store.look().manifest.schema.names
    with pytest.raises(
        SchemaChangedError, match="amount: int64 in the table, string in the schema"
    ):
        FilesBoth(
            sink.uri, pa.schema([ROWS.field("id"), pa.field("amount", pa.string())])
        ).prepare()
    assert report(sink, range(1)).ok


def test_the_log_is_for_people_too(sink: Any) -> None:
    """A manifest is one line of JSON that names a page.

    The page has the window's files and offsets, and names the receipt's file.
    """
    commit(sink, 0)
    (line,) = (Path(sink.uri) / path_of(1)).read_text().splitlines()
    page = json.loads((Path(sink.uri) / pages.path_of(json.loads(line)["page"])).read_text())
    generation, digest, number, files = page["windows"][window(0).key]
    assert (generation, number, [f["rows"] for f in files]) == (0, 1, [9, 9])
    assert [edges for _, _, edges in page["ranges"]] == [[0, 10], [0, 10]]
    (path,) = (Path(sink.uri) / "_windrow" / "receipts").iterdir()
    assert digest in path.name
    assert json.loads(path.read_text())["counts"]["rows"] == 18


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_page_that_is_lost_stops_all(sink: Any, damage: str) -> None:
    """A lost page stops every look and commit, because it is unknown which files count.

    With the page back, all work again.
    """
    commit(sink, 0)
    (path,) = (Path(sink.uri) / pages.PAGES).iterdir()
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[:-50])
    fresh_sink = fresh(sink)
    receipt, staged = staged_receipt(fresh_sink, 2)
    for ask in (lambda: fresh_sink.look(window(0)), lambda: fresh_sink.commit(receipt, staged)):
        with pytest.raises(DamagedError, match="_windrow/pages") as raised:
            ask()
        assert "from a backup" in raised.value.advice
    assert not fresh_sink.audit().lost_at
    path.write_bytes(content)
    assert isinstance(fresh_sink.commit(receipt, staged), Done)


def test_who_comes_with_another_binding_is_refused_before_anything(sink: Any) -> None:
    """Another owner's `prepare` is refused."""
    with pytest.raises(RefusedError, match="returns"):
        FilesBoth(sink.uri, ROWS).prepare(TableOwner("returns", OWNER.ledger, OWNER.grid))
