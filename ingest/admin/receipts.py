"""Reads the receipts of a pipeline, and restores lost ones from the ledger's copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windrow.ingest.admin.findings import Finding, exit_code, failure
from windrow.ingest.admin.verify_contents import compare_values
from windrow.ingest.admin.verify_keyed import compare_merged
from windrow.ingest.errors import DamagedError, RefusedError, first_few
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import (
    OWNER,
    ListAudit,
    PublishedAudit,
    Sink,
    Unreadable,
    WrittenReceipt,
)
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.ownership import NEWER_LEDGER, RECEIPT_MISSING, missing_table_error

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

    With `dry_run`, the keys of those that could be restored. `listed`: of each table whose list of
    windows was lost, and is made anew, the keys of all of its windows.
    """

    windows: tuple[str, ...]
    failed: tuple[Finding, ...]
    dry_run: bool
    listed: Mapping[str, tuple[str, ...]] = {}

    @property
    def exit_code(self) -> int:
        return exit_code(self.failed)


def restore(pipeline_id: str, sink: Sink, ledger: Ledger, *, dry_run: bool) -> Restored:
    """Writes lost receipts again, from the ledger's copies.

    A readable receipt is never changed, and only the exact committed text is written. If
    the sink can't replace a window, a window that is missing in the table has lost its
    receipt, too. A table that has lost the list of its windows gets it back first; of several
    tables either all of them or none.

    Raises:
        DamagedError: a table has rows that no receipt explains; nothing was written.
        RefusedError: somebody committed to such a table meanwhile.
        OutcomeUnknownError: nobody knows whether the commit of a list arrived.
    """
    audit = sink.audit()
    # before anything that the receipts are chosen by
    lists = [
        (list_audit, version)
        for list_audit in audit.lists
        if (version := list_audit.lost_at) is not None
    ]
    recorded = ledger.recorded(pipeline_id)
    windows = {r.window.key: r.window for r in recorded}
    # the ledger's copies are of the table with the receipts
    chosen_receipts = [
        (
            table,
            version,
            _find_committed(table, ledger, recorded if table is audit.lists[-1] else ()),
        )
        for table, version in lists
    ]
    listed = {table.place: tuple(receipt_by_key) for table, _, receipt_by_key in chosen_receipts}
    if listed and dry_run:
        return Restored((), (), dry_run, listed)
    for table, version, receipt_by_key in chosen_receipts:
        table.relist(version, receipt_by_key.values())
    table_receipts = list(audit.receipts())
    if sink.capabilities.replaces and recorded and not table_receipts and sink.owner() is None:
        absent = missing_table_error(sink, len(recorded), absent=True)
        return Restored((), (failure(absent, "table"),), dry_run)
    lost_by_key = {
        receipt.key: receipt for receipt in table_receipts if isinstance(receipt, Unreadable)
    }
    readable = {
        receipt.receipt.window.key for receipt in table_receipts if isinstance(receipt, Committed)
    }
    unreadable = set(lost_by_key)
    if not sink.capabilities.replaces:
        for key in sorted(windows.keys() - lost_by_key.keys() - readable):
            lost_by_key[key] = Unreadable(key, f"the window {RECEIPT_MISSING}", "")
    if lost_by_key and isinstance(audit, PublishedAudit):
        unknown = sorted(audit.outside(pipeline_id).keys() - lost_by_key.keys() - readable)
        if unknown:
            return Restored((), (_without_receipt(unknown),), dry_run)
    restored_keys, failed = list[str](), list[Finding]()
    for key, problem in lost_by_key.items():
        window = max(windows.values(), default=None) if key == OWNER else windows.get(key)
        text = None if window is None else ledger.written(window)
        if window is None or text is None:
            message = f"{problem.what}; the ledger has no copy of it"
            failed.append(Finding("wrong", "receipts", message, problem.do or _BACKUP, key))
            continue
        try:
            audit.restore(window, text, dry_run=dry_run)
        except RefusedError as error:
            failed.append(failure(error, "receipts", key))
        else:
            restored_keys.append(key)
    if restored_keys and not dry_run:
        # a receipt that was under another window's key is back under its own
        still_unreadable = {
            receipt.key: receipt for receipt in audit.receipts() if isinstance(receipt, Unreadable)
        }
        failed = [
            finding
            for finding in failed
            if finding.window not in unreadable - still_unreadable.keys()
        ]
        failed += [
            Finding("wrong", "receipts", still_unreadable[key].what, still_unreadable[key].do, key)
            for key in restored_keys
            if key in still_unreadable
        ]
        restored_keys = [key for key in restored_keys if key not in still_unreadable]
    return Restored(tuple(restored_keys), tuple(failed), dry_run, listed)


def _without_receipt(keys: Sequence[str]) -> Finding:
    """The finding of published windows that a run would publish again, once others are restored."""
    message = (
        f"rows of {first_few(keys)} are published, and neither the table nor the ledger has a"
        " receipt of them: the ledger is an older copy, or a run of them died"
    )
    advice = f"Nothing was restored, for the next run would publish them once more. {NEWER_LEDGER}"
    return Finding("wrong", "receipts", message, advice)


def _find_committed(
    table: ListAudit, ledger: Ledger, recorded: Sequence[Receipt]
) -> Mapping[str, WrittenReceipt]:
    """The receipts of all windows that a table holds, by their keys, without its list.

    A receipt file may be of an attempt that never committed, and a copy of the ledger older than
    the table, or newer. So the rows decide: of each window the newest receipt counts that has
    exactly the rows of the table. If there is none, it is the copy: it was committed once, and
    verification tells what is wrong with the rows.

    Raises:
        DamagedError: there are rows that no receipt explains.
    """
    copied = {
        r.window.key: (r, text) for r in recorded if (text := ledger.written(r.window)) is not None
    }
    written_receipts = sorted(
        (*copied.values(), *table.kept()), key=lambda written: -written[0].generation
    )
    if table.keyed is not None:
        for choice in ({r.window.key: (r, text) for r, text in reversed(written_receipts)}, copied):
            receipts = [receipt for receipt, _ in choice.values()]
            if not compare_merged(receipts, table, table.keyed, deep=True, whole=True):
                return choice
    else:
        held_windows, receipt_by_window = table.windows(), dict[str, WrittenReceipt]()
        known_windows = held_windows | copied.keys()
        for receipt, text in written_receipts:
            key = receipt.window.key
            if (
                key in known_windows
                and key not in receipt_by_window
                and not compare_values(receipt, table)
            ):
                receipt_by_window[key] = receipt, text
        receipt_by_window = {
            key: written for key, written in copied.items() if key in held_windows
        } | receipt_by_window
        if held_windows <= receipt_by_window.keys():
            return receipt_by_window
    raise DamagedError(
        f"the table {table.place} has lost which windows it holds, and its rows are those of no"
        " receipts",
        "check",
        f"Nothing was written. {_BACKUP}",
    )
