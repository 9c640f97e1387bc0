"""Lost receipts come back from the ledger's copies: the very bytes that were committed,
or nothing.
"""

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
    """Three hours in a row."""
    return Scene.of(tmp_path, [0, 1, 2])


def files(scene: Scene) -> list[Path]:
    """The receipts, in the order of windows."""
    return sorted((Path(scene.sink.uri) / "_windrow" / "receipts").iterdir())


def contents(scene: Scene) -> dict[str, bytes]:
    """All that lies in the receipts' folder."""
    return {file.name: file.read_bytes() for file in files(scene)}


def test_lost_receipts_come_back_byte_for_byte(scene: Scene) -> None:
    """One that is gone and one that is damaged, of the same length; shown first,
    restored then, and all verifies.

    The good one stays.
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
    """A store that writes nothing has restored nothing: what is wrong with its receipt is told."""
    files(scene)[0].unlink()
    monkeypatch.setattr(TableAudit, "restore", lambda *_, **__: None)
    done = restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert (done.windows, [f.window for f in done.failed]) == ((), [window(0).key])
    assert done.exit_code == 1


def test_another_text_is_refused(scene: Scene) -> None:
    """A copy that isn't what the commit named (another attempt, an older generation)
    restores nothing, and says so; others come back.
    """
    scene.commit(1, generation=1)
    (first, second), (newest,) = (
        (scene.ledger.recorded("orders")[n] for n in (0, 1)),
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
        "is not the text that its commit named" in f.what and "backup" in f.do for f in done.failed
    )
    assert contents(scene) == {newest.name: contents_before[newest.name]}


def test_a_ledger_without_a_copy_restores_nothing(scene: Scene) -> None:
    """The window is named, and what is left to do."""
    files(scene)[1].unlink()
    scene.lose_ledger()
    done = restore("orders", scene.sink, scene.ledger, dry_run=False)
    assert [(f.window, "the ledger has no copy of it" in f.what) for f in done.failed] == [
        (window(1).key, True)
    ]
    assert done.exit_code == 1


def test_a_window_that_cannot_come_back_is_told_beside_one_that_does(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where windows can't be replaced, one that the table lacks has lost its receipt, too."""
    monkeypatch.setattr(scene.sink.store, "capabilities", Capabilities(replaces=False))
    recorded = scene.ledger.recorded("orders")[2]
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
    """Whatever text is offered: only the one that the commit named is taken, and where
    that is there, nothing is written.
    """
    contents_before, (recorded, *_) = contents(scene), scene.ledger.recorded("orders")
    with pytest.raises(RefusedError, match="is not the text"):
        scene.sink.audit().restore(
            recorded.window, to_json(msgspec.structs.replace(recorded, attempt="other"))
        )
    with pytest.raises(RefusedError, match="not committed"):
        scene.sink.audit().restore(window(7), to_json(recorded))
    scene.sink.audit().restore(recorded.window, to_json(recorded))
    assert contents(scene) == contents_before


def commit_older(scene: Scene, number: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text of a receipt as a version committed it that wrote its JSON another way:
    with spaces here.
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
    """The ledger keeps the text, not what this version would make of it: also when a
    run reports it, and after the ledger was rebuilt.
    """
    text = commit_older(scene, 3, monkeypatch)
    reopened = type(scene.sink)(scene.sink.uri, scene.sink.schema)
    committed = reopened.look(window(3))
    assert committed is not None
    assert reopened.receipt_text(committed.receipt) == text
    scene.ledger.record(committed.receipt, reopened.receipt_text(committed.receipt))
    assert scene.ledger.written(window(3)) == text
    scene.lose_ledger()
    rebuild("orders", reopened, scene.ledger)
    assert scene.ledger.written(window(3)) == text
    files(scene)[3].unlink()
    assert restore("orders", scene.sink, scene.ledger, dry_run=False).windows == (window(3).key,)
    assert files(scene)[3].read_text() == text
    assert scene.verify().findings == ()
