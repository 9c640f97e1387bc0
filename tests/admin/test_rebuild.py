"""A lost ledger comes back from the table's receipts, and nothing that contradicts them
is overwritten.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.admin.things import AGAIN, ANEW, OTHER, Scene
from windrow.ingest.admin.rebuild import UNPAUSED, boundaries, rebuild, refuse_foreign
from windrow.ingest.errors import IdentityError, SpecError
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import Boundary, Mark
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.tiling import difference
from windrow.ingest.testing.contracts.windows import TOPIC, plan, plan_of, window


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Windows 0, 1 and, after a gap, 3."""
    return Scene.of(tmp_path, [0, 1, 3])


def _contents(scene: Scene) -> list[object]:
    """All that a ledger says about the scene."""
    ledger = scene.ledger
    windows = [window(n) for n in range(5)]
    return [
        ledger.identity(),
        ledger.bind_grid("orders", "none"),
        ledger.recorded("orders"),
        [ledger.boundary("orders", w.start) for w in windows],
        [ledger.plan(w) for w in windows],
    ]


def test_everything_comes_back(scene: Scene) -> None:
    """After a rebuild the ledger says what the lost one said, and verification finds
    nothing wrong.
    """
    contents_before = _contents(scene)
    scene.lose_ledger()
    done = rebuild("orders", scene.sink, scene.ledger)
    assert (done.boundaries, done.windows, done.grid) == (5, 3, "hourly")
    assert _contents(scene) == contents_before
    assert scene.verify().exit_code == 0


def test_twice_is_once(scene: Scene) -> None:
    """A second rebuild, and one of a whole ledger, change nothing."""
    contents_before = _contents(scene)
    rebuild("orders", scene.sink, scene.ledger)
    rebuild("orders", scene.sink, scene.ledger)
    assert _contents(scene) == contents_before


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
    other_scene = Scene.of(tmp_path / "b", [0])
    contents_before = _contents(other_scene)
    with pytest.raises(IdentityError, match="holds boundaries"):
        rebuild("orders", scene.sink, other_scene.ledger)
    assert _contents(other_scene) == contents_before


def test_contradiction_is_refused(tmp_path: Path, scene: Scene) -> None:
    """A ledger of the right id whose boundary cuts elsewhere is left as it is."""
    ledger = open_ledger(str(tmp_path / "new.db"))
    ledger.adopt_identity(scene.ledger.identity())
    ledger.freeze(
        "orders",
        [
            Boundary.of(
                window(1).end,
                "cluster",
                [TOPIC],
                [Mark(TOPIC.topic, p, 21, "settled") for p in (0, 1)],
            )
        ],
    )
    with pytest.raises(
        IdentityError,
        match=r"its boundary 2026-01-02T02:00:00Z is another one: shop.orders\[0\] at 20 and 21",
    ):
        rebuild("orders", scene.sink, ledger)


def test_other_plan_is_refused(tmp_path: Path, scene: Scene) -> None:
    """A ledger with another plan of a committed window is refused, naming the window."""
    ledger = open_ledger(str(tmp_path / "new.db"))
    ledger.adopt_identity(scene.ledger.identity())
    planned = plan(scene.sink, 1)
    ledger.freeze_plans(
        [Plan(planned.window, planned.start, planned.stop, planned.splits[:1], scene.sink.identity)]
    )
    with pytest.raises(
        IdentityError, match="its plan of window 2026-01-02T01:00:00Z is another one"
    ):
        rebuild("orders", scene.sink, ledger)


def test_another_pipelines_table(scene: Scene) -> None:
    """A spec whose table belongs to another pipeline gets nothing."""
    with pytest.raises(IdentityError, match="belongs to pipeline orders, the spec is of invoices"):
        rebuild("invoices", scene.sink, scene.ledger)


def test_receipts_that_disagree(scene: Scene) -> None:
    """Receipts that name another ledger than the table, or cut one label in two ways,
    are refused.
    """
    receipts = [c.receipt for c in scene.sink.receipts()]
    bound = scene.sink.owner()
    assert bound is not None
    with pytest.raises(IdentityError, match="names ledger else and grid hourly"):
        refuse_foreign("orders", bound, [msgspec.structs.replace(receipts[0], ledger="else")])
    first, second = sorted(receipts, key=lambda r: r.window)[:2]
    low = Boundary.of(
        second.plan.start.label,
        "cluster",
        [TOPIC],
        [Mark(TOPIC.topic, p, 9, "settled") for p in (0, 1)],
    )
    moved = msgspec.structs.replace(second.plan, start=low)
    with pytest.raises(
        IdentityError,
        match=r"disagree about the boundary 2026-01-02T01:00:00Z: shop.orders\[0\] at 10 and 9",
    ):
        boundaries([first, msgspec.structs.replace(second, plan=moved, digest=moved.digest)])


def test_a_replaced_source_comes_back(scene: Scene) -> None:
    """Two receipts that meet where the source was replaced give back the boundary and
    the rebase, and what lies above.
    """
    for number, offsets in ((4, (0, 7)), (5, (7, 9))):
        scene.commit_plan(plan_of(scene.sink, window(number), offsets, [ANEW]))
    scene.broker.topic_id = ANEW.topic_id
    contents_before, rebased = _contents(scene), scene.ledger.rebased("orders")
    assert [b.label for b in rebased] == [window(4).start]
    scene.lose_ledger()
    assert rebuild("orders", scene.sink, scene.ledger).notes == (UNPAUSED,)
    assert (_contents(scene), scene.ledger.rebased("orders")) == (contents_before, rebased)
    assert rebuild("orders", scene.sink, scene.ledger).boundaries == 7
    assert scene.verify().exit_code == 0


def test_a_source_replaced_in_a_gap(scene: Scene) -> None:
    """No receipt saw the label: what is after it comes back, and the first window of
    the gap is doubted instead of taken for empty.
    """
    scene.commit_plan(plan_of(scene.sink, window(4), (0, 7), [ANEW]))
    scene.ledger.freeze("orders", [plan_of(scene.sink, window(5), (7, 9), [ANEW]).stop])
    scene.commit_plan(plan_of(scene.sink, window(6), (9, 12), [AGAIN]))
    scene.lose_ledger()
    done = rebuild("orders", scene.sink, scene.ledger)
    assert len(done.notes) == 2
    assert "between 2026-01-02T05:00:00Z and 2026-01-02T06:00:00Z" in done.notes[0]
    rebased = scene.ledger.start("orders", window(5).start)
    assert rebased is not None
    assert {(m.offset, m.how) for m in rebased.marks} == {(9, "log_start")}
    assert (
        scene.ledger.boundary("orders", window(6).start)
        == plan_of(scene.sink, window(6), (9, 12), [AGAIN]).start
    )


def test_a_topic_that_came_in_a_gap(scene: Scene) -> None:
    """The boundary that brought it is lost with its ledger; those above come back and
    cut as they did, and it can be frozen again.
    """
    brought = Boundary.of(
        window(5).start,
        "cluster",
        [TOPIC, OTHER],
        [
            *(Mark(TOPIC.topic, p, 50, "settled") for p in (0, 1)),
            Mark(OTHER.topic, 0, 40, "settled"),
        ],
        [Mark(OTHER.topic, 0, 33, "position")],
    )
    assert scene.ledger.freeze("orders", [brought]) == [brought]
    committed_receipt = scene.commit_plan(plan_of(scene.sink, window(6), (60, 70), [TOPIC, OTHER]))
    scene.lose_ledger()
    rebuild("orders", scene.sink, scene.ledger)
    boundary = scene.ledger.boundary("orders", window(6).start)
    assert boundary is not None
    assert not difference(boundary, committed_receipt.plan.start)
    assert [f for f in scene.verify().findings if f.about == "ledger"] == []
    assert scene.ledger.freeze("orders", [brought]) == [brought]


def test_batches_come_back(tmp_path: Path) -> None:
    """With their numbers, and their requests: a retry of one reports the batch that it ran."""
    scene = Scene.of(tmp_path, [0, 1, 2], grid="batch")
    newest = scene.ledger.newest("orders", 9)
    scene.lose_ledger()
    assert rebuild("orders", scene.sink, scene.ledger).grid == "batch"
    assert scene.ledger.newest("orders", 9) == newest
    assert [scene.ledger.assigned("orders", f"request of batch-00000000{n}") for n in range(4)] == [
        0,
        1,
        2,
        None,
    ]
    assert scene.verify().findings == ()
