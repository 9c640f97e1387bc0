"""A pipeline writes to one table: never to a second one, and never to a new one that replaces a
missing one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runner.test_run import PLAIN, Desk, hour
from windrow.ingest.admin.rebase import rebase
from windrow.ingest.admin.rebind import propose, rebind
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.verify import verify
from windrow.ingest.admin.verify_ledger import against_ledger
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import OwnerError, RefusedError, SpecError, UnreachableError
from windrow.ingest.model.grid import batch_at
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.micro_batches import preview_next, run_batch
from windrow.ingest.runner.ownership import refuse_lost_receipt
from windrow.ingest.runner.run_windows import preview, run

pytestmark = pytest.mark.slow  # tables on disk

BATCH = {"window": {"grid": "batch"}}
ASKS: list[Callable[[Pipeline, Window], object]] = [lambda p, w: run(p, w, PLAIN), preview]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk on which nothing has run."""
    return Desk(tmp_path)


def elsewhere(desk: Desk) -> dict[str, Any]:
    """Returns settings that name another table."""
    return {"sink": {"path": str(desk.folder / "second")}}


def tables(desk: Desk) -> set[str]:
    """Returns the folders beside the ledger."""
    return {p.name for p in desk.folder.iterdir() if p.is_dir()}


@pytest.mark.parametrize("ask", ASKS)
def test_a_second_table_is_refused(desk: Desk, ask: Callable[[Pipeline, Window], object]) -> None:
    """With one window committed, a spec with another sink.path can't run or plan, and no second
    table is made.
    """
    desk.run(0)
    with pytest.raises(
        OwnerError,
        match=r"writes to delta:.*/table; the spec now names delta:.*/second.*windrow rebind SPEC",
    ):
        ask(desk.pipeline(**elsewhere(desk)), hour(1))
    assert tables(desk) == {"table", "table_dead"}
    assert not desk.run(1).recovered


def test_another_spelling_of_its_place_is_no_other_table(tmp_path: Path) -> None:
    """A link, or `..` in a URL, is the same table: windows run without a rebind, and a ledger
    can be rebuilt.
    """
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    desk = Desk(tmp_path / "real")
    desk.run(0)
    for n, path in enumerate(
        (str(tmp_path / "link" / "table"), f"file://{tmp_path}/real/../link/table"), 1
    ):
        sink_section = {"sink": {"path": path}}
        assert not desk.run(n, **sink_section).recovered
        assert desk.run(0, **sink_section).recovered
        with pytest.raises(SpecError, match="nothing to rebind"):
            propose(desk.pipeline(**sink_section))
        rebuild("things", desk.pipeline(**sink_section).sink, desk.pipeline().ledger)
        assert (
            against_ledger(
                "things",
                [],
                [hour(i).key for i in range(3)],
                desk.pipeline(**sink_section).sink,
                desk.pipeline().ledger,
            )
            == []
        )


def test_a_link_to_the_table_alone_is_refused(tmp_path: Path) -> None:
    """A link to the table only is refused, because beside it there would be a second table of
    dead letters.
    """
    (tmp_path / "real").mkdir()
    desk = Desk(tmp_path / "real")
    desk.run(0)
    (tmp_path / "alone").symlink_to(tmp_path / "real" / "table")
    with pytest.raises(OwnerError, match="alone"):
        desk.run(1, sink={"path": str(tmp_path / "alone")})


def test_a_committed_window_is_refused_too(desk: Desk) -> None:
    """A committed window under another sink.path is neither reported from the first table nor
    written to the second.
    """
    desk.run(0)
    for request in (PLAIN, Request("again", replace=True)):
        with pytest.raises(OwnerError):
            desk.run(0, request, **elsewhere(desk))
    assert tables(desk) == {"table", "table_dead"}


def test_a_second_spec_with_the_same_id_is_refused(desk: Desk) -> None:
    """A copied spec with another topic and table, and the same id, is refused before anything
    is written.
    """
    desk.run(0)
    other_source = {
        "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "shop.others"},
        **elsewhere(desk),
    }
    with pytest.raises(OwnerError, match="another id"):
        desk.run(0, **other_source)
    assert tables(desk) == {"table", "table_dead"}
    assert not run(
        desk.pipeline(**other_source, id="others"), Window("others", *hour(0).span or ()), PLAIN
    ).recovered


def test_micro_batches_keep_to_their_table(desk: Desk) -> None:
    """A micro-batch isn't cut, previewed or assigned for a second table."""
    assert run_batch(desk.pipeline(**BATCH), Request("r0")) is not None
    desk.produce(5)
    other_pipeline = desk.pipeline(**BATCH, **elsewhere(desk))
    for ask in (
        lambda: run_batch(other_pipeline, Request("r1")),
        lambda: preview_next(other_pipeline),
    ):
        with pytest.raises(OwnerError, match="rebind"):
            ask()
    assert other_pipeline.ledger.assigned_number("things", "r1") is None
    assert run_batch(desk.pipeline(**BATCH), Request("r1")) is not None
    shutil.rmtree(desk.folder / "table")
    desk.produce(5)
    for ask in (
        lambda: run_batch(desk.pipeline(**BATCH), Request("r2")),
        lambda: preview_next(desk.pipeline(**BATCH)),
    ):
        with pytest.raises(OwnerError, match="isn't there"):
            ask()


@pytest.mark.parametrize("ask", ASKS)
def test_a_table_that_is_gone_is_not_made_anew(
    desk: Desk, ask: Callable[[Pipeline, Window], object]
) -> None:
    """If the ledger has committed windows and the table is gone, as an unmounted disk, no table
    is made.

    With the table back, it works.
    """
    desk.run(0)
    (desk.folder / "table").rename(desk.folder / "unmounted")
    with pytest.raises(
        OwnerError,
        match=(
            r"isn't there, and the ledger knows 1 committed window of it.*mounted\?.*windrow rebind"
            r" SPEC"
        ),
    ):
        ask(desk.pipeline(), hour(1))
    assert not (desk.folder / "table").exists()
    (desk.folder / "unmounted").rename(desk.folder / "table")
    assert not desk.run(1).recovered


def test_a_table_that_is_empty_is_not_filled_up(desk: Desk) -> None:
    """A new, empty table of the same pipeline and ledger is refused if the ledger has committed
    windows.
    """
    desk.run(0)
    shutil.rmtree(desk.folder / "table")
    pipeline = desk.pipeline()
    pipeline.sink.prepare(TableOwner("things", pipeline.ledger.identity(), "hourly"))
    with pytest.raises(OwnerError, match="is empty, and the ledger knows 1 committed window of it"):
        desk.run(1)


def test_a_table_restored_from_a_backup_goes_on(desk: Desk) -> None:
    """A table that lacks its newest commits is accepted, and its lost window runs again from
    the same offsets.
    """
    desk.run(0)
    shutil.copytree(desk.folder / "table", desk.folder / "backup")
    first = desk.run(1).committed.receipt
    shutil.rmtree(desk.folder / "table")
    (desk.folder / "backup").rename(desk.folder / "table")
    second_result = desk.run(1)
    assert (second_result.recovered, second_result.committed.receipt.plan) == (False, first.plan)
    assert looked_over(desk.pipeline()) == []


def looked_over(pipeline: Pipeline) -> list[str]:
    """Returns the findings of verification that aren't info."""
    verified = verify(
        "things", pipeline.sink, pipeline.dead_letters, pipeline.ledger, pipeline.broker
    )
    return [f"{f.about}: {f.message}" for f in verified.findings if f.level != "info"]


def test_a_run_that_died_before_its_table_was_made_goes_on(desk: Desk) -> None:
    """A table that couldn't be made isn't bound, so that the path in the spec can be corrected."""
    (desk.folder / "blocked").write_text("a file in the way")
    with pytest.raises((SpecError, UnreachableError)):
        desk.run(0, sink={"path": str(desk.folder / "blocked" / "table")})
    assert not desk.run(0).recovered


def test_runs_that_begin_at_once_share_one_table(desk: Desk) -> None:
    """Of two specs that both find nothing bound, one binds the ledger, and the other is refused
    before it plans.

    1. A and B look: nothing is bound.
    2. A makes its table, and binds the ledger.
    3. B makes its own empty table, and finds A's bound.
    """
    late = desk.pipeline(**elsewhere(desk))
    prepare = late.sink.prepare

    def overtake(owner: TableOwner, replaced: Collection[str] = ()) -> None:
        prepare(owner, replaced)
        desk.run(0)

    late.sink.prepare = overtake  # type: ignore[method-assign]
    with pytest.raises(OwnerError, match="writes to"):
        run(late, hour(1), PLAIN)
    assert late.ledger.plan(hour(1)) is None
    assert list(late.sink.receipts()) == []
    assert not desk.run(1).recovered


def test_a_moved_table_goes_on(desk: Desk) -> None:
    """A table that was moved with its dead letters is refused until a rebind.

    Then planned windows go to the new place, and all verifies.
    """
    first = desk.run(0).committed.receipt
    ledger = desk.pipeline().ledger
    planned = ledger.freeze_plans([preview(desk.pipeline(), hour(1))])[0]
    for name in ("table", "table_dead"):
        (desk.folder / name).rename(desk.folder / name.replace("table", "second"))
    with pytest.raises(OwnerError, match="isn't there"):
        desk.run(1)
    moved = desk.pipeline(**elsewhere(desk))
    with pytest.raises(OwnerError, match="rebind"):
        run(moved, hour(1), PLAIN)
    proposed = propose(moved)
    assert (proposed.exists, proposed.windows, proposed.missing) == (True, 1, ())
    assert ledger.sink("things") != moved.sink.identity
    assert rebind(moved) == proposed
    with pytest.raises(SpecError, match="nothing to rebind"):
        propose(moved)
    assert run(moved, hour(0), PLAIN).committed.receipt == first
    assert run(moved, hour(1), PLAIN).committed.receipt.plan == planned
    assert run(moved, hour(0), Request("again", replace=True)).committed.receipt.generation == 1
    assert run(moved, hour(2), PLAIN).committed.receipt.plan.sink == moved.sink.identity
    assert looked_over(moved) == []
    with pytest.raises(OwnerError, match="writes to"):
        desk.run(2)


def test_a_table_that_was_removed_for_good(desk: Desk) -> None:
    """After a table was removed, a rebind forgets its windows and keeps the boundaries: they
    run again from the same offsets.
    """
    receipts = [desk.run(n).committed.receipt for n in range(2)]
    shutil.rmtree(desk.folder / "table")
    proposed = rebind(desk.pipeline())
    assert (proposed.exists, proposed.windows, proposed.missing) == (False, 0, (hour(0), hour(1)))
    assert desk.pipeline().ledger.recorded_receipts("things") == []
    assert looked_over(desk.pipeline()) == []
    assert [desk.run(n).committed.receipt.plan for n in range(2)] == [r.plan for r in receipts]


def test_a_table_that_lacks_windows(desk: Desk) -> None:
    """After a rebind to an older copy, the missing windows are named, forgotten by the ledger,
    and can run again.
    """
    desk.run(0)
    shutil.copytree(desk.folder / "table", desk.folder / "second")
    shutil.copytree(desk.folder / "table_dead", desk.folder / "second_dead")
    desk.run(1)
    moved = desk.pipeline(**elsewhere(desk))
    assert "It lacks 1 committed window that the ledger knows: 2026-01-05T01:00:00Z" in " ".join(
        propose(moved).changes
    )
    assert rebind(moved).missing == (hour(1),)
    assert not run(moved, hour(1), PLAIN).recovered
    assert looked_over(moved) == []


def test_only_the_pipelines_own_table_is_bound(desk: Desk) -> None:
    """A rebind refuses a table of another pipeline, of another ledger, or with a window of
    another plan, and records nothing.
    """
    desk.run(0)
    run(
        desk.pipeline(id="others", **elsewhere(desk)),
        Window("others", *(hour(0).span or ())),
        PLAIN,
    )
    with pytest.raises(OwnerError, match="belongs to pipeline 'others'"):
        rebind(desk.pipeline(**elsewhere(desk)))
    third = {"sink": {"path": str(desk.folder / "third")}}
    desk.run(0, **third, state=str(desk.folder / "other.db"))
    with pytest.raises(OwnerError, match="belongs to ledger"):
        rebind(desk.pipeline(**third))
    twin = desk.pipeline(
        sink={"path": str(desk.folder / "fourth")}, state=str(desk.folder / "twin.db")
    )
    twin.ledger.adopt_identity(desk.pipeline().ledger.identity())
    run(twin, hour(0), PLAIN)
    with pytest.raises(OwnerError, match="another plan"):
        rebind(desk.pipeline(sink={"path": str(desk.folder / "fourth")}))
    assert desk.pipeline().ledger.sink("things") == desk.pipeline().sink.identity


def test_a_rebuild_does_not_move_a_pipeline(desk: Desk) -> None:
    """Rebuilding a ledger doesn't move a pipeline to a second table: that needs a rebind.

    A lost ledger is bound again.
    """
    desk.run(0)
    shutil.copytree(desk.folder / "table", desk.folder / "second")
    moved = desk.pipeline(**elsewhere(desk))
    with pytest.raises(OwnerError, match="windrow rebind SPEC"):
        rebuild("things", moved.sink, moved.ledger)
    (desk.folder / "state.db").unlink()
    rebuild("things", moved.sink, moved.ledger)
    assert moved.ledger.sink("things") == moved.sink.identity


def test_a_rebase_asks_for_the_right_table(desk: Desk) -> None:
    """A second spec with the same id can't rebase the first one's source."""
    desk.run(0)
    desk.broker.create_topic("anew", partitions=1)
    other_pipeline = desk.pipeline(
        source={"bootstrap_servers": "127.0.0.1:9", "topic": "anew"}, **elsewhere(desk)
    )
    with pytest.raises(OwnerError):
        rebase(other_pipeline, None)


def test_a_batch_whose_run_died_before_its_report_is_known(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run records the receipt of a batch whose run died before its report, so that a
    later loss is noticed.
    """
    with monkeypatch.context() as crash:
        crash.setenv("WINDROW_CRASH", "commit.after:raise")
        with pytest.raises(CrashError):
            run_batch(desk.pipeline(**BATCH), Request("r0"))
    pipeline, batch = desk.pipeline(**BATCH), batch_at("things", 0)
    assert pipeline.sink.look(batch) is not None
    assert pipeline.ledger.recorded_text(batch) is None
    desk.produce(3)
    assert run_batch(pipeline, Request("r1")) is not None
    assert pipeline.ledger.recorded_text(batch) is not None


def test_a_receipt_that_is_held_back_is_not_lost() -> None:
    """A missing receipt is looked for again after other writers' open transactions are decided,
    before it counts as lost.

    This is for tables that don't replace windows.
    """
    looks = list[object]([None, None])

    def decide() -> None:
        looks[:] = [None, "its receipt"]

    sink = SimpleNamespace(
        capabilities=SimpleNamespace(replaces=False),
        look=lambda _: looks.pop(),
        wait_until_decided=decide,
        identity="kafka:orders",
    )
    ledger = SimpleNamespace(recorded_text=lambda _: "a copy")
    pipeline: Any = SimpleNamespace(sink=sink, ledger=ledger)
    refuse_lost_receipt(pipeline, hour(0))
    sink.wait_until_decided = lambda: looks.extend([None, None])
    looks[:] = [None]
    with pytest.raises(RefusedError, match="its receipt is missing"):
        refuse_lost_receipt(pipeline, hour(0))
