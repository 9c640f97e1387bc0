"""The boundary at which the next window begins.

Usually a window begins at the end of the previous window. After a rebase it begins at the
boundary of the rebase, which has the same label but other offsets. So all code takes the start
of a window from this module, and never from the end of the previous window.
"""

from __future__ import annotations

from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.ledger import Ledger


def next_start(ledger: Ledger, pipeline_id: str) -> Boundary | None:
    """Returns the newest frozen boundary, or the boundary of a rebase at its label.

    No later window has begun. None if nothing is frozen yet.
    """
    newest = ledger.newest(pipeline_id)
    return ledger.start(pipeline_id, newest[-1].label) or newest[-1] if newest else None


def next_start_after(ledger: Ledger, receipt: Receipt) -> Boundary:
    """Returns the boundary at which the window after a committed window begins.

    If the ledger was lost and doesn't know this boundary, the end in the receipt is returned.
    """
    return ledger.start(receipt.window.pipeline, receipt.window.end) or receipt.plan.stop


def start_of(ledger: Ledger, window: Window, frozen: Boundary) -> Boundary:
    """Returns the boundary at which a window begins, after both its boundaries were frozen.

    It must not be called before the end was frozen:

    1. Run A freezes the start, which is the newest boundary.
    2. A person records a rebase at the start.
    3. Run A freezes the end. From now on no rebase can be recorded at the start.

    If A had called this function before 2, the window would begin in the old source and end
    in the new source.

    Args:
        ledger: the ledger.
        window: the window.
        frozen: the frozen boundary under the label of its start.
    """
    return ledger.start(window.pipeline, window.start) or frozen
