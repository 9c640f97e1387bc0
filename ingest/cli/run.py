"""`run` and `replay`: commit or replace windows. Imported only when a command runs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec, windows_named
from windrow.ingest.config.window import MicroBatches
from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.model.plan import Window
from windrow.ingest.ports.engine import Engine
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.due import requested_windows
from windrow.ingest.runner.frozen_stop import DONE, still_to_come
from windrow.ingest.runner.micro_batches import is_done, run_batch, run_batches
from windrow.ingest.runner.progress import Progress, lines
from windrow.ingest.runner.run_windows import (
    pass_over_refused,
    refuse_open,
    refused_last,
    run_windows,
    stop_at_refused,
)

REDRAWN_SECONDS = 0.5
"""Seconds between two drawings of a progress bar."""


class Runs(msgspec.Struct):
    """The document of `run` and `replay`.

    An error that stopped the other windows is in the same document.

    Attributes:
        pipeline: the id of the pipeline.
        windows: the results of the windows, in order; empty if there is no next
            micro-batch.
        done: whether all messages up to `window.stop` are committed; null without
            `window.stop`, or after an error.
    """

    pipeline: str
    windows: list[Result]
    done: bool | None = None


def run_named(
    output: Output,
    path: Path,
    text: str | None,
    engine: Engine | None,
    *,
    drain: bool,
    accept_duplicates: bool,
    due: bool,
    keep_going: bool,
    fresh_lookups: bool,
    try_again: bool,
    request: str | None,
    anyway: bool,
) -> None:
    """Runs the named windows, or the next micro-batch.

    Args:
        output: the command's output.
        path: the pipeline's file.
        text: the names of the windows; None: the next micro-batch.
        engine: the engine that runs the tasks; None: a Spark in this process.
        drain: run micro-batches up to the current stable end.
        accept_duplicates: as in `runner.context.Request`.
        due: also run all due windows. The named windows must be closed.
        keep_going: continue after refused windows.
        fresh_lookups: as in `runner.context.Request`.
        try_again: as in `runner.context.Request`.
        request: the id of the request; None: a new one.
        anyway: as in `runner.context.Request`.
    """
    spec = load_spec(path)
    if keep_going and spec.window.is_batch:
        raise SpecError(
            f"Pipeline {spec.id} has micro-batches, and --keep-going is for windows in time",
            "spec",
            "Leave it out: a refused micro-batch blocks all later ones.",
        )
    if drain and not spec.window.is_batch:
        raise SpecError(
            f"Pipeline {spec.id} has {spec.window.grid} windows, and --drain is for micro-batches",
            "spec",
            "Name the windows with --window START/END.",
        )
    windows = named_windows(spec, text) if text or not due else []
    run_request = Request(
        request or f"command-{uuid.uuid4().hex}",
        accept_duplicates=accept_duplicates,
        fresh_lookups=fresh_lookups,
        try_again=try_again,
        anyway=anyway,
    )
    # a committed window is reported without the schema, because loading the schema takes long
    looking = assemble.assemble_to_look(spec, engine)
    pipeline = replace(looking, before_commit=output.raise_if_interrupted)
    if due:
        for window in windows or ():
            refuse_open(pipeline, window)
        windows, keep_going = requested_windows(pipeline, run_request.id, windows or ()), True
    if windows is None:
        pipeline.columns()  # fails before a micro-batch is cut that couldn't be read
        _commit(output, pipeline, _run_batches(output, pipeline, run_request, drain=drain))
    else:
        _commit(
            output,
            pipeline,
            _run_each(output, pipeline, windows, run_request, keep_going=keep_going),
        )


def replay_windows(
    output: Output,
    path: Path,
    text: str,
    engine: Engine | None,
    *,
    accept_fewer: bool,
    bring_back: bool,
    keep_going: bool,
    fresh_lookups: bool,
    try_again: bool,
    request: str | None,
    anyway: bool,
) -> None:
    """Replaces the named windows; the arguments are those of `run_named`."""
    spec = load_spec(path)
    windows = windows_named(spec, text)
    run_request = Request(
        request or f"command-{uuid.uuid4().hex}",
        replace=True,
        accept_fewer=accept_fewer,
        bring_back=bring_back,
        fresh_lookups=fresh_lookups,
        try_again=try_again,
        anyway=anyway,
    )
    looking = assemble.assemble_to_look(spec, engine)
    pipeline = replace(looking, before_commit=output.raise_if_interrupted)
    _commit(
        output, pipeline, _run_each(output, pipeline, windows, run_request, keep_going=keep_going)
    )


def _run_each(
    output: Output,
    pipeline: Pipeline,
    windows: Sequence[Window],
    run_request: Request,
    *,
    keep_going: bool,
) -> Iterator[Result]:
    """Yields the result of each window after its run. Refused windows are reported at the end."""
    pass_over = pass_over_refused(pipeline) if keep_going else stop_at_refused
    with progress_shown(output) as progress:
        outcomes = run_windows(pipeline, windows, run_request, progress, pass_over)
        yield from refused_last(outcomes, len(windows))


def _run_batches(
    output: Output, pipeline: Pipeline, run_request: Request, *, drain: bool
) -> Iterator[Result]:
    with progress_shown(output) as progress:
        if drain:
            yield from run_batches(pipeline, run_request, progress)
        elif (result := run_batch(pipeline, run_request, progress)) is not None:
            yield result


def _commit(output: Output, pipeline: Pipeline, results: Iterator[Result]) -> None:
    """Shows each result, also the results before a failure."""
    runs = Runs(pipeline.spec.id, [])
    output.show(runs)
    try:
        for result in results:
            runs.windows.append(result)
            output.say(runs.windows[-1].describe())
        runs.done = is_done(pipeline)
        if not runs.windows:
            output.show(runs, nothing_waiting(pipeline, done=runs.done))
    finally:
        if runs.windows:
            notes = [*render.run_notes(runs.windows), *([Text(DONE)] if runs.done else [])]
            output.show(runs, render.run_table(runs.windows), *notes)


def nothing_waiting(pipeline: Pipeline, *, done: bool | None) -> Text:
    """Returns the sentence for the case that there is no next micro-batch."""
    if done:
        return Text(DONE)
    window = pipeline.spec.window
    reason = ""
    if isinstance(window, MicroBatches) and window.min_records > 1:
        reason = f": fewer than {format_count(window.min_records, 'new offset')}"
        if window.max_delay is not None:
            reason += ", and none that is older than window.max_delay"
    return Text(f"Nothing is waiting{reason}.{still_to_come(pipeline)}")


@contextmanager
def progress_shown(output: Output) -> Iterator[Callable[[Progress], None]]:
    """Shows progress on stderr during the block: as a bar in a terminal, else as lines."""
    if output.json or not output.stderr.is_terminal:
        yield lines(output.say)
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = BarColumn(20), TextColumn("{task.description}", markup=False)
    with Bars(*columns, console=output.stderr, transient=True, auto_refresh=False) as bars:
        bar, drawn = bars.add_task("", visible=False), 0.0

        def progress(progress_state: Progress) -> None:
            nonlocal drawn
            for note in progress_state.notes:
                output.say(note)
            if (
                progress_state.notes
                or not progress_state.text
                or time.monotonic() - drawn >= REDRAWN_SECONDS
            ):
                drawn = time.monotonic()
                bars.update(
                    bar,
                    description=progress_state.text,
                    completed=progress_state.done,
                    total=progress_state.total or None,
                    visible=bool(progress_state.text),
                    refresh=True,
                )

        yield progress


def named_windows(spec: PipelineSpec, text: str | None) -> list[Window] | None:
    """Returns the named windows; None for the next micro-batch, which has no name yet.

    Raises:
        SpecError: see `windows_named`; or the pipeline has windows in time, and none is
            named.
    """
    if text is not None:
        return windows_named(spec, text)
    if not spec.window.is_batch:
        raise SpecError(
            f"Pipeline {spec.id} has {spec.window.grid} windows, and --window doesn't say which",
            "spec",
            "Give the instant at which one starts, or START/END for several.",
        )
    return None
