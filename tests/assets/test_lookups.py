"""Lookups in Dagster: their figures in events, and the run config that pins new versions."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from deltalake import write_deltalake

from tests.assets.world import World

SQL = {"sql": "SELECT id, coalesce(city, 'nowhere') AS name FROM rows"}


def shops(folder: Path, city: str) -> None:
    """Writes the lookup table, which has the first thing's city."""
    rows = {"id": pa.array([0], pa.int64()), "city": [city]}
    write_deltalake(folder / "shops", pa.table(rows), mode="overwrite")


def looking_up(folder: Path, **named: str) -> dict[str, Any]:
    """Returns steps that look up in the table of shops; `named` may have its asset key."""
    lookup = {"lookup": "shops", "key": {"id": "id"}, "take": {"city": "city"}}
    return {"steps": [{**lookup, "from": {"table": str(folder / "shops"), **named}}, SQL]}


def test_a_replay_looks_up_anew_if_the_config_says_so(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A replay uses the lookup's version of the first run, unless the config asks for the newest.

    Each event has the lookup's figures.
    """
    shops(tmp_path, "Kyiv")
    world = World(tmp_path, instance, transform=looking_up(tmp_path))
    world.fill(2)
    assert world.run(0).success
    shown = {name: value.value for name, value in world.metadata(0).items()}
    read = shown["messages_read"]
    assert (shown["lookup_hits"], shown["lookup_misses"]) == (1, read - 1)
    first = shown["lookups"]["shops"]
    assert (first["keys"], first["version"][:2]) == (read, "0@")

    shops(tmp_path, "Lviv")
    assert world.run(0, on_committed="replace").success
    replayed = world.metadata(0)["lookups"].value["shops"]
    assert (replayed["version"], replayed["answers"]) == (first["version"], first["answers"])
    assert world.run(0, on_committed="replace", fresh_lookups=True).success
    fresh = world.metadata(0)["lookups"].value["shops"]
    assert fresh["version"].startswith("1@")
    assert fresh["answers"] != first["answers"]


def test_column_lineage_has_the_table_that_is_looked_up_in(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A column that was made from a looked-up column depends on that table's column.

    It depends on the key, too, which comes from the message's value. The table must have an
    asset.
    """
    shops(tmp_path, "Kyiv")
    world = World(tmp_path, instance, transform=looking_up(tmp_path, asset="lake/shops"))
    world.fill(1)
    assert world.run(0).success
    deps = world.metadata(0)["dagster/column_lineage"].value.deps_by_column["name"]
    topic = dg.AssetKey(["kafka", "shop.things"])
    assert {(dep.asset_key, dep.column_name) for dep in deps} == {(topic, "value"), (SHOPS, "city")}


THINGS, SHOPS = dg.AssetKey(["things"]), dg.AssetKey(["lake", "shops"])
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03")


def of_shops(days: dg.PartitionsDefinition | None) -> dg.AssetsDefinition:
    """Returns the looked-up table as another team's asset."""

    @dg.asset(key=SHOPS, partitions_def=days)
    def looked_up_table() -> None: ...

    return looked_up_table


class Watched:
    """A window of a table with the automation condition `eager`."""

    def __init__(self, defs: dg.Definitions, instance: dg.DagsterInstance, key: str) -> None:
        eager = dg.AutomationCondition.eager()
        assets = [
            asset.map_asset_specs(lambda s: s.replace_attributes(automation_condition=eager))
            if isinstance(asset, dg.AssetsDefinition) and asset.key == THINGS
            else asset
            for asset in defs.assets or ()
        ]
        self.defs = dg.Definitions(assets, resources=defs.resources)
        self.instance, self.key, self.cursor = instance, key, None
        self.count_requested()

    def stale(self) -> list[str]:
        """Returns the reasons why the UI shows "unsynced"."""
        graph, loading = self.defs.resolve_asset_graph(), LoadingContextForTest(self.instance)
        resolver = CachingStaleStatusResolver(self.instance, graph, loading)
        return [cause.reason for cause in resolver.get_stale_causes(THINGS, self.key)]

    def count_requested(self) -> int:
        """Returns the number of runs that the condition requested since the last call."""
        now = datetime(2026, 1, 5, 3, 30, tzinfo=UTC)
        tick = dg.evaluate_automation_conditions(
            self.defs,
            self.instance,
            dg.AssetSelection.assets(THINGS),
            evaluation_time=now,
            cursor=self.cursor,
        )
        self.cursor = tick.cursor
        return tick.get_num_requested(THINGS)


@pytest.mark.some(1)
@pytest.mark.parametrize("days", [None, DAYS, dg.StaticPartitionsDefinition(["a", "b"])])
@pytest.mark.parametrize("batch", [False, True])
def test_a_looked_up_asset_is_upstream_and_nothing_more(
    days: dg.PartitionsDefinition | None, batch: bool, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """A looked-up asset is in the lineage, and makes no window stale.

    That holds if the asset was named, made first, or made again after the window. `eager`
    requests no window because of it. Runs don't wait for it, even if one run makes both.
    """
    shops(tmp_path, "Kyiv")
    over: dict[str, Any] = {"window": {"grid": "batch"}} if batch else {}
    world, shops_asset = (
        World(tmp_path, instance, transform=looking_up(tmp_path), **over),
        of_shops(days),
    )
    world.fill(2)
    assert (world.run_batches() if batch else world.run(0)).success

    named = looking_up(tmp_path, asset="lake/shops")
    world.spec = World.spec_of(tmp_path, transform=named, **over)
    world.load()
    defs = dg.Definitions.merge(world.defs, dg.Definitions([shops_asset]))
    watched = Watched(defs, instance, world.key(0))
    above = dg.AssetSelection.assets(THINGS).upstream()
    assert SHOPS in above.resolve(defs.resolve_asset_graph())
    assert watched.stale() == []
    assert (world.run_batches() if batch else world.run(0)).success
    for _ in range(2):
        first = None if days is None else days.get_partition_keys()[0]
        assert dg.materialize([shops_asset], partition_key=first, instance=instance).success
        assert (watched.stale(), watched.count_requested()) == ([], 0)
    if days is None:
        run = defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, asset_selection=[SHOPS, THINGS], partition_key=watched.key
        )
        assert run.success
        assert watched.stale() == []


@pytest.mark.long
def test_an_edge_from_it_would_do_more(instance: dg.DagsterInstance) -> None:
    """A direct dependency on the looked-up asset would make windows stale.

    Dagster takes an asset without partitions for new input, even with a mapping to all
    partitions. A window is stale as soon as the dependency exists, and each time the asset is
    made. Then `eager` requests the newest window.
    """
    shops_asset, hours = of_shops(None), dg.HourlyPartitionsDefinition("2026-01-05-00:00")

    def things(*edges: dg.AssetDep) -> dg.AssetsDefinition:
        @dg.asset(key=THINGS, partitions_def=hours, deps=edges)
        def table() -> None: ...

        return table

    key = "2026-01-05-02:00"
    edge = dg.AssetDep(SHOPS, partition_mapping=dg.AllPartitionMapping())
    assert dg.materialize([things()], partition_key=key, instance=instance).success
    watched = Watched(dg.Definitions([shops_asset, things(edge)]), instance, key)
    assert watched.stale() == ["has a new dependency on lake/shops"]
    assert dg.materialize(
        [shops_asset, things(edge)], selection=[THINGS], partition_key=key, instance=instance
    ).success
    assert (watched.stale(), watched.count_requested()) == ([], 0)
    assert dg.materialize([shops_asset], instance=instance).success
    assert watched.stale() == ["has a new dependency materialization"]
    assert watched.count_requested() == 1
