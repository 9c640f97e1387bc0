"""The cost of 5,000 micro-batches that are partitions of Dagster, compared with ten.

The pipeline and its topic are in memory, and Dagster's storage is SQLite as usual. Each batch
has an event like those of windrow. The queries of the asset's page are sent by GraphQL to a
code location in its own process, as the webserver does.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg

# These names aren't public. Dagster is pinned to 1.13.
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster_graphql.test.utils import execute_dagster_graphql

from tests.assets.ticks import ask
from tests.assets.world import World
from windrow.assets.micro_batches import PARTITIONS, keep_newest
from windrow.assets.names import table_key
from windrow.ingest.model.boundary import label_text

ROUNDS = 7
FOLDER = "WINDROW_BENCH_PARTITIONS"
"""The variable with the folder of the served pipeline."""
SERVED = "tests.bench.partitions"

OVERVIEW = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numPartitions numMaterialized numFailed numMaterializing }
  assetMaterializations(limit: 1) { runId partition metadataEntries { __typename label } }
} } }
"""
PARTITIONS_TAB = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionKeysByDimension { name type partitionKeys }
  assetPartitionStatuses { __typename ... on DefaultPartitionStatuses {
    materializedPartitions failedPartitions unmaterializedPartitions materializingPartitions
  } }
} } }
"""
ONE_PARTITION = """
query($key: AssetKeyInput!, $partition: String!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode {
    assetMaterializations(limit: 1, partitions: [$partition]) {
      runId partition metadataEntries { __typename label description }
    }
    assetObservations(limit: 1, partitions: [$partition]) { runId }
  } } }
"""


def world_in(folder: Path, instance: dg.DagsterInstance) -> World:
    """Returns a pipeline of micro-batches of ten messages."""
    return World(folder, instance, window={"grid": "batch", "max_records": 10})


def seconds(call: Callable[[], object]) -> float:
    """Returns the seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def median_seconds(call: Callable[[int], object]) -> float:
    """Returns the median seconds of several calls."""
    return median(seconds(lambda n=n: call(n)) for n in range(ROUNDS))  # type: ignore[misc]


def commit_batch(world: World) -> None:
    """Commits one waiting batch by a run."""
    world.fill(1, per_hour=10)
    assert world.run_batches().success


def ask_page(context: WorkspaceProcessContext, query: str, **variables: Any) -> None:
    """Runs a query of the page with a new request context, as each request has one."""
    key = {"path": ["things"]}
    done = execute_dagster_graphql(
        context.create_request_context(), query, {"key": key, **variables}
    )
    asset_node = done.data["assetNodeOrError"]
    assert asset_node, done
    stats = asset_node.get("partitionStats")
    # Earlier rounds added keys that have no event yet.
    assert stats is None or stats["numPartitions"] - stats["numMaterialized"] <= ROUNDS, stats


def measure_steps(count: int, folder: Path) -> list[tuple[str, float]]:
    """Returns the seconds of each step with this number of batches as partitions."""
    with dg.instance_for_test(temp_dir=str(folder)) as instance:
        world = world_in(folder, instance)
        costs = [("add all of them", seconds(lambda: keep_newest(instance, world.spec, count)))]
        commit_batch(world)
        first_partition = dg.AssetRecordsFilter(
            table_key(world.spec), asset_partitions=[label_text(0)]
        )
        [record] = instance.fetch_materializations(first_partition, limit=1).records
        event = record.asset_materialization
        assert event is not None
        for n in range(1, count):
            instance.report_runless_asset_event(event._replace(partition=label_text(n)))
        costs += [
            (
                "add one, and take out the oldest",
                median_seconds(lambda n: keep_newest(instance, world.spec, count + n + 1)),
            ),
            (
                "a tick of the schedule",
                median_seconds(
                    lambda n: ask(world, "things_waiting", datetime(2026, 2, 1, n, tzinfo=UTC))
                ),
            ),
            ("a run that commits one batch", median_seconds(lambda _: commit_batch(world))),
        ]
        os.environ[FOLDER] = str(folder)
        target = ModuleTarget(SERVED, "defs", str(Path(__file__).parents[2]), "here")
        with WorkspaceProcessContext(instance, target) as context:
            queries = (
                ("the asset's overview", OVERVIEW, {}),
                ("its list of partitions", PARTITIONS_TAB, {}),
                ("a partition of the list", ONE_PARTITION, {"partition": label_text(count - 1)}),
            )
            for label, query, more in queries:
                first = seconds(lambda q=query, m=more: ask_page(context, q, **m))  # type: ignore[misc]
                later = median_seconds(lambda _, q=query, m=more: ask_page(context, q, **m))  # type: ignore[misc]
                costs += [(f"{label}, at first", first), (f"{label}, later", later)]
    return costs


def main() -> None:
    """Measures and prints."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=PARTITIONS)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {}
    for count in (10, options.batches):
        with tempfile.TemporaryDirectory(prefix="windrow-bench-") as folder:
            for label, took in measure_steps(count, Path(folder)):
                figures.setdefault(label, []).append(took)
    print(f"{'batches that are partitions':40} {'10':>9} {options.batches:>9,}")
    for label, (few_seconds, many_seconds) in figures.items():
        print(
            f"{label:40} {few_seconds * 1000:>6.0f} ms {many_seconds * 1000:>6.0f} ms", flush=True
        )


if __name__ == "__main__":
    main()
elif FOLDER in os.environ:
    served = Path(os.environ[FOLDER])
    defs = world_in(served, dg.DagsterInstance.ephemeral()).defs
