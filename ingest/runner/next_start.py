"""The frontier: where the next window begins.

Mostly that is where the one before ended. After a rebase it is the opening, which
windows that end at the label don't see: so who asks where something begins asks here,
and never takes the end of what was before.
"""

from __future__ import annotations

from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.ledger import Ledger


def next_start(ledger: Ledger, pipeline_id: str) -> Boundary | None:
    """Where what was never asked for begins: the newest frozen boundary, or its
    opening; None while nothing is frozen.
    """
    newest = ledger.newest(pipeline_id)
    return ledger.start(pipeline_id, newest[-1].label) or newest[-1] if newest else None


def next_start_after(ledger: Ledger, receipt: Receipt) -> Boundary:
    """Where the window after a committed one begins.

    A ledger that was lost doesn't know it; then there is only what the receipt says.
    """
    return ledger.start(receipt.window.pipeline, receipt.window.end) or receipt.plan.stop


def start_of(ledger: Ledger, window: Window, frozen: Boundary) -> Boundary:
    """Where a window begins whose boundaries are frozen, `frozen` at its start.

    To be asked after its end was frozen.

    1 Run A freezes the start, which is the newest boundary.  2 A person records a
    rebase there.  3 A freezes the end, after the opening. Had it asked for its start
    before, the window would begin on the old source and end on the new one. After 3 no
    rebase can come there.
    """
    return ledger.start(window.pipeline, window.start) or frozen
