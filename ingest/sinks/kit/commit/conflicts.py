"""Decides whether a window may be committed to a table. Pure, for every kind of sink."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windrow.ingest.errors import OverlapError, OwnerError, RefusedError
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.owner import LEDGER_ANEW, TableOwner, refuse_other_owner
from windrow.ingest.model.plan import Plan, covered_ranges
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.tiling import comparable

_TWO_LEDGERS = (
    "Nothing was committed. Run the window again, which plans it anew. If it is refused again, the"
    f" ledger isn't the one that the table was written by. {LEDGER_ANEW}"
)


class TableView(msgspec.Struct, frozen=True):
    """The part of a table's state that decides about one receipt.

    Attributes:
        table: the table's name for people.
        owner: the table's owner.
        committed: the newest generation of the receipt's own window; None without one.
        previous: the newest generation of the window before; None without one.
        following: the newest generation of the window after; None without one.
        others: receipts of other windows, at least of all windows that share an offset with
            this one.
    """

    table: str
    owner: TableOwner
    committed: Committed | None = None
    previous: Committed | None = None
    following: Committed | None = None
    others: Sequence[Receipt] = ()


def decide(receipt: Receipt, view: TableView) -> Committed | None:
    """Returns the receipt if the table already has it; None if it may be committed.

    Raises:
        GridError, OwnerError: the table belongs to another pipeline, or an adjacent window has
            another boundary.
        RefusedError: the window is committed with another plan, or a generation is missing.
        OverlapError: offsets are committed in another window; the error names it.
    """
    refuse_other_owner(
        view.table, view.owner, TableOwner(receipt.window.pipeline, receipt.ledger, receipt.grid)
    )
    committed = already_committed(receipt, view.committed)
    if committed is None:
        refuse_overlap(receipt.plan, view.others)
        refuse_gap(receipt.plan, view.previous, view.following)
    return committed


def already_committed(receipt: Receipt, committed: Committed | None) -> Committed | None:
    """Returns the committed receipt of the window if it counts; None if this one may be committed.

    Args:
        receipt: the receipt to commit.
        committed: the newest generation of its window in the table.

    Raises:
        RefusedError: the window is committed with another plan, a generation is missing, or the
            table doesn't have the attempt whose dead letters are replayed.
    """
    key, proposed = receipt.window.key, receipt.generation
    if committed is None:
        if proposed == 0:
            return None
        raise RefusedError(
            f"window {key}: generation {proposed} was to replace generation {proposed - 1}, but the"
            " table doesn't hold this window",
            "commit",
            "Was the table replaced meanwhile? Run the window without replacing.",
        )
    newest = committed.receipt
    if newest.digest != receipt.digest:
        raise RefusedError(
            f"window {key} is committed already (generation {newest.generation}) under another"
            f" plan: digest {newest.digest[:12]} in the table, {receipt.digest[:12]} here",
            "commit",
            _TWO_LEDGERS,
        )
    if newest.generation >= proposed:
        return committed
    if newest.generation + 1 < proposed:
        raise RefusedError(
            f"window {key}: the table holds generation {newest.generation}, so the next one is"
            f" {newest.generation + 1}, not {proposed}",
            "commit",
            "Run the replay again: it looks first.",
        )
    if receipt.dead_replay is not None and receipt.dead_replay.replayed_attempt != newest.attempt:
        raise RefusedError(
            f"window {key}: the dead letters to be replayed are of attempt"
            f" {receipt.dead_replay.replayed_attempt}, and the table holds {newest.attempt}",
            "commit",
            "Was the table replaced meanwhile? Replay its dead letters again: it looks first.",
        )
    return None


def refuse_overlap(plan: Plan, others: Iterable[Receipt]) -> None:
    """Refuses a plan that shares an offset with a committed window.

    Raises:
        OverlapError: there is such a window; the error names it and the offsets.
    """
    plan_ranges = covered_ranges(plan)
    for receipt in others:
        if receipt.window == plan.window:
            continue
        for committed_range in covered_ranges(receipt.plan):
            hit = next((m for m in plan_ranges if m.overlaps(committed_range)), None)
            if hit is not None:
                split = plan.splits[plan_ranges.index(hit)]
                first = max(hit.start, committed_range.start)
                raise OverlapError(
                    f"offsets {first} to {min(hit.stop, committed_range.stop)} (exclusive) of"
                    " window"
                    f" {plan.window.key} are already committed under window {receipt.window.key}",
                    "commit",
                    _TWO_LEDGERS,
                    split.topic,
                    split.partition,
                    first,
                )


def refuse_gap(plan: Plan, previous: Committed | None, following: Committed | None) -> None:
    """Refuses a plan whose boundaries aren't those of the committed adjacent windows.

    The messages between the two boundaries would be in no window. One ledger never makes such a
    plan, but two ledgers can:

    1. A freezes a boundary at 60, and is stopped.
    2. The ledger is restored from an older backup.
    3. B freezes the same label at 90, and commits the window that starts there.
    4. A continues, and tries to commit up to 60. The messages from 60 to 90 would be in no
       window.

    At a rebase, one window ends at another boundary than the next one starts at. A topic with
    another id has other offsets there, and a deleted topic has none, so these aren't compared.

    Raises:
        OwnerError: there is such a window; the error names it and the offset.
    """
    if previous is not None:
        _refuse_other_cut(plan, previous.receipt, previous.receipt.plan.stop, plan.start)
    if following is not None:
        _refuse_other_cut(plan, following.receipt, plan.stop, following.receipt.plan.start)


def _refuse_other_cut(plan: Plan, adjacent: Receipt, stop: Boundary, start: Boundary) -> None:
    """Compares the offsets at which two adjacent windows meet.

    Args:
        plan: the proposed plan.
        adjacent: the receipt of a committed adjacent window.
        stop: the stop of the earlier of the two windows.
        start: the start of the later one.

    Raises:
        OwnerError: the offsets differ in a topic-partition.
    """
    tps = comparable(stop, start)
    stops, starts = (
        {tp: mark.offset for tp, mark in boundary.cuts(tps).items()} for boundary in (stop, start)
    )
    cuts, other_cuts = (stops, starts) if stop.label == plan.window.end else (starts, stops)
    for tp in tps:
        planned_offset, committed_offset = cuts.get(tp), other_cuts.get(tp)
        if planned_offset != committed_offset:
            raise OwnerError(
                f"window {plan.window.key} is cut {_position_text(planned_offset)} where the"
                " committed window"
                f" {adjacent.window.key} is cut {_position_text(committed_offset)}: they were"
                " planned by two ledgers",
                "commit",
                _TWO_LEDGERS,
                tp.topic,
                tp.partition,
                planned_offset,
            )


def _position_text(offset: int | None) -> str:
    return "nowhere" if offset is None else f"at offset {offset}"
