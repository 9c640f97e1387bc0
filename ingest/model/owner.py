"""What a table is bound to from its first moment on, and the one comparison with who comes to it.

Pure.
"""

from __future__ import annotations

import msgspec

from windrow.ingest.errors import GridError, OwnerError

OTHER_LEDGER = (
    "Set state (or WINDROW_STATE) to the ledger that the table was begun with. If that one is lost,"
    " name a state that isn't there yet, or move the one that was left behind away, and run windrow"
    " doctor SPEC --rebuild-ledger: everything in it comes back from the table."
)


class TableOwner(msgspec.Struct, frozen=True):
    """The one pipeline whose windows a table takes, the id of the ledger that freezes
    their boundaries, and the grid they lie on.
    """

    pipeline: str
    ledger: str
    grid: str


def refuse_other_owner(table: str, bound: TableOwner, mine: TableOwner) -> None:
    """Compare what a table is bound to with who comes. The same for every sink.

    Args:
        table: where the table lies, for the sentence.
        bound: what the table says.
        mine: the pipeline that comes.

    Raises:
        OwnerError: the table belongs to another pipeline, or to another ledger.
        GridError: it was begun on another grid.
    """
    if bound.pipeline != mine.pipeline:
        what = f"the table {table} belongs to pipeline {bound.pipeline!r}, not {mine.pipeline!r}"
        do = (
            "One table takes one pipeline: a replacement would take the other's rows of the window"
            " with it. Use another path."
        )
        raise OwnerError(what, "setup", do)
    if bound.grid != mine.grid:
        what = f"the table {table} was begun with {bound.grid} windows, not {mine.grid}"
        raise GridError(
            what,
            "setup",
            f"Set the grid back to {bound.grid}, or begin a pipeline with another id and table.",
        )
    if bound.ledger != mine.ledger:
        what = f"the table {table} belongs to ledger {bound.ledger}, not {mine.ledger}"
        raise OwnerError(what, "setup", OTHER_LEDGER)
