"""`plan`, `run`, `replay` and `rebase`: what goes on with a pipeline.

Loaded only when a command runs: `--help` stays quick.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from rich.text import Text

from windrow.ingest.admin.rebase import propose, rebase
from windrow.ingest.admin.rebind import propose as propose_rebind
from windrow.ingest.admin.rebind import rebind
from windrow.ingest.assemble import assemble
from windrow.ingest.cli import render
from windrow.ingest.cli.output import Output
from windrow.ingest.cli.windows import named
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.config.window import MicroBatches
from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.label import label_text
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.source import parse_initializer
from windrow.ingest.model.window import Window
from windrow.ingest.ports.engine import Engine
from windrow.ingest.runner.context import PassedOver, Pipeline, Progress, Request, Result
from windrow.ingest.runner.micro_batches import preview_next, run_batch, run_batches
from windrow.ingest.runner.ownership import refuse_unready, refuse_unwritable
from windrow.ingest.runner.pipeline import preview, refuse_open, refused_last, run_past_refused
from windrow.ingest.runner.pipeline import run_windows as run_each

if TYPE_CHECKING:
    from windrow.ingest.runner.spark.spark import SparkEngine


class PlanDocument(msgspec.Struct):
    """The document of `plan`.

    `plans` is empty if the next micro-batch was asked for and nothing is waiting.
    """

    pipeline: str
    plans: list[render.PlannedWindow]


def show_plan(output: Output, path: Path, text: str | None) -> None:
    """What a run would read: of the windows that are named, or of the next micro-batch.

    Freezes nothing.
    """
    spec = load_spec(path)
    windows = named(spec, text)
    pipeline = assemble(spec)
    refuse_unwritable(pipeline)
    refuse_unready(pipeline)
    plans = PlanDocument(spec.id, [])
    output.show(plans)
    for plan in _next_plan(pipeline) if windows is None else _plans(pipeline, windows):
        plans.plans.append(render.planned(plan, _frozen(pipeline, plan.window)))
        output.show(plans, render.plan_table(plans.plans[-1]))
    if not plans.plans:
        output.show(plans, _nothing(spec))


def _plans(pipeline: Pipeline, windows: Sequence[Window]) -> Iterator[Plan]:
    for window in windows:
        refuse_open(pipeline, window)
        yield preview(pipeline, window)


def _next_plan(pipeline: Pipeline) -> list[Plan]:
    plan = preview_next(pipeline)
    return [] if plan is None else [plan]


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
    """The document of `run` and `replay`: the windows that are committed now, in order;
    the error that stopped the rest stands beside.

    `windows` is empty if the next micro-batch was asked for and nothing is waiting.
    """

    pipeline: str
    windows: list[render.Run]


@contextmanager
def place(
    master: str | None, settings: Mapping[str, str], connect: str | None, token_file: Path | None
) -> Iterator[SparkEngine | None]:
    """Where tasks run: on a server that is up, or at a master; None where neither is named.

    Args:
        master: Spark's.
        settings: Spark properties for it, by name.
        connect: the server's address.
        token_file: holds the token that the server asks for.

    Raises:
        SpecError: the address is none.
    """
    if connect is None:
        from windrow.ingest.runner.spark.cluster import spark_engine, spark_session
        from windrow.ingest.runner.spark.local import MASTER

        at = MASTER if master is None else master
        yield (
            None
            if master is None and not settings
            else spark_engine(lambda: spark_session(at, settings), at)
        )
        return
    from windrow.ingest.runner.spark.connect import ConnectedSpark

    with closing(ConnectedSpark(connect, token_file)) as spark:
        yield spark.engine()


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

    `again`: see `run.context.Request`. `engine`: where tasks run; None: a Spark of this
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
    windows, asked = named(spec, text), msgspec.structs.replace(_request(request), again=again)
    pipeline = assemble(spec, engine)
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
    """The same offsets again, with today's schema. `engine`, `keep_going`: as of `run_windows`."""
    spec = load_spec(path)
    windows = named(spec, text) or []
    asked = msgspec.structs.replace(_request(request), replace=True, accept_fewer=accept_fewer)
    _commit(
        output,
        spec,
        _each(
            output,
            assemble(spec, engine),
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
    """Each result; what was passed over is told when all is done."""
    with _bar(output, windows[0].key if len(windows) == 1 else pipeline.spec.id) as progress:
        yield from refused_last(run(pipeline, windows, asked, progress), len(windows))


def _batches(
    output: Output, pipeline: Pipeline, asked: Request, *, drain: bool
) -> Iterator[Result]:
    with _bar(output, pipeline.spec.id) as progress:
        if drain:
            yield from run_batches(pipeline, asked, progress)
        elif (result := run_batch(pipeline, asked, progress)) is not None:
            yield result


def _commit(output: Output, spec: PipelineSpec, results: Iterator[Result]) -> None:
    """One after the other; what fails ends it, those before it stay committed and are told."""
    runs = Runs(spec.id, [])
    output.show(runs)
    try:
        for result in results:
            runs.windows.append(
                render.Run(
                    result.recovered, result.committed, result.published, result.dead_letters
                )
            )
            output.say(render.committed_line(runs.windows[-1]))
        if not runs.windows:
            output.show(runs, _nothing(spec))
    finally:
        if runs.windows:
            output.show(runs, render.run_table(runs.windows), *render.run_notes(runs.windows))


def _nothing(spec: PipelineSpec) -> Text:
    least = spec.window.min_records if isinstance(spec.window, MicroBatches) else 1
    return Text(
        "Nothing is waiting"
        + (f": there are fewer than {least:,} new offsets." if least > 1 else ".")
    )


@contextmanager
def _bar(output: Output, name: str) -> Iterator[Callable[[Progress], None]]:
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


class Rebased(msgspec.Struct):
    """The document of `rebase`: what changed, and the opening from which windows go on;
    without `recorded` it is only a proposal.
    """

    pipeline: str
    changes: tuple[str, ...]
    opening: Boundary
    recorded: bool


def rebase_pipeline(output: Output, path: Path, start: str | None, *, yes: bool) -> None:
    """What going on with another topic or cluster means; recorded only if `yes`."""
    spec = load_spec(path)
    begin = None if start is None else parse_initializer(start, spec.source.topic_names())
    pipeline = assemble(spec)
    found = rebase(pipeline, begin) if yes else propose(pipeline, begin)
    label = label_text(found.opening.label)
    end = (
        f"Recorded: windows from {label} on go on from here."
        if yes
        else f"Nothing was recorded; add --yes to go on so from {label}."
    )
    lines = [Text(change) for change in found.changes]
    output.show(
        Rebased(spec.id, found.changes, found.opening, recorded=yes),
        *lines,
        render.opening_table(found.opening),
        Text(end),
    )


class Rebound(msgspec.Struct):
    """The document of `rebind`: the table before and now, and the windows that the
    ledger knows and it lacks; or only a proposal.
    """

    pipeline: str
    before: str | None
    table: str
    there: bool
    windows: int
    missing: list[str]
    recorded: bool


def rebind_pipeline(output: Output, path: Path, *, yes: bool) -> None:
    """What going on with another table means; recorded only if `yes`."""
    spec = load_spec(path)
    pipeline = assemble(spec)
    found = rebind(pipeline) if yes else propose_rebind(pipeline)
    end = (
        "Recorded: the pipeline goes on with this table."
        if yes
        else "Nothing was recorded; add --yes to go on so."
    )
    document = Rebound(
        spec.id,
        found.before,
        found.table,
        found.there,
        found.windows,
        [w.key for w in found.missing],
        recorded=yes,
    )
    output.show(document, *map(Text, found.changes), Text(end))
