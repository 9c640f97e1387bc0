"""The table asset of micro-batches: a run commits all waiting messages, batch by batch.

The asset has no partitions, for nobody knows beforehand which batches there will be. If
nothing is waiting, a run succeeds without an event.
"""

# No postponed annotations here: Dagster reads those of the decorated function itself.

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from windrow.assets.checks import log_checks
from windrow.assets.dead_replay import DeadReplayConfig, replayed_dead_letters
from windrow.assets.dependencies import Clock, keys_of, pipeline_of
from windrow.assets.description import code_version, definition_metadata, table_description
from windrow.assets.looked_up import dependencies
from windrow.assets.names import table_key
from windrow.assets.reporting import (
    errors_reported,
    events_logged,
    last_observed,
    progress_log,
    request_id,
    show,
    warn_of_processes,
)
from windrow.assets.schedule import done_tag, refused_tag
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.grid import parse_windows
from windrow.ingest.model.window import Window
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.micro_batches import is_done, run_batches
from windrow.ingest.runner.run_windows import pass_over_refused, refused_last, run_windows
from windrow.ingest.runner.stop import DONE
from windrow.ingest.schema.columns import Columns


class Batches(DeadReplayConfig):
    """A run's config: the micro-batches to commit."""

    replay: str | None = Field(
        default=None,
        description=(
            "Left out: commit all that is waiting when the run begins. Else replace these committed"
            " batches instead, from the same offsets: 3, batch-000000003, or"
            " 3/7 for 3 up to 7 without 7."
        ),
    )
    accept_fewer: bool = Field(
        default=False,
        description=(
            "With replay: go on although fewer messages are left than were read before, or some"
            " were edited before a dead-letter replay."
        ),
    )
    fresh_lookups: bool = Field(
        default=False,
        description=(
            "Look up in tables as they are now, not in the versions that the batches are pinned to."
        ),
    )

    replay_dead_letters: str | None = Field(
        default=None,
        description=(
            "Replay the dead letters of these committed batches instead; named as under replay."
        ),
    )

    def replay_of(self) -> str | None:
        """The replay that the config asks for, as the beginning of a sentence; None if none."""
        if self.replay_dead_letters is not None:
            return f"The dead-letter replay of {self.replay_dead_letters}"
        return None if self.replay is None else f"The replay of {self.replay}"

    def results(self, context: dg.AssetExecutionContext, pipeline: Pipeline) -> Iterator[Result]:
        """Runs the batches; yields each result after its commit.

        Raises:
            SpecError: the options conflict, or a batch doesn't exist.
        """
        if self.replay_dead_letters is not None:
            return self._replayed_dead_letters(context, pipeline, self.replay_dead_letters)
        self.refuse_without()
        request = request_id(context)
        if self.replay is not None:
            return self._replayed(
                context,
                pipeline,
                self.replay,
                Request(
                    request,
                    replace=True,
                    accept_fewer=self.accept_fewer,
                    fresh_lookups=self.fresh_lookups,
                ),
            )
        if self.accept_fewer:
            raise SpecError(
                "accept_fewer is for replays only",
                "spec",
                "Name the batches under replay, or leave accept_fewer out.",
            )
        asked = Request(request, fresh_lookups=self.fresh_lookups)
        return run_batches(pipeline, asked, progress_log(context))

    def _replayed_dead_letters(
        self, context: dg.AssetExecutionContext, pipeline: Pipeline, names: str
    ) -> Iterator[Result]:
        if self.replay is not None:
            raise SpecError(
                "replay_dead_letters excludes replay",
                "spec",
                "Leave replay out: replay_dead_letters names the batches.",
            )
        batches = self._named(pipeline, names)
        yield from refused_last(
            replayed_dead_letters(context, pipeline, batches, self), len(batches)
        )

    def _replayed(
        self, context: dg.AssetExecutionContext, pipeline: Pipeline, names: str, request: Request
    ) -> Iterator[Result]:
        batches = self._named(pipeline, names)
        outcomes = run_windows(
            pipeline, batches, request, progress_log(context), pass_over_refused(pipeline)
        )
        yield from refused_last(outcomes, len(batches))

    @staticmethod
    def _named(pipeline: Pipeline, names: str) -> list[Window]:
        return parse_windows(pipeline.spec.id, pipeline.spec.window.grid, names)


def batch_asset(spec: PipelineSpec, columns: Columns, clock: Clock) -> dg.AssetsDefinition:
    """Makes the asset of a pipeline's table.

    `columns`: the columns of its schema; `clock`: the clock of its runs.
    """
    version = code_version(spec, columns)

    @dg.asset(
        key=table_key(spec),
        deps=dependencies(spec),
        kinds={"kafka", "spark", spec.sink.kind},
        required_resource_keys=keys_of(spec),
        output_required=False,
        metadata=definition_metadata(spec, columns),
        description=table_description(spec),
        code_version=version,
    )
    def table(context: dg.AssetExecutionContext, config: Batches) -> Iterator[Any]:
        def refused(_: RefusedError) -> None:
            if replay is None:
                context.instance.add_run_tags(context.run.run_id, refused_tag(spec))
            log_checks(context, pipeline)

        replay = config.replay_of()
        batches = 0
        warn_of_processes(context)
        with errors_reported(context, spec, replay or "A micro-batch"):
            pipeline = pipeline_of(spec, context.resources, clock)
        topics = last_observed(context, spec)
        with errors_reported(context, spec, replay or "A micro-batch", refused):
            for result in config.results(context, pipeline):
                show(context, pipeline, result, topics, version)
                batches += 1
            if spec.stop is not None and is_done(pipeline):
                context.instance.add_run_tags(context.run.run_id, done_tag(spec.stop))
                context.log.info(DONE)
            elif not batches:
                context.log.info(
                    "Nothing is waiting, or fewer messages than window.min_records: no micro-batch"
                    " was cut."
                )
        if batches:
            yield events_logged()

    return table
