"""A lost ledger comes back from the table's receipts, and nothing that contradicts them is overwritten."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ingest.errors import IdentityError, SpecError
from ingest.ledger.sql import open_ledger
from ingest.model import Boundary, Mark, Plan
from ingest.rebuild import boundaries, rebuild, refuse_foreign
from tests.verify.things import Scene
from tests.write.things import TOPIC, plan, window


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Windows 0, 1 and, after a gap, 3."""
    return Scene.of(tmp_path, [0, 1, 3])


def _contents(scene: Scene) -> list[object]:
    """All that a ledger says about the scene."""
    ledger = scene.ledger
    windows = [window(n) for n in range(5)]
    return [ledger.identity(), ledger.bind_grid("orders", "none"), ledger.recorded("orders"),
            [ledger.boundary("orders", w.start) for w in windows], [ledger.plan(w) for w in windows]]  # fmt: skip


def test_everything_comes_back(scene: Scene) -> None:
    """After a rebuild the ledger says what the lost one said, and verification finds nothing wrong."""
    before = _contents(scene)
    scene.lose_ledger()
    done = rebuild("orders", scene.sink, scene.ledger)
    assert (done.boundaries, done.windows, done.grid) == (5, 3, "hourly")
    assert _contents(scene) == before
    assert scene.verify().exit_code == 0


def test_twice_is_once(scene: Scene) -> None:
    """A second rebuild, and one of a whole ledger, change nothing."""
    before = _contents(scene)
    rebuild("orders", scene.sink, scene.ledger)
    rebuild("orders", scene.sink, scene.ledger)
    assert _contents(scene) == before


def test_table_without_receipts(tmp_path: Path) -> None:
    """A table that no window was committed to still gives the ledger its id back."""
    scene = Scene.of(tmp_path, [])
    identity = scene.ledger.identity()
    scene.lose_ledger()
    assert rebuild("orders", scene.sink, scene.ledger).windows == 0
    assert scene.ledger.identity() == identity


def test_no_table(tmp_path: Path, scene: Scene) -> None:
    """Without a table there is nothing to rebuild from."""
    fresh = type(scene.sink)(str(tmp_path / "none"), scene.sink.schema)
    with pytest.raises(SpecError, match="There is no table yet"):
        rebuild("orders", fresh, scene.ledger)


def test_another_ledger_is_refused(tmp_path: Path, scene: Scene) -> None:
    """A ledger that holds another table's boundaries keeps them."""
    (tmp_path / "b").mkdir()
    other = Scene.of(tmp_path / "b", [0])
    before = _contents(other)
    with pytest.raises(IdentityError, match="holds boundaries"):
        rebuild("orders", scene.sink, other.ledger)
    assert _contents(other) == before


def test_contradiction_is_refused(tmp_path: Path, scene: Scene) -> None:
    """A ledger of the right id whose boundary cuts elsewhere is left as it is."""
    ledger = open_ledger(str(tmp_path / "new.db"))
    ledger.adopt_identity(scene.ledger.identity())
    ledger.freeze("orders", [Boundary.of(window(1).end, "cluster", [TOPIC], [Mark(TOPIC.topic, p, 21, "settled") for p in (0, 1)])])
    with pytest.raises(IdentityError, match=r"its boundary 2026-01-02T02:00:00Z is another one: shop.orders\[0\] at 20 and 21"):
        rebuild("orders", scene.sink, ledger)


def test_other_plan_is_refused(tmp_path: Path, scene: Scene) -> None:
    """A ledger with another plan of a committed window is refused, naming the window."""
    ledger = open_ledger(str(tmp_path / "new.db"))
    ledger.adopt_identity(scene.ledger.identity())
    planned = plan(scene.sink, 1)
    ledger.freeze_plan(Plan(planned.window, planned.start, planned.stop, planned.splits, "another sink"))
    with pytest.raises(IdentityError, match="its plan of window 2026-01-02T01:00:00Z is another one"):
        rebuild("orders", scene.sink, ledger)


def test_another_pipelines_table(scene: Scene) -> None:
    """A spec whose table belongs to another pipeline gets nothing."""
    with pytest.raises(IdentityError, match="belongs to pipeline orders, the spec is of invoices"):
        rebuild("invoices", scene.sink, scene.ledger)


def test_receipts_that_disagree(scene: Scene) -> None:
    """Receipts that name another ledger than the table, or cut one label in two ways, are refused."""
    receipts = [c.receipt for c in scene.sink.receipts()]
    bound = scene.sink.binding()
    assert bound is not None
    with pytest.raises(IdentityError, match="names ledger else and grid hourly"):
        refuse_foreign("orders", bound, [msgspec.structs.replace(receipts[0], ledger="else")])
    first, second = receipts[:2]
    low = Boundary.of(second.plan.start.label, "cluster", [TOPIC], [Mark(TOPIC.topic, 0, 9, "settled")])
    moved = msgspec.structs.replace(second.plan, start=low)
    with pytest.raises(IdentityError, match=r"disagree about the boundary 2026-01-02T01:00:00Z: shop.orders\[0\] at 10 and 9"):
        boundaries([first, msgspec.structs.replace(second, plan=moved, digest=moved.digest)])
