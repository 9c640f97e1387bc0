"""A table's owner in the properties of the table, for formats that have properties."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.ingest.errors import SpecError
from windrow.ingest.model.owner import TableOwner

FORMAT = "2"
"""The version of windrow's own data in a table and below it."""

_FORMAT = "windrow.form"
_NAMES = ("windrow.pipeline", "windrow.ledger", "windrow.grid")


def owner_properties(owner: TableOwner) -> dict[str, str]:
    """The properties of a new table."""
    values = (owner.pipeline, owner.ledger, owner.grid)
    return {**dict(zip(_NAMES, values, strict=True)), _FORMAT: FORMAT}


def owner_from_properties(properties: Mapping[str, str], where: str) -> TableOwner:
    """Reads the owner of the table at a place.

    Raises:
        SpecError: the table was made by something else, or by a windrow of another format.
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
    return TableOwner(*(properties[name] for name in _NAMES))
