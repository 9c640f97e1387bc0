"""What lookups look up in, as assets upstream of a table.

Between the looked-up table's asset and the pipeline's stands one that nobody makes. An edge from
one to the other would turn each window stale that was made before the looked-up table was made
again, although it is pinned to the version that it asked; and conditions such as `eager` would
ask for the newest window. The asset between has an empty set of partitions, of which the table's
partitions need all: so none is missing, changes, or is awaited.
"""

from __future__ import annotations

import dagster as dg

from windrow.assets.names import upstream_keys
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.transform.lookup.kind import LookupStepSection


def looked_up(spec: PipelineSpec) -> list[dg.AssetSpec]:
    """The asset between, for each lookup whose `from.asset` names one."""
    return [
        dg.AssetSpec(
            dg.AssetKey(["lookup", f"{step.lookup}-of-{spec.id}"]),
            deps=[dg.AssetKey.from_user_string(step.from_.asset)],
            group_name=spec.dagster.group_name,
            partitions_def=dg.StaticPartitionsDefinition([]),
            description=(
                f"What the lookup `{step.lookup}` of `{spec.id}` takes. Each window is pinned to a"
                " version, so nothing waits for this, and nothing turns stale by it."
            ),
        )
        for step in (() if spec.transform is None else spec.transform.steps)
        if isinstance(step, LookupStepSection) and step.from_.asset is not None
    ]


def dependencies(spec: PipelineSpec) -> list[dg.AssetKey | dg.AssetDep]:
    """What a pipeline's table depends on: its topics, and what its lookups look up in."""
    every = dg.AllPartitionMapping()
    return [
        *upstream_keys(spec),
        *(dg.AssetDep(asset.key, partition_mapping=every) for asset in looked_up(spec)),
    ]
