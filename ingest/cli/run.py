"""`run` and `replay`: commit or replace windows. Loaded only when a command runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.text import Text

from windrow.ingest import assemble
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec, windows_named
from windrow.ingest.config.window import MicroBatches
from windrow.ingest.errors import SpecError
from windrow.ingest.model.window import Window
from windrow.ingest.ports.engine import Engine
from windrow.ingest.runner.context import Pipeline, Progress, Request, Result
from windrow.ingest.runner.micro_batches import is_done, run_batch, run_batches
from windrow.ingest.runner.run_windows import (
    pass_over_refused,
    refused_last,
    run_windows,
    stop_at_refused,
)
from windrow.ingest.runner.stop import DONE, still_to_come


class Runs(msgspec.Struct):
    """The document of `run` and `replay`: the results of the windows, in order.

    An error that stopped the rest is in the same document. `windows` is empty if there is
    no next micro-batch. `done`: whether all up to `window.stop` is committed; null without
    one, or after an error.
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
    again: bool,
    keep_going: bool,
    fresh_lookups: bool,
    request: str | None,
) -> None:
    """Runs the named windows, or the next micro-batch.

    `drain`: run micro-batches up to the stable end as it is now. `again`: as in
    `runner.context.Request`. `engine`: runs the tasks; None: a Spark of this process's
    own. `keep_going`: go on after refused windows. `fresh_lookups`: as in `Request`.
    """
    spec = load_spec(path)
    if keep_going and spec.window.is_batch:
        what = f"Pipeline {spec.id} has micro-batches, and --keep-going is for windows in time"
        raise SpecError(what, "spec", "Leave it out: a refused micro-batch blocks all later ones.")
    if drain and not spec.window.is_batch:
        what = (
            f"Pipeline {spec.id} has {spec.window.grid} windows, and --drain is for micro-batches"
        )
        raise SpecError(what, "spec", "Name the windows with --window START/END.")
    windows = named_windows(spec, text)
    asked = Request(
        request or f"command-{uuid.uuid4().hex}", again=again, fresh_lookups=fresh_lookups
    )
    pipeline = assemble.assemble(spec, engine)
    if windows is None:
        _commit(output, pipeline, _batches(output, pipeline, asked, drain=drain))
    else:
        _commit(output, pipeline, _each(output, pipeline, windows, asked, keep_going=keep_going))


def replay_windows(
    output: Output,
    path: Path,
    text: str,
    engine: Engine | None,
    *,
    accept_fewer: bool,
    keep_going: bool,
    fresh_lookups: bool,
    request: str | None,
) -> None:
    """Replaces the named windows; the arguments are those of `run_named`."""
    spec = load_spec(path)
    windows = windows_named(spec, text)
    asked = Request(
        request or f"command-{uuid.uuid4().hex}",
        replace=True,
        accept_fewer=accept_fewer,
        fresh_lookups=fresh_lookups,
    )
    pipeline = assemble.assemble(spec, engine)
    _commit(output, pipeline, _each(output, pipeline, windows, asked, keep_going=keep_going))


def _each(
    output: Output,
    pipeline: Pipeline,
    windows: Sequence[Window],
    asked: Request,
    *,
    keep_going: bool,
) -> Iterator[Result]:
    """Runs windows and yields each result; refused windows are reported at the end."""
    pass_over = pass_over_refused(pipeline) if keep_going else stop_at_refused
    name = windows[0].key if len(windows) == 1 else pipeline.spec.id
    with progress_bar(output, name) as progress:
        outcomes = run_windows(pipeline, windows, asked, progress, pass_over)
        yield from refused_last(outcomes, len(windows))


def _batches(
    output: Output, pipeline: Pipeline, asked: Request, *, drain: bool
) -> Iterator[Result]:
    with progress_bar(output, pipeline.spec.id) as progress:
        if drain:
            yield from run_batches(pipeline, asked, progress)
        elif (result := run_batch(pipeline, asked, progress)) is not None:
            yield result


def _commit(output: Output, pipeline: Pipeline, results: Iterator[Result]) -> None:
    """Shows each result, also those before a failure."""
    runs = Runs(pipeline.spec.id, [])
    output.show(runs)
    try:
        for result in results:
            runs.windows.append(result)
            output.say(render.committed_line(runs.windows[-1]))
        runs.done = is_done(pipeline)
        if not runs.windows:
            output.show(runs, nothing_waiting(pipeline, done=runs.done))
    finally:
        if runs.windows:
            notes = [*render.run_notes(runs.windows), *([Text(DONE)] if runs.done else [])]
            output.show(runs, render.run_table(runs.windows), *notes)


def nothing_waiting(pipeline: Pipeline, *, done: bool | None) -> Text:
    """The sentence if there is no next micro-batch."""
    if done:
        return Text(DONE)
    window = pipeline.spec.window
    least = window.min_records if isinstance(window, MicroBatches) else 1
    return Text(
        "Nothing is waiting"
        + (f": there are fewer than {least:,} new offsets." if least > 1 else ".")
        + still_to_come(pipeline)
    )


@contextmanager
def progress_bar(output: Output, name: str) -> Iterator[Callable[[Progress], None]]:
    """Shows a progress bar on stderr until the end of the block, if that is a terminal."""
    from rich.progress import Progress as Bars

    with Bars(
        console=output.stderr, transient=True, disable=output.json or not output.stderr.is_terminal
    ) as bars:
        tasks = {
            "boundary": bars.add_task(
                f"{name}  looking for the boundaries (messages)", total=None, visible=False
            ),
            "transaction": bars.add_task(
                f"{name}  waiting for an open transaction (seconds)", total=None, visible=False
            ),
            "split": bars.add_task(f"{name}  reading (splits)", total=None, visible=False),
        }

        def progress(at: Progress) -> None:
            begins = at.beginning()
            if begins is not None:
                output.say(begins)
            for step, task in tasks.items():
                if step == at.step:
                    bars.update(task, completed=at.done, total=at.total or None, visible=True)
                else:
                    bars.update(task, visible=False)

        yield progress


def named_windows(spec: PipelineSpec, text: str | None) -> list[Window] | None:
    """The named windows; None for the next micro-batch, which has no name yet.

    Raises:
        SpecError: as `windows_named`; or the pipeline has windows in time, and none is
            named.
    """
    if text is not None:
        return windows_named(spec, text)
    if not spec.window.is_batch:
        what = f"Pipeline {spec.id} has {spec.window.grid} windows, and --window doesn't say which"
        raise SpecError(
            what, "spec", "Give the instant at which one starts, or START/END for several."
        )
    return None
