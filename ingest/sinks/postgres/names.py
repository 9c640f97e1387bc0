"""Names in PostgreSQL: of a table, and of windrow's own tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windrow.ingest.errors import format_count
from windrow.ingest.sinks.kit import quote_identifier

LONGEST = 63
"""The most bytes of a name. PostgreSQL cuts a longer name, with only a notice."""

OWN_TABLES = ("targets", "receipts", "ranges", "notes")
"""Windrow's own tables, which are in their own schema (`catalog`)."""

PRIVILEGES = {
    "targets": ("SELECT", "INSERT", "UPDATE"),
    "receipts": ("SELECT", "INSERT"),
    "ranges": ("SELECT", "INSERT", "DELETE"),
    "notes": ("SELECT", "INSERT", "UPDATE"),
}
"""The privileges of a user who writes windows, on own tables that another user made."""

DEAD = "_dead"


class TableName(msgspec.Struct, frozen=True):
    """A table and its schema, each exactly as in PostgreSQL's catalog."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def dead(self) -> TableName:
        """The table of dead letters."""
        return TableName(self.schema, self.table + DEAD)

    @property
    def quoted(self) -> str:
        """The name as an SQL identifier."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.table)}"


def table_name(text: str) -> TableName:
    """Reads a table's name in a spec: `schema.table`, or a table of the schema `public`.

    Raises:
        ValueError: the text is no such name; the error's text says why.
    """
    schema, point, table = text.rpartition(".")
    name = TableName(schema if point else "public", table)
    if not name.schema or not name.table or "." in name.schema:
        raise ValueError(
            "must be schema.table, or a table of the schema public; a name with a point in it can't"
            " be used"
        )
    for problem in (
        *name_problems(name.schema, LONGEST),
        *name_problems(name.table, LONGEST - len(DEAD)),
    ):
        raise ValueError(problem)
    return name


def name_problems(name: str, longest: int = LONGEST) -> Iterator[str]:
    """Yields the reasons why PostgreSQL can't accept a name, as sentences."""
    if not name.isprintable():
        yield f"the name {name!r} holds control characters"
    if len(name.encode()) > longest:
        yield f"the name {name} is longer than {format_count(longest, 'byte')}"
