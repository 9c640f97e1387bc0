"""The names in Dagster: a change of a file needs a line in CHANGELOG.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.conftest import DAGSTER_ITSELF
from tests.assets.world import World
from tests.golden.conftest import Golden
from windrow.assets.completeness import when_complete
from windrow.assets.metadata import ENTRIES

pytestmark = [pytest.mark.filterwarnings(warning_filter) for warning_filter in DAGSTER_ITSELF]


@pytest.mark.parametrize("grid", ["hourly", "batch"])
def test_names_in_dagster(grid: str, tmp_path: Path, golden: Golden) -> None:
    """A pipeline's assets, partitions, checks, jobs, schedules and resources keep their names.

    Dagster finds their history by these names. The settings of runs keep their names too.
    """
    over = {} if grid == "hourly" else {"window": {"grid": "batch"}}
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(tmp_path, instance, **over)
    defs, sensors = world.defs, list[str]()
    if grid == "hourly":
        sensors.append(when_complete(world.spec, defs.resolve_assets_def("things")).name)
    repository = defs.get_repository_def()
    assets = {
        spec.key.to_user_string(): {
            "after": sorted(dep.asset_key.to_user_string() for dep in spec.deps),
            "group": spec.group_name,
            "kinds": sorted(spec.kinds),
            "tags": sorted(spec.tags),
            "metadata": sorted(spec.metadata),
            "partitions": str(spec.partitions_def),
        }
        for spec in sorted(defs.resolve_all_asset_specs(), key=lambda spec: spec.key)
    }
    jobs = {
        job.name: {
            node.name: sorted(getattr(node.definition.config_schema.config_type, "fields", ()))
            for node in sorted(job.nodes, key=lambda node: node.name)
        }
        for job in repository.get_all_jobs()
    }
    definition_names = {
        "assets": assets,
        "checks": sorted(key.to_user_string() for key in repository.asset_graph.asset_check_keys),
        "jobs": jobs,
        "schedules": {s.name: s.job_name for s in repository.schedule_defs},
        "sensors": sensors,
        "resources": sorted(repository.get_top_level_resources()),
    }
    golden(f"told/dagster.{grid}.json", definition_names)


@pytest.mark.slow
def test_events_in_dagster(tmp_path: Path, golden: Golden) -> None:
    """Events of windows and dead letters, and results of checks, keep their metadata and tags.

    The columns of tables in the metadata stay too.
    """
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(tmp_path, instance)
        world.fill(2)
        world.send(0, 1, b"poison")
        done = world.run(0)
        run = instance.get_run_by_id(done.run_id)
    assert run is not None
    events = {
        event.asset_key.to_user_string() if event.asset_key else "": {
            "metadata": entries_of(event.step_materialization_data.materialization.metadata),
            "tags": sorted(event.step_materialization_data.materialization.tags or ()),
        }
        for event in done.get_asset_materialization_events()
    }
    checks = {
        evaluation.check_name: entries_of(evaluation.metadata)
        for evaluation in done.get_asset_check_evaluations()
    }
    event_names = {"entries": ENTRIES, "events": events, "checks": checks, "run": sorted(run.tags)}
    golden("told/dagster.events.json", event_names)


def entries_of(metadata: Any) -> dict[str, Any]:
    """Returns the type of each entry; for a table its columns."""
    return {
        name: [column.name for column in value.schema.columns]
        if isinstance(value, dg.TableMetadataValue)
        else type(value).__name__
        for name, value in sorted(metadata.items())
    }
