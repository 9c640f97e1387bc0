"""The schedule: what a tick asks for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import dagster as dg
import pytest

from assets.schedule import CATCH_UP
from tests.orchestration.world import World, hour


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """One on disk: a schedule opens its own."""
    with dg.instance_for_test() as made:
        yield made


def tick(world: World, at: datetime) -> list[tuple[str, str]] | str:
    """The ranges that a tick asks for, or why it asks for none."""
    schedule = world.defs.resolve_schedule_def("things_closed")
    repository = world.defs.get_repository_def()
    with dg.build_schedule_context(instance=world.instance, scheduled_execution_time=at, repository_def=repository) as context:
        data = schedule.evaluate_tick(context)
    if data.skip_message is not None:
        return data.skip_message
    requests = data.run_requests or []
    return [(r.tags["dagster/asset_partition_range_start"], r.tags["dagster/asset_partition_range_end"]) for r in requests]


def done(world: World, *hours: int) -> None:
    """Dagster shows these windows as green."""
    for n in hours:
        world.instance.report_runless_asset_event(dg.AssetMaterialization("things", partition=world.key(n)))


def test_it_asks_for_the_window_just_closed(world: World) -> None:
    """At a window's end + delay the tick asks for exactly that window."""
    done(world, 0, 1)
    assert tick(world, hour(3, 5)) == [(world.key(2), world.key(2))]


def test_a_window_that_is_not_closed_is_not_yet(world: World) -> None:
    """Before the first window's end + delay there is nothing to ask for, and that is no failure."""
    assert tick(world, hour(1, 4)) == "No closed window is waiting."


def test_an_outage_is_caught_up(world: World) -> None:
    """Windows that closed unseen are asked for by the next tick, in one run per stretch without a gap."""
    done(world, 0, 3)
    assert tick(world, hour(7, 5)) == [(world.key(1), world.key(2)), (world.key(4), world.key(6))]


def test_catching_up_has_an_end(world: World) -> None:
    """A schedule that is switched on late asks for the newest windows only; a backfill of years is a person's decision."""
    assert tick(world, hour(1000, 5)) == [(world.key(1000 - CATCH_UP), world.key(999))]


def test_a_refused_window_blocks_no_other(world: World) -> None:
    """What was refused waits for a person; the windows after it are asked for without it."""
    world.fill(1)
    for _ in range(200):
        world.send(1, 30, b"poison")
    world.fill(2, first=2)
    assert not world.run(0, 2).success
    assert tick(world, hour(3, 5)) == [(world.key(2), world.key(2))]


def test_one_run_at_a_time(world: World) -> None:
    """While a run of the schedule is going, the tick leaves everything to the next one."""
    job = world.defs.resolve_job_def("things_windows")
    world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert tick(world, hour(3, 5)) == "The run before is still going; the next tick asks for what it leaves."


def test_what_it_asks_for_can_be_run(world: World) -> None:
    """The job takes the tags of a request, and runs the whole stretch."""
    world.fill(3)
    assert tick(world, hour(3, 5)) == [(world.key(0), world.key(2))]
    assert world.run(0, 2).success
    assert tick(world, hour(3, 5)) == "No closed window is waiting."
