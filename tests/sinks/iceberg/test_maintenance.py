"""Maintenance of an Iceberg table by other programs: expiry, compaction, rollback, branches,
deletes, partitions, foreign rows, and a sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import IdentityTransform

from tests.sinks.iceberg.world import (
    IcebergBoth,
    folder_of,
    pieces,
    sink_at,
    state_of,
)
from tests.sinks.kit.commit.test_sweep import age_files, dying
from windrow.ingest.admin.verify_contents import sum_by_split
from windrow.ingest.errors import (
    DamagedError,
    RefusedError,
    SchemaChangedError,
    SpecError,
    UnreachableError,
)
from windrow.ingest.ports.sink import AlreadyDone, Done, Maintained, Maintenance
from windrow.ingest.schema.metadata_types import TYPES
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.catalogs import open_catalog
from windrow.ingest.sinks.iceberg.commit import Prepared
from windrow.ingest.sinks.iceberg.contents import read_files
from windrow.ingest.sinks.iceberg.snapshots import IcebergSnapshots
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    plan,
    receipt,
    staged_dead_replay,
    staged_receipt,
    window,
)

pytestmark = pytest.mark.slow

GRACE = timedelta(hours=2)


@pytest.fixture
def sink(tmp_path: Path) -> Any:
    """A table with two windows."""
    sink = sink_at(str(tmp_path))
    sink.prepare()
    for number in (0, 1):
        commit(sink, number)
    return sink


def commit(sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
    window_receipt, staged = staged_receipt(sink, number, generation, attempt)
    sink.commit_dead(window_receipt.plan, attempt, staged)
    return sink.commit(window_receipt, staged)


def table(sink: Any) -> Any:
    """Returns the table as a PyIceberg table."""
    return state_of(sink).table


def expire_all(sink: Any) -> None:
    """Expires every snapshot except the newest."""
    about = table(sink)
    newest = about.current_snapshot().snapshot_id
    about.maintenance.expire_snapshots().by_ids(
        [s.snapshot_id for s in about.snapshots() if s.snapshot_id != newest]
    ).commit()


def rewrite(sink: Any) -> None:
    """Rewrites all rows as another engine does, in one snapshot without windrow's properties."""
    about = table(sink)
    about.overwrite(about.scan().to_arrow())


def ids(sink: Any) -> list[str]:
    return sorted(i for piece in pieces(sink) for i in piece["id"].to_pylist())


def is_complete(sink: Any, number: int) -> bool:
    """Returns whether a window's rows have the checksums of its receipt."""
    committed = sink.look(window(number)).receipt
    back = sum_by_split(committed.splits, sink.audit().contents(window(number)), sink.metadata)
    return back.checksums == tuple(s.checksums.rows for s in committed.splits)


@pytest.mark.parametrize(
    "maintain",
    [
        expire_all,
        rewrite,
        lambda s: (rewrite(s), expire_all(s)),
        lambda s: (expire_all(s), rewrite(s), expire_all(s)),
    ],
)
def test_what_was_committed_stays_so(sink: Any, maintain: Callable[[Any], object]) -> None:
    """After expiry or compaction, receipts and checksums are unchanged, a rerun skips, and new
    commits work.
    """
    committed = list(sink.receipts())
    maintain(sink)
    fresh = sink_at(sink.catalog_table.warehouse)
    assert list(fresh.receipts()) == committed
    assert isinstance(commit(fresh, 0, attempt="again"), AlreadyDone)
    assert is_complete(fresh, 0)
    assert isinstance(commit(fresh, 0, 1, "b1"), Done)
    assert isinstance(commit(fresh, 2), Done)
    assert is_complete(fresh, 0)
    assert len(ids(fresh)) == len(set(ids(fresh))) == 54


def test_a_rollback_takes_rows_and_receipts_back_together(sink: Any) -> None:
    """A rollback takes rows and receipts back together: the window that it removed can be run
    again.

    The table's size is the size after the rollback.
    """
    assert (sink.size()[0], sink.size()[1] > 1000) == (36, True)
    first = sink.look(window(0)).version
    table(sink).manage_snapshots().set_current_snapshot(first).commit()
    fresh = sink_at(sink.catalog_table.warehouse)
    assert [c.receipt.window for c in fresh.receipts()] == [window(0)]
    assert fresh.size()[0] == 18
    assert isinstance(commit(fresh, 1, attempt="b1"), Done)
    assert len(ids(fresh)) == len(set(ids(fresh))) == 36
    assert list(fresh.audit().receipts()) == list(fresh.receipts())


@pytest.mark.parametrize(
    "maintain",
    [lambda s: (rewrite(s), expire_all(s)), lambda s: (rewrite(s), rewrite(s), expire_all(s))],
)
def test_a_rollback_outlives_compaction_and_expiry(
    sink: Any, maintain: Callable[[Any], object]
) -> None:
    """A rollback stays known after compaction and expiry, when no snapshot of windrow's is
    left.

    The table's property then still names the window that was taken back.
    """
    table(sink).manage_snapshots().set_current_snapshot(sink.look(window(0)).version).commit()
    maintain(sink)
    fresh = sink_at(sink.catalog_table.warehouse)
    assert [c.receipt.window for c in fresh.receipts()] == [window(0)]
    assert fresh.look(window(1)) is None
    staged_receipt(fresh, 3, attempt="died")
    age_files(fresh)
    assert fresh.sweep(GRACE)
    assert [c.receipt.window for c in fresh.receipts()] == [window(0)]
    assert isinstance(commit(fresh, 1, attempt="b1"), Done)
    assert isinstance(commit(fresh, 0, attempt="again"), AlreadyDone)
    assert len(ids(fresh)) == len(set(ids(fresh))) == 36


def test_a_rollback_to_a_snapshot_of_others(tmp_path: Path) -> None:
    """After a rollback to a snapshot before windrow's first one nothing is committed, not even
    a window without rows.
    """
    sink = sink_at(str(tmp_path))
    sink.prepare()
    table(sink).append(table(sink).scan().to_arrow())
    others = table(sink).current_snapshot().snapshot_id
    empty = receipt(plan(sink, 0, (0, 0)), [], 0, "a1")
    assert isinstance(sink.commit(empty, []), Done)
    table(sink).manage_snapshots().set_current_snapshot(others).commit()
    fresh = sink_at(sink.catalog_table.warehouse)
    assert list(fresh.receipts()) == []
    assert isinstance(fresh.commit(empty, []), Done)


def test_windows_that_others_deleted_were_not_rolled_back(sink: Any) -> None:
    """Windows whose rows the owner deleted stay committed, also when no snapshot of windrow's
    is left.
    """
    table(sink).delete(f"_window = '{window(0).key}'")
    rewrite(sink)
    expire_all(sink)
    fresh = sink_at(sink.catalog_table.warehouse)
    assert [c.receipt.window for c in fresh.receipts()] == [window(0), window(1)]
    assert isinstance(commit(fresh, 0, attempt="again"), AlreadyDone)
    assert len(ids(fresh)) == 18


def test_a_newest_window_without_rows_was_not_rolled_back(sink: Any) -> None:
    """A newest window without rows stays committed, though no snapshot of windrow's and no row
    shows it.
    """
    empty = receipt(plan(sink, 2, (2 * PER_WINDOW, 2 * PER_WINDOW)), [], 0, "a1")
    assert isinstance(sink.commit(empty, []), Done)
    rewrite(sink)
    expire_all(sink)
    fresh = sink_at(sink.catalog_table.warehouse)
    assert [c.receipt.window for c in fresh.receipts()] == [window(n) for n in (0, 1, 2)]
    assert isinstance(fresh.commit(empty, []), AlreadyDone)


def test_a_size_is_told_without_reading_rows(sink: Any) -> None:
    """Rows and bytes come from the newest snapshot's summary, also after other programs'
    commits.
    """
    files = [task.file for task in state_of(sink).tasks()]
    assert sink.size() == (36, sum(file.file_size_in_bytes for file in files))
    rewrite(sink)
    for file in folder_of(sink).rglob("*.parquet"):
        file.unlink()
    assert sink.size()[0] == 36
    other_sink = IcebergBoth(
        CatalogTable.in_folder(sink.catalog_table.warehouse, "shop.other"), ROWS
    )
    assert other_sink.size() is None
    other_sink.prepare()
    assert other_sink.size() == (0, 0)


def test_dead_letters_that_a_rollback_took_back_are_brought_again(sink: Any) -> None:
    """Dead letters that a rollback removed are brought again: a retry doesn't trust the note of
    its attempt.
    """
    about = table(sink.dead_letters)
    about.manage_snapshots().set_current_snapshot(about.snapshots()[0].snapshot_id).commit()
    about = table(sink.dead_letters)
    about.overwrite(about.scan().to_arrow())
    about = table(sink.dead_letters)
    newest = about.current_snapshot().snapshot_id
    about.maintenance.expire_snapshots().by_ids(
        [s.snapshot_id for s in about.snapshots() if s.snapshot_id != newest]
    ).commit()
    fresh = sink_at(sink.catalog_table.warehouse)
    assert fresh.dead_letters.count(window(1), "a1") == 0
    commit(fresh, 1)
    assert fresh.dead_letters.count(window(1), "a1") == 2


def test_a_branch_of_others_is_left_alone(sink: Any) -> None:
    """Rows on a branch don't count for windows of main.

    A sweep keeps files that only a branch or a tag names.
    """
    about = table(sink)
    about.manage_snapshots().create_branch(about.current_snapshot().snapshot_id, "try").commit()
    rows = about.scan().to_arrow().slice(0, 1)
    column_index = rows.schema.get_field_index("_window")
    tried = rows.set_column(
        column_index, rows.schema.field(column_index), pa.array([window(5).key])
    )
    table(sink).append(tried, branch="try")
    about = table(sink)
    about.manage_snapshots().create_tag(about.current_snapshot().snapshot_id, "kept").commit()
    assert isinstance(commit(sink, 0, 1, "b1"), Done)
    age_files(sink)
    assert sink.sweep(GRACE) == []
    assert sink.audit().windows() == {c.receipt.window.key for c in sink.receipts()}
    assert isinstance(commit(sink, 5), Done)
    assert (
        table(sink)
        .scan(snapshot_id=table(sink).snapshot_by_name("kept").snapshot_id)
        .to_arrow()
        .num_rows
        == 36
    )


def test_rows_that_others_append_are_told(sink: Any) -> None:
    """A window that isn't committed, but has rows of another program, is refused, and an audit
    names it.
    """
    about = table(sink)
    rows = about.scan().to_arrow().slice(0, 1)
    column_index = rows.schema.get_field_index("_window")
    about.append(
        rows.set_column(column_index, rows.schema.field(column_index), pa.array([window(5).key]))
    )
    window_receipt, staged = staged_receipt(sink, 5)
    with pytest.raises(RefusedError, match="no commit of windrow brought"):
        sink.commit(window_receipt, staged)
    assert sink.audit().windows() == {window(n).key for n in (0, 1, 5)}
    assert len(ids(sink)) == 37


def test_rows_that_others_deleted_are_missed(sink: Any) -> None:
    """Verification reads and counts the rows that are left."""
    table(sink).delete("id = '0-0'")
    row_ranges = sink.audit().rows_held(window(0))
    assert [(h.rows, h.lowest) for h in row_ranges] == [(8, 1), (9, 0)]
    assert not is_complete(sink, 0)
    assert isinstance(commit(sink, 0, 1, "b1"), Done)
    assert is_complete(sink, 0)


class _Deletes(ManifestWriterV2):
    """A writer of a manifest of deletes, which PyIceberg can only read."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def delete(sink: Any, rows: pa.Table, **options: Any) -> None:
    """Adds a file of deletes, as merge-on-read of another engine does."""
    task, *_ = state_of(sink).tasks(window(0).key if sink.store.primary_key is None else None)
    delete_path = folder_of(sink) / "deletes.parquet"
    pq.write_table(rows, delete_path)
    deletes = DataFile.from_args(
        file_path=f"file://{delete_path}",
        file_format=FileFormat.PARQUET,
        partition=task.file.partition,
        record_count=rows.num_rows,
        file_size_in_bytes=delete_path.stat().st_size,
        spec_id=0,
        **options,
    )
    with table(sink).transaction() as change, change.update_snapshot().fast_append() as added:
        about = change.table_metadata
        added.new_manifest_writer = lambda spec: _Deletes(
            spec, about.schema(), added.new_manifest_output(), added.snapshot_id, "deflate"
        )
        added.append_data_file(deletes)


def test_rows_that_another_engine_marks_as_deleted(sink: Any) -> None:
    """Position deletes are applied to reads of all and of some columns.

    A size that would count the deleted rows isn't given.
    """
    task, *_ = state_of(sink).tasks(window(0).key)
    delete_columns = {"file_path": [task.file.file_path] * 2, "pos": pa.array([0, 2], pa.int64())}
    delete(sink, pa.table(delete_columns), content=DataFileContent.POSITION_DELETES)
    assert [h.rows for h in sink.audit().rows_held(window(0))] == [7, 9]
    assert len(ids(sink)) == 34
    state = state_of(sink)
    assert {
        name
        for batch in read_files(state.table, state.tasks(window(0).key), ["id", "_offset"])
        for name in batch.schema.names
    } == {"id", "_offset"}
    assert sink.size() is None


def test_rows_that_another_engine_deletes_by_equality(sink: Any) -> None:
    """A lookup table with equality deletes is refused before anything is read.

    Once all rows are newer than the deletes, for example after a rewrite, it is read.
    """
    snapshots = IcebergSnapshots(sink.catalog_table)
    assert snapshots.newest() == str(table(sink).current_snapshot().snapshot_id)
    options = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1]}
    delete(sink, pa.table({"id": ["0-0"]}), **options)
    for ask in (snapshots.newest, snapshots.schema):
        with pytest.raises(UnreachableError, match="some are deleted by equality deletes"):
            ask()
    table(sink).overwrite(table(sink).scan(snapshot_id=_first(sink)).to_arrow())
    names = next(iter(snapshots.read(snapshots.newest(), ["id"]))).schema.names
    assert names == ["id"]


def _first(sink: Any) -> int:
    return int(table(sink).snapshots()[1].snapshot_id)


def test_odd_names_survive_a_rewrite(tmp_path: Path) -> None:
    """Metadata columns with quotes, slashes and non-ASCII letters survive a rewrite, in which
    another engine spells them differently.
    """
    names = {name: f'kafka "{name}" größe/日本' for name in TYPES}
    sink = IcebergBoth(CatalogTable.in_folder(str(tmp_path), "a.b"), ROWS, names)
    sink.prepare()
    assert isinstance(commit(sink, 0), Done)
    rewrite(sink)
    assert is_complete(sink, 0)
    assert [(h.rows, h.offsets) for h in sink.audit().rows_held(window(0))] == [(9, 9)] * 2
    assert isinstance(commit(sink, 0, 1, "b1"), Done)
    assert is_complete(sink, 0)


def test_other_partitions_are_refused(sink: Any) -> None:
    """A table with other partitions is refused before anything is written, because rows
    wouldn't be stored by window.
    """
    window_receipt, staged = staged_receipt(sink, 2)
    spec: UpdateSpec = table(sink).update_spec()
    spec.add_field("_topic", IdentityTransform(), "by_topic").commit()
    fresh = sink_at(sink.catalog_table.warehouse)
    for ask in (
        fresh.prepare,
        lambda: fresh.look(window(0)),
        lambda: fresh.commit(window_receipt, staged),
    ):
        with pytest.raises(SchemaChangedError, match="partitioned by _window, _topic"):
            ask()


def test_a_table_of_others_is_refused(tmp_path: Path) -> None:
    """A table that windrow didn't make is refused, and doesn't change."""
    sink = sink_at(str(tmp_path))
    sink.prepare()
    table(sink).transaction().remove_properties("windrow.pipeline").commit_transaction()
    old_metadata = (
        open_catalog(sink.catalog_table).load_table(sink.catalog_table.table).metadata_location
    )
    with pytest.raises(
        SpecError, match=r"not made by windrow: its property 'windrow\.pipeline' is missing"
    ):
        sink.prepare()
    assert (
        open_catalog(sink.catalog_table).load_table(sink.catalog_table.table).metadata_location
        == old_metadata
    )


def test_a_table_of_another_form_is_refused(tmp_path: Path) -> None:
    """A table of an older form is refused: its receipts aren't read, and it doesn't count as
    empty.
    """
    sink = sink_at(str(tmp_path))
    sink.prepare()
    table(sink).transaction().remove_properties("windrow.form").commit_transaction()
    for look in (sink.prepare, lambda: sink.look(window(0))):
        with pytest.raises(SpecError, match="in form 1; this one knows form 2"):
            look()


@pytest.mark.parametrize("damage", [b"", b"Obj\x01\x0e", b"\0" * 100])
def test_a_damaged_manifest_is_told(sink: Any, damage: bytes) -> None:
    """A damaged manifest raises UnreachableError, whatever error PyIceberg raises."""
    for manifest in (folder_of(sink) / "metadata").glob("*-m0.avro"):
        manifest.write_bytes(damage)
    with pytest.raises(UnreachableError, match=r"manifests of the table .* can't be read"):
        sink.audit().windows()


def test_a_lost_page_stops_everything(sink: Any) -> None:
    """A lost page stops every look and commit until it is back, because it is unknown which
    windows are committed.
    """
    (page,) = Path(sink.catalog_table.warehouse).glob(
        "shop/orders/_windrow/pages/"
        + table(sink).current_snapshot().summary["windrow.page"]
        + ".json"
    )
    content = page.read_bytes()
    for damaged in (b"", content[:-5], content.replace(b"a", b"b")):
        page.write_bytes(damaged)
        with pytest.raises(DamagedError, match="page"):
            sink_at(sink.catalog_table.warehouse).look(window(0))
    page.unlink()
    with pytest.raises(DamagedError, match="missing"):
        commit(sink_at(sink.catalog_table.warehouse), 7)
    page.write_bytes(content)
    assert len(list(sink_at(sink.catalog_table.warehouse).receipts())) == 2


def test_what_was_given_up_stays_so_after_expiry(sink: Any) -> None:
    """Files that a sweep gave up stay given up.

    1. A sweep gives files up, and dies.
    2. Every snapshot that names them expires.
    3. A run that commits them is refused, though the files exist.
    """
    window_receipt, staged = staged_receipt(sink, 2, attempt="late")
    age_files(sink)
    with dying(sink.store):
        sink.sweep(GRACE)
    expire_all(sink)
    rewrite(sink)
    expire_all(sink)
    with pytest.raises(RefusedError, match="2 of 2 staged files were given up by windrow maintain"):
        sink.commit(window_receipt, staged)
    assert any("late" in path for path in sink.sweep(GRACE))


def test_a_dead_replay_after_a_rewrite(sink: Any) -> None:
    """Dead letters of a window are replayed after another engine has rewritten its rows."""
    rewrite(sink)
    window_receipt, staged = staged_dead_replay(sink, sink.look(window(0)).receipt, "m1")
    assert isinstance(sink.commit(window_receipt, staged), Done)
    assert is_complete(sink, 0)
    assert len(ids(sink)) == 38


def roll_back(sink: Any) -> None:
    """Sets main back to the first window, which makes no snapshot."""
    table(sink).manage_snapshots().set_current_snapshot(sink.look(window(0)).version).commit()


def make_anew(sink: Any) -> None:
    """Drops the table, and makes the same table again."""
    open_catalog(sink.catalog_table).drop_table(sink.catalog_table.table)
    sink_at(sink.catalog_table.warehouse).prepare()


@pytest.mark.parametrize(("foreign_commit", "row_count"), [(rewrite, 54), (roll_back, 36)])
def test_a_foreign_commit_in_between_is_looked_at(
    sink: Any, foreign_commit: Callable[[Any], object], row_count: int
) -> None:
    """A commit fails and looks again after any change by another program.

    Both changes are in the table.
    """
    window_receipt, staged = staged_receipt(sink, 2)
    tries = overtaken_by(sink, foreign_commit)
    assert isinstance(sink.commit(window_receipt, staged), Done)
    assert len(tries) == 2
    assert len(ids(sink)) == row_count


def test_a_table_that_was_made_anew_in_between_is_another_one(tmp_path: Path) -> None:
    """A commit that was made for a dropped table isn't put on a new table of the same name,
    though neither has a snapshot.
    """
    sink = sink_at(str(tmp_path))
    sink.prepare()
    window_receipt, staged = staged_receipt(sink, 0)
    tries = overtaken_by(sink, make_anew)
    assert isinstance(sink.commit(window_receipt, staged), Done)
    assert len(tries) == 2


def overtaken_by(sink: Any, others: Callable[[Any], object]) -> list[Prepared]:
    """Lets `others` act before the first commit is sent; that commit is then refused.

    Returns all prepared commits.
    """
    tries: list[Prepared] = []

    def send_overtaken(ready: Prepared) -> None:
        tries.append(ready)
        if len(tries) == 1:
            others(sink)
            with pytest.raises(CommitFailedException):
                ready.send()
        ready.send()

    sink.store.waits = (0.0, 0.0)
    sink.store.send = send_overtaken
    return tries


AT_ONCE = Maintenance(timedelta(days=1), keep_versions=timedelta(minutes=-30), file_size=1 << 20)
"""Snapshots are expired at once."""


def test_what_a_maintained_table_keeps(sink: Any) -> None:
    """Joined files are a snapshot of the operation `replace`. Expired snapshots go with their
    manifests; a tag keeps its own, and what it names is read as before.
    """
    about = table(sink)
    kept = about.current_snapshot().snapshot_id
    about.manage_snapshots().create_tag(kept, "kept").commit()
    commit(sink, 2)
    manifests = {*(folder_of(sink) / "metadata").glob("*.avro")}
    maintained = sink.maintain(AT_ONCE)
    assert msgspec.structs.replace(maintained, removed_files=()) == Maintained(6, 3, 3)
    operations = [s.summary.operation.value for s in table(sink).snapshots()]
    assert (kept in [s.snapshot_id for s in table(sink).snapshots()], len(operations)) == (True, 4)
    assert "replace" in operations
    gone = {f"file://{path}" for path in manifests if not path.exists()}
    assert gone
    assert gone <= {*maintained.removed_files}
    assert table(sink).scan(snapshot_id=kept).to_arrow().num_rows == 36
    assert table(sink).scan().to_arrow().num_rows == 54
    assert all(is_complete(sink, number) for number in range(3))


def test_files_with_deleted_rows_are_left_alone(sink: Any) -> None:
    """A file from which another engine has deleted rows isn't joined, and they stay deleted."""
    task, *_ = state_of(sink).tasks(window(0).key)
    delete_columns = {"file_path": [task.file.file_path], "pos": pa.array([0], pa.int64())}
    delete(sink, pa.table(delete_columns), content=DataFileContent.POSITION_DELETES)
    assert sink.maintain(AT_ONCE).joined_files == 2
    assert len(ids(sink)) == 35
