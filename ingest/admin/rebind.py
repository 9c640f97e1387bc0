"""Rebind: a pipeline continues after its table was moved, or lost for good.

The ledger records the table that the pipeline writes to from now on. Boundaries and plans
stay as they were frozen, so a window that the table doesn't have is run again from the same
offsets. The ledger's copies of receipts that the table doesn't have are removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windrow.ingest.errors import OwnerError, SpecError, format_count
from windrow.ingest.model.owner import refuse_other_owner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.runner.context import Pipeline


class Rebind(msgspec.Struct, frozen=True):
    """The consequences of a rebind.

    Attributes:
        previous_table: the identity of the table until now.
        table: the identity of the new table.
        exists: whether the new table exists.
        windows: the number of its committed windows.
        missing: the windows that are committed by the ledger and missing in the table.
        dead: False if the dead letters did not move with the table, by the newest window
            that has any.
        replaces: whether the table can replace a committed window.
    """

    previous_table: str | None
    table: str
    exists: bool
    windows: int
    missing: tuple[Window, ...]
    dead: bool = True
    replaces: bool = True

    @property
    def changes(self) -> list[str]:
        moved = (
            []
            if self.previous_table == self.table
            else [
                (
                    f"The pipeline has written to {self.previous_table}; from now on it writes to"
                    f" {self.table}."
                )
            ]
        )
        table = (
            f"The table holds {format_count(self.windows, 'committed window')}."
            if self.exists
            else "There is no table: the next run makes it."
        )
        if not self.dead:
            table += (
                " Its dead letters did not move with it: move their table (the same path with"
                " _dead) as well."
            )
        if not self.missing:
            return [*moved, table]
        first, last = self.missing[0].key, self.missing[-1].key
        keys = first if first == last else f"{first} to {last}"
        missing_note = (
            f"It lacks {format_count(len(self.missing), 'committed window')} that the ledger knows:"
            f" {keys}."
        )
        rerun_note = (
            "They can be run again from the same offsets, as long as the topic holds those; the"
            " ledger forgets that they were committed."
        )
        duplicates_note = (
            ""
            if self.replaces
            else " If only their receipts are lost, their rows will be in the table twice: windrow"
            " verify SPEC --restore-receipts puts the receipts back."
        )
        return [*moved, table, f"{missing_note} {rerun_note}{duplicates_note}"]


def propose(pipeline: Pipeline) -> Rebind:
    """Returns the rebind that would be recorded now. Writes nothing.

    Raises:
        SpecError: the pipeline already writes to this table, and the table has all windows
            that are committed by the ledger.
        SchemaChangedError: as for the SpecError, and in addition a run would be refused for
            the table's columns.
        OwnerError: the table belongs to another pipeline or ledger, or has a window with
            another plan than the ledger.
    """
    return _look(pipeline)[0]


def rebind(pipeline: Pipeline) -> Rebind:
    """Records the rebind in the ledger.

    Raises:
        SpecError: see `propose`.
        OwnerError: see `propose`.
        RefusedError: another table was recorded meanwhile.
    """
    proposal, table_receipts = _look(pipeline)
    pipeline.ledger.rebind(
        pipeline.spec.id, proposal.table, proposal.previous_table, proposal.missing
    )
    for receipt in table_receipts:
        pipeline.ledger.record(receipt, pipeline.sink.receipt_text(receipt))
    return proposal


def _look(pipeline: Pipeline) -> tuple[Rebind, Sequence[Receipt]]:
    spec, ledger, sink = pipeline.spec, pipeline.ledger, pipeline.sink
    previous_table, copies = (
        ledger.sink(spec.id),
        {r.window: r for r in ledger.recorded_receipts(spec.id)},
    )
    bound = sink.owner()
    if bound is not None:
        refuse_other_owner(spec.sink_path(), bound, pipeline.owner())
    receipts = {c.receipt.window: c.receipt for c in sink.receipts()}
    table_receipts = {window: receipts[window] for window in sink.committed(list(receipts))}
    for window in sorted(table_receipts.keys() & copies.keys()):
        if table_receipts[window].digest != copies[window].digest:
            raise OwnerError(
                f"The table {sink.identity} has window {window.key} with another plan than the"
                " ledger",
                "setup",
                "It is not the table that was written with this ledger: nothing was recorded.",
            )
    missing = tuple(sorted(copies.keys() - table_receipts.keys()))
    if (previous_table is None or sink.is_at(previous_table)) and not missing:
        sink.columns_to_come()
        raise SpecError(
            f"Pipeline {spec.id} writes to {sink.identity}, and the table has all windows that the"
            " ledger has as committed",
            "setup",
            "There is nothing to rebind: just run it.",
        )
    refused = [table_receipts[w] for w in sorted(table_receipts) if table_receipts[w].counts.dead]
    dead = not refused or bool(
        pipeline.dead_letters.read(refused[-1].window, refused[-1].attempt, 1).num_rows
    )
    return Rebind(
        previous_table,
        sink.identity,
        bound is not None,
        len(table_receipts),
        missing,
        dead,
        sink.capabilities.replaces,
    ), list(table_receipts.values())
