"""Lookups in Dagster: their figures in the events, and the run's config that pins anew."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pyarrow as pa
from deltalake import write_deltalake

from tests.assets.world import World

SQL = {"sql": "SELECT id, coalesce(city, 'nowhere') AS name FROM rows"}


def shops(folder: Path, city: str) -> None:
    """Has the first thing's city."""
    rows = {"id": pa.array([0], pa.int64()), "city": [city]}
    write_deltalake(folder / "shops", pa.table(rows), mode="overwrite")


def test_a_replay_looks_up_anew_if_the_config_says_so(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Else in the version of the first run; each event has what was asked, and how often."""
    shops(tmp_path, "Kyiv")
    lookup = {"lookup": "shops", "key": {"id": "id"}, "take": {"city": "city"}}
    there = {**lookup, "from": {"table": str(tmp_path / "shops")}}
    world = World(tmp_path, instance, transform={"steps": [there, SQL]})
    world.fill(2)
    assert world.run(0).success
    shown = {name: value.value for name, value in world.metadata(0).items()}
    read = shown["messages_read"]
    assert (shown["lookup_hits"], shown["lookup_misses"]) == (1, read - 1)
    first = shown["lookups"]["shops"]
    assert (first["keys"], first["version"][:2]) == (read, "0@")

    shops(tmp_path, "Lviv")
    assert world.run(0, on_committed="replace").success
    again = world.metadata(0)["lookups"].value["shops"]
    assert (again["version"], again["answers"]) == (first["version"], first["answers"])
    assert world.run(0, on_committed="replace", fresh_lookups=True).success
    fresh = world.metadata(0)["lookups"].value["shops"]
    assert fresh["version"].startswith("1@")
    assert fresh["answers"] != first["answers"]
