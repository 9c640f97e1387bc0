"""Compares the table's receipts with the ledger: boundaries, plans, copies of receipts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from windrow.ingest.admin.findings import Finding, Level
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.owner import LEDGER_ANEW
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import FrozenStop
from windrow.ingest.model.tiling import difference
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import Sink
from windrow.ingest.runner.ownership import RECEIPT_MISSING, missing_table_error, ways_out

REBUILD = "Rebuild it from the receipts: windrow doctor SPEC --rebuild-ledger."


class LedgerEntries(msgspec.Struct, frozen=True):
    """The ledger's entries about one committed window; None for a missing entry.

    Attributes:
        start: the boundary at its start.
        stop: the boundary at its end.
        plan: its plan.
        receipt: the copy of its receipt.
        end: the frozen end of the micro-batches, if the window's receipt has one.
    """

    start: Boundary | None
    stop: Boundary | None
    plan: Plan | None
    receipt: Receipt | None
    end: FrozenStop | None = None


def against_ledger(
    pipeline_id: str,
    receipts: Sequence[Receipt],
    unread: Collection[str],
    sink: Sink,
    ledger: Ledger,
) -> list[Finding]:
    """Compares a table's receipts with the ledger.

    Args:
        pipeline_id: the id of the pipeline.
        receipts: the receipts that can be read.
        unread: keys of windows whose receipts can't be read.
        sink: the table.
        ledger: the ledger.
    """
    copies = {r.window: r for r in ledger.recorded_receipts(pipeline_id)}
    absent = sink.owner() is None
    if copies and (absent or not (receipts or unread)):
        error = missing_table_error(sink, len(copies), absent=absent)
        return [Finding("wrong", "table", error.message, error.advice)]
    entries = [
        LedgerEntries(
            ledger.start(pipeline_id, r.window.start),
            ledger.boundary(pipeline_id, r.window.end),
            ledger.plan(r.window),
            copies.pop(r.window, None),
            None if r.stop is None else ledger.frozen_stop(pipeline_id, r.stop.position),
        )
        for r in receipts
    ]
    # `identity` would create a missing ledger. An empty ledger is reported by its entries.
    empty = LedgerEntries(None, None, None, None)
    identity = ledger.identity() if any(e != empty for e in entries) else None
    findings = _writes_to(ledger.sink(pipeline_id), sink)
    findings += [
        f for r, e in zip(receipts, entries, strict=True) for f in compare_ledger(r, e, identity)
    ]
    return findings + [
        f for r in copies.values() if r.window.key not in unread for f in _only_in_ledger(r, sink)
    ]


def _writes_to(bound: str | None, sink: Sink) -> list[Finding]:
    if bound is None or sink.is_at(bound):
        return []
    advice = (
        "Set the sink of the spec back; if the table was moved there: windrow rebind SPEC shows"
        " what going on there means."
    )
    message = f"by the ledger, the pipeline writes to {bound}; by the spec, to {sink.identity}"
    return [Finding("wrong", "ledger", message, advice)]


def _only_in_ledger(copy: Receipt, sink: Sink) -> list[Finding]:
    planned_note = "" if sink.is_at(copy.plan.sink) else f"; it was planned for {copy.plan.sink}"
    key = copy.window.key
    if sink.capabilities.replaces:
        message = "the ledger knows a receipt that the table doesn't hold"
        advice = (
            "Was the table restored from a backup? Run the window again: it reads the same offsets."
        )
    else:
        message, advice = f"the window {RECEIPT_MISSING}", ways_out(key)
    return [Finding("wrong", "ledger", message + planned_note, advice, key)]


def compare_ledger(receipt: Receipt, entries: LedgerEntries, identity: str | None) -> list[Finding]:
    """Compares one receipt with the ledger's entries about its window. Pure.

    Args:
        receipt: the receipt.
        entries: the ledger's entries.
        identity: the ledger's id; None: it isn't compared.
    """
    problems: list[tuple[Level, str, str]] = []
    if identity is not None and receipt.ledger != identity:
        message = f"committed by ledger {receipt.ledger}, this one is {identity}"
        problems.append(("wrong", message, LEDGER_ANEW))
    for name, frozen, receipt_boundary in (
        ("start", entries.start, receipt.plan.start),
        ("end", entries.stop, receipt.plan.stop),
    ):
        if frozen is None:
            message = f"the boundary at its {name} is missing in the ledger"
            problems.append(("wrong", message, REBUILD))
        elif difference(frozen, receipt_boundary):
            message = (
                f"the boundary at its {name} differs in the ledger:"
                f" {difference(frozen, receipt_boundary)}"
            )
            problems.append(("wrong", message, LEDGER_ANEW))
    if entries.plan is None:
        problems.append(("wrong", "its plan is missing in the ledger", REBUILD))
    elif entries.plan.digest != receipt.digest:
        problems.append(("wrong", "its plan differs in the ledger", LEDGER_ANEW))
    if entries.end is None and receipt.stop is not None:
        problems.append(("wrong", "the end in window.stop is missing in the ledger", REBUILD))
    elif entries.end != receipt.stop:
        problems.append(("wrong", "the end in window.stop differs in the ledger", LEDGER_ANEW))
    if entries.receipt is None or entries.receipt.generation < receipt.generation:
        # A run that died after its commit leaves such a copy. It does no harm.
        message = "the ledger's copy of the receipt is missing or older"
        problems.append(("info", message, REBUILD))
    elif entries.receipt != receipt:
        newer = entries.receipt.generation > receipt.generation
        message = f"the ledger's copy of the receipt {'is newer' if newer else 'differs'}"
        problems.append(("wrong", message, REBUILD))
    return [
        Finding(level, "ledger", message, advice, receipt.window.key)
        for level, message, advice in problems
    ]
