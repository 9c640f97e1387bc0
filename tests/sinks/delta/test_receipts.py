"""Receipt files are read once, and each commit asks only what concerns it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.sinks.things import PARTITIONS, TOPIC, plan, receipt, window
from windrow.ingest.errors import DamagedError
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.plan import Covered, Plan, covered
from windrow.ingest.model.receipt import RECEIPT_VERSION, Committed
from windrow.ingest.sinks.delta.names import RECEIPTS, ReceiptName, receipt_app, receipt_name, version_app, window_app
from windrow.ingest.sinks.delta.receipts import ReceiptFiles, TableSnapshot, VersionOf
from windrow.ingest.sinks.place import Place


class FakeSink:
    """Plans ask only for the table's name."""

    identity = "delta:x"


@pytest.fixture
def files(tmp_path: Path) -> tuple[ReceiptFiles, dict[str, int]]:
    """Five windows' receipts, committed, and one that no commit names; with the table's answers."""
    made, versions = ReceiptFiles(Place(str(tmp_path))), {}
    for number in range(6):
        one = receipt(plan(FakeSink(), number), [], 0, "a1")  # type: ignore[arg-type]
        said = made.write(one)
        if number < 5:
            key = one.window.key
            versions |= {window_app(key, "orders"): 1, receipt_app(key, "orders"): said, version_app(key, "orders"): number}
    return made, versions


def at(receipts: ReceiptFiles, version: VersionOf) -> TableSnapshot:
    """What a table says now, and the files that are there."""
    return TableSnapshot(version, "orders", receipts.names())


def test_only_committed_overlaps_count(files: tuple[ReceiptFiles, dict[str, int]]) -> None:
    """Other windows' receipts that share an offset, in order, if a commit names them; never the window's own."""
    receipts, versions = files
    wide = receipt(plan(FakeSink(), 2, (15, 60)), [], 0, "a1")  # type: ignore[arg-type]
    for _ in range(2):
        found = receipts.overlapping(at(receipts, versions.get), wide)
        assert [r.window for r in found] == [window(1), window(3), window(4)]
    apart = receipt(plan(FakeSink(), 9), [], 0, "a1")  # type: ignore[arg-type]
    assert receipts.overlapping(at(receipts, versions.get), apart) == []


def test_a_receipt_that_came_later_counts(files: tuple[ReceiptFiles, dict[str, int]]) -> None:
    """What another process committed since the last look is looked at too."""
    receipts, versions = files
    asked = receipt(plan(FakeSink(), 9, (200, 210)), [], 0, "a1")  # type: ignore[arg-type]
    assert receipts.overlapping(at(receipts, versions.get), asked) == []
    late = receipt(plan(FakeSink(), 8, (205, 206)), [], 0, "a1")  # type: ignore[arg-type]
    versions[receipt_app(late.window.key, "orders")] = receipts.write(late)
    assert receipts.overlapping(at(receipts, versions.get), asked) == [late]


def test_a_receipt_is_read_once(files: tuple[ReceiptFiles, dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the ranges are known, a commit that meets none works out its own only, and reads nothing."""
    receipts, versions = files
    mine = receipt(plan(FakeSink(), 9), [], 0, "a1")  # type: ignore[arg-type]
    receipts.overlapping(at(receipts, versions.get), mine)
    plans = []

    def working_out(asked: Plan) -> tuple[Covered, ...]:
        plans.append(asked)
        return covered(asked)

    monkeypatch.setattr("windrow.ingest.sinks.delta.receipts.covered", working_out)
    monkeypatch.setattr(receipts._place, "get", None)
    receipts.overlapping(at(receipts, versions.get), mine)
    assert plans == [mine.plan]
    assert list(receipts._held.every()) == [Covered(TOPIC.topic_id, p, 0, 60) for p in range(PARTITIONS)]


LATER = "written by a later windrow"


def _from_the_future(receipts: ReceiptFiles, folder: Path, number: int, **more: object) -> tuple[ReceiptName, dict[str, int]]:
    """A receipt file of a form that isn't known yet, and what a table says that has committed it."""
    made = receipt(plan(FakeSink(), number), [], 0, "a1")  # type: ignore[arg-type]
    content = msgspec.json.encode({**msgspec.to_builtins(made), "version": RECEIPT_VERSION + 1, **more})
    name = receipt_name(made.window, 0, content)
    Place(str(folder)).put(f"{RECEIPTS}/{name}", content)
    key, found = made.window.key, next(n for n in receipts.names() if n.name == name)
    return found, {window_app(key, "orders"): 1, receipt_app(key, "orders"): found.fingerprint, version_app(key, "orders"): number}


@pytest.mark.parametrize("more", [{}, {"counts": "of another kind"}], ids=["more", "other"])
def test_a_later_receipt_is_not_damage(files: tuple[ReceiptFiles, dict[str, int]], tmp_path: Path, more: dict[str, object]) -> None:
    """A receipt of a later form asks for an upgrade, whether it could be read as one of ours or not; a damaged one for a backup."""
    receipts, versions = files
    name, said = _from_the_future(receipts, tmp_path, 7, **more)
    with pytest.raises(DamagedError, match=LATER) as refused:
        receipts.committed_receipt(at(receipts, said.get), name.key)
    assert "Upgrade windrow" in str(refused.value)
    assert "backup" not in str(refused.value)
    mine = receipt(plan(FakeSink(), 9), [], 0, "a1")  # type: ignore[arg-type]
    with pytest.raises(DamagedError, match=LATER):
        receipts.overlapping(at(receipts, {**versions, **said}.get), mine)
    (tmp_path / RECEIPTS / name.name).write_bytes(b"{")
    with pytest.raises(DamagedError, match="damaged"):
        receipts.committed_receipt(at(receipts, said.get), name.key)


def test_a_later_receipt_that_never_counted_is_in_nobodys_way(files: tuple[ReceiptFiles, dict[str, int]], tmp_path: Path) -> None:
    """A later windrow's attempt that no commit names means nothing, like any other."""
    receipts, versions = files
    _from_the_future(receipts, tmp_path, 7)
    mine = receipt(plan(FakeSink(), 9), [], 0, "a1")  # type: ignore[arg-type]
    assert receipts.overlapping(at(receipts, versions.get), mine) == []


def test_an_attempts_text_is_its_own(tmp_path: Path) -> None:
    """1 An older windrow writes a receipt and dies before its commit. 2 A later one commits the window: its text, not the other's."""
    receipts = ReceiptFiles(Place(str(tmp_path)))
    mine = receipt(plan(FakeSink(), 7), [], 0, "a2")  # type: ignore[arg-type]
    older = {k: v for k, v in msgspec.to_builtins(receipt(plan(FakeSink(), 7), [], 0, "a1")).items() if k != "partial"}  # type: ignore[arg-type]
    content = msgspec.json.encode(older)
    Place(str(tmp_path)).put(f"{RECEIPTS}/{receipt_name(mine.window, 0, content)}", content)
    receipts.write(mine)
    assert receipts.overlapping(at(receipts, {}.get), mine) == []
    assert receipts.text(mine) == to_json(mine)


def test_names_by_window(files: tuple[ReceiptFiles, dict[str, int]]) -> None:
    """Grouped, the names are all there, and a window's own are enough to find what it holds."""
    receipts, versions = files
    grouped = receipts.by_window()
    assert sorted(n.name for own in grouped.values() for n in own) == sorted(n.name for n in receipts.names())
    assert list(grouped) == [window(n).key for n in range(6)]
    for number in range(6):
        key = window(number).key
        held: Committed | None = receipts.committed_receipt(TableSnapshot(versions.get, "orders", grouped[key]), key)
        assert held == receipts.committed_receipt(at(receipts, versions.get), key)
        assert (held is not None) == (number < 5)


def damage(files: ReceiptFiles, key: str, content: bytes | None) -> None:
    """The window's receipt file is gone, or holds something else."""
    place = files._place
    (name,) = (n.name for n in files.names() if n.key == key)
    place.remove(f"{RECEIPTS}/{name}")
    if content is not None:
        place.put(f"{RECEIPTS}/{name}", content)


@pytest.mark.parametrize("content", [None, b"{}"])
def test_nothing_is_committed_beside_a_lost_receipt(files: tuple[ReceiptFiles, dict[str, int]], content: bytes | None) -> None:
    """It might hold any range: damaged or gone, it is named. One that no commit names, and the window's own, are in nobody's way."""
    receipts, versions = files
    asked = receipt(plan(FakeSink(), 9), [], 0, "a1")  # type: ignore[arg-type]
    named = {window(n).key: versions[receipt_app(window(n).key, "orders")] for n in range(5)}
    damage(receipts, window(5).key, content)
    assert receipts.overlapping(at(receipts, versions.get), asked, named) == []
    fresh = ReceiptFiles(receipts._place)
    damage(fresh, window(3).key, content)
    own = receipt(plan(FakeSink(), 3), [], 0, "a1")  # type: ignore[arg-type]
    assert fresh.overlapping(at(fresh, versions.get), own, named) == []
    with pytest.raises(DamagedError, match=f"{window(3).key} is {'missing' if content is None else 'damaged'}"):
        fresh.overlapping(at(fresh, versions.get), asked, named)


def test_a_receipt_of_another_generation_is_not_it(files: tuple[ReceiptFiles, dict[str, int]]) -> None:
    """The table says which generation it holds; a file that carries another one is not what was committed, whatever its name."""
    receipts, versions = files
    key = window(1).key
    assert receipts.committed_receipt(at(receipts, versions.get), key) is not None
    versions[window_app(key, "orders")] = 2
    with pytest.raises(DamagedError, match="generation 1"):
        receipts.committed_receipt(at(receipts, versions.get), key)
