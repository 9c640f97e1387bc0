"""Compares the table's receipts with the ledger: boundaries, plans, copies of receipts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from windrow.ingest.admin.findings import Finding, Level
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import Sink
from windrow.ingest.runner.ownership import RECEIPT_MISSING, missing_table_error, ways_out
from windrow.ingest.source.enumerator.tiling import difference

REBUILD = "Rebuild it from the receipts: windrow doctor SPEC --rebuild-ledger."


class Kept(msgspec.Struct, frozen=True):
    """What a ledger holds about one committed window."""

    start: Boundary | None
    stop: Boundary | None
    plan: Plan | None
    receipt: Receipt | None


def against_ledger(
    pipeline_id: str,
    receipts: Sequence[Receipt],
    unread: Collection[str],
    sink: Sink,
    ledger: Ledger,
) -> list[Finding]:
    """How a table's receipts and the ledger differ.

    `unread`: keys of windows whose receipts can't be read.
    """
    copies = {r.window: r for r in ledger.recorded(pipeline_id)}
    if copies and sink.owner() is None:
        error = missing_table_error(sink.identity, len(copies), absent=True)
        return [Finding("wrong", "table", error.what, error.do)]
    windows = [r.window for r in receipts]
    kept = [
        Kept(
            ledger.start(pipeline_id, w.start),
            ledger.boundary(pipeline_id, w.end),
            ledger.plan(w),
            copies.pop(w, None),
        )
        for w in windows
    ]
    # asking for the identity would create an absent ledger; an empty one is reported anyway
    identity = ledger.identity() if any(k != Kept(None, None, None, None) for k in kept) else None
    findings = _writes_to(ledger.sink(pipeline_id), sink)
    findings += [
        f for r, k in zip(receipts, kept, strict=True) for f in compare_ledger(r, k, identity)
    ]
    return findings + [
        f for r in copies.values() if r.window.key not in unread for f in _only_in_ledger(r, sink)
    ]


def _writes_to(bound: str | None, sink: Sink) -> list[Finding]:
    if bound is None or sink.is_at(bound):
        return []
    do = (
        "Set the sink of the spec back; if the table was moved there: windrow rebind SPEC shows"
        " what going on there means."
    )
    what = f"the pipeline writes to {bound}, and the spec names {sink.identity}"
    return [Finding("wrong", "ledger", what, do)]


def _only_in_ledger(copy: Receipt, sink: Sink) -> list[Finding]:
    planned = "" if sink.is_at(copy.plan.sink) else f"; it was planned for {copy.plan.sink}"
    key = copy.window.key
    if sink.capabilities.replaces:
        what = "the ledger knows a receipt that the table doesn't hold"
        do = (
            "Was the table restored from a backup? Run the window again: it reads the same offsets."
        )
    else:
        what, do = f"the window {RECEIPT_MISSING}", ways_out(key)
    return [Finding("wrong", "ledger", what + planned, do, key)]


def compare_ledger(receipt: Receipt, kept: Kept, identity: str | None) -> list[Finding]:
    """One receipt against what the ledger holds of its window. Pure.

    `identity`: the ledger's; None: not compared.
    """
    problems: list[tuple[Level, str]] = []
    if identity is not None and receipt.ledger != identity:
        problems.append(("wrong", f"committed by ledger {receipt.ledger}, this one is {identity}"))
    for name, frozen, used in (
        ("start", kept.start, receipt.plan.start),
        ("end", kept.stop, receipt.plan.stop),
    ):
        if frozen is None:
            problems.append(("wrong", f"the boundary at its {name} is missing in the ledger"))
        elif difference(frozen, used):
            problems.append(
                (
                    "wrong",
                    f"the boundary at its {name} differs in the ledger: {difference(frozen, used)}",
                )
            )
    if kept.plan is None or kept.plan.digest != receipt.digest:
        problems.append(
            ("wrong", f"its plan {'is missing' if kept.plan is None else 'differs'} in the ledger")
        )
    if kept.receipt is None or kept.receipt.generation < receipt.generation:
        # A run that died after its commit leaves this behind; it harms nothing.
        problems.append(("info", "the ledger's copy of the receipt is missing or older"))
    elif kept.receipt != receipt:
        newer = kept.receipt.generation > receipt.generation
        problems.append(
            ("wrong", f"the ledger's copy of the receipt {'is newer' if newer else 'differs'}")
        )
    return [Finding(level, "ledger", what, REBUILD, receipt.window.key) for level, what in problems]
