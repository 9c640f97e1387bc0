"""What windrow uses of Dagster that isn't among its public or documented names.

No other module does. All of it was seen in Dagster 1.13, and any release may change it:
`tests/shape/test_internals.py` tells what is gone, and pyproject.toml allows no later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._core.definitions.unresolved_asset_job_definition import (
    UnresolvedAssetJobDefinition,
)
from dagster._core.errors import DagsterUserCodeProcessError
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]

# ------------------------------------------------------------------------------------ events

CODE_VERSION, DATA_VERSION = CODE_VERSION_TAG, DATA_VERSION_TAG
"""Tags of an event with the code version and the data version; an event has no fields for them."""

NEVER_OBSERVED = DEFAULT_DATA_VERSION.value
"""The data version that Dagster takes for that of an asset without an event."""

NO_EVENT = NULL_EVENT_POINTER
"""The id in the place of an event's, of an input without one."""

CheckedEvent: TypeAlias = AssetCheckEvaluationTargetMaterializationData
"""The materialization that a check is of; public is only the time that Dagster compares."""


def data_version_tags(version: str) -> dict[str, str]:
    """Returns the tags of an event with a data version that Dagster doesn't make itself."""
    return {DATA_VERSION: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}


def input_tags(asset: dg.AssetKey, version: str, event: str) -> dict[str, str]:
    """Returns the tags of an event that was made of a version of another asset.

    Dagster shows it as stale once that asset has another version. Dagster adds such tags only to
    events that it makes itself.
    """
    return {get_input_data_version_tag(asset): version, get_input_event_pointer_tag(asset): event}


def events_logged() -> dg.MaterializeResult[None]:
    """Returns the result of a step that has logged its events itself: Dagster adds none.

    It is marked as Dagster marks the steps of observable sources. Nothing public stops Dagster
    from adding an event.
    """
    return dg.MaterializeResult(metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


# -------------------------------------------------------------------------------------- runs


def range_tags(keys: dg.PartitionKeyRange) -> dict[str, str]:
    """Returns the tags that make one run cover a range of partitions.

    A `RunRequest` has one partition at most.
    """
    return {ASSET_PARTITION_RANGE_START_TAG: keys.start, ASSET_PARTITION_RANGE_END_TAG: keys.end}


class JobOfPipeline(UnresolvedAssetJobDefinition):
    """A job that knows only what its assets require, not the whole code location.

    Dagster would store all resources of the location with each job, and look through all assets
    for each: of 200 pipelines that is a snapshot of 334 MB.
    """

    def resolve(
        self,
        asset_graph: AssetGraph,
        default_executor_def: dg.ExecutorDefinition | None = None,
        resource_defs: Mapping[str, dg.ResourceDefinition] | None = None,
    ) -> dg.JobDefinition:
        """Makes the job. Dagster has given each asset the resources that it requires."""
        del resource_defs
        keys = set[dg.AssetKey | dg.AssetCheckKey]()
        for node in map(asset_graph.get, self.selection.resolve(asset_graph)):
            keys |= {node.key, *node.parent_keys, *node.check_keys}
        near = AssetGraph.from_assets(asset_graph.assets_defs_for_keys(keys))
        return super().resolve(near, default_executor_def)


# ------------------------------------------------------------------------------------ errors

ErrorInfo: TypeAlias = SerializableErrorInfo
"""An error as Dagster shows it: a text, a stack, the name of a class, and a cause."""


class ShownAloneError(DagsterUserCodeProcessError):
    """Dagster shows only what `show_alone` got.

    It takes the error for one that another process of the user's code reported. Nothing public
    leaves out the stack of Dagster's own executor.
    """

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text, user_code_process_error_infos=[])  # type: ignore[no-untyped-call]

    def show_alone(self, info: ErrorInfo) -> None:
        """Sets what Dagster shows."""
        self.user_code_process_error_infos = [info]


# ------------------------------------------------------------------------------ texts, sizes

LONGEST_TEXT = 999
"""The most characters of Markdown that Dagster's pages show where they stand."""

SCAFFOLDER_WARNING = "Class `SparkDeclarativePipelineScaffolder`"
"""The begin of a warning of each `dg` command.

It is about a class of dagster-spark, which comes with dagster-pyspark.
"""
