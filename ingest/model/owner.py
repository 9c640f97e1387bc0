"""The owner of a table, and the comparison with a pipeline that wants to write to it.

Pure.
"""

from __future__ import annotations

import msgspec

from windrow.ingest.errors import GridError, OwnerError

OTHER_LEDGER = (
    "If the table's own ledger is lost: windrow doctor SPEC --rebuild-ledger makes it anew from the"
    " table. Else set state (or WINDROW_STATE) to it."
)

LEDGER_ANEW = (
    "Set `state` to another path or database (a file can be moved away instead), and run windrow"
    " doctor SPEC --rebuild-ledger: all that committed windows stand on comes back from the"
    " table's receipts. Rebases that no window began at, and a pause, have to be recorded again."
)
"""The advice where a ledger can't be read, or has entries that differ from the table's receipts.

No entry is ever overwritten, so such a ledger can't be rebuilt in its place.
"""


class TableOwner(msgspec.Struct, frozen=True):
    """The pipeline, the ledger and the grid that a table belongs to.

    A table takes the windows of this pipeline only, with the boundaries that this
    ledger froze, on this grid.
    """

    pipeline: str
    ledger: str
    grid: str


def refuse_other_owner(table: str, bound: TableOwner, mine: TableOwner) -> None:
    """Checks that a table belongs to the pipeline that wants to use it.

    Args:
        table: the table's place, for the message.
        bound: the owner that is recorded in the table.
        mine: the owner that the pipeline has.

    Raises:
        OwnerError: the table belongs to another pipeline, or to another ledger.
        GridError: the table was begun on another grid.
    """
    if bound.pipeline != mine.pipeline:
        what = f"the table {table} belongs to pipeline {bound.pipeline!r}, not {mine.pipeline!r}"
        error = OwnerError(what, "setup", "")
        error.do = (  # without the runbook, which is of backups
            f"Was the id changed? Set it back to {bound.pipeline}. Else use another path: a table"
            " takes one pipeline, and replacing a window would remove the other one's rows."
        )
        raise error
    if bound.grid != mine.grid:
        raise GridError(
            f"the table {table} was begun with {bound.grid} windows, not {mine.grid}",
            "setup",
            f"Set the grid back to {bound.grid}, or begin a pipeline with another id and table.",
        )
    if bound.ledger != mine.ledger:
        raise OwnerError(
            f"the table {table} belongs to ledger {bound.ledger}, not {mine.ledger}",
            "setup",
            OTHER_LEDGER,
        )
