"""`plan`: the offsets that a run would read. Imported only when the command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.cli.run import named_windows, nothing_waiting
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import join_first_few
from windrow.ingest.model.ledger_records import Pause
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.runner.availability import expiring_messages, joining_topics, unselected_topics
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.micro_batches import is_done, preview_next
from windrow.ingest.runner.ownership import (
    pause_of,
    refuse_other_tables,
    refuse_unready,
    refuse_unwritable,
)
from windrow.ingest.runner.run_windows import preview, refuse_open
from windrow.ingest.runner.writer_schemas import decoder_for
from windrow.ingest.schema.metadata_types import field_paths

_FILLABLE = (
    "Messages of {} have fields that no column was for, and that have one now. windrow replay"
    " SPEC --window W fills it."
)


class PlanDocument(msgspec.Struct):
    """The document of `plan`.

    Attributes:
        pipeline: the id of the pipeline.
        plans: the plans; empty if the next micro-batch was requested and no message is
            waiting.
        done: whether all messages up to `window.stop` are committed; null without
            `window.stop`.
        paused: the pause, if the pipeline is paused.
        fillable: the committed windows whose messages have fields that were passed over or
            kept, and that have a column now.
    """

    pipeline: str
    plans: list[render.PlannedWindow]
    done: bool | None = None
    paused: Pause | None = None
    fillable: tuple[str, ...] = ()


def show_plan(output: Output, path: Path, text: str | None) -> None:
    """Shows the offsets that a run of the named windows, or of the next micro-batch, would read.

    Nothing is frozen.
    """
    spec = load_spec(path)
    windows = named_windows(spec, text)
    pipeline = assemble.assemble(spec)
    refuse_unwritable(pipeline)
    refuse_other_tables(pipeline)
    refuse_unready(pipeline)
    plans = PlanDocument(
        spec.id,
        [],
        is_done(pipeline),
        pause_of(pipeline.ledger, spec.id),
        _fillable_windows(pipeline),
    )
    pause = [f"Pipeline {spec.id} {plans.paused}."] if plans.paused else []
    fillable = [_FILLABLE.format(join_first_few(plans.fillable))] if plans.fillable else []
    output.show(plans, *(Text(line, style="yellow") for line in (*pause, *fillable)))
    for plan in filter(
        None, [preview_next(pipeline)] if windows is None else _plans(pipeline, windows)
    ):
        joining = joining_topics(pipeline, plan)
        plans.plans.append(
            render.planned_window(plan, _find_frozen_parts(pipeline, plan.window), joining)
        )
        output.show(
            plans,
            render.plan_table(plans.plans[-1]),
            *(Text(f"{topic}.", style="yellow") for topic in joining),
            *(
                Text(f"{warning}.", style="yellow")
                for warning in (
                    *unselected_topics(pipeline, plan.start, newly=True),
                    *expiring_messages(pipeline, plan.window.key, plan.splits),
                )
            ),
        )
    if not plans.plans:
        output.show(plans, nothing_waiting(pipeline, done=plans.done))
    # refuses, as a run does, if the registry doesn't answer or has no schema of the messages
    decoder_for(pipeline, sorted({p.topic for w in plans.plans for p in w.partitions if p.splits}))


def _fillable_windows(pipeline: Pipeline) -> tuple[str, ...]:
    """Returns the committed windows whose replay would fill columns that came later."""
    columns = pipeline.decoder().columns
    paths = {path for path, _ in field_paths(columns.arrow_schema)}
    for column in columns.columns:
        prefixes = (path[:n] for path in column.paths for n in range(1, len(path) + 1))
        paths |= {*column.aliases, *map(".".join, prefixes)}
    return tuple(
        receipt.window.key
        for receipt in pipeline.ledger.recorded_receipts(pipeline.spec.id)
        if any(path.replace(".*", "") in paths for path in receipt.ignored_fields)
    )


def _plans(pipeline: Pipeline, windows: Sequence[Window]) -> Iterator[Plan]:
    for window in windows:
        refuse_open(pipeline, window)
        yield preview(pipeline, window)


def _find_frozen_parts(pipeline: Pipeline, window: Window) -> list[Literal["start", "end", "plan"]]:
    frozen_parts: Mapping[Literal["start", "end", "plan"], object] = {
        "start": pipeline.ledger.boundary(window.pipeline, window.start),
        "end": pipeline.ledger.boundary(window.pipeline, window.end),
        "plan": pipeline.ledger.plan(window),
    }
    return [part for part, record in frozen_parts.items() if record is not None]
