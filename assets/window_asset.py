"""The table asset of windows in time: its partitions are the windows."""

# No postponed annotations here: Dagster reads those of the decorated function itself.

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import dagster as dg
from pydantic import Field

from windrow.assets.checks import log_checks
from windrow.assets.dead_replay import DeadReplayConfig, replayed_dead_letters
from windrow.assets.dependencies import Clock, keys_of, pipeline_of
from windrow.assets.description import code_version, definition_metadata, table_description
from windrow.assets.looked_up import dependencies
from windrow.assets.names import dead_replay_job_name, table_key
from windrow.assets.partitions import partitions_of, windows_of
from windrow.assets.reporting import (
    errors_reported,
    events_logged,
    last_observed,
    progress_log,
    request_id,
    show,
    show_refused,
    warn_of_processes,
)
from windrow.assets.schedule import hours_tags
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.window import Window
from windrow.ingest.runner.broker_snapshot import with_broker_snapshot
from windrow.ingest.runner.context import PassedOver, Pipeline, Request, Result
from windrow.ingest.runner.run_windows import all_refused, pass_over_refused, run_windows
from windrow.ingest.schema.columns import Columns


class OnCommitted(DeadReplayConfig):
    """A run's config: what to do with windows that are committed already."""

    on_committed: Literal["report", "replace", "replay_dead_letters"] = Field(
        default="report",
        description=(
            "report: show the receipt, write nothing. replace: read the same offsets again, replace"
            " the rows. replay_dead_letters: take the dead letters through today's"
            " schema again, and add what becomes rows."
        ),
    )
    accept_fewer: bool = Field(
        default=False,
        description=(
            "Let a replacement go on although it sees fewer messages than were read before, or some"
            " were edited before a dead-letter replay."
        ),
    )
    fresh_lookups: bool = Field(
        default=False,
        description=(
            "Look up in tables as they are now, not in the versions that the windows are pinned to."
        ),
    )

    def replays_dead_letters(self, context: dg.AssetExecutionContext, pipeline: Pipeline) -> bool:
        """Returns whether the run's config or its job asks for a dead-letter replay.

        Raises:
            SpecError: the config asks to replace as well.
        """
        by_job = context.run.job_name == dead_replay_job_name(pipeline.spec)
        if by_job and self.on_committed == "replace":
            raise SpecError(
                f"The job {context.run.job_name} replays dead letters, and replaces nothing",
                "spec",
                "Leave on_committed out, or start another.",
            )
        return by_job or self.on_committed == "replay_dead_letters"

    def results(
        self, context: dg.AssetExecutionContext, pipeline: Pipeline, windows: Sequence[Window]
    ) -> Iterator[Result | PassedOver]:
        """Runs windows or replays their dead letters; yields each result after its commit.

        A refused window doesn't stop the others.

        Raises:
            SpecError: the options conflict.
        """
        if self.replays_dead_letters(context, pipeline):
            yield from replayed_dead_letters(context, pipeline, windows, self)
            return
        self.refuse_without()
        request = Request(
            request_id(context),
            replace=self.on_committed == "replace",
            accept_fewer=self.accept_fewer,
            fresh_lookups=self.fresh_lookups,
        )
        yield from run_windows(
            pipeline, windows, request, progress_log(context), pass_over_refused(pipeline)
        )


def window_asset(spec: PipelineSpec, columns: Columns, clock: Clock) -> dg.AssetsDefinition:
    """Makes the asset of a pipeline's table.

    `columns`: the columns of its schema; `clock`: the clock of its runs.
    """
    version = code_version(spec, columns)

    @dg.asset(
        key=table_key(spec),
        partitions_def=partitions_of(spec.window),
        deps=dependencies(spec),
        kinds={"kafka", "spark", spec.sink.kind},
        required_resource_keys=keys_of(spec),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata=definition_metadata(spec, columns),
        description=table_description(spec),
        code_version=version,
    )
    def table(context: dg.AssetExecutionContext, config: OnCommitted) -> dg.MaterializeResult[None]:
        warn_of_processes(context)
        windows = windows_of(spec, context.partition_keys)
        context.instance.add_run_tags(context.run.run_id, hours_tags(windows[0][1], windows[-1][1]))
        first = windows[0][0]
        failed = partial(show_refused, context, spec)
        with errors_reported(context, spec, f"Window {first}", on_failed=partial(failed, first)):
            pipeline = pipeline_of(spec, context.resources, clock)
        topics = last_observed(context, spec)
        results = config.results(context, pipeline, [window for _, window in windows])
        snapshot = with_broker_snapshot(pipeline)
        passed = dict[str, PassedOver]()

        def refused(key: str, error: RefusedError) -> None:
            show_refused(context, spec, key, error)
            log_checks(context, pipeline)

        for key, _ in windows:
            what, why = f"Window {key}", partial(failed, key)
            with errors_reported(context, spec, what, partial(refused, key), why):
                result = next(results)
            if isinstance(result, PassedOver):
                show_refused(context, spec, key, result.error)
                passed[key] = result
                continue
            last = key == windows[-1][0]
            show(context, pipeline if last else snapshot, result, topics, version, key, last=last)
        if passed:
            log_checks(context, pipeline)
            with errors_reported(context, spec, f"Window {', '.join(passed)}"):
                raise all_refused(list(passed.values()), len(windows))
        return events_logged()

    return table
