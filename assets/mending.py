"""Mending in Dagster: what a run is told of it, and its results, window by window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field

from windrow.assets.reporting import request_id
from windrow.ingest.admin.dead_letters import Chosen
from windrow.ingest.admin.edit import load_edit
from windrow.ingest.admin.mend import Mended, MendRequest, mend
from windrow.ingest.errors import SpecError
from windrow.ingest.model.window import Window
from windrow.ingest.runner.context import PassedOver, Pipeline, Request, Result
from windrow.ingest.runner.pipeline import one_by_one, passing_of, run


class Mend(dg.Config):
    """Which dead letters a run mends, and how; nothing of it goes with anything else."""

    stage: str | None = Field(
        default=None,
        description=(
            "With mend: only dead letters of this stage: key, header, value, schema or rules."
        ),
    )
    reason: str | None = Field(
        default=None, description="With mend: only dead letters with this reason."
    )
    edit: str | None = Field(
        default=None,
        description=(
            "With mend: a Python file whose function edit(message) repairs each message first;"
            " relative to the pipeline's file."
        ),
    )

    def refuse_without(self) -> None:
        """What would have no effect is a mistake.

        Raises:
            SpecError: names it.
        """
        given = [name for name in Mend.model_fields if getattr(self, name) is not None]
        if given:
            raise SpecError(
                f"{', '.join(given)} is for mending", "spec", "Say mend as well, or leave it out."
            )


def mended(
    context: dg.AssetExecutionContext, pipeline: Pipeline, windows: Sequence[Window], choice: Mend
) -> Iterator[Result | PassedOver]:
    """Mend committed windows, and run those that aren't: their messages are read from
    the topic, by the same schema.

    A window that is refused doesn't stop those behind it.

    Raises:
        SpecError: the script can't be used.
        WindrowError: as `ingest.admin.mend.mend` and `ingest.runner.pipeline.run`, at
            the window that it is about.
    """
    edit = None if choice.edit is None else load_edit(pipeline.spec.folder / choice.edit)
    request = MendRequest(request_id(context), Chosen(choice.stage, choice.reason), edit)

    def mend_or_run(window: Window) -> Result:
        if pipeline.sink.look(window) is None:
            return run(pipeline, window, Request(request.id))
        done = mend(pipeline, window, request)
        context.log.info("%s", _sentence(done))
        return Result(done.committed, recovered=done.messages == 0)

    return one_by_one(windows, mend_or_run, passing_of(pipeline))


def _sentence(done: Mended) -> str:
    """What a mending did, for the run's log."""
    again = "".join(f"; {one.count} refused again at stage {one.stage}" for one in done.refused)
    said = (
        f"{done.tried} of {done.open} open dead letters were tried, {done.messages} mended,"
        f" {done.edited} of them edited{again}"
    )
    return f"Window {done.window}: {said}"
