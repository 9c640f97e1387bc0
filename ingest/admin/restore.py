"""Receipts that are missing or damaged, put back from the ledger's copies: nobody else
keeps them.
"""

from __future__ import annotations

import msgspec

from windrow.ingest.admin.findings import Finding
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.receipt import Committed
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import OWNER, Sink, Unreadable
from windrow.ingest.runner.ownership import LOST

_BACKUP = (
    "Restore what windrow keeps beside the table (the folder _windrow, or the schema windrow) from"
    " a backup."
)


class Restored(msgspec.Struct, frozen=True):
    """The keys of windows whose receipts are back, or would be (`dry_run`), and those
    that the ledger can't help with.
    """

    windows: tuple[str, ...]
    failed: tuple[Finding, ...]
    dry_run: bool

    @property
    def exit_code(self) -> int:
        """1 if a receipt can't be restored."""
        return 1 if self.failed else 0


def restore(pipeline_id: str, sink: Sink, ledger: Ledger, *, dry_run: bool) -> Restored:
    """Restore what can be restored.

    A receipt that can be read is never touched, and only the very text that was
    committed is put back.

    Where a sink can't take back what it has committed, a window that it knows nothing
    of has lost its receipt too.
    """
    windows = {r.window.key: r.window for r in ledger.recorded(pipeline_id)}
    done, failed, audit = [], [], sink.audit()
    found = list(audit.receipts())
    missing = (
        []
        if sink.capabilities.replaces
        else sorted(windows.keys() - {_key(receipt) for receipt in found})
    )
    unreadable = {receipt.key: receipt for receipt in found if isinstance(receipt, Unreadable)}
    for lost in [
        *unreadable.values(),
        *(Unreadable(key, f"the window {LOST}", "") for key in missing),
    ]:
        window = max(windows.values(), default=None) if lost.key == OWNER else windows.get(lost.key)
        text = None if window is None else ledger.written(window)
        if window is None or text is None:
            failed.append(
                Finding(
                    "wrong",
                    "receipts",
                    f"{lost.what}; the ledger has no copy of it",
                    lost.do or _BACKUP,
                    lost.key,
                )
            )
            continue
        try:
            audit.restore(window, text, dry_run=dry_run)
        except RefusedError as error:
            failed.append(Finding("wrong", "receipts", error.what, error.do, lost.key))
        else:
            done.append(lost.key)
    return Restored(tuple(done), tuple(failed), dry_run)


def _key(found: Committed | Unreadable) -> str:
    return found.key if isinstance(found, Unreadable) else found.receipt.window.key
