"""A lost ledger is rebuilt from the table's receipts; a ledger that contradicts them is refused."""

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
    """A scene with windows 0, 1 and, after a gap, 3."""
    return Scene.of(tmp_path, [0, 1, 3])


def _contents(scene: Scene) -> list[object]:
    """Returns everything that a ledger holds about the scene."""
    ledger = scene.ledger
    windows = [window(n) for n in range(5)]
    return [
        ledger.identity(),
        ledger.bind_grid("orders", "none"),
        ledger.recorded_receipts("orders"),
        [ledger.boundary("orders", w.start) for w in windows],
        [ledger.plan(w) for w in windows],
    ]


def test_everything_comes_back(scene: Scene) -> None:
    """A rebuilt ledger equals the lost one, and verification finds nothing wrong."""
    contents_before = _contents(scene)
    scene.lose_ledger()
    done = rebuild("orders", scene.sink, scene.ledger)
    assert (done.boundaries, done.windows, done.grid) == (5, 3, "hourly")
    assert _contents(scene) == contents_before
    assert scene.verify().exit_code == 0


def test_twice_is_once(scene: Scene) -> None:
    """A second rebuild, and a rebuild of a ledger that is complete, change nothing."""
    contents_before = _contents(scene)
    rebuild("orders", scene.sink, scene.ledger)
    rebuild("orders", scene.sink, scene.ledger)
    assert _contents(scene) == contents_before


def test_table_without_receipts(tmp_path: Path) -> None:
    """A table without committed windows still gives the ledger its id back."""
    scene = Scene.of(tmp_path, [])
    identity = scene.ledger.identity()
    scene.lose_ledger()
    assert rebuild("orders", scene.sink, scene.ledger).windows == 0
    assert scene.ledger.identity() == identity


def test_no_table(tmp_path: Path, scene: Scene) -> None:
    """Without a table, a rebuild raises SpecError."""
    fresh = type(scene.sink)(str(tmp_path / "none"), scene.sink.schema)
    with pytest.raises(SpecError, match="There is no table yet"):
        rebuild("orders", fresh, scene.ledger)


def test_another_ledger_is_refused(tmp_path: Path, scene: Scene) -> None:
    """A ledger with another table's boundaries is refused, and stays as it is."""
    (tmp_path / "b").mkdir()
    other_scene = Scene.of(tmp_path / "b", [0])
    contents_before = _contents(other_scene)
    with pytest.raises(IdentityError, match="holds boundaries"):
        rebuild("orders", scene.sink, other_scene.ledger)
    assert _contents(other_scene) == contents_before


def test_contradiction_is_refused(tmp_path: Path, scene: Scene) -> None:
    """A ledger with another boundary at the same label is refused."""
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
    """A ledger with another plan of a committed window is refused with the window's name."""
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
    """A table of another pipeline is refused."""
    with pytest.raises(IdentityError, match="belongs to pipeline orders, the spec is of invoices"):
        rebuild("invoices", scene.sink, scene.ledger)


def test_receipts_that_disagree(scene: Scene) -> None:
    """Receipts that name another ledger than the table, or cut one label twice, are refused."""
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
    """If two receipts meet at a rebase, the boundary and the rebase come back.

    Boundaries above come back, too.
    """
    for number, offsets in ((4, (0, 7)), (5, (7, 9))):
        scene.commit_plan(plan_of(scene.sink, window(number), offsets, [ANEW]))
    scene.broker.topic_id = ANEW.topic_id
    contents_before, rebased = _contents(scene), scene.ledger.rebased_boundaries("orders")
    assert [b.label for b in rebased] == [window(4).start]
    scene.lose_ledger()
    assert rebuild("orders", scene.sink, scene.ledger).notes == (UNPAUSED,)
    assert (_contents(scene), scene.ledger.rebased_boundaries("orders")) == (
        contents_before,
        rebased,
    )
    assert rebuild("orders", scene.sink, scene.ledger).boundaries == 7
    assert scene.verify().exit_code == 0


def test_a_source_replaced_in_a_gap(scene: Scene) -> None:
    """If a rebase was in a gap between windows, the windows after it come back.

    A note names the gap, and the first window of the gap isn't taken for empty.
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
    assert {(m.offset, m.origin) for m in rebased.marks} == {(9, "log_start")}
    assert (
        scene.ledger.boundary("orders", window(6).start)
        == plan_of(scene.sink, window(6), (9, 12), [AGAIN]).start
    )


def test_a_topic_that_came_in_a_gap(scene: Scene) -> None:
    """If a topic joined in a gap, its first boundary is lost with the ledger.

    The boundaries above come back with the same offsets, and the lost one can be frozen again.
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
    """Micro-batches come back with their numbers and their requests.

    A request that is repeated gets the batch that it ran.
    """
    scene = Scene.of(tmp_path, [0, 1, 2], grid="batch")
    newest = scene.ledger.newest("orders", 9)
    scene.lose_ledger()
    assert rebuild("orders", scene.sink, scene.ledger).grid == "batch"
    assert scene.ledger.newest("orders", 9) == newest
    assert [
        scene.ledger.assigned_number("orders", f"request of batch-00000000{n}") for n in range(4)
    ] == [
        0,
        1,
        2,
        None,
    ]
    assert scene.verify().findings == ()
