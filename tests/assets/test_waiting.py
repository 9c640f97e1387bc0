"""Downstream assets that wait for complete windows."""

# No postponed annotations here, because Dagster reads those of the decorated function.

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.test_health import checks
from tests.assets.test_window_asset import failure_of
from tests.assets.world import World, hour
from windrow.assets.completeness import when_complete
from windrow.assets.names import table_key
from windrow.assets.partitions import partitions_of
from windrow.ingest.admin.maintain import maintain_tables
from windrow.ingest.config.maintain import MaintainSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.ledger.sql import open_ledger


class Downstream:
    """A downstream asset that sums up each hour, and the sensor that runs it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cursor: str | None = None
        self.summed: list[str] = []

        @dg.asset(deps=[table_key(world.spec)], partitions_def=partitions_of(world.spec))
        def hourly_sum(context: dg.AssetExecutionContext) -> None:
            self.summed.append(context.partition_key)

        self.sensor = when_complete(world.spec, [hourly_sum])
        self.defs = dg.Definitions.merge(
            world.defs, dg.Definitions(assets=[hourly_sum], sensors=[self.sensor])
        )

    def tick(self, *, saved: bool = True) -> list[dg.RunRequest]:
        """Evaluates the sensor, and returns its requests.

        With `saved` False, Dagster dies before it stores the cursor.
        """
        repository = self.defs.get_repository_def()
        resources = {
            key: repository.get_top_level_resources()[key]
            for key in self.sensor.required_resource_keys
        }
        with dg.build_sensor_context(
            instance=self.world.instance,
            cursor=self.cursor,
            repository_def=repository,
            resources=resources,
        ) as context:  # like Dagster's daemon does
            data = self.sensor.evaluate_tick(context)
        self.skip_message = data.skip_message or ""
        if saved and data.cursor is not None:
            self.cursor = data.cursor
        return list(data.run_requests or [])

    def keys(self, *, saved: bool = True) -> list[str]:
        return [str(r.partition_key) for r in self.tick(saved=saved)]


@pytest.fixture
def downstream(world: World) -> Downstream:
    return Downstream(world)


def test_it_waits_until_the_hours_are_over_everywhere(world: World, downstream: Downstream) -> None:
    """A window's partition is requested once, when all topic-partitions were read beyond its end.

    A tick without a request names the topic-partitions that hold it back.
    """
    world.fill(3)
    assert world.run(0, 2).success
    assert downstream.keys() == [world.key(0), world.key(1)]
    assert downstream.keys() == []
    assert "hold the watermark at 2026-01-05T02:00:00Z" in downstream.skip_message
    world.fill(1, first=3)
    assert world.run(3).success
    assert downstream.keys() == [world.key(2)]


def test_what_it_asks_for_runs(world: World, downstream: Downstream) -> None:
    """The requested run is of the complete partition."""
    world.fill(2)
    assert world.run(0).success
    [request] = downstream.tick()
    job = downstream.defs.resolve_implicit_global_asset_job_def()
    selected = [dg.AssetKey(["hourly_sum"])]
    result = job.execute_in_process(
        instance=world.instance, partition_key=request.partition_key, asset_selection=selected
    )
    assert result.success
    assert downstream.summed == [world.key(0)]


def test_a_change_is_told_once_more(world: World, downstream: Downstream) -> None:
    """A window that becomes late, or is replaced, is requested once more with another run key."""
    world.fill(2)
    assert world.run(0).success
    [first] = downstream.tick()
    assert world.run(0, on_committed="replace").success
    [replaced] = downstream.tick()
    world.send(0, 30, b'{"id": 1}')
    world.fill(1, first=2)
    assert world.run(1).success
    late = downstream.tick()
    assert [r.run_key for r in (first, replaced)] == [
        f"{world.key(0)} 0 complete",
        f"{world.key(0)} 1 complete",
    ]
    assert [r.run_key for r in late] == [f"{world.key(0)} 1 late", f"{world.key(1)} 0 complete"]
    assert downstream.tick() == []


def test_rows_that_expire_ask_for_nothing(world: World, downstream: Downstream) -> None:
    """The expiry of a window's rows asks for no run, and no check has anything against it. A run of
    the window shows it, a replacement is refused, and one that brings the rows back is requested.
    """
    world.fill(3)
    assert world.run(0, 1).success
    assert downstream.keys() == [world.key(0), world.key(1)]
    keep_rows = datetime.now(UTC) - hour(1) - timedelta(minutes=30)
    maintain = MaintainSpec(keep_rows=keep_rows)
    world.spec = world.spec.model_copy(update={"maintain": maintain})
    tables = (world.sink, world.sink.dead_letters)
    ledger = open_ledger(world.spec.state_url())
    assert maintain_tables(world.spec, tables, lambda: ledger, dry_run=False).expired_rows == 60
    assert downstream.keys() == []
    assert all(check.passed for check in checks(world.run(1)).values())
    assert world.run(0).success
    shown = {name: value.value for name, value in world.metadata(0).items()}
    assert shown["summary"].startswith("In the table: **0 rows** of 60 messages, 60 rows expired")
    assert (shown["dagster/partition_row_count"], shown["rows_written"]) == (0, 60)
    assert downstream.keys() == []
    assert "bring_back: true" in failure_of(world.run(0, on_committed="replace"))
    assert world.run(0, on_committed="replace", bring_back=True).success
    assert [request.run_key for request in downstream.tick()] == [f"{world.key(0)} 2 complete"]


def test_a_cursor_that_is_lost_costs_nothing(world: World, downstream: Downstream) -> None:
    """A tick that died before its cursor was stored is repeated with the same run keys.

    Dagster starts each run key once.
    """
    world.fill(3)
    assert world.run(0, 1).success
    died = [r.run_key for r in downstream.tick(saved=False)]
    assert [r.run_key for r in downstream.tick()] == died


def test_a_tick_is_bounded(
    world: World, downstream: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long history is requested in pieces, the oldest windows first, each once.

    The cursor remembers all ticks, and forgets windows that are too old.
    """
    downstream.cursor = '{"2020-01-01-00:00": "complete"}'
    monkeypatch.setattr("windrow.assets.completeness.AT_ONCE", 2)
    world.fill(6)
    assert world.run(0, 4).success
    ticks = [downstream.keys() for _ in range(4)]
    assert ticks == [[world.key(0), world.key(1)], [world.key(2), world.key(3)], [world.key(4)], []]
    assert set(json.loads(downstream.cursor)) == {world.key(n) for n in range(5)}


def test_it_waits_for_event_times(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """With `event_delay` a partition is requested once each topic-partition has passed its end by
    the delay in event time, and once more if messages of its hours come after that.

    Dead letters and rows without an event time don't pass an end. Event, check and tick say by
    which column messages are late, and what holds a window open.
    """
    window = {"grid": "hourly", "start": hour(0), "event_time": "created_at"}
    decode = {"schema": "things.py:Dated"}
    world = World(tmp_path, instance, window=window | {"event_delay": "30m"}, decode=decode)
    downstream = Downstream(world)

    def send(n: int, *events: str) -> None:
        for i, event in enumerate(events):
            world.send(n, 30 + i, b'{"id": 1, "created_at": %s}' % event.encode(), i % 2)

    send(0, '"2026-01-05T00:10:00Z"', '"2026-01-05T00:40:00Z"')
    send(1, '"2026-01-05T00:50:00Z"', '"2026-01-05T01:20:00Z"', "null")
    assert world.run(0, 1).success
    assert downstream.keys() == []
    assert (
        "`shop.things[0]` holds the event watermark at 2026-01-05T00:50:00Z: the committed windows"
        " have no later `created_at`"
    ) in downstream.skip_message
    shown = world.metadata(1)
    assert (shown["late"].value, shown["early"].value) == (1, 0)
    assert shown["event_time"].value == "created_at"
    assert "1 message of earlier windows by `created_at`, late" in str(shown["summary"].value)
    send(2, '"2026-01-05T01:30:00Z"', '"2026-01-05T02:10:00Z"', '"no time"')
    assert world.run(2).success
    assert downstream.keys() == [world.key(0)]
    shown = world.metadata(0) | world.metadata(2)
    assert shown["event_watermark"].value == hour(1, 30).timestamp()
    send(3, '"2026-01-05T00:59:59.999999Z"', '"2026-01-05T03:10:00Z"')
    result = world.run(3)
    assert result.success
    assert [r.run_key for r in downstream.tick()] == [f"{world.key(0)} 0 late"]
    [evaluation] = [
        e for e in result.get_asset_check_evaluations() if e.check_name == "completeness"
    ]
    assert not evaluation.passed
    assert "1 message of its hours came in later windows" in str(evaluation.description)
    assert "sum by hour over `created_at`" in str(evaluation.description)
    assert "A longer `window.event_delay` waits" in str(evaluation.description)


def test_batches_have_nothing_to_wait_for(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Micro-batches have no hours, so the sensor is refused."""
    world = World(tmp_path, instance, window={"grid": "batch"})
    with pytest.raises(SpecError, match="no hours to be complete"):
        when_complete(world.spec, "anything")


def test_other_partitions_are_refused(world: World) -> None:
    """A target without the table's partitions is refused when the sensor is made.

    A target with more partitions is accepted.
    """

    def refusal_of(target: dg.AssetsDefinition | dg.JobDefinition) -> str:
        with pytest.raises(SpecError) as raised:
            when_complete(world.spec, target)
        return str(raised.value)

    def asset(partitions: dg.PartitionsDefinition[str] | None) -> dg.AssetsDefinition:
        @dg.asset(deps=[table_key(world.spec)], partitions_def=partitions)
        def downstream() -> None:
            """Sums something up."""

        return downstream

    daily = asset(dg.DailyPartitionsDefinition("2026-01-05"))
    assert "downstream can't wait for windows of things" in refusal_of(daily)
    assert "but Daily, starting 2026-01-05 UTC" in refusal_of(daily)
    assert "partitions_def=partitions_of(spec)" in refusal_of(daily)
    assert "but none" in refusal_of(asset(None))
    later = asset(dg.HourlyPartitionsDefinition("2026-01-06-00:00"))
    assert "starting 2026-01-06" in refusal_of(later)
    with pytest.raises(SpecError):
        when_complete(world.spec, [asset(partitions_of(world.spec)), daily])
    plain = dg.Definitions(assets=[daily]).resolve_implicit_global_asset_job_def()
    assert "can't wait for windows" in refusal_of(plain)
    when_complete(world.spec, asset(dg.HourlyPartitionsDefinition("2025-01-01-00:00")))
    when_complete(world.spec, [asset(partitions_of(world.spec))])
