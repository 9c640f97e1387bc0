"""A lost list of windows ("pages") is made again from rows, receipts and the ledger's copies.

Windows that the rows contradict are not listed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.admin.things import Scene
from tests.sinks.delta.world import DeltaKeyedWorld, DeltaWorld
from tests.sinks.iceberg.world import IcebergBoth, IcebergWorld
from tests.sinks.routes.world import RoutesWorld
from tests.sinks.with_dead_letters import DeltaBoth, DeltaKeyedBoth
from windrow.ingest.admin.receipts import restore
from windrow.ingest.errors import DamagedError, RefusedError
from windrow.ingest.model.receipt import Checksums, Merged
from windrow.ingest.sinks.kit.commit.pages import PAGES
from windrow.ingest.sinks.kit.commit.stored_receipts import RECEIPTS, write
from windrow.ingest.sinks.kit.commit.table_store import TableStore
from windrow.ingest.sinks.kit.commit.window_table import TableAudit, relist
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.testing.contracts.windows import ROWS, plan_of, stage, staged_receipt, window

WORLDS = {"delta": DeltaWorld(), "keyed": DeltaKeyedWorld(), "iceberg": IcebergWorld()}


@pytest.fixture(params=WORLDS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    """A scene with three hours; the second of them was replaced."""
    world = WORLDS[request.param]
    new_scene = Scene.of(tmp_path, [0, 1, 2], sink=world.sink_at(str(tmp_path / "orders")))
    new_scene.commit(1, generation=1)
    return new_scene


def reopen(scene: Scene) -> Any:
    """Opens the same table, as another process does."""
    world = next(
        WORLDS[kind]
        for kind, sink_type in (
            ("iceberg", IcebergBoth),
            ("keyed", DeltaKeyedBoth),
            ("delta", DeltaBoth),
        )
        if isinstance(scene.sink, sink_type)
    )
    scene.sink = world.reopen(scene.sink)
    return scene.sink


def delete_folder(scene: Scene, folder: str, *, dead: bool = False) -> None:
    """Deletes the folder of pages or receipts of the table, or of its dead letters."""
    shutil.rmtree(folder_below(scene, folder, dead=dead))


def folder_below(scene: Scene, folder: str, *, dead: bool = False) -> Path:
    """Returns a folder of windrow's own below the table, or below its dead letters."""
    folders = scene.folder.glob(f"**/{folder}")
    (matching_folder,) = (
        f for f in folders if ("_dead" in str(f.relative_to(scene.folder))) is dead
    )
    return matching_folder


def test_lost_pages_come_back(scene: Scene) -> None:
    """Lost pages and receipts come back; a dry run shows them first.

    Then verification finds nothing, and the table takes the next window.
    """
    delete_folder(scene, PAGES)
    delete_folder(scene, RECEIPTS)
    with pytest.raises(DamagedError, match=r"--restore-receipts"):
        list(reopen(scene).receipts())
    keys = {window(number).key for number in range(3)}
    for dry_run in (True, False):
        done = restore("orders", reopen(scene), scene.ledger, dry_run=dry_run)
        (listed,) = done.listed.values()
        assert (set(listed), done.failed, done.exit_code) == (keys, (), 0)
    assert reopen(scene).look(window(1)).receipt.generation == 1
    assert scene.verify(deep=True).findings == ()
    scene.commit(3)
    assert scene.verify(deep=True).findings == ()


def test_receipts_alone_bring_them_back(scene: Scene) -> None:
    """Without copies in the ledger, pages come back from the receipts whose rows are in
    the table.
    """
    delete_folder(scene, PAGES)
    scene.lose_ledger()
    (listed,) = restore("orders", reopen(scene), scene.ledger, dry_run=False).listed.values()
    assert len(listed) == 3
    assert [c.receipt.generation for c in reopen(scene).receipts()] == [0, 1, 0]


def test_an_attempt_that_never_committed_is_not_taken_for_one(scene: Scene) -> None:
    """The receipt of an attempt that never committed is not listed.

    One such receipt has a newer generation, another has a window of its own.
    """
    for number, generation in ((2, 1), (3, 0)):
        staged, _ = staged_receipt(scene.sink, number, generation)
        forged = msgspec.structs.replace(
            staged,
            ledger=scene.ledger.identity(),
            splits=tuple(
                msgspec.structs.replace(split, checksums=Checksums("0" * 15 + "7"))
                for split in staged.splits
            ),
            merged=Merged(9, 0, "0" * 15 + "7", "0" * 16),
        )
        write(Place(str(folder_below(scene, RECEIPTS).parent.parent)), forged)
    delete_folder(scene, PAGES)
    assert restore("orders", reopen(scene), scene.ledger, dry_run=False).failed == ()
    assert [c.receipt.generation for c in reopen(scene).receipts()] == [0, 1, 0]
    assert scene.verify(deep=True).findings == ()


def test_rows_without_any_receipt_stay_unknown(scene: Scene) -> None:
    """Without any receipt, DamagedError is raised and nothing is written.

    The rows alone don't tell which windows are committed.
    """
    delete_folder(scene, PAGES)
    delete_folder(scene, RECEIPTS)
    scene.lose_ledger()
    with pytest.raises(DamagedError, match=r"Nothing was written.*from a backup"):
        restore("orders", reopen(scene), scene.ledger, dry_run=False)
    with pytest.raises(DamagedError):
        list(reopen(scene).receipts())


def test_rows_that_somebody_changed_are_told_afterwards(tmp_path: Path) -> None:
    """A window whose rows were changed is listed if the ledger has its receipt.

    Verification then reports the window.
    """
    scene = Scene.of(tmp_path, [0, 1, 2])
    (first, *_) = (Path(f) for f in DeltaTable(scene.sink.uri).file_uris())
    pq.write_table(pq.read_table(first).slice(1), first)
    delete_folder(scene, PAGES)
    scene.sink = DeltaBoth(scene.sink.uri, ROWS)
    (listed,) = restore("orders", scene.sink, scene.ledger, dry_run=False).listed.values()
    assert len(listed) == 3
    assert {f.level for f in scene.verify(deep=True).findings} == {"wrong"}


def test_lost_pages_of_dead_letters_come_back(scene: Scene) -> None:
    """Lost pages of dead letters come back.

    It isn't known any more which letters were published, so none counts as published.
    """
    delete_folder(scene, PAGES, dead=True)
    letters = reopen(scene).dead_letters
    with pytest.raises(DamagedError):
        letters.count(window(1), "a1")
    assert (letters.restore(dry_run=True), letters.restore(dry_run=False)) == (True, True)
    letters = reopen(scene).dead_letters
    assert (letters.count(window(1), "a1"), letters.restore(dry_run=False)) == (2, False)
    assert not letters.is_published(window(1), "a1")
    scene.commit(3)
    assert scene.verify(deep=True).findings == ()


def missing(page: Path) -> None:
    page.unlink()


def cut_short(page: Path) -> None:
    page.write_bytes(page.read_bytes()[:-1])


def changed(page: Path) -> None:
    page.write_bytes(page.read_bytes().replace(b'"windows"', b'"wlndows"'))


def newest_page(scene: Scene, *, dead: bool = False) -> Path:
    """Returns the page that was written last."""
    return max(
        folder_below(scene, PAGES, dead=dead).iterdir(), key=lambda page: page.stat().st_mtime_ns
    )


@pytest.mark.parametrize("harm", [missing, cut_short, changed])
def test_a_run_that_commits_meanwhile_loses_nothing(
    scene: Scene, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that commits during a restore loses nothing.

    It has read the page before. It commits while the receipts are chosen, and either writes the
    page again, or the restore is refused.
    """
    harm(newest_page(scene))
    run, command, relist = scene.sink, reopen(scene), TableAudit.relist
    scene.sink = run

    def behind_the_run(audit: TableAudit, *chosen: Any) -> None:
        scene.commit(3)
        relist(audit, *chosen)

    with monkeypatch.context() as patch:
        patch.setattr(TableAudit, "relist", behind_the_run)
        if harm is changed:
            pattern = (
                r"somebody committed to .*orders.* Nothing was written to it\. .*run this again"
            )
            with pytest.raises(RefusedError, match=pattern):
                restore("orders", command, scene.ledger, dry_run=False)
        else:
            restore("orders", command, scene.ledger, dry_run=False)
    assert restore("orders", reopen(scene), scene.ledger, dry_run=False).failed == ()
    assert [c.receipt.generation for c in reopen(scene).receipts()] == [0, 1, 0, 0]
    scene.commit(4)
    assert scene.verify(deep=True).findings == ()


def test_a_lost_race_is_not_a_commit_that_nobody_knows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a run commits after the last look, its window stays, and the error says what happened."""
    scene = Scene.of(tmp_path, [0, 1, 2])
    scene.commit(1, generation=1)  # so the newest page is larger than that of one commit
    changed(newest_page(scene))
    command = DeltaBoth(scene.sink.uri, ROWS)

    def behind_the_run(_: TableStore) -> int:
        scene.commit(3)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr("windrow.ingest.sinks.kit.commit.window_table.youngest", behind_the_run)
        with pytest.raises(RefusedError, match="somebody committed to"):
            restore("orders", command, scene.ledger, dry_run=False)
    scene.sink = DeltaBoth(scene.sink.uri, ROWS)
    restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert len(list(scene.sink.receipts())) == 4


def test_dead_letters_that_are_committed_meanwhile_are_noted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If dead letters are committed during a restore of their list, it is refused."""
    changed(newest_page(scene, dead=True))
    run, command = scene.sink, reopen(scene)
    scene.sink = run

    def behind_the_run(*chosen: Any) -> None:
        scene.commit(3)
        relist(*chosen)

    with monkeypatch.context() as patch:
        patch.setattr("windrow.ingest.sinks.kit.commit.dead_letter_table.relist", behind_the_run)
        with pytest.raises(RefusedError, match="somebody committed to"):
            command.dead_letters.restore(dry_run=False)
    assert reopen(scene).dead_letters.restore(dry_run=False)
    assert reopen(scene).dead_letters.count(window(3), "a0") == 2


def test_a_list_without_windows_comes_back(tmp_path: Path) -> None:
    """The list of a table without windows comes back, too, after a dry run."""
    scene = Scene.of(tmp_path, [])
    stage(scene.sink, plan_of(scene.sink, window(0), (0, 10)), 0, "a0")
    for path in folder_below(scene, "data").rglob("*.parquet"):
        os.utime(path, (0, 0))
    assert scene.sink.sweep(timedelta(days=1))
    delete_folder(scene, PAGES)
    for dry_run in (True, False):
        scene.sink = DeltaBoth(scene.sink.uri, ROWS)
        done = restore("orders", scene.sink, scene.ledger, dry_run=dry_run)
        assert (list(done.listed.values()), done.failed) == ([()], ())
    scene.commit(0)


def test_of_several_tables_all_lists_come_back_or_none(tmp_path: Path) -> None:
    """If one of several tables can't be restored, it is named, and no table is written."""
    sink = RoutesWorld().sink_at(str(tmp_path / "lake"))
    scene = Scene.of(tmp_path, [0, 1, 2], sink=sink)
    for folder in ("first/" + PAGES, "orders/" + PAGES, "orders/" + RECEIPTS):
        shutil.rmtree(tmp_path / "lake" / folder)
    scene.lose_ledger()
    with pytest.raises(DamagedError, match=r"the table .*/orders has lost .* Nothing was written"):
        restore("orders", RoutesWorld().reopen(sink), scene.ledger, dry_run=False)
    assert not (tmp_path / "lake" / "first" / PAGES).exists()


def test_each_table_of_routes_gets_its_own_back(tmp_path: Path) -> None:
    """Each of several tables gets its list back, also one whose receipts the ledger
    doesn't have.
    """
    sink = RoutesWorld().sink_at(str(tmp_path / "lake"))
    scene = Scene.of(tmp_path, [0, 1, 2], sink=sink)
    for name in ("first", "orders"):
        shutil.rmtree(tmp_path / "lake" / name / PAGES)
    scene.sink = RoutesWorld().reopen(sink)
    listed = restore("orders", scene.sink, scene.ledger, dry_run=False).listed.values()
    assert [len(keys) for keys in listed] == [3, 3]
    scene.sink = RoutesWorld().reopen(sink)
    assert scene.verify(deep=True).findings == ()
