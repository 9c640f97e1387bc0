"""Micro-batches under Dagster: what a run commits, what it shows, and what the schedule does."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.ticks import ask
from tests.assets.world import TOPIC, World, hour
from windrow.assets.schedule import (
    BATCH_REFUSED,
    BATCHES_DONE,
    DONE_TAG,
    REFUSED_TAG,
    STILL_GOING,
)
from windrow.ingest.errors import RefusedError

SIX_AT_ONCE = {"grid": "batch", "every": "*/2 * * * *", "max_records": 6}


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    return World(tmp_path, instance, window=SIX_AT_ONCE)


def put(world: World, count: int) -> None:
    """Messages in turn over the partitions."""
    for i in range(count):
        world.send(0, i % 60, b'{"id": 1}', i % 2)


def committed(world: World) -> list[int]:
    """The numbers of the batches that the table holds."""
    return [int(str(c.receipt.window.start)) for c in world.sink.receipts()]


def tick(world: World, at: datetime) -> dg.RunRequest | str:
    found = ask(world, "things_waiting", at)
    return found if isinstance(found, str) else found[0]


def test_a_run_drains_what_is_waiting(world: World) -> None:
    """All that was there is committed in batches, each shown by one event of its own
    right after its commit.
    """
    put(world, 20)
    result = world.batches()
    assert result.success
    assert committed(world) == [0, 1, 2, 3]
    shown = world.shown()
    assert [s["batch"] for s in shown] == [0, 1, 2, 3]
    assert [s["window"] for s in shown[:2]] == ["batch-000000000", "batch-000000001"]
    assert [s["messages_read"] for s in shown[:4]] == [6, 6, 6, 2]
    assert [s["lag_records"] for s in shown[:4]] == [14, 8, 2, 0]
    assert "completeness" not in shown[0]
    assert {e.check_name: e.passed for e in result.get_asset_check_evaluations()} == {
        "receipts": True,
        "loss": True,
        "retention_margin": True,
    }
    assert world.verdict().ok, world.verdict()


def test_nothing_waiting_is_green_and_shows_nothing(world: World) -> None:
    """Where nothing is waiting nothing is committed and nothing materialized, and that
    is no failure.
    """
    assert world.batches().success
    assert world.shown() == []
    assert committed(world) == []


def test_all_of_a_run_has_its_id(world: World) -> None:
    """The batches of a run carry its root run's id and their place in it, so that its
    retries report them and go on.
    """
    put(world, 12)
    result = world.batches()
    assert [c.receipt.request for c in world.sink.receipts()] == [
        f"{result.run_id}/0",
        f"{result.run_id}/1",
    ]


def test_replays_are_named(world: World) -> None:
    """`replay` replaces exactly the named batches, from the same offsets, and nothing
    else is cut.
    """
    put(world, 20)
    assert world.batches().success
    before = {c.receipt.window: c.receipt for c in world.sink.receipts()}
    put(world, 3)
    assert world.batches(replay="1/3").success
    after = {c.receipt.window: c.receipt for c in world.sink.receipts()}
    assert [r.generation for r in after.values()] == [0, 1, 1, 0]
    assert {w: r.digest for w, r in after.items()} == {w: r.digest for w, r in before.items()}
    assert world.batches(replay="batch-000000000").success
    assert [c.receipt.generation for c in world.sink.receipts()] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"replay": "x"}, "'x' is not a micro-batch"),
        ({"replay": "7/3"}, "has no window in it"),
        ({"accept_fewer": True}, "accept_fewer is for replays only"),
        ({"replay": "9"}, "was not cut yet"),
    ],
)
def test_options_that_say_nothing_are_refused(
    world: World, config: dict[str, object], why: str
) -> None:
    """What can't be done is said at once, and not retried; no option is accepted and ignored."""
    put(world, 2)
    result = world.batches(**config)
    assert not result.success
    [failed] = [e for e in result.get_step_failure_events() if e.step_key == "things"]
    assert why in failed.step_failure_data.error_display_string
    assert world.attempts == 1
    assert committed(world) == []


def test_a_refused_batch_waits_for_a_person(world: World) -> None:
    """The schedule leaves a refused batch, and all behind it, alone until a person has
    run the job again.
    """
    put(world, 6)
    for _ in range(20):
        world.send(0, 0, b"poison")
    result = world.batches()
    assert not result.success
    assert committed(world) == [0]
    assert [s["batch"] for s in world.shown()] == [0]
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[REFUSED_TAG] == "things/batch"
    assert tick(world, hour(1)) == BATCH_REFUSED
    world.relax(max_dead_ratio=1.0)
    assert world.batches().success
    assert world.verdict().ok
    assert isinstance(tick(world, hour(1, 2)), dg.RunRequest)


def test_an_end_that_is_reached(world: World, tmp_path: Path) -> None:
    """The run says that it is done, and the schedule starts no more until the spec has another
    end; a run by hand reads nothing and is no failure.
    """

    def until(stop: object) -> None:
        world.spec = World.spec_of(tmp_path, window=SIX_AT_ONCE | {"stop": stop})
        world.load()

    put(world, 8)
    until("latest")
    assert isinstance(tick(world, hour(1)), dg.RunRequest)
    result = world.batches()
    assert result.success
    assert committed(world) == [0, 1]
    assert [s["lag_records"] for s in world.shown()] == [2, 0]
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert DONE_TAG in run.tags
    put(world, 4)
    assert tick(world, hour(1, 2)) == BATCHES_DONE
    assert world.batches().success
    assert committed(world) == [0, 1]
    assert tick(world, hour(1, 4)) == BATCHES_DONE
    until({"offsets": {0: 5, 1: 7}})
    assert isinstance(tick(world, hour(1, 6)), dg.RunRequest)
    assert world.batches().success
    assert committed(world) == [0, 1, 2]
    assert isinstance(tick(world, hour(1, 8)), dg.RunRequest), "one offset is still to come"


def test_a_refusal_before_the_first_batch_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is refused before there is a pipeline says why, and is no bug."""

    def refused(*_: object) -> object:
        raise RefusedError("A record of the ledger is damaged", "setup", "Restore it.")

    monkeypatch.setattr("windrow.assets.micro_batches.pipeline_of", refused)
    [failed] = world.batches().get_step_failure_events()
    said = failed.step_failure_data.error_display_string
    assert "A record of the ledger is damaged" in said
    assert "NameError" not in said


def test_a_refused_replay_is_in_nobodys_way(world: World) -> None:
    """A replay that is refused leaves the schedule going: the batch is committed as it was."""
    put(world, 6)
    assert world.batches().success
    world.broker.delete_records(next(iter(world.sent)), 2)
    assert not world.batches(replay="0").success
    assert isinstance(tick(world, hour(1)), dg.RunRequest)


def test_the_schedule_asks_at_every(world: World) -> None:
    """It ticks at `window.every`, once per tick, and not while a run is going."""
    assert world.defs.resolve_schedule_def("things_waiting").cron_schedule == "*/2 * * * *"
    first, again = tick(world, hour(1)), tick(world, hour(1, 2))
    assert isinstance(first, dg.RunRequest)
    assert isinstance(again, dg.RunRequest)
    assert first.run_key != again.run_key
    job = world.defs.resolve_job_def("things_batches")
    world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert tick(world, hour(1, 4)) == STILL_GOING


def test_six_hours_without_ticks_are_drained_by_one(world: World) -> None:
    """After an outage of the schedule one tick's run commits all that came meanwhile;
    nothing is lost, nothing twice.
    """
    put(world, 4)
    assert world.batches().success
    for n in range(1, 7):
        for i in range(10):
            world.send(n, i * 6, b'{"id": 1}', i % 2)
    assert isinstance(tick(world, hour(7)), dg.RunRequest)
    assert world.batches().success
    assert sum(c.receipt.counts.read for c in world.sink.receipts()) == 64
    assert world.verdict().ok, world.verdict()


def test_the_check_sees_what_dagster_shows_of_batches(world: World) -> None:
    """The receipts check finds a batch of which Dagster shows something else."""
    put(world, 12)
    assert world.batches().success
    older = {
        "window": "batch-000000001",
        "receipt": dg.MetadataValue.json({"digest": "x", "generation": 7, "attempt": "y"}),
    }
    world.instance.report_runless_asset_event(dg.AssetMaterialization("things", metadata=older))
    put(world, 2)
    [told] = [
        e for e in world.batches().get_asset_check_evaluations() if e.check_name == "receipts"
    ]
    assert not told.passed
    assert "batch-000000001: Dagster has generation 7, the table generation 0" in str(
        told.metadata["wrong"].value
    )


def test_partitions_are_no_matter_of_batches(world: World) -> None:
    """The table has no partitions, and its topic is what it comes from."""
    [table] = [s for s in world.defs.resolve_all_asset_specs() if s.key == dg.AssetKey(["things"])]
    assert table.partitions_def is None
    assert [d.asset_key for d in table.deps] == [dg.AssetKey(["kafka", TOPIC])]
