"""Labels become frozen boundaries: from the ledger, else from a receipt beside the
label, else by asking the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise

from windrow.ingest.config.window import in_time
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import GridError, OpenTransactionError, SpecError, refusing_all
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.label import Label, is_later, label_text
from windrow.ingest.model.source import AtLabel
from windrow.ingest.model.window import Window
from windrow.ingest.runner.context import Pipeline, Progress, ignore
from windrow.ingest.source.enumerator import grid as grids
from windrow.ingest.source.enumerator.cutoff import unless_cut_off
from windrow.ingest.source.enumerator.micro_batch_ends import first_boundary
from windrow.ingest.source.enumerator.resolve import resolve
from windrow.ingest.source.enumerator.tiling import clamped

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
            f"Pipeline {pipeline.spec.id} was begun with {begun} windows, not {grid}",
            "plan",
            f"Set the grid back to {begun}, or begin a pipeline with another id and table.",
        )


def freeze_boundaries(
    pipeline: Pipeline,
    labels: Sequence[Label],
    progress: Callable[[Progress], None],
    *,
    patient: bool = True,
) -> dict[Label, Boundary]:
    """The frozen boundaries under some labels; those that there are none of are
    resolved and frozen now, as many as can be in one look.

    An open transaction is waited for until the label that it may still bring messages
    for is `delay` + `max_wait` old; then what is stable counts. Who is not patient
    waits for none.

    Raises:
        SpecError: a micro-batch's that was not begun.
        OpenTransactionError: where the source starts lies behind it, so that nothing
            stable counts; or who asks is not patient.
        CutOffError: a log ends below a boundary that is frozen below a label.
    """
    frozen = {label: pipeline.ledger.boundary(pipeline.spec.id, label) for label in labels}
    while missing := [label for label, boundary in frozen.items() if boundary is None]:
        candidates = _candidates_in_time(pipeline, missing, progress, patient=patient)
        crash_point("boundary.before")
        frozen |= {
            b.label: b
            for b in pipeline.ledger.freeze(pipeline.spec.id, candidates)
            if b.label in frozen
        }
        crash_point("boundary.after")
    return {label: boundary for label, boundary in frozen.items() if boundary is not None}


def _candidates_in_time(
    pipeline: Pipeline,
    missing: Sequence[Label],
    progress: Callable[[Progress], None],
    *,
    patient: bool,
) -> list[Boundary]:
    labels = sorted(label for label in missing if isinstance(label, datetime))
    if len(labels) < len(missing):
        raise _not_begun(pipeline, next(label for label in missing if isinstance(label, int)))
    grid = in_time(pipeline.spec.window)
    deadline = labels[-1] + grid.delay + grid.max_wait
    began = pipeline.now()
    while True:
        now = pipeline.now()
        try:
            return _candidates(pipeline, labels, progress, wait_for_open=now < deadline)
        except OpenTransactionError:
            if now >= deadline or not patient:
                raise
            progress(
                Progress(
                    "transaction",
                    round((now - began).total_seconds()),
                    round((deadline - began).total_seconds()),
                )
            )
            pipeline.sleep(min(_PATIENCE_SECONDS, (deadline - now).total_seconds()))


def _candidates(
    pipeline: Pipeline,
    labels: Sequence[datetime],
    progress: Callable[[Progress], None],
    *,
    wait_for_open: bool,
) -> list[Boundary]:
    """Boundaries to freeze: from receipts of windows that touch a label (a ledger may
    get lost), else by asking the cluster.

    Asked for is what lies below the next frozen boundary, in one look. Where there is
    none, what can't be cut now, as the cluster or the log is another one, can't be cut
    for any later window either.
    """
    spec = pipeline.spec
    grid, first = spec.window.grid, in_time(spec.window).start
    from_receipts = _from_receipts(pipeline, labels)
    if from_receipts:
        return from_receipts
    lower, upper = pipeline.ledger.neighbours(spec.id, labels[0])
    wanted = [label for label in labels if upper is None or is_later(upper.label, label)]
    source, beginning = spec.source.origin(grid), list[Boundary]()
    with refusing_all(sure=upper is None):
        if not isinstance(source.start, AtLabel) and lower is None:
            # Where the pipeline begins is frozen no later than all else: a later
            # boundary alone would bound it from above.
            beginning = [first_boundary(pipeline.broker, source, first)]
            wanted = [label for label in wanted if label != first]
        resolved = (
            []
            if not wanted
            else unless_cut_off(
                lambda: resolve(
                    pipeline.broker,
                    source,
                    wanted[-1],
                    grid,
                    first,
                    beginning[0] if beginning else lower,
                    upper,
                    lambda looked: progress(Progress("boundary", looked, 0)),
                    wait_for_open=wait_for_open,
                    left_out=_replaced(pipeline, upper),
                    also=wanted[:-1],
                ),
                pipeline.sleep,
            )
        )
    return [*beginning, *resolved]


def _from_receipts(pipeline: Pipeline, labels: Sequence[datetime]) -> list[Boundary]:
    """Of the labels that a committed window touches: where it ends there, or else begins."""
    grid = pipeline.spec.window.grid
    cuts: dict[Label, Boundary] = {}
    windows = {
        Window(pipeline.spec.id, *ends)
        for label in labels
        for ends in pairwise((grids.before(grid, label), label, grids.after(grid, label)))
    }
    for committed in pipeline.sink.looks(sorted(windows)):
        if committed is not None:
            plan = committed.receipt.plan
            cuts |= {plan.stop.label: plan.stop}
            cuts.setdefault(plan.start.label, plan.start)
    return [cuts[label] for label in labels if label in cuts]


def _replaced(pipeline: Pipeline, upper: Boundary | None) -> set[str]:
    """Topics in whose place a rebase above has put others, so that what they held is
    gone: left out where the spec says to go on.
    """
    if upper is None or pipeline.spec.source.on_loss == "fail":
        return set()
    old, replaced = upper.by_topic(), set[str]()
    for opening in pipeline.ledger.rebased(pipeline.spec.id):
        now = opening.by_topic()
        if not is_later(upper.label, opening.label):
            replaced |= {
                name for name in old if name in now and now[name].topic_id != old[name].topic_id
            }
    return replaced


def foreseen(pipeline: Pipeline, label: Label, lower: Boundary | None) -> Boundary:
    """A boundary as it would be frozen now."""
    if isinstance(label, int):
        raise _not_begun(pipeline, label)
    below, above = pipeline.ledger.neighbours(pipeline.spec.id, label)
    candidate = next(
        b for b in _candidates(pipeline, [label], ignore, wait_for_open=False) if b.label == label
    )
    return clamped(candidate, lower or below, above)


def _not_begun(pipeline: Pipeline, number: int) -> SpecError:
    what = (
        f"{label_text(number)} of {pipeline.spec.id} was not cut yet, so the micro-batches beside"
        " it can't be run by name"
    )
    return SpecError(
        what, "plan", "windrow run SPEC, without a window, cuts and runs the next one."
    )
