"""Boundaries of labels: how they are found and frozen.

A boundary comes from the ledger; else from the receipt of a window that begins or ends at the
label; else from the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise

from windrow.ingest.config.window import TimeWindows, in_time
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import (
    GridError,
    OpenTransactionError,
    SpecError,
    format_count,
    refusals_blame_settings,
)
from windrow.ingest.model import grid as grids
from windrow.ingest.model.boundary import Boundary, Label, instant, is_later, label_text
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.source import AtLabel
from windrow.ingest.model.tiling import clamp
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.progress import Progress, ignore
from windrow.ingest.source.enumerator.cutoff import repeat_while_cut_off
from windrow.ingest.source.enumerator.micro_batch_ends import first_boundary
from windrow.ingest.source.enumerator.resolve import resolve
from windrow.ingest.source.enumerator.splits import make_plan

_PATIENCE_SECONDS = 1.0
"""Seconds between two checks for an open transaction."""


def refuse_changed_grid(pipeline: Pipeline) -> None:
    """Checks that the spec still has the grid with which the pipeline began.

    Raises:
        GridError: the ledger has another grid than the spec.
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
    """Returns the frozen boundaries of some labels.

    Boundaries that aren't frozen yet are resolved and frozen now, with as few questions to
    the cluster as possible. An open transaction may still bring messages for a label. The
    run waits for it until the newest label is `delay` + `max_wait` old. After that, the
    boundary is taken from the stable offsets.

    Args:
        pipeline: the pipeline.
        labels: the labels.
        progress: gets the progress of the wait.
        patient: False to raise instead of waiting for an open transaction.

    Raises:
        SpecError: a label is that of a micro-batch that was not begun.
        OpenTransactionError: there is an open transaction, and the source starts after the
            stable offsets, or `patient` is False.
        CutOffError: a log ends below an older frozen boundary.
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
        raise _not_begun(pipeline, max(n for n in missing if isinstance(n, int)) - 1)
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
            waited_seconds, max_seconds = (
                round((t - began).total_seconds()) for t in (now, deadline)
            )
            progress(
                Progress(
                    f"Waiting for an open transaction: {waited_seconds} of {max_seconds} s",
                    waited_seconds,
                    max_seconds,
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
    """Resolves boundaries to freeze, from receipts or from the cluster.

    Receipts of windows that begin or end at a label come first, because a ledger may get
    lost. Otherwise the cluster is asked together for all labels below the next frozen
    boundary. If there is no such boundary, an error of the source refuses all later windows,
    too (`of_setting`).
    """
    spec = pipeline.spec
    grid, first = spec.window.grid, in_time(spec.window).start
    from_receipts = _from_receipts(pipeline, labels)
    if from_receipts:
        return from_receipts
    lower, upper = pipeline.ledger.neighbours(spec.id, labels[0])
    labels_to_resolve = [label for label in labels if upper is None or is_later(upper.label, label)]
    source, beginning = spec.source.for_planning(grid), list[Boundary]()
    with refusals_blame_settings(sure=upper is None):
        if not isinstance(source.start, AtLabel) and lower is None:
            # The pipeline's first boundary must be frozen before or with the others. A later
            # boundary that is frozen already would limit it.
            beginning = [first_boundary(pipeline.broker, source, first)]
            labels_to_resolve = [label for label in labels_to_resolve if label != first]
        resolved = (
            []
            if not labels_to_resolve
            else repeat_while_cut_off(
                lambda: resolve(
                    pipeline.broker,
                    source,
                    labels_to_resolve[-1],
                    grid,
                    first,
                    beginning[0] if beginning else lower,
                    upper,
                    lambda looked: progress(
                        Progress(f"Looking for the boundaries: {format_count(looked, 'message')}")
                    ),
                    wait_for_open=wait_for_open,
                    replaced_topics=_replaced_topics(pipeline, upper),
                    also=labels_to_resolve[:-1],
                ),
                pipeline.sleep,
            )
        )
    return [*beginning, *resolved]


def _from_receipts(pipeline: Pipeline, labels: Sequence[datetime]) -> list[Boundary]:
    """Returns the boundaries of labels at which a committed window begins or ends.

    The end of the window before the label counts first, then the start of the window after
    it.
    """
    grid = pipeline.spec.window.grid
    cuts: dict[Label, Boundary] = {}
    windows = {
        Window(pipeline.spec.id, *ends)
        for label in labels
        for ends in pairwise(
            (grids.label_before(grid, label), label, grids.label_after(grid, label))
        )
    }
    for committed in pipeline.sink.looks(sorted(windows)):
        if committed is not None:
            plan = committed.receipt.plan
            cuts |= {plan.stop.label: plan.stop}
            cuts.setdefault(plan.start.label, plan.start)
    return [cuts[label] for label in labels if label in cuts]


def _replaced_topics(pipeline: Pipeline, upper: Boundary | None) -> set[str]:
    """Returns the topics that a rebase at or after `upper` has replaced.

    Their messages are gone. Empty with `on_loss: fail`.
    """
    if upper is None or pipeline.spec.source.on_loss == "fail":
        return set()
    old, replaced = upper.by_topic(), set[str]()
    for rebased in pipeline.ledger.rebased_boundaries(pipeline.spec.id):
        now = rebased.by_topic()
        if not is_later(upper.label, rebased.label):
            replaced |= {
                name for name in old if name in now and now[name].topic_id != old[name].topic_id
            }
    return replaced


def foresee_boundary(pipeline: Pipeline, label: Label, lower: Boundary | None) -> Boundary:
    """Returns the boundary that would be frozen now. Freezes nothing."""
    if isinstance(label, int):
        raise _not_begun(pipeline, label if lower is None else label - 1)
    below, above = pipeline.ledger.neighbours(pipeline.spec.id, label)
    candidate = next(
        b for b in _candidates(pipeline, [label], ignore, wait_for_open=False) if b.label == label
    )
    return clamp(candidate, lower or below, above)


def refuse_off_grid(pipeline: Pipeline, window: Window) -> None:
    """Checks that the window is on the pipeline's grid, and not before `window.start`.

    Raises:
        GridError: the window isn't on the grid, or begins before `window.start`.
    """
    spec = pipeline.spec
    grid = spec.window
    if window.span is not None and isinstance(grid, TimeWindows) and window.span[0] < grid.start:
        raise GridError(
            f"Window {window.key} lies before the start of {spec.id}, {instant(grid.start)}",
            "plan",
            "Run a later one: messages before the start are in no window.",
        )
    if spec.window.is_batch:
        fits = window.span is None
    else:
        fits = window.span is not None and window == grids.window_at(
            spec.id, spec.window.grid, window.span[0]
        )
    if not fits:
        raise GridError(
            f"{label_text(window.start)} to {label_text(window.end)} is not one {spec.window.grid}"
            f" window of {spec.id}",
            "plan",
            "Run the windows of the grid one by one.",
        )


def enumerate_splits(pipeline: Pipeline, window: Window) -> tuple[Split, ...]:
    """Returns the splits of a window's frozen plan, else of the plan that would be made now.

    Freezes nothing. During a run both boundaries of the window are frozen already.

    Raises:
        GridError: the window isn't on the pipeline's grid.
        SpecError: the window is a micro-batch that was not begun.
        RefusedError, UnreachableError: a boundary can't be resolved.
    """
    refuse_off_grid(pipeline, window)
    return (pipeline.ledger.plan(window) or foreseen_plan(pipeline, window)).splits


def foreseen_plan(pipeline: Pipeline, window: Window) -> Plan:
    """Returns the plan that would be made now, for a window without a frozen plan."""
    ledger, pipeline_id = pipeline.ledger, pipeline.spec.id
    start = ledger.start(pipeline_id, window.start) or foresee_boundary(
        pipeline, window.start, None
    )
    stop = ledger.boundary(pipeline_id, window.end) or foresee_boundary(pipeline, window.end, start)
    split_records = pipeline.spec.source.split_records
    return make_plan(window, start, stop, pipeline.sink.identity, split_records)


def _not_begun(pipeline: Pipeline, number: int) -> SpecError:
    return SpecError(
        f"{label_text(number)} of {pipeline.spec.id} was not cut yet, so it can't be run by name",
        "plan",
        "windrow run SPEC, without a window, cuts and runs the next one.",
    )
