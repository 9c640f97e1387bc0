"""A lost ledger, restored from the sink's receipts: each holds its whole plan with both boundaries, exactly as they were frozen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ingest.errors import IdentityError, SpecError
from ingest.model import Boundary, Receipt, instant
from ingest.ports import Bound, Ledger, Sink
from ingest.verify import difference


class Rebuilt(msgspec.Struct, frozen=True):
    """What the ledger holds now: its id, and how many boundaries, plans and receipts were looked at."""

    ledger: str
    grid: str
    boundaries: int
    windows: int


def rebuild(pipeline: str, sink: Sink, ledger: Ledger) -> Rebuilt:
    """Fill the ledger from the receipts of a pipeline. Idempotent: what is there and equal stays.

    Raises:
        SpecError: there is no table.
        IdentityError: the ledger holds something else, or the receipts contradict each other; nothing of theirs was overwritten.
    """
    bound = sink.binding()
    if bound is None:
        raise SpecError("There is no table yet", "ledger", "There is nothing to rebuild; check sink.path in the spec.")
    receipts = sorted((c.receipt for c in sink.receipts()), key=lambda r: r.window)
    refuse_foreign(pipeline, bound, receipts)
    frozen = boundaries(receipts)
    ledger.adopt_identity(bound.ledger)
    held = ledger.bind_grid(pipeline, bound.grid)
    if held != bound.grid:
        raise _contradiction(f"it has pipeline {pipeline} on the grid {held}, the table on {bound.grid}")
    for wanted, there in zip(frozen, ledger.freeze(pipeline, frozen), strict=True):
        if difference(wanted, there):
            raise _contradiction(f"its boundary {instant(wanted.label)} is another one: {difference(wanted, there)}")
    for receipt in receipts:
        if ledger.freeze_plan(receipt.plan).digest != receipt.digest:
            raise _contradiction(f"its plan of window {receipt.window.key} is another one")
        ledger.record(receipt)
        # Whatever the request was, a retry of it must not make another generation.
        ledger.target_generation(receipt.window, receipt.request, receipt.generation)
    return Rebuilt(bound.ledger, bound.grid, len(frozen), len(receipts))


def refuse_foreign(pipeline: str, bound: Bound, receipts: Sequence[Receipt]) -> None:
    """The table must be this pipeline's, and its receipts of the ledger and grid that it is bound to. Pure.

    Raises:
        IdentityError: naming what doesn't fit.
    """
    named = {bound.pipeline, *(r.window.pipeline for r in receipts)}
    if named != {pipeline}:
        what = f"The table belongs to pipeline {', '.join(sorted(named))}, the spec is of {pipeline}"
        raise IdentityError(what, "ledger", "Nothing was rebuilt. Check id and sink.path in the spec.")
    for receipt in receipts:
        if (receipt.ledger, receipt.grid) != (bound.ledger, bound.grid):
            what = (
                f"The receipt of window {receipt.window.key} names ledger {receipt.ledger} and grid {receipt.grid}, "
                f"the table {bound.ledger} and {bound.grid}"
            )
            raise IdentityError(what, "ledger", "Nothing was rebuilt. Find out which of them is right.")


def boundaries(receipts: Sequence[Receipt]) -> list[Boundary]:
    """Every boundary once, by label. Pure.

    Raises:
        IdentityError: if two receipts cut at one label in different ways.
    """
    found: dict[str, Boundary] = {}
    for boundary in (b for r in receipts for b in (r.plan.start, r.plan.stop)):
        known = found.setdefault(instant(boundary.label), boundary)
        if difference(known, boundary):
            what = f"Two receipts disagree about the boundary {instant(boundary.label)}: {difference(known, boundary)}"
            raise IdentityError(what, "ledger", "Nothing was rebuilt. Run windrow verify.")
    return sorted(found.values(), key=lambda b: b.label)


def _contradiction(what: str) -> IdentityError:
    return IdentityError(
        f"The ledger contradicts the table's receipts: {what}", "ledger", "Use an empty state file, or the one the table was begun with."
    )
