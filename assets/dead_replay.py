"""Dead-letter replay in Dagster: the run's config, and its results window by window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field

from windrow.assets.reporting import request_id
from windrow.ingest.admin.chosen_dead_letters import Chosen
from windrow.ingest.admin.dead_replay import (
    DeadReplayRequest,
    DeadReplayResult,
    replay_dead_letters,
)
from windrow.ingest.admin.edit_function import load_edit
from windrow.ingest.errors import SpecError
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import PassedOver, Pipeline, Request, Result
from windrow.ingest.runner.run_windows import one_by_one, pass_over_refused, run


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
            SpecError: names them.
        """
        given = [name for name in DeadReplayConfig.model_fields if getattr(self, name) is not None]
        if given:
            raise SpecError(
                f"{', '.join(given)} is for a dead-letter replay",
                "spec",
                "Say replay_dead_letters as well, or leave it out.",
            )


def replayed_dead_letters(
    context: dg.AssetExecutionContext,
    pipeline: Pipeline,
    windows: Sequence[Window],
    choice: DeadReplayConfig,
) -> Iterator[Result | PassedOver]:
    """Replays the dead letters of committed windows, and runs windows that aren't committed.

    A refused window doesn't stop those after it.

    Raises:
        SpecError: the script can't be used.
        WindrowError: as `replay_dead_letters` and `run`, when the iterator reaches the
            window that failed.
    """
    edit = None if choice.edit is None else load_edit(pipeline.spec.folder / choice.edit)
    request = DeadReplayRequest(request_id(context), Chosen(choice.stage, choice.reason), edit)

    def replay_or_run(window: Window) -> Result:
        if pipeline.sink.look(window) is None:
            return run(pipeline, window, Request(request.id))
        done = replay_dead_letters(pipeline, window, request)
        context.log.info("%s", _sentence(done))
        return Result(done.committed, recovered=done.messages == 0)

    return one_by_one(windows, replay_or_run, pass_over_refused(pipeline))


def _sentence(done: DeadReplayResult) -> str:
    """Summarizes a dead-letter replay for the run's log."""
    again = "".join(f"; {one.count} refused again at stage {one.stage}" for one in done.refused)
    said = (
        f"{done.tried} of {done.open} open dead letters were tried, {done.messages} accepted,"
        f" {done.edited} of them edited{again}"
    )
    return f"Window {done.window}: {said}"
