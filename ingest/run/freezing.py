"""Labels become frozen boundaries: from the ledger, else from a receipt beside the label, else by asking the cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

from ingest.crashpoints import crash_point
from ingest.errors import GridError, OpenTransactionError, SpecError
from ingest.model.boundary import Boundary
from ingest.model.label import Label, is_later, label_text
from ingest.model.source import AtLabel
from ingest.model.window import Window
from ingest.plan.ends import first_boundary
from ingest.plan.resolve import resolve
from ingest.run.availability import asked_until_believed
from ingest.run.context import Pipeline, Progress, ignore
from ingest.spec.window import in_time
from ingest.windows import grid as grids
from ingest.windows.tiling import clamped

_PATIENCE_SECONDS = 1.0
"""How often an open transaction is looked at again."""


def refuse_changed_grid(pipeline: Pipeline) -> None:
    """The ledger remembers the grid that the pipeline was begun with.

    Raises:
        GridError: the spec has another one now.
    """
    grid = pipeline.spec.window.grid
    begun = pipeline.ledger.bind_grid(pipeline.spec.id, grid)
    if begun != grid:
        raise GridError(
            f"Pipeline {pipeline.spec.id} was begun with {begun} windows, not {grid}", "plan",
            f"Set the grid back to {begun}, or begin a pipeline with another id and table.",
        )  # fmt: skip


def freeze_boundary(pipeline: Pipeline, label: Label, progress: Callable[[Progress], None]) -> Boundary:
    """The frozen boundary under a label, resolved and frozen now if there is none.

    Raises:
        SpecError: a micro-batch's that was not begun.
    """
    frozen = pipeline.ledger.boundary(pipeline.spec.id, label)
    if frozen is not None:
        return frozen
    if isinstance(label, int):
        raise _not_begun(pipeline, label)
    candidates = _patient_candidates(pipeline, label, progress)
    crash_point("boundary.before")
    boundaries = pipeline.ledger.freeze(pipeline.spec.id, candidates)
    crash_point("boundary.after")
    return next(b for b in boundaries if b.label == label)


def _patient_candidates(pipeline: Pipeline, label: datetime, progress: Callable[[Progress], None]) -> list[Boundary]:
    """The candidates. An open transaction is waited for until the label is `delay` + `max_wait` old; then what is stable counts.

    Raises:
        OpenTransactionError: where the source starts lies behind it, so that nothing stable counts.
        CutOffError: a log ends below a boundary that is frozen below the label.
    """
    grid = in_time(pipeline.spec.window)
    deadline = label + grid.delay + grid.max_wait
    began = pipeline.now()
    while True:
        now = pipeline.now()
        try:
            return _candidates(pipeline, label, progress, wait_for_open=now < deadline)
        except OpenTransactionError:
            if now >= deadline:
                raise
            progress(Progress("transaction", round((now - began).total_seconds()), round((deadline - began).total_seconds())))
            pipeline.sleep(min(_PATIENCE_SECONDS, (deadline - now).total_seconds()))


def _candidates(
    pipeline: Pipeline, label: datetime, progress: Callable[[Progress], None], *, wait_for_open: bool
) -> list[Boundary]:  # fmt: skip
    """Boundaries to freeze: from the receipt of a window that touches the label (a ledger may get lost), else by asking the cluster."""
    spec = pipeline.spec
    grid, first = spec.window.grid, in_time(spec.window).start
    labels = (grids.before(grid, label), label, grids.after(grid, label))
    for window in (Window(spec.id, a, b) for a, b in pairwise(labels)):
        committed = pipeline.sink.look(window)
        if committed is not None:
            return [committed.receipt.plan.stop if window.end == label else committed.receipt.plan.start]
    lower, upper = pipeline.ledger.neighbours(spec.id, label)
    source, beginning = spec.source.origin(grid), list[Boundary]()
    if not isinstance(source.start, AtLabel) and lower is None:
        # Where the pipeline begins is frozen no later than all else: a later boundary alone would bound it from above.
        beginning = [first_boundary(pipeline.broker, source, first)]
    resolved = [] if beginning and label == first else asked_until_believed(pipeline, lambda: resolve(
        pipeline.broker, source, label, grid, first, beginning[0] if beginning else lower, upper,
        lambda looked: progress(Progress("boundary", looked, 0)), wait_for_open=wait_for_open,
        left_out=_replaced(pipeline, upper),
    ))  # fmt: skip
    return [*beginning, *resolved]


def _replaced(pipeline: Pipeline, upper: Boundary | None) -> set[str]:
    """Topics in whose place a rebase above has put others, so that what they held is gone: left out where the spec says to go on."""
    if upper is None or pipeline.spec.source.on_loss == "fail":
        return set()
    old, replaced = upper.by_topic(), set[str]()
    for opening in pipeline.ledger.rebased(pipeline.spec.id):
        now = opening.by_topic()
        if not is_later(upper.label, opening.label):
            replaced |= {name for name in old if name in now and now[name].topic_id != old[name].topic_id}
    return replaced


def foreseen(pipeline: Pipeline, label: Label, lower: Boundary | None) -> Boundary:
    """A boundary as it would be frozen now."""
    if isinstance(label, int):
        raise _not_begun(pipeline, label)
    below, above = pipeline.ledger.neighbours(pipeline.spec.id, label)
    candidate = next(b for b in _candidates(pipeline, label, ignore, wait_for_open=False) if b.label == label)
    return clamped(candidate, lower or below, above)


def _not_begun(pipeline: Pipeline, number: int) -> SpecError:
    what = f"{label_text(number)} of {pipeline.spec.id} was not cut yet, so the micro-batches beside it can't be run by name"
    return SpecError(what, "plan", "windrow run SPEC, without a window, cuts and runs the next one.")
