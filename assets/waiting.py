"""Downstream work that waits until a window's hours are over everywhere, and is told
again if messages of them came late.

A table's partition is green as soon as its window is committed. Whoever sums up an hour
wants it complete: the sensor made here asks for a run of a partition once its window is
`complete`, and once more whenever its generation or its state changes (replaced, late).
"""

# No postponed annotations here: Dagster reads those of the decorated function itself.

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import dagster as dg

from windrow.assets.completion import judged, newest_recorded
from windrow.assets.dependencies import keys_of, pipeline_of
from windrow.assets.names import identifier
from windrow.assets.partitions import key_of
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import in_time
from windrow.ingest.errors import SpecError, WindrowError
from windrow.ingest.runner.context import Pipeline

LOOK_BACK = 500
"""How many of the newest windows a tick looks at."""

AT_ONCE = 50
"""How many runs a tick asks for, the oldest windows first; the next tick goes on."""

Target: TypeAlias = (
    "str | dg.AssetsDefinition | dg.AssetSelection | dg.JobDefinition |"
    " dg.UnresolvedAssetJobDefinition | list[dg.AssetsDefinition]"
)
"""What to run: assets or a job, on partitions like the table's (`partitions_of(spec.window)`)."""


def when_complete(
    spec: PipelineSpec, target: Target, name: str | None = None, every_seconds: int = 60
) -> dg.SensorDefinition:
    """A sensor that runs `target` for each partition whose window is complete.

    The cursor says what was asked for; without it (a reset) the run keys, made of
    window, generation and state, do.

    Args:
        spec: the upstream pipeline's, of windows in time.
        target: what to run.
        name: the sensor's; by default one per pipeline.
        every_seconds: the least time between two looks.

    Raises:
        SpecError: micro-batches have no hours, so there is nothing to wait for.
    """
    if spec.window.is_batch:
        raise SpecError(
            f"{spec.id} has micro-batches, which have no hours to be complete",
            "spec",
            "Run downstream work after each of them.",
        )

    @dg.sensor(
        name=name or f"{identifier(spec.id)}_complete",
        target=target,
        minimum_interval_seconds=every_seconds,
        required_resource_keys=keys_of(spec),
    )
    def complete(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            states = states_of(pipeline_of(spec, context.resources))
        except WindrowError as error:
            return dg.SkipReason(f"Nobody knows what is complete: {error}")
        asked: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
        new = [key for key, state in states.items() if asked.get(key) != state][:AT_ONCE]
        if not new:
            return dg.SkipReason("No window has become complete.")
        requests = [dg.RunRequest(run_key=f"{key} {states[key]}", partition_key=key) for key in new]
        return dg.SensorResult(
            run_requests=requests, cursor=json.dumps(_remembered(states, asked, new))
        )

    return complete


def states_of(pipeline: Pipeline) -> dict[str, str]:
    """`generation state` by partition key of the newest windows whose hours are over
    everywhere, in the order of time.
    """
    found = judged(pipeline, LOOK_BACK).windows
    held = [
        r
        for r in newest_recorded(pipeline, LOOK_BACK)
        if r.window.key in found and found[r.window.key].state != "open"
    ]
    window = in_time(pipeline.spec.window)
    return {
        key_of(window, r.window.span[0]): f"{r.generation} {found[r.window.key].state}"
        for r in held
        if r.window.span is not None
    }


def _remembered(
    states: Mapping[str, str], asked: Mapping[str, str], new: Iterable[str]
) -> dict[str, str]:
    """What was asked for by now, of the windows that are still looked at."""
    return {key: asked[key] for key in states if key in asked} | {key: states[key] for key in new}
