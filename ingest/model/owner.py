"""The owner of a table, and the comparison with a pipeline that wants to write to it.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windrow.ingest.errors import GridError, OwnerError, SpecError

OTHER_LEDGER = (
    "If the table's own ledger is lost: windrow doctor SPEC --rebuild-ledger makes it anew from the"
    " table. Else set state (or WINDROW_STATE) to it."
)

LEDGER_ANEW = (
    "Set `state` to another path or database (a file can be moved away instead), and run windrow"
    " doctor SPEC --rebuild-ledger: all that committed windows stand on comes back from the"
    " table's receipts. Rebases that no window began at, and a pause, have to be recorded again."
)
"""The advice if a ledger can't be read, or if its entries differ from the table's receipts.

Entries are never overwritten, so such a ledger can't be repaired at the same path or
database.
"""


FORMAT = "2"
"""The version of the format of windrow's own data in a table and in the folders below it."""

_FORMAT = "windrow.form"
_NAMES = ("windrow.pipeline", "windrow.ledger", "windrow.grid")


class TableOwner(msgspec.Struct, frozen=True):
    """The pipeline, the ledger and the grid that a table belongs to.

    A table accepts only windows of this pipeline, on this grid, with boundaries that this
    ledger froze.

    Attributes:
        pipeline: the id of the pipeline.
        ledger: the id of the ledger.
        grid: the grid.
    """

    pipeline: str
    ledger: str
    grid: str

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a new table that record the owner, for formats that have properties."""
        values = (self.pipeline, self.ledger, self.grid)
        return {**dict(zip(_NAMES, values, strict=True)), _FORMAT: FORMAT}

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], where: str) -> TableOwner:
        """Reads the owner from a table's properties.

        Args:
            properties: the table's properties.
            where: the table's path or name, for the message.

        Raises:
            SpecError: windrow didn't make the table, or another version made it in another
                format.
        """
        missing = next((name for name in _NAMES if name not in properties), None)
        if missing is not None:
            raise SpecError(
                f"the table {where} was not made by windrow: its property {missing!r} is missing",
                "setup",
                "Give the sink a table of its own; windrow makes it.",
            )
        if properties.get(_FORMAT) != FORMAT:
            raise SpecError(
                f"the table {where} was made by another version of windrow, in form"
                f" {properties.get(_FORMAT, '1')}; this one knows form {FORMAT}",
                "setup",
                "Use the windrow that made it, or begin a pipeline with another id and table.",
            )
        return cls(*(properties[name] for name in _NAMES))


def refuse_other_owner(table: str, bound: TableOwner, expected: TableOwner) -> None:
    """Checks that a table belongs to the pipeline that wants to use it.

    Args:
        table: the table's path or name, for the message.
        bound: the owner that is recorded in the table.
        expected: the owner that the pipeline needs.

    Raises:
        OwnerError: the table belongs to another pipeline, or to another ledger.
        GridError: the table was begun on another grid.
    """
    if bound.pipeline != expected.pipeline:
        message = (
            f"the table {table} belongs to pipeline {bound.pipeline!r}, not {expected.pipeline!r}"
        )
        error = OwnerError(message, "setup", "")
        error.advice = (  # without the runbook of OwnerError, which is about backups
            f"Was the id changed? Set it back to {bound.pipeline}. Else use another path: a table"
            " takes one pipeline, and replacing a window would remove the other one's rows."
        )
        raise error
    if bound.grid != expected.grid:
        raise GridError(
            f"the table {table} was begun with {bound.grid} windows, not {expected.grid}",
            "setup",
            f"Set the grid back to {bound.grid}, or begin a pipeline with another id and table.",
        )
    if bound.ledger != expected.ledger:
        raise OwnerError(
            f"the table {table} belongs to ledger {bound.ledger}, not {expected.ledger}",
            "setup",
            OTHER_LEDGER,
        )
