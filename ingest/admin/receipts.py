"""Reads the receipts of a pipeline, and restores lost ones from the ledger's copies."""

from __future__ import annotations

import msgspec

from windrow.ingest.admin.findings import Finding, exit_code, failure
from windrow.ingest.errors import RefusedError
from windrow.ingest.model.receipt import Committed
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import OWNER, Sink, Unreadable
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.ownership import RECEIPT_MISSING

_BACKUP = (
    "Restore what windrow keeps next to the table (the folder _windrow, or the schema windrow) from"
    " a backup."
)


def read_receipts(pipeline: Pipeline) -> list[Committed]:
    """Every committed window of the pipeline, the oldest first; none if there is no table.

    Raises:
        DamagedError: a receipt is missing or can't be read.
        UnreachableError: the table can't be reached.
    """
    return sorted(pipeline.sink.receipts(), key=lambda committed: committed.receipt.window)


class Restored(msgspec.Struct, frozen=True):
    """The keys of windows whose receipts were restored, and findings about the others.

    With `dry_run`, the keys of those that could be restored.
    """

    windows: tuple[str, ...]
    failed: tuple[Finding, ...]
    dry_run: bool

    @property
    def exit_code(self) -> int:
        """1 if a receipt can't be restored."""
        return exit_code(self.failed)


def restore(pipeline_id: str, sink: Sink, ledger: Ledger, *, dry_run: bool) -> Restored:
    """Writes lost receipts again, from the ledger's copies.

    A readable receipt is never changed, and only the exact committed text is written. If
    the sink can't replace a window, a window that is missing in the table has lost its
    receipt, too.
    """
    windows = {r.window.key: r.window for r in ledger.recorded(pipeline_id)}
    audit = sink.audit()
    lost, readable = dict[str, Unreadable](), set[str]()
    for one in audit.receipts():
        if isinstance(one, Unreadable):
            lost[one.key] = one
        else:
            readable.add(one.receipt.window.key)
    if not sink.capabilities.replaces:
        for key in sorted(windows.keys() - lost.keys() - readable):
            lost[key] = Unreadable(key, f"the window {RECEIPT_MISSING}", "")
    done, failed = list[str](), list[Finding]()
    for key, why in lost.items():
        window = max(windows.values(), default=None) if key == OWNER else windows.get(key)
        text = None if window is None else ledger.written(window)
        if window is None or text is None:
            what = f"{why.what}; the ledger has no copy of it"
            failed.append(Finding("wrong", "receipts", what, why.do or _BACKUP, key))
            continue
        try:
            audit.restore(window, text, dry_run=dry_run)
        except RefusedError as error:
            failed.append(failure(error, "receipts", key))
        else:
            done.append(key)
    if done and not dry_run:
        # a receipt that was under another window's key is back under its own
        still = {one.key for one in audit.receipts() if isinstance(one, Unreadable)}
        failed = [finding for finding in failed if finding.window in still]
    return Restored(tuple(done), tuple(failed), dry_run)
