"""Rebuilds a lost ledger from the sink's receipts.

Each receipt has its whole plan with both boundaries, exactly as they were frozen. If the
source was replaced at a label, the receipts of the windows before and after the label have
different boundaries. The boundary in the first receipt is the frozen one; the boundary in
the second receipt is that of the rebase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

import msgspec

from windrow.ingest.errors import IdentityError, OwnerError, SpecError
from windrow.ingest.model.boundary import Boundary, Label, Mark, label_text
from windrow.ingest.model.grid import batch_at
from windrow.ingest.model.owner import LEDGER_ANEW, TableOwner
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.tiling import difference, same_source, stop_start_difference
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import PublishedAudit, Sink
from windrow.ingest.runner.next_start import next_start
from windrow.ingest.source.enumerator.splits import make_plan

UNPAUSED = (
    "No receipt says whether the pipeline was paused: it isn't now. windrow pause SPEC pauses it."
)


class Rebuilt(msgspec.Struct, frozen=True):
    """The rebuilt ledger.

    Attributes:
        ledger: its id.
        grid: the pipeline's grid.
        boundaries: the number of boundaries.
        windows: the number of windows.
        notes: sentences about facts that no receipt has.
    """

    ledger: str
    grid: str
    boundaries: int
    windows: int
    notes: tuple[str, ...] = ()


class Frozen(msgspec.Struct, frozen=True):
    """The frozen boundaries in the receipts.

    Attributes:
        boundaries: the boundaries, in order.
        rebases: the boundaries of rebases, by label.
        notes: sentences about facts that no receipt has.
    """

    boundaries: tuple[Boundary, ...]
    rebases: dict[Label, Boundary]
    notes: tuple[str, ...]


def rebuild(pipeline_id: str, sink: Sink, ledger: Ledger) -> Rebuilt:
    """Fills the ledger from the receipts of a pipeline. Idempotent: equal entries stay.

    Raises:
        SpecError: there is no table.
        IdentityError: the ledger has other entries, or the receipts contradict each other.
            No entry was overwritten.
        OwnerError: by the ledger, the pipeline writes to another table.
    """
    bound = sink.owner()
    if bound is None:
        raise SpecError(
            "There is no table yet",
            "ledger",
            "There is nothing to rebuild; check the sink in the spec.",
        )
    receipts = sorted((c.receipt for c in sink.receipts()), key=lambda r: r.window)
    refuse_foreign(pipeline_id, bound, receipts)
    frozen = boundaries(receipts)
    ledger.adopt_identity(bound.ledger)
    grid = ledger.bind_grid(pipeline_id, bound.grid)
    if grid != bound.grid:
        raise _contradiction(
            f"it has pipeline {pipeline_id} on the grid {grid}, the table on {bound.grid}"
        )
    writes_to = ledger.bind_sink(pipeline_id, sink.identity)
    if not sink.is_at(writes_to):
        raise OwnerError(
            f"By the ledger, pipeline {pipeline_id} writes to {writes_to}; by the spec, to"
            f" {sink.identity}",
            "ledger",
            "Nothing was rebuilt. If the table was moved there: windrow rebind SPEC shows what that"
            " means.",
        )
    _restore(pipeline_id, ledger, frozen)
    for receipt in receipts:
        if ledger.freeze_plans([receipt.plan])[0].digest != receipt.digest:
            raise _contradiction(f"its plan of window {receipt.window.key} is another one")
        ledger.record(receipt, sink.receipt_text(receipt), also_older=True)
        # a retry of the same request must not make another generation
        ledger.target_generation(receipt.window, receipt.request, receipt.generation)
        ledger.freeze_pins(receipt.window, receipt.generation, receipt.pins)
        stop = receipt.stop
        if stop is not None and ledger.freeze_stop(pipeline_id, stop) != stop:
            raise _contradiction(f"its window.stop differs from window {receipt.window.key}'s")
        if isinstance(receipt.window.start, int) and receipt.generation == 0:
            ledger.assign(pipeline_id, receipt.request, receipt.window.start)
    unpaused = () if ledger.pause(pipeline_id) else (UNPAUSED,)
    notes = frozen.notes + _freeze_unfinished(pipeline_id, sink, ledger) + unpaused
    return Rebuilt(bound.ledger, bound.grid, len(frozen.boundaries), len(receipts), notes)


def _restore(pipeline_id: str, ledger: Ledger, frozen: Frozen) -> None:
    """Freezes the boundaries, and records each rebase before the boundaries above it.

    The order matters, because the ledger accepts a rebase only at its highest label.
    """
    stretch: list[Boundary] = []
    for boundary in frozen.boundaries:
        stretch.append(boundary)
        rebase = frozen.rebases.get(boundary.label)
        if rebase is not None or boundary is frozen.boundaries[-1]:
            _refuse_different(stretch, ledger.freeze(pipeline_id, stretch))
            stretch = []
            if rebase is not None:
                existing_rebases = [
                    recorded
                    for recorded in ledger.rebased_boundaries(pipeline_id)
                    if recorded.label == rebase.label
                ]
                if existing_rebases:
                    _refuse_different([rebase], existing_rebases)
                else:
                    ledger.rebase(pipeline_id, rebase)


def _freeze_unfinished(pipeline_id: str, sink: Sink, ledger: Ledger) -> tuple[str, ...]:
    """Freezes the plan of a micro-batch that is published in part, and returns a note.

    Its window ends where its published messages end. The next micro-batch gets the other
    messages.
    """
    audit, start = sink.audit(), next_start(ledger, pipeline_id)
    if not isinstance(audit, PublishedAudit) or start is None or isinstance(start.label, datetime):
        return ()
    window = batch_at(pipeline_id, start.label)
    published = sorted(audit.unfinished().get(window.key, ()))
    marks, splits = start.by_tp(), list[Split]()
    marks |= start.cuts({split.tp for split in published})
    if not published or any(split.tp not in marks for split in published):
        return ()
    for split in published:
        low = marks[split.tp].offset
        if low < split.start:  # these offsets became no row
            splits.append(Split(split.topic, split.partition, low, split.start))
        splits.append(split)
        marks[split.tp] = Mark(split.topic, split.partition, split.stop, "batch")
    end = Boundary.of(window.end, start.cluster_id, start.topics, marks.values())
    (stop,) = ledger.freeze(pipeline_id, [end])
    ledger.freeze_plans([make_plan(window, start, stop, sink.identity, splits=splits)])
    note = (
        f"{window.key} is published in part and has no receipt: its end, which only the lost ledger"
        " knew, is where its published messages end."
    )
    return (note,)


def _refuse_different(expected: Sequence[Boundary], recorded: Sequence[Boundary]) -> None:
    for boundary, recorded_boundary in zip(expected, recorded, strict=True):
        if difference(boundary, recorded_boundary):
            raise _contradiction(
                f"its boundary {label_text(boundary.label)} is another one:"
                f" {difference(boundary, recorded_boundary)}"
            )


def refuse_foreign(pipeline_id: str, bound: TableOwner, receipts: Sequence[Receipt]) -> None:
    """Refuses another pipeline's table, and receipts of another ledger or grid. Pure.

    Raises:
        IdentityError: the message names the difference.
    """
    pipeline_ids = {bound.pipeline, *(r.window.pipeline for r in receipts)}
    if pipeline_ids != {pipeline_id}:
        raise IdentityError(
            f"The table belongs to pipeline {', '.join(sorted(pipeline_ids))}, the spec is of"
            f" {pipeline_id}",
            "ledger",
            "Nothing was rebuilt. Check id and sink in the spec.",
        )
    for receipt in receipts:
        if (receipt.ledger, receipt.grid) != (bound.ledger, bound.grid):
            raise IdentityError(
                f"The receipt of window {receipt.window.key} names ledger {receipt.ledger} and grid"
                f" {receipt.grid}, the table {bound.ledger} and {bound.grid}",
                "ledger",
                "Nothing was rebuilt. Find out which of them is right.",
            )


def boundaries(receipts: Sequence[Receipt]) -> Frozen:
    """Returns every boundary of the receipts once, by label. Pure.

    Raises:
        IdentityError: two receipts have different offsets at one label, and no rebase
            explains it.
    """
    stops = _by_label(r.plan.stop for r in receipts)
    starts = _by_label(r.plan.start for r in receipts)
    for label in stops.keys() & starts.keys():
        if stop_start_difference(stops[label], starts[label]):
            raise _disagreement(stops[label], stop_start_difference(stops[label], starts[label]))
    rebases = {
        label: start
        for label, start in starts.items()
        if label in stops and not same_source(stops[label], start)
    }
    ends = [b for _, b in sorted((starts | stops).items())]
    notes = []
    for lower, upper in pairwise(ends):
        if lower.label not in rebases and not same_source(lower, upper):
            rebases[lower.label] = _assumed_rebase(lower.label, upper)
            label_range = f"{label_text(lower.label)} and {label_text(upper.label)}"
            notes.append(
                f"The source was replaced somewhere between {label_range}; windows between them"
                " can't be read any more."
            )
    below = [None, *(rebases.get(b.label, b) for b in ends[:-1])]
    return Frozen(
        tuple(_with_begins(b, lower) for b, lower in zip(ends, below, strict=False)),
        rebases,
        tuple(notes),
    )


def _by_label(cuts: Iterable[Boundary]) -> dict[Label, Boundary]:
    by_label: dict[Label, Boundary] = {}
    for boundary in cuts:
        first_boundary = by_label.setdefault(boundary.label, boundary)
        if difference(first_boundary, boundary):
            raise _disagreement(first_boundary, difference(first_boundary, boundary))
    return by_label


def _assumed_rebase(label: Label, upper: Boundary) -> Boundary:
    """Returns the boundary of a rebase that no receipt has, with the offsets of the next boundary.

    Its marks count as log starts. So the window that begins here is refused for messages
    that may be lost, or is partial.
    """
    marks = [msgspec.structs.replace(m, origin="log_start") for m in upper.marks]
    return Boundary.of(label, upper.cluster_id, upper.topics, marks)


def _with_begins(boundary: Boundary, lower: Boundary | None) -> Boundary:
    """Adds a start mark, at the cut, for each topic-partition that the lower boundary lacks.

    The real start mark was in a boundary between the two, which is lost.
    """
    known_tps = (
        set()
        if lower is None
        else lower.cuts(boundary.by_tp()).keys() | {b.tp for b in boundary.start_marks}
    )
    missing: list[Mark] = (
        [] if lower is None else [m for m in boundary.marks if m.tp not in known_tps]
    )
    return (
        msgspec.structs.replace(
            boundary, start_marks=tuple(sorted((*boundary.start_marks, *missing)))
        )
        if missing
        else boundary
    )


def _disagreement(boundary: Boundary, details: str) -> IdentityError:
    return IdentityError(
        f"Two receipts disagree about the boundary {label_text(boundary.label)}: {details}",
        "ledger",
        "Nothing was rebuilt. Run windrow verify.",
    )


def _contradiction(details: str) -> OwnerError:
    return OwnerError(
        f"The ledger contradicts the table's receipts: {details}",
        "ledger",
        "If the ledger that the table was begun with is there, set `state` to it. Else:"
        f" {LEDGER_ANEW}",
    )
