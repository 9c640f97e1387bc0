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
    lists = [(one, version) for one in audit.lists if (version := one.lost_at) is not None]
    recorded = ledger.recorded(pipeline_id)
    windows = {r.window.key: r.window for r in recorded}
    # the ledger's copies are of the table with the receipts
    chosen = [
        (table, version, _committed(table, ledger, recorded if table is audit.lists[-1] else ()))
        for table, version in lists
    ]
    listed = {table.place: tuple(found) for table, _, found in chosen}
    if listed and dry_run:
        return Restored((), (), dry_run, listed)
    for table, version, found in chosen:
        table.relist(version, found.values())
    held = list(audit.receipts())
    if sink.capabilities.replaces and recorded and not held and sink.owner() is None:
        absent = missing_table_error(sink, len(recorded), absent=True)
        return Restored((), (failure(absent, "table"),), dry_run)
    lost = {one.key: one for one in held if isinstance(one, Unreadable)}
    readable = {one.receipt.window.key for one in held if isinstance(one, Committed)}
    unreadable = set(lost)
    if not sink.capabilities.replaces:
        for key in sorted(windows.keys() - lost.keys() - readable):
            lost[key] = Unreadable(key, f"the window {RECEIPT_MISSING}", "")
    if lost and isinstance(audit, PublishedAudit):
        unknown = sorted(audit.outside(pipeline_id).keys() - lost.keys() - readable)
        if unknown:
            return Restored((), (_without_receipt(unknown),), dry_run)
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
        still = {one.key: one for one in audit.receipts() if isinstance(one, Unreadable)}
        failed = [one for one in failed if one.window not in unreadable - still.keys()]
        failed += [
            Finding("wrong", "receipts", still[key].what, still[key].do, key)
            for key in done
            if key in still
        ]
        done = [key for key in done if key not in still]
    return Restored(tuple(done), tuple(failed), dry_run, listed)


def _without_receipt(keys: Sequence[str]) -> Finding:
    """The finding of published windows that a run would publish again, once others are restored."""
    what = (
        f"rows of {first_few(keys)} are published, and neither the table nor the ledger has a"
        " receipt of them: the ledger is an older copy, or a run of them died"
    )
    do = f"Nothing was restored, for the next run would publish them once more. {NEWER_LEDGER}"
    return Finding("wrong", "receipts", what, do)


def _committed(
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
    every = sorted((*copied.values(), *table.kept()), key=lambda one: -one[0].generation)
    if table.keyed is not None:
        for choice in ({r.window.key: (r, text) for r, text in reversed(every)}, copied):
            receipts = [receipt for receipt, _ in choice.values()]
            if not compare_merged(receipts, table, table.keyed, deep=True, whole=True):
                return choice
    else:
        held, found = table.windows(), dict[str, WrittenReceipt]()
        known = held | copied.keys()
        for receipt, text in every:
            key = receipt.window.key
            if key in known and key not in found and not compare_values(receipt, table):
                found[key] = receipt, text
        found = {key: one for key, one in copied.items() if key in held} | found
        if held <= found.keys():
            return found
    raise DamagedError(
        f"the table {table.place} has lost which windows it holds, and its rows are those of no"
        " receipts",
        "check",
        f"Nothing was written. {_BACKUP}",
    )
