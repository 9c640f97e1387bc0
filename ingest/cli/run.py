"""`run` and `replay`: windows are committed. Loaded only when a command runs."""

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
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import MicroBatches, windows_named
from windrow.ingest.errors import SpecError
from windrow.ingest.model.window import Window
from windrow.ingest.ports.engine import Engine
from windrow.ingest.runner.context import PassedOver, Pipeline, Progress, Request, Result
from windrow.ingest.runner.micro_batches import run_batch, run_batches
from windrow.ingest.runner.pipeline import refused_last, run_past_refused
from windrow.ingest.runner.pipeline import run_windows as run_each


class Runs(msgspec.Struct):
    """The document of `run` and `replay`: the windows that are committed now, in order;
    the error that stopped the rest is in the same document.

    `windows` is empty if the next micro-batch was asked for and nothing is waiting.
    """

    pipeline: str
    windows: list[Result]


def run_windows(
    output: Output,
    path: Path,
    text: str | None,
    engine: Engine | None = None,
    *,
    drain: bool = False,
    again: bool = False,
    keep_going: bool = False,
    request: str | None = None,
) -> None:
    """The windows that are named, or the next micro-batch; with `drain` micro-batches
    until what is stable now is committed.

    `again`: see `runner.context.Request`. `engine`: where tasks run; None: a Spark of this
    process's own. `keep_going`: past refused windows.
    """
    spec = load_spec(path)
    if keep_going and spec.window.is_batch:
        what = f"Pipeline {spec.id} has micro-batches, and --keep-going is for windows in time"
        raise SpecError(
            what, "spec", "Leave it out: a refused micro-batch is in the way of all later ones."
        )
    if drain and not spec.window.is_batch:
        what = (
            f"Pipeline {spec.id} has {spec.window.grid} windows, and --drain is for micro-batches"
        )
        raise SpecError(what, "spec", "Name the windows with --window START/END.")
    windows = named_windows(spec, text)
    asked = msgspec.structs.replace(_request(request), again=again)
    pipeline = assemble.assemble(spec, engine)
    if windows is None:
        _commit(output, spec, _batches(output, pipeline, asked, drain=drain))
    else:
        _commit(
            output,
            spec,
            _each(output, pipeline, windows, asked, run_past_refused if keep_going else run_each),
        )


def replay_windows(
    output: Output,
    path: Path,
    text: str,
    engine: Engine | None,
    *,
    accept_fewer: bool,
    keep_going: bool,
    request: str | None,
) -> None:
    """Read the same offsets again, with today's schema; arguments as of `run_windows`."""
    spec = load_spec(path)
    windows = named_windows(spec, text) or []
    asked = msgspec.structs.replace(_request(request), replace=True, accept_fewer=accept_fewer)
    _commit(
        output,
        spec,
        _each(
            output,
            assemble.assemble(spec, engine),
            windows,
            asked,
            run_past_refused if keep_going else run_each,
        ),
    )


def _request(text: str | None) -> Request:
    return Request(text or f"command-{uuid.uuid4().hex}")


def _each(
    output: Output,
    pipeline: Pipeline,
    windows: Sequence[Window],
    asked: Request,
    run: Callable[..., Iterator[Result | PassedOver]],
) -> Iterator[Result]:
    """Each result; refused windows are reported at the end."""
    with progress_bar(
        output, windows[0].key if len(windows) == 1 else pipeline.spec.id
    ) as progress:
        yield from refused_last(run(pipeline, windows, asked, progress), len(windows))


def _batches(
    output: Output, pipeline: Pipeline, asked: Request, *, drain: bool
) -> Iterator[Result]:
    with progress_bar(output, pipeline.spec.id) as progress:
        if drain:
            yield from run_batches(pipeline, asked, progress)
        elif (result := run_batch(pipeline, asked, progress)) is not None:
            yield result


def _commit(output: Output, spec: PipelineSpec, results: Iterator[Result]) -> None:
    """Show each result; after a failure, too, those before it."""
    runs = Runs(spec.id, [])
    output.show(runs)
    try:
        for result in results:
            runs.windows.append(result)
            output.say(render.committed_line(runs.windows[-1]))
        if not runs.windows:
            output.show(runs, nothing_waiting(spec))
    finally:
        if runs.windows:
            output.show(runs, render.run_table(runs.windows), *render.run_notes(runs.windows))


def nothing_waiting(spec: PipelineSpec) -> Text:
    """Say that there is no next micro-batch."""
    least = spec.window.min_records if isinstance(spec.window, MicroBatches) else 1
    return Text(
        "Nothing is waiting"
        + (f": there are fewer than {least:,} new offsets." if least > 1 else ".")
    )


@contextmanager
def progress_bar(output: Output, name: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr that goes away when that is done; none where stderr is
    no terminal.
    """
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
    """The windows that are named; None for the next micro-batch, which has no name yet.

    Raises:
        SpecError: as `windows_named`; or windows in time are not named.
    """
    if text is not None:
        return windows_named(spec, text)
    if not spec.window.is_batch:
        what = f"Pipeline {spec.id} has {spec.window.grid} windows, and --window doesn't say which"
        raise SpecError(
            what, "spec", "Give the instant at which one starts, or START/END for several."
        )
    return None
