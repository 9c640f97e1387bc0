"""The asset of the table. Its partitions are the windows.

A run of micro-batches without a partition commits all waiting messages
(`assets.micro_batches`).
"""

# No postponed annotations here: Dagster reads the annotations of the decorated function.

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from windrow.assets.attributes import dependencies, table_attributes
from windrow.assets.checks import log_checks
from windrow.assets.dagster_internals import events_logged
from windrow.assets.dependencies import Clock, keys_of, pipeline_of
from windrow.assets.description import code_version, definition_metadata, table_description
from windrow.assets.micro_batches import drain
from windrow.assets.names import dead_replay_job_name
from windrow.assets.partitions import partitions_of, windows_of
from windrow.assets.reporting import (
    last_observations_of,
    progress_log,
    raise_if_cancelled,
    report_errors,
    request_id,
    show,
    show_refused,
    warn_of_processes,
)
from windrow.assets.schedule import hours_tags
from windrow.ingest.admin.chosen_dead_letters import Chosen
from windrow.ingest.admin.dead_replay import (
    DeadReplayRequest,
    DeadReplayResult,
    replay_dead_letters,
)
from windrow.ingest.admin.edit_function import load_edit
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError, SpecError, format_count
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.broker_snapshot import with_broker_snapshot
from windrow.ingest.runner.context import PassedOver, Pipeline, Request, Result
from windrow.ingest.runner.run_windows import (
    all_refused,
    one_by_one,
    pass_over_refused,
    run,
    run_windows,
)
from windrow.ingest.schema.columns import Columns


class DeadReplayConfig(dg.Config):
    """A run's config: the dead letters to replay, and the edit; refused for other runs."""

    stage: str | None = Field(
        default=None,
        description=(
            "For a dead-letter replay: only those of this stage: key, header, value, schema"
            " or rules."
        ),
    )
    reason: str | None = Field(
        default=None, description="For a dead-letter replay: only those with this reason."
    )
    edit: str | None = Field(
        default=None,
        description=(
            "For a dead-letter replay: a Python file whose function edit(message) repairs each"
            " message first; relative to the pipeline's file."
        ),
    )

    def refuse_without(self) -> None:
        """Refuses these options for other runs, where they have no effect.

        Raises:
            SpecError: an option is given; the message names it.
        """
        given_options = [
            name for name in DeadReplayConfig.model_fields if getattr(self, name) is not None
        ]
        if given_options:
            raise SpecError(
                f"{', '.join(given_options)} is for a dead-letter replay",
                "spec",
                "Say replay_dead_letters as well, or leave it out.",
            )


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
    bring_back: bool = Field(
        default=False, description="Let a replacement go on although the rows have expired."
    )
    fresh_lookups: bool = Field(
        default=False,
        description=(
            "Look up in tables as they are now, not in the versions that the windows are pinned to."
        ),
    )

    try_again: bool = Field(
        default=False,
        description=(
            "Decode messages again that are left out because they killed a process before."
        ),
    )

    def refuse_without_partitions(
        self, context: dg.AssetExecutionContext, spec: PipelineSpec
    ) -> None:
        """Refuses options that have no effect on a run that commits the waiting messages.

        Raises:
            SpecError: such an option is given; the message names it.
        """
        given_options = [
            name
            for name, field in type(self).model_fields.items()
            if name != "fresh_lookups" and getattr(self, name) != field.default
        ]
        if context.run.job_name == dead_replay_job_name(spec):
            given_options.append(f"the job {context.run.job_name}")
        if given_options:
            raise SpecError(
                f"A run without a partition commits what is waiting: {', '.join(given_options)} is"
                " for partitions",
                "spec",
                "Start a run of the partitions of these micro-batches, or leave it out.",
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
        """Runs windows, or replays their dead letters; yields each result after its commit.

        A refused window doesn't stop the others.

        Raises:
            SpecError: the options conflict.
        """
        if self.replays_dead_letters(context, pipeline):
            yield from replay_or_run_windows(context, pipeline, windows, self)
            return
        self.refuse_without()
        request = Request(
            request_id(context),
            replace=self.on_committed == "replace",
            accept_fewer=self.accept_fewer,
            bring_back=self.bring_back,
            fresh_lookups=self.fresh_lookups,
            try_again=self.try_again,
        )
        yield from run_windows(
            pipeline, windows, request, progress_log(context), pass_over_refused(pipeline)
        )


def replay_or_run_windows(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    windows: Sequence[Window],
    choice: DeadReplayConfig,
) -> Iterator[Result | PassedOver]:
    """Replays the dead letters of committed windows, and runs windows that aren't committed.

    A refused window doesn't stop the windows after it.

    Raises:
        SpecError: the script can't be used.
        WindrowError: raised by `replay_dead_letters` or `run`, when the iterator reaches
            the window that failed.
    """
    edit = None if choice.edit is None else load_edit(pipeline.spec.folder / choice.edit)
    request = DeadReplayRequest(request_id(context), Chosen(choice.stage, choice.reason), edit)

    def replay_or_run(window: Window) -> Result:
        if pipeline.sink.look(window) is None:
            return run(pipeline, window, Request(request.id))
        replay_result = replay_dead_letters(pipeline, window, request)
        context.log.info("%s", _sentence(replay_result))
        return Result(replay_result.committed, recovered=replay_result.messages == 0)

    return one_by_one(windows, replay_or_run, pass_over_refused(pipeline))


def _sentence(replay_result: DeadReplayResult) -> str:
    """Describes the result of a dead-letter replay, for the run's log."""
    refused_words = "".join(
        f"; {refusal.count} refused again at stage {refusal.stage}"
        for refusal in replay_result.refused
    )
    sentence = (
        f"{replay_result.tried} of {format_count(replay_result.open, 'open dead letter')} tried,"
        f" {replay_result.messages} accepted, {replay_result.edited} of them edited{refused_words}"
    )
    return f"Window {replay_result.window}: {sentence}"


def table_asset(spec: PipelineSpec, columns: Columns, clock: Clock) -> dg.AssetsDefinition:
    """Makes the asset of a pipeline's table.

    Args:
        spec: the pipeline.
        columns: the columns of its schema.
        clock: the clock of its runs.
    """
    version = code_version(spec, columns)

    @dg.asset(
        **table_attributes(spec),
        partitions_def=partitions_of(spec),
        deps=dependencies(spec),
        required_resource_keys=keys_of(spec),
        output_required=not spec.window.is_batch,
        metadata=definition_metadata(spec, columns),
        description=table_description(spec),
        code_version=version,
    )
    def table(context: dg.AssetExecutionContext, config: OnCommitted) -> Iterator[Any]:
        warn_of_processes(context)
        cancellable = partial(raise_if_cancelled, context)

        def open_pipeline() -> Pipeline:
            new_pipeline = pipeline_of(spec, context.resources, clock)
            return replace(new_pipeline, before_commit=cancellable)

        if spec.window.is_batch and not (
            context.has_partition_key or context.has_partition_key_range
        ):
            with report_errors(context, spec, "A micro-batch"):
                config.refuse_without_partitions(context, spec)
                pipeline = open_pipeline()
            if drain(context, pipeline, version, fresh_lookups=config.fresh_lookups):
                log_checks(context, pipeline, failing_step=False)
                yield events_logged()
            return
        keys = context.partition_keys
        first = min(keys)
        show_failure = partial(show_refused, context, spec)
        with report_errors(
            context, spec, f"Window {first}", on_failed=partial(show_failure, first)
        ):
            windows = windows_of(spec, keys)
            pipeline = open_pipeline()
        context.instance.add_run_tags(context.run.run_id, hours_tags(windows[0][1], windows[-1][1]))
        topics = last_observations_of(context, spec)
        results = config.results(context, pipeline, [window for _, window in windows])
        snapshot = with_broker_snapshot(pipeline)
        passed_over = dict[str, PassedOver]()

        def show_refusal(key: str, error: RefusedError) -> None:
            show_refused(context, spec, key, error)
            log_checks(context, pipeline)

        for key, _ in windows:
            cancellable()
            subject, on_failed = f"Window {key}", partial(show_failure, key)
            with report_errors(context, spec, subject, partial(show_refusal, key), on_failed):
                result = next(results)
            if isinstance(result, PassedOver):
                show_refused(context, spec, key, result.error)
                passed_over[key] = result
                continue
            last = key == windows[-1][0]
            show(context, pipeline if last else snapshot, result, topics, version, key, last=last)
        if passed_over:
            log_checks(context, pipeline)
            with report_errors(context, spec, f"Window {', '.join(passed_over)}"):
                raise all_refused(list(passed_over.values()), len(windows))
        log_checks(context, pipeline, failing_step=False)
        yield events_logged()

    return table
