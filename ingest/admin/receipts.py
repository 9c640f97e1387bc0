"""Reads the receipts of a pipeline, and restores lost ones from the ledger's copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windrow.ingest.admin.findings import Finding, exit_code, finding_of_error
from windrow.ingest.admin.verify_contents import compare_values
from windrow.ingest.admin.verify_keyed import compare_merged
from windrow.ingest.errors import DamagedError, RefusedError, join_first_few
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
    """Returns every committed window of the pipeline, the oldest first; empty without a table.

    Raises:
        DamagedError: a receipt is missing or can't be read.
        UnreachableError: the table can't be reached.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        for committed in windrow.read_receipts(pipeline):
            print(committed.receipt.window.key, committed.receipt.counts.rows)
    """
    return sorted(pipeline.sink.receipts(), key=lambda committed: committed.receipt.window)


class Restored(msgspec.Struct, frozen=True):
    """The result of restoring receipts.

    Attributes:
        windows: the keys of windows whose receipts were restored; with `dry_run`, of those
            that can be restored.
        failed: findings about the others.
        dry_run: whether nothing was written.
        listed: the tables that had lost the list of their windows, which is restored, with
            the keys of all their windows.
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
    receipt, too. A table that has lost the list of its windows gets the list back first. Of
    several tables either all get their list back or none.

    Raises:
        DamagedError: a table has rows that no receipt explains; nothing was written.
        RefusedError: another process committed to such a table meanwhile.
        OutcomeUnknownError: it isn't known whether the commit of a list arrived.
    """
    audit = sink.audit()
    # read before the entries that the receipts are chosen by, so that a later commit is noticed
    lists = [
        (list_audit, version)
        for list_audit in audit.lists
        if (version := list_audit.lost_at) is not None
    ]
    recorded = ledger.recorded_receipts(pipeline_id)
    windows = {r.window.key: r.window for r in recorded}
    # the ledger's copies belong to the table with the receipts, which is the last one
    chosen_receipts = [
        (
            table,
            version,
            _find_committed(table, ledger, recorded if table is audit.lists[-1] else ()),
        )
        for table, version in lists
    ]
    listed = {table.location: tuple(receipt_by_key) for table, _, receipt_by_key in chosen_receipts}
    if listed and dry_run:
        return Restored((), (), dry_run, listed)
    for table, version, receipt_by_key in chosen_receipts:
        table.relist(version, receipt_by_key.values())
    table_receipts = list(audit.receipts())
    if sink.capabilities.replaces and recorded and not table_receipts and sink.owner() is None:
        absent = missing_table_error(sink, len(recorded), absent=True)
        return Restored((), (finding_of_error(absent, "table"),), dry_run)
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
        text = None if window is None else ledger.recorded_text(window)
        if window is None or text is None:
            message = f"{problem.message}; the ledger has no copy of it"
            failed.append(Finding("wrong", "receipts", message, problem.advice or _BACKUP, key))
            continue
        try:
            audit.restore(window, text, dry_run=dry_run)
        except RefusedError as error:
            failed.append(finding_of_error(error, "receipts", key))
        else:
            restored_keys.append(key)
    if restored_keys and not dry_run:
        # a receipt that was stored under another window's key is now under its own key
        still_unreadable = {
            receipt.key: receipt for receipt in audit.receipts() if isinstance(receipt, Unreadable)
        }
        failed = [
            finding
            for finding in failed
            if finding.window not in unreadable - still_unreadable.keys()
        ]
        failed += [
            Finding(
                "wrong",
                "receipts",
                still_unreadable[key].message,
                still_unreadable[key].advice,
                key,
            )
            for key in restored_keys
            if key in still_unreadable
        ]
        restored_keys = [key for key in restored_keys if key not in still_unreadable]
    return Restored(tuple(restored_keys), tuple(failed), dry_run, listed)


def _without_receipt(keys: Sequence[str]) -> Finding:
    """Returns the finding of published windows that a run would publish again after a restore."""
    message = (
        f"rows of {join_first_few(keys)} are published, and neither the table nor the ledger has a"
        " receipt of them: the ledger is an older copy, or a run of them died"
    )
    advice = f"Nothing was restored, for the next run would publish them once more. {NEWER_LEDGER}"
    return Finding("wrong", "receipts", message, advice)


def _find_committed(
    table: ListAudit, ledger: Ledger, recorded: Sequence[Receipt]
) -> Mapping[str, WrittenReceipt]:
    """Finds the receipts of all windows of a table that has lost its list, by their keys.

    A receipt file may be of an attempt that never committed. A copy in the ledger may be
    older or newer than the table. So the rows decide: for each window, the newest receipt
    counts that has exactly the rows of the table. If there is none, the copy counts: it was
    committed once, and verification reports what is wrong with the rows.

    Raises:
        DamagedError: there are rows that no receipt explains.
    """
    copied = {
        r.window.key: (r, text)
        for r in recorded
        if (text := ledger.recorded_text(r.window)) is not None
    }
    written_receipts = sorted(
        (*copied.values(), *table.stored_receipts()), key=lambda written: -written[0].generation
    )
    if table.keyed is not None:
        for choice in ({r.window.key: (r, text) for r, text in reversed(written_receipts)}, copied):
            receipts = [receipt for receipt, _ in choice.values()]
            if not compare_merged(receipts, table, table.keyed, deep=True, complete=True):
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
        f"the table {table.location} has lost which windows it holds, and its rows are those of no"
        " receipts",
        "check",
        f"Nothing was written. {_BACKUP}",
    )
