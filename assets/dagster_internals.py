"""The names of Dagster that windrow uses although they aren't public or documented.

Only this module uses such names. They were seen in Dagster 1.13, and any release may change
them. `tests/shape/test_internals.py` shows which are gone, and pyproject.toml allows no
later release.
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
"""Tags of an event with its code version and its data version. Events have no fields for them."""

NEVER_OBSERVED = DEFAULT_DATA_VERSION.value
"""The data version that Dagster assumes for an asset without an event."""

NO_EVENT = NULL_EVENT_POINTER
"""The event id of an input that has no event."""

CheckedEvent: TypeAlias = AssetCheckEvaluationTargetMaterializationData
"""The materialization that a check is about. Only the time that Dagster compares is public."""


def data_version_tags(version: str) -> dict[str, str]:
    """Returns the tags of an event whose data version doesn't come from Dagster."""
    return {DATA_VERSION: version, DATA_VERSION_IS_USER_PROVIDED_TAG: "true"}


def input_tags(asset: dg.AssetKey, version: str, event: str) -> dict[str, str]:
    """Returns the tags of an event that was made from a version of another asset.

    Dagster shows the event's partition as stale once the other asset has another version.
    Dagster adds such tags only to events that it makes itself.

    Args:
        asset: the other asset.
        version: its data version.
        event: the id of its event.
    """
    return {get_input_data_version_tag(asset): version, get_input_event_pointer_tag(asset): event}


def events_logged() -> dg.MaterializeResult[None]:
    """Returns the result of a step that has logged its events itself, so that Dagster adds none.

    It has the mark that Dagster gives to the steps of observable sources. No public name
    stops Dagster from adding an event.
    """
    return dg.MaterializeResult(metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


# -------------------------------------------------------------------------------------- runs


def range_tags(keys: dg.PartitionKeyRange) -> dict[str, str]:
    """Returns the tags that make one run cover a range of partitions.

    A `RunRequest` itself can have only one partition.
    """
    return {ASSET_PARTITION_RANGE_START_TAG: keys.start, ASSET_PARTITION_RANGE_END_TAG: keys.end}


class JobOfPipeline(UnresolvedAssetJobDefinition):
    """A job that knows only the assets that it needs, not the whole code location.

    Otherwise Dagster stores all resources of the location with each job, and searches all
    assets for each job. With 200 pipelines that is a snapshot of 334 MB.
    """

    def resolve(
        self,
        asset_graph: AssetGraph,
        default_executor_def: dg.ExecutorDefinition | None = None,
        resource_defs: Mapping[str, dg.ResourceDefinition] | None = None,
    ) -> dg.JobDefinition:
        """Makes the job. Dagster has already given each asset the resources that it requires."""
        del resource_defs
        keys = set[dg.AssetKey | dg.AssetCheckKey]()
        for node in map(asset_graph.get, self.selection.resolve(asset_graph)):
            keys |= {node.key, *node.parent_keys, *node.check_keys}
        near = AssetGraph.from_assets(asset_graph.assets_defs_for_keys(keys))
        return super().resolve(near, default_executor_def)


# ------------------------------------------------------------------------------------- ticks

_last_instance: list[dg.DagsterInstance] = []
"""The instance of this process's last tick, if any."""


def share_instance(context: dg.ScheduleEvaluationContext) -> None:
    """Gives a tick the Dagster instance of this process's last tick.

    Otherwise Dagster opens its storage anew for each tick of each schedule, which takes most of
    a tick's time. An instance can be shared: Dagster's webserver has one for all its threads.
    """
    ref = context.instance_ref
    if ref is None:
        return
    shared = [instance for instance in _last_instance if instance.get_ref() == ref]
    if not shared:
        _last_instance[:] = shared = [dg.DagsterInstance.from_ref(ref)]
    # Dagster has no argument for it.
    context._instance = shared[0]  # type: ignore[assignment]  # noqa: SLF001


# ------------------------------------------------------------------------------------ errors

ErrorInfo: TypeAlias = SerializableErrorInfo
"""An error as Dagster shows it: a text, a stack, a class name and a cause."""


class ShownAloneError(DagsterUserCodeProcessError):
    """An error that Dagster shows without its own stack: it shows only what `show_alone` sets.

    Dagster treats it as an error that another process of the user's code reported. No
    public name leaves out the stack of Dagster's own executor.
    """

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text, user_code_process_error_infos=[])  # type: ignore[no-untyped-call]

    def show_alone(self, info: ErrorInfo) -> None:
        """Sets what Dagster shows."""
        self.user_code_process_error_infos = [info]


# ------------------------------------------------------------------------------ texts, sizes

LONGEST_TEXT = 999
"""The maximum length of a Markdown text that Dagster's pages show, in characters.

Instead of a longer text they show a link.
"""

SCAFFOLDER_WARNING = "Class `SparkDeclarativePipelineScaffolder`"
"""The beginning of a warning that each `dg` command prints.

It is about a class of dagster-spark, which dagster-pyspark installs.
"""
