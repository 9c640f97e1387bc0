"""Lost receipts are restored from the ledger's copies, byte by byte, or not at all."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.admin.things import Scene
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.receipts import restore
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.codec import to_json
from windrow.ingest.ports.sink import Capabilities
from windrow.ingest.sinks.kit.commit.window_table import TableAudit
from windrow.ingest.testing.contracts.windows import plan_of, window


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A scene with three hours in a row."""
    return Scene.of(tmp_path, [0, 1, 2])


def files(scene: Scene) -> list[Path]:
    """Returns the files of the receipts, in the order of windows."""
    return sorted((Path(scene.sink.uri) / "_windrow" / "receipts").iterdir())


def contents(scene: Scene) -> dict[str, bytes]:
    """Returns the bytes of all files in the receipts' folder, by name."""
    return {file.name: file.read_bytes() for file in files(scene)}


def test_lost_receipts_come_back_byte_for_byte(scene: Scene) -> None:
    """A missing receipt and a damaged one of the same length are restored byte by byte.

    A dry run shows them first. Good receipts aren't written again, and verification finds
    nothing.
    """
    scene.commit(2, generation=1)
    contents_before, (deleted_file, damaged, *good) = contents(scene), files(scene)
    deleted_file.unlink()
    damaged.write_bytes(damaged.read_bytes().replace(b"10", b"11"))
    stamps = [file.stat().st_mtime_ns for file in good]
    shown = restore("orders", scene.sink, scene.ledger, dry_run=True)
    assert (shown.windows, shown.failed, shown.exit_code) == ((window(0).key, window(1).key), (), 0)
    assert not deleted_file.exists()
    done = restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert (done.windows, done.dry_run) == (shown.windows, False)
    assert contents(scene) == contents_before
    assert [file.stat().st_mtime_ns for file in good] == stamps
    assert scene.verify().findings == ()
    assert restore("orders", scene.sink, scene.ledger, dry_run=False).windows == ()


def test_only_what_was_written_is_said_to_be_restored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the store wrote nothing, the window is reported as failed, not as restored."""
    files(scene)[0].unlink()
    monkeypatch.setattr(TableAudit, "restore", lambda *_, **__: None)
    done = restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert (done.windows, [f.window for f in done.failed]) == ((), [window(0).key])
    assert done.exit_code == 1


def test_another_text_is_refused(scene: Scene) -> None:
    """A copy that differs from the text named by the commit is refused and reported.

    Such a copy is of another attempt or generation. Other receipts are restored.
    """
    scene.commit(1, generation=1)
    (first, second), (newest,) = (
        (scene.ledger.recorded_receipts("orders")[n] for n in (0, 1)),
        files(scene)[-1:],
    )
    scene.ledger.record(msgspec.structs.replace(first, attempt="another"))
    scene.ledger.record(msgspec.structs.replace(second, generation=0), also_older=True)
    contents_before = contents(scene)
    for file in files(scene):
        file.unlink()
    done = restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert (done.windows, [f.window for f in done.failed], done.exit_code) == (
        (window(2).key,),
        [window(0).key, window(1).key],
        1,
    )
    assert all(
        "is not the text that its commit named" in f.message and "backup" in f.advice
        for f in done.failed
    )
    assert contents(scene) == {newest.name: contents_before[newest.name]}


def test_a_ledger_without_a_copy_restores_nothing(scene: Scene) -> None:
    """If the ledger has no copy, the window is reported as failed."""
    files(scene)[1].unlink()
    scene.lose_ledger()
    done = restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert [(f.window, "the ledger has no copy of it" in f.message) for f in done.failed] == [
        (window(1).key, True)
    ]
    assert done.exit_code == 1


def test_a_window_that_cannot_come_back_is_told_beside_one_that_does(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If windows can't be replaced, a window that only the ledger knows is reported as failed.

    Others are restored.
    """
    monkeypatch.setattr(scene.sink.store, "capabilities", Capabilities(replaces=False))
    recorded = scene.ledger.recorded_receipts("orders")[2]
    other_plan = plan_of(scene.sink, window(7), (70, 80))
    scene.ledger.record(
        msgspec.structs.replace(recorded, plan=other_plan, digest=other_plan.digest)
    )
    files(scene)[0].unlink()
    done = restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert (done.windows, [f.window for f in done.failed], done.exit_code) == (
        (window(0).key,),
        [window(7).key],
        1,
    )


def test_a_good_receipt_is_never_written_over(scene: Scene) -> None:
    """A good receipt is never overwritten, and only the text that the commit named is taken."""
    contents_before, (recorded, *_) = contents(scene), scene.ledger.recorded_receipts("orders")
    with pytest.raises(RefusedError, match="is not the text"):
        scene.sink.audit().restore(
            recorded.window, to_json(msgspec.structs.replace(recorded, attempt="other"))
        )
    with pytest.raises(RefusedError, match="not committed"):
        scene.sink.audit().restore(window(7), to_json(recorded))
    scene.sink.audit().restore(recorded.window, to_json(recorded))
    assert contents(scene) == contents_before


def commit_older(scene: Scene, number: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Commits a window as an older version whose JSON had spaces, and returns the
    receipt's text.
    """
    with monkeypatch.context() as patch:
        patch.setattr(
            "windrow.ingest.sinks.kit.commit.stored_receipts.to_json",
            lambda r: msgspec.json.format(to_json(r), indent=1),
        )
        committed = scene.commit(number)
    text = msgspec.json.format(to_json(committed), indent=1)
    scene.ledger.record(committed, text)
    return text


def test_a_receipt_of_another_version_comes_back_as_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt with the JSON of another version is restored byte by byte.

    The ledger keeps the text itself, also after a rebuild.
    """
    text = commit_older(scene, 3, monkeypatch)
    reopened = type(scene.sink)(scene.sink.uri, scene.sink.schema)
    committed = reopened.look(window(3))
    assert committed is not None
    assert reopened.receipt_text(committed.receipt) == text
    scene.ledger.record(committed.receipt, reopened.receipt_text(committed.receipt))
    assert scene.ledger.recorded_text(window(3)) == text
    scene.lose_ledger()
    rebuild("orders", reopened, scene.ledger)
    assert scene.ledger.recorded_text(window(3)) == text
    files(scene)[3].unlink()
    assert restore("orders", scene.sink, scene.ledger, dry_run=False).windows == (window(3).key,)
    assert files(scene)[3].read_text() == text
    assert scene.verify().findings == ()
