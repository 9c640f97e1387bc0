"""A paused pipeline in Dagster: the messages of ticks, runs and backfills, and no loss."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from tests.assets.test_waiting import Downstream
from tests.assets.ticks import ask
from tests.assets.world import World, hour
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.ledger_records import Pause

WORDS = "Pipeline things is paused by ann since 2026-01-09T04:00:00Z: the broker moves"


def pause(world: World, number: int = 0) -> None:
    """Records a pause if the number is even, else a resumption."""
    ledger = open_ledger(world.spec.state_url())
    record = Pause(number, number % 2 == 0, "ann", "the broker moves", hour(100))
    assert ledger.put_pause("things", record) == record


def test_ticks_and_runs_of_a_paused_pipeline(world: World) -> None:
    """The schedule and the sensor of a paused pipeline skip with the pause's message.

    A run of a range fails with the same message, without a retry. Its windows don't count as
    refused, so the first tick after the pause requests all of them.
    """
    world.fill(3)
    downstream = Downstream(world)
    assert world.run(0).success
    pause(world)
    skip_message = ask(world, "things_closed", hour(3, 5))
    assert isinstance(skip_message, str)
    assert skip_message.startswith(WORDS)
    assert downstream.keys() == []
    run = world.run(1, 2)
    assert not run.success
    (failed,) = (event for event in run.all_events if event.is_step_failure)
    error = failed.step_failure_data.error
    assert error is not None
    assert error.message.startswith(f"Window {world.key(1)}: {WORDS}")
    assert [e for e in run.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"] == []
    records_filter = dg.AssetRecordsFilter(dg.AssetKey(["things"]), asset_partitions=[world.key(1)])
    (record,) = world.instance.fetch_observations(records_filter, limit=9).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["failed"].value == WORDS
    pause(world, 1)
    assert downstream.keys() == [world.key(0)]
    [request] = ask(world, "things_closed", hour(3, 5))
    assert isinstance(request, dg.RunRequest)
    assert request.tags["dagster/asset_partition_range_start"] == world.key(1)
    assert world.run(1, 2).success
    assert world.verdict().ok


def test_micro_batches_wait_and_go_on(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """A paused pipeline of micro-batches starts no run and makes no batch.

    A run by hand during the pause doesn't stop the schedule after it.
    """
    world = World(tmp_path, instance, window={"grid": "batch"})
    pause(world)
    skip_message = ask(world, "things_waiting", hour(1))
    assert isinstance(skip_message, str)
    assert skip_message.startswith(WORDS)
    assert not world.run_batches().success
    assert open_ledger(world.spec.state_url()).newest("things") == []
    pause(world, 1)
    world.fill(1)
    assert isinstance(ask(world, "things_waiting", hour(2)), list)


def test_a_tick_without_a_ledger_asks_for_its_windows(world: World) -> None:
    """A tick that can't read the ledger requests its windows; the run asks the ledger again."""
    Path(world.spec.state_url()).write_text("x" * 9999)
    [request] = ask(world, "things_closed", hour(1, 5))
    assert isinstance(request, dg.RunRequest)
