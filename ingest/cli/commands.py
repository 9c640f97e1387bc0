"""What the commands do, once typer has read their arguments. Loaded only when a command runs: `--help` stays quick."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from rich.progress import Progress as Bars
from rich.text import Text

from ingest.assemble import assemble
from ingest.broker.embedded import EmbeddedBroker, find_jars
from ingest.cli import doctor as checks
from ingest.cli import render
from ingest.cli.output import Output
from ingest.errors import GridError, SpecError, UnreachableError
from ingest.model import Committed, Window, instant
from ingest.pipeline import Pipeline, Progress, Request, preview, refuse_open, run
from ingest.grid import parse_windows
from ingest.rebuild import rebuild
from ingest.spec import PipelineSpec, load_spec
from ingest.tablerows import delta_rows
from ingest.verify import verify


def windows_of(spec: PipelineSpec, text: str) -> list[Window]:
    """The windows that the text of `--window` names; on the command line a window beside the grid is a mistake of usage.

    Raises:
        SpecError: it names none, or one from before the pipeline's start.
    """
    try:
        windows = parse_windows(spec.id, spec.window.grid, text)
    except GridError as error:
        raise SpecError(error.what, "spec", error.do) from None
    if windows[0].start < spec.window.start:
        begin = instant(spec.window.start)
        raise SpecError(f"Window {windows[0].key} lies before the pipeline's start, {begin}", "spec", f"Choose {begin} or a later one.")
    return windows


class Plans(msgspec.Struct):
    """The document of `plan`."""

    pipeline: str
    plans: list[render.PlannedWindow]


def show_plan(output: Output, path: Path, text: str) -> None:
    """What a run would read. Freezes nothing."""
    spec = load_spec(path)
    windows = windows_of(spec, text)
    pipeline = assemble(spec)
    plans = Plans(spec.id, [])
    for window in windows:
        refuse_open(pipeline, window)
        plans.plans.append(render.planned(preview(pipeline, window), _frozen(pipeline, window)))
        output.show(plans, render.plan_table(plans.plans[-1]))


def _frozen(pipeline: Pipeline, window: Window) -> list[Literal["start", "end", "plan"]]:
    ledger = pipeline.ledger
    found: list[Literal["start", "end", "plan"]] = []
    if ledger.boundary(window.pipeline, window.start) is not None:
        found.append("start")
    if ledger.boundary(window.pipeline, window.end) is not None:
        found.append("end")
    if ledger.plan(window) is not None:
        found.append("plan")
    return found


class Runs(msgspec.Struct):
    """The document of `run` and `replay`: the windows that are committed now, in order; the error that stopped the rest stands beside."""

    pipeline: str
    windows: list[render.Run]


def run_windows(
    output: Output, path: Path, text: str, *, replace: bool = False, accept_fewer: bool = False, request: str | None = None
) -> None:
    """One window after the other; the first that fails ends it, those before it stay committed."""
    spec = load_spec(path)
    windows = windows_of(spec, text)
    asked = Request(request or f"command-{uuid.uuid4().hex}", replace=replace, accept_fewer=accept_fewer)
    runs = Runs(spec.id, [])
    output.show(runs)
    pipeline = assemble(spec)
    try:
        for window in windows:
            with _bar(output, window) as progress:
                result = run(pipeline, window, asked, progress)
            runs.windows.append(render.Run(result.recovered, result.committed))
    finally:
        if runs.windows:
            output.show(runs, render.run_table(runs.windows))


@contextmanager
def _bar(output: Output, window: Window) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr that goes away when the window is done; none where stderr is no terminal."""
    with Bars(console=output.stderr, transient=True, disable=output.json or not output.stderr.is_terminal) as bars:
        tasks = {
            "boundary": bars.add_task(f"{window.key}  looking for the boundaries (messages)", total=None, visible=False),
            "split": bars.add_task(f"{window.key}  reading (splits)", total=None, visible=False),
        }

        def progress(at: Progress) -> None:
            bars.update(tasks[at.step], completed=at.done, total=at.total or None, visible=True)

        yield progress


class Shown(msgspec.Struct):
    """The document of `show`. `left_out`: whether there are older ones beyond the limit."""

    pipeline: str
    windows: list[Committed]
    left_out: bool


class ShownDead(msgspec.Struct):
    """The document of `show --dead`. Keys and values, where asked for, are base64. `left_out`: whether there are more beyond the limit."""

    pipeline: str
    dead: list[render.DeadLetter]
    left_out: bool


def show_windows(output: Output, path: Path, text: str | None, limit: int) -> None:
    """The newest committed windows, by the sink's own receipts."""
    spec = load_spec(path)
    wanted = None if text is None else set(windows_of(spec, text))
    pipeline = assemble(spec)
    found = (c for c in pipeline.sink.receipts() if wanted is None or c.receipt.window in wanted)
    committed = sorted(found, key=lambda c: c.receipt.window)
    shown = committed[-limit:]
    older = len(committed) - len(shown)
    left = [Text(f"{older} older ones are not shown (--limit)")] if older else []
    table = render.window_table(shown) if shown else Text(f"Nothing is committed {'yet' if text is None else f'in {text}'}.")
    output.show(Shown(spec.id, shown, left_out=older > 0), table, *left)


def show_dead(output: Output, path: Path, text: str | None, attempt: str | None, limit: int, *, payload: bool) -> None:
    """Dead letters of the windows asked for, or of all that have any; of their committed attempts, or of one that was refused."""
    spec = load_spec(path)
    asked = None if text is None else windows_of(spec, text)
    pipeline = assemble(spec)
    windows = sorted(c.receipt.window for c in pipeline.sink.receipts() if c.receipt.counts.dead) if asked is None else asked
    found = list(islice(_dead(pipeline, windows, attempt, limit + 1, payload=payload), limit + 1))
    letters, more = found[:limit], len(found) > limit
    left = [Text("There are more, which are not shown (--limit)")] if more else []
    table = render.dead_table(letters, payload=payload) if letters else Text(_no_dead(text, attempt))
    output.show(ShownDead(spec.id, letters, left_out=more), table, *left)


def _no_dead(text: str | None, attempt: str | None) -> str:
    of = "" if attempt is None else f" of attempt {attempt}"
    return f"There are no dead letters{of}{'' if text is None else f' in {text}'}."


def _dead(pipeline: Pipeline, windows: list[Window], attempt: str | None, limit: int, *, payload: bool) -> Iterator[render.DeadLetter]:
    for window in windows:
        yield from render.dead_letters(window, pipeline.sink.read_dead(window, limit, attempt).to_pylist(), payload=payload)


def verify_all(output: Output, path: Path) -> None:
    """Receipts against ledger, rows and topic."""
    spec = load_spec(path)
    pipeline = assemble(spec)
    verified = verify(spec.id, pipeline.sink, pipeline.ledger, pipeline.broker, delta_rows(spec.sink_path(), spec.metadata))
    wrong = sum(f.level == "wrong" for f in verified.findings)
    unchecked = sum(f.level == "unchecked" for f in verified.findings)
    summary = f"{verified.windows} windows, {verified.rows:,} rows: " + (f"{wrong} things are wrong" if wrong else "nothing is wrong")
    if unchecked:
        summary += f"; {unchecked} {'thing' if unchecked == 1 else 'things'} could not be checked"
    output.show(verified, *map(render.finding_line, verified.findings), Text(summary))
    output.exit_code = verified.exit_code


def run_doctor(output: Output, path: Path | None) -> None:
    """One line per check."""
    found = []
    for check in checks.examine(path):
        found.append(check)
        output.show(checks.Examined(found), checks.check_line(check))
    output.exit_code = checks.exit_code(found)


def rebuild_ledger(output: Output, path: Path) -> None:
    """The ledger, restored from the receipts."""
    spec = load_spec(path)
    pipeline = assemble(spec)
    done = rebuild(spec.id, pipeline.sink, pipeline.ledger)
    what = f"The ledger holds {done.boundaries} boundaries, {done.windows} plans and receipts ({done.grid}); its id is {done.ledger}."
    output.show(done, Text("\n".join([what, *done.notes])))


class Serving(msgspec.Struct):
    """The document of `broker run`, printed when the broker is up."""

    bootstrap_servers: str
    folder: str


def run_broker(output: Output, folder: Path, port: int | None) -> None:
    """The embedded Kafka until Ctrl-C or SIGTERM.

    Raises:
        UnreachableError: it doesn't come up, or ends by itself.
    """
    ended = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: ended.set())
    with EmbeddedBroker(folder, find_jars(), port) as broker:
        text = Text(f"Kafka answers on {broker.bootstrap}; its files are in {folder}. Ctrl-C ends it.")
        output.show(Serving(broker.bootstrap, str(folder)), text)
        output.finish()
        while not ended.wait(0.5):
            if broker.stopped():
                return  # by somebody else, on purpose
            if not broker.running():
                raise UnreachableError("The broker ended by itself", "setup", f"See {folder / 'broker.log'}.")


def default_folder() -> Path:
    """Where the embedded broker lives if nothing is said."""
    return Path(os.environ.get("WINDROW_HOME", ".windrow")) / "broker"
