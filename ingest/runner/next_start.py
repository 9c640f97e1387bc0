"""The boundary at which the next window begins.

A window mostly begins at the end of the window before. After a rebase it begins at that of the
rebase, which windows that end at the label don't see: so all code takes the start of a window from
here, and never from the end of the one before.
"""

from __future__ import annotations

from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.ledger import Ledger


def next_start(ledger: Ledger, pipeline_id: str) -> Boundary | None:
    """Returns the newest frozen boundary, or that of a rebase at its label.

    No window was asked for behind it. None while nothing is frozen.
    """
    newest = ledger.newest(pipeline_id)
    return ledger.start(pipeline_id, newest[-1].label) or newest[-1] if newest else None


def next_start_after(ledger: Ledger, receipt: Receipt) -> Boundary:
    """Returns the boundary at which the window after a committed one begins.

    A ledger that was lost doesn't know it; then it is the end in the receipt.
    """
    return ledger.start(receipt.window.pipeline, receipt.window.end) or receipt.plan.stop


def start_of(ledger: Ledger, window: Window, frozen: Boundary) -> Boundary:
    """Returns the boundary at which a window begins whose boundaries are frozen.

    `frozen`: the boundary at its start. To be called after its end was frozen:

    1. Run A freezes the start, which is the newest boundary.
    2. A person records a rebase there.
    3. A freezes the end, after the rebase. Had it asked for its start before, the window
       would begin on the old source and end on the new one. After 3 no rebase can come there.
    """
    return ledger.start(window.pipeline, window.start) or frozen
