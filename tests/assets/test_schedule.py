"""The schedule: the windows that a tick requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.ticks import ask
from tests.assets.world import START, TOPIC, World, hour
from windrow.assets.schedule import GOING
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import DamagedError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.due import LEAST

pytestmark = pytest.mark.some(10, of="tests")


def tick(world: World, moment: datetime) -> list[tuple[str, str]] | str:
    """Returns the ranges that a tick requests, or the reason why it requests none."""
    requests = ask(world, "things_closed", moment)
    if isinstance(requests, str):
        return requests
    return [
        (r.tags["dagster/asset_partition_range_start"], r.tags["dagster/asset_partition_range_end"])
        for r in requests
    ]


def done(world: World, *hours: int) -> None:
    """Reports these windows to Dagster as materialized."""
    for n in hours:
        world.instance.report_runless_asset_event(
            dg.AssetMaterialization("things", partition=world.key(n))
        )


def test_it_asks_for_the_window_just_closed(world: World) -> None:
    """At a window's end and delay, the tick requests exactly that window."""
    done(world, 0, 1)
    assert tick(world, hour(3, 5)) == [(world.key(2), world.key(2))]


def test_a_window_that_is_not_closed_is_not_yet(world: World) -> None:
    """Before the first window's end and delay, a tick requests nothing and doesn't fail."""
    assert tick(world, hour(1, 4)) == "No closed window is waiting."


def test_an_outage_is_caught_up(world: World) -> None:
    """After an outage, the next tick requests all closed windows, one run for each
    range without gaps.
    """
    done(world, 0, 3)
    assert tick(world, hour(7, 5)) == [(world.key(1), world.key(2)), (world.key(4), world.key(6))]


def test_catching_up_has_an_end(world: World) -> None:
    """A schedule that is switched on late requests the newest windows only.

    A user must start a backfill for older ones.
    """
    assert tick(world, hour(1000, 5)) == [(world.key(1000 - LEAST), world.key(999))]


def test_a_tick_says_what_it_leaves(world: World) -> None:
    """A tick that leaves older windows says how many, and advises a backfill.

    The text is in the runs' tags, or in the reason for no run.
    """
    done(world, 3, 4)
    [request] = ask(world, "things_closed", hour(100, 5))
    assert isinstance(request, dg.RunRequest)
    remaining_text = f"50 windows before {world.key(100 - LEAST)} not materialized."
    assert request.tags["windrow/left"].startswith(remaining_text)
    assert "start a backfill" in request.tags["windrow/left"]
    done(world, *range(100 - LEAST, 100))
    skip_message = tick(world, hour(100, 5))
    assert isinstance(skip_message, str)
    assert skip_message.startswith(f"No closed window is waiting. {remaining_text}")
    done(world, *range(3), *range(5, 100 - LEAST - 1))
    assert f"1 window before {world.key(100 - LEAST)} not materialized" in tick(world, hour(100, 5))


def test_nothing_is_said_where_nothing_is_left(world: World) -> None:
    """If all older windows are materialized, a tick says nothing about them."""
    done(world, *range(52))
    [request] = ask(world, "things_closed", hour(100, 5))
    assert isinstance(request, dg.RunRequest)
    assert "windrow/left" not in request.tags


def test_a_tick_says_what_it_leaves_in_its_log(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log of a tick has the sentence about older windows, too."""
    ask(world, "things_closed", hour(100, 5))
    assert f"52 windows before {world.key(52)} not materialized." in capsys.readouterr().err


def test_a_run_is_found_by_its_hours(world: World) -> None:
    """A run over several windows is tagged with their start and end.

    The schedule's runs and a user's runs both have these tags.
    """
    hours = {"windrow/start": "2026-01-05T00:00:00Z", "windrow/end": "2026-01-05T03:00:00Z"}
    [request] = ask(world, "things_closed", hour(3, 5))
    assert isinstance(request, dg.RunRequest)
    assert hours.items() <= request.tags.items()
    world.fill(3)
    run = world.instance.get_run_by_id(world.run(0, 2).run_id)
    assert run is not None
    assert hours.items() <= run.tags.items()


def test_short_windows_are_caught_up_for_two_days(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A tick after an outage of two days requests all windows of two days, however many."""
    world = World(
        tmp_path, instance, window={"grid": "*/15 * * * *", "start": START, "delay": "1m"}
    )
    assert tick(world, hour(96, 1)) == [("2026-01-07-00:00", "2026-01-08-23:45")]


def test_a_refused_window_blocks_no_other(world: World) -> None:
    """A refused window isn't requested again, and the windows around it are."""
    for n in (0, 2):
        world.fill(1, first=n)
        for _ in range(200):
            world.send(n + 1, 30, b"poison")
    world.fill(1, first=4)
    assert not world.run(1, 3).success
    assert world.green_keys() == {world.key(2)}
    assert tick(world, hour(5, 5)) == [(world.key(0), world.key(0)), (world.key(4), world.key(4))]
    done(world, 0, 4)
    refused = f"{world.key(1)}, {world.key(3)}"
    assert tick(world, hour(5, 5)) == f"A person decides about what was refused: {refused}."


def test_a_refused_window_holds_back_those_that_can_only_come_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If windows must be committed in order, no window after a refused one is requested."""
    monkeypatch.setattr(PipelineSpec, "in_order", property(lambda _: True))
    world.fill(1)
    for _ in range(200):
        world.send(1, 30, b"poison")
    world.fill(1, first=2)
    assert not world.run(1).success
    assert tick(world, hour(3, 5)) == [(world.key(0), world.key(0))]
    done(world, 0)
    assert tick(world, hour(3, 5)) == (
        f"A person decides about what was refused: {world.key(1)}. Behind the first one, 1 later"
        " window can only follow in order."
    )


def assert_it_fails_and_is_asked_for_again(world: World) -> None:
    """Asserts that the first hour's run fails, and that the next tick requests the hour again."""
    assert not world.run(0).success
    assert tick(world, hour(1, 5)) == [(world.key(0), world.key(0))]


@pytest.mark.parametrize("wrong_setting", ["ledger", "grid", "receipt"])
def test_a_wrong_setting_refuses_no_window(world: World, wrong_setting: str) -> None:
    """A window isn't shown as refused if its table has another ledger or grid, or a damaged
    receipt.

    The schedule requests it again.
    """
    world.fill(1)
    ledger, grid = (
        ("another", "hourly")
        if wrong_setting == "ledger"
        else (world.ledger_id(), "daily" if wrong_setting == "grid" else "hourly")
    )
    world.sink.prepare(TableOwner("things", ledger, grid))
    if wrong_setting == "receipt":
        world.sink.looks = raise_damaged  # type: ignore[method-assign]
    assert_it_fails_and_is_asked_for_again(world)


def raise_damaged(windows: Sequence[Window]) -> Iterator[None]:
    """Raises the error of a sink whose receipt is missing."""
    raise DamagedError(
        f"the receipt of window {windows[0].key} is missing", "commit", "Restore it."
    )


@pytest.mark.parametrize(
    ("statuses", "waits"),
    [
        (("NOT_STARTED", "STARTING", "STARTED", "CANCELING"), True),
        (("SUCCESS", "FAILURE", "CANCELED"), False),
    ],
)
def test_one_run_at_a_time(world: World, statuses: tuple[str, ...], waits: bool) -> None:
    """While a run of the schedule's job is not over, the tick requests nothing."""
    assert dg.DagsterRunStatus.QUEUED in GOING  # Dagster makes no queued run without its daemon
    job = world.defs.resolve_job_def("things_windows")
    for status in statuses:
        run = world.instance.create_run_for_job(job, status=dg.DagsterRunStatus[status])
        words = "The previous run is still going; the next tick requests what it leaves."
        assert (tick(world, hour(3, 5)) == words) is waits
        world.instance.delete_run(run.run_id)


def test_a_run_of_another_job_is_in_nobodys_way(world: World) -> None:
    """A run of another job doesn't stop the schedule, because it commits no windows."""
    job = world.defs.resolve_job_def("things_topics")
    world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    assert tick(world, hour(1, 5)) == [(world.key(0), world.key(0))]


def test_what_failed_at_one_tick_is_asked_for_at_the_next(world: World) -> None:
    """The run key contains the tick's time, so a failed window is requested again at the next tick.

    Dagster starts each run key once, so one tick makes one run.
    """
    first, repeated, later = (
        ask(world, "things_closed", moment) for moment in (hour(3, 5), hour(3, 5), hour(4, 5))
    )
    keys = [
        {request.run_key for request in requests}
        for requests in (first, repeated, later)
        if not isinstance(requests, str)
    ]
    assert keys[0] == keys[1]
    assert len(keys[0] | keys[2]) == 2


def test_what_it_asks_for_can_be_run(world: World) -> None:
    """The job accepts the tags of a request, and runs the whole range."""
    world.fill(3)
    assert tick(world, hour(3, 5)) == [(world.key(0), world.key(2))]
    assert world.run(0, 2).success
    assert tick(world, hour(3, 5)) == "No closed window is waiting."


@pytest.fixture
def quarters(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    """A pipeline with windows of a quarter of an hour, except around the end of every hour."""
    return World(
        tmp_path,
        instance,
        window={"grid": "5-50/15 * * * *", "start": hour(0, 5), "delay": "2m", "max_wait": "0s"},
    )


def test_six_hours_without_ticks_are_caught_up(quarters: World) -> None:
    """After an outage of six hours, one tick requests all windows, and its run leaves no gap."""
    world = quarters
    world.fill(8)
    world.now = hour(1, 40)
    assert world.run_range("2026-01-05-00:05", "2026-01-05-01:20").success
    world.now = hour(7, 37)
    [(first, last)] = tick(world, world.now)
    assert (first, last) == ("2026-01-05-01:35", "2026-01-05-07:20")
    assert world.run_range(first, last).success
    assert len(world.green_keys()) == 30
    assert tick(world, world.now) == "No closed window is waiting."
    receipts = [c.receipt for c in world.sink.receipts()]
    assert [r.window.end for r in receipts[:-1]] == [r.window.start for r in receipts[1:]]
    older_messages = {
        tp: {o: message for o, message in offsets.items() if world.minute_of(tp, o) < 7 * 60 + 35}
        for tp, offsets in world.sent_offsets.items()
    }
    expected_messages = {
        tp: {o: message for o, message in offsets.items() if world.minute_of(tp, o) >= 5}
        for tp, offsets in older_messages.items()
    }
    world.sent_offsets = expected_messages
    assert world.verdict().ok, world.verdict()


def test_a_window_that_waits_for_a_transaction_is_not_refused(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A window that waits for an open transaction fails, and the next tick requests it again."""
    window = {"grid": "hourly", "start": START, "delay": "5m", "max_wait": "24h"}
    world = World(tmp_path, instance, window=window)
    world.fill(1)
    world.broker.produce(
        TopicPartition(TOPIC, 0),
        b"{}",
        timestamp=hour(0, 59),
        transaction=world.broker.transaction(),
    )
    world.impatient = True
    world.now = hour(1, 5)
    assert_it_fails_and_is_asked_for_again(world)


def test_a_window_run_too_early_is_asked_for_when_it_closes(world: World) -> None:
    """A window that is run before its end isn't shown as refused, and is requested when
    it closes.
    """
    world.fill(2)
    world.now = hour(1)
    assert not world.run(0).success
    assert tick(world, hour(1, 5)) == [(world.key(0), world.key(0))]


def test_the_ticks_of_a_process_share_an_instance(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ticks of all schedules open Dagster's storage once, which takes most of a tick's time."""
    windows = World(tmp_path, instance, maintain={"schedule": "0 3 * * *"})
    batches = World(tmp_path, instance, window={"grid": "batch"})
    opened, from_ref = list[object](), dg.DagsterInstance.from_ref

    def opening(ref: Any) -> dg.DagsterInstance:
        opened.append(ref)
        return from_ref(ref)

    monkeypatch.setattr(dg.DagsterInstance, "from_ref", opening)
    for world in (windows, batches):
        for schedule in world.defs.schedules or ():
            assert isinstance(schedule, dg.ScheduleDefinition)
            ask(world, schedule.name, hour(3, 5))
    assert opened == [instance.get_ref()]
