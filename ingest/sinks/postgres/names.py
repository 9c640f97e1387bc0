"""Names in PostgreSQL: of the table, and of windrow's own tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

LONGEST = 63
"""Bytes of a name; PostgreSQL cuts what is longer, and says so only in a notice."""

SYSTEM = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Columns that every table has already."""

DEAD = "_dead"
MARK = "windrow "
"""How the comment on a bound table's window column begins; what follows is the table's
id, and its number in the catalog.
"""


class TableName(msgspec.Struct, frozen=True):
    """A table with its schema, each exactly as the catalog has it."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def dead(self) -> TableName:
        """Of the table of dead letters beside it."""
        return TableName(self.schema, self.table + DEAD)

    @property
    def quoted(self) -> str:
        """As SQL has it."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"


def table_name(text: str) -> TableName:
    """A table's name as a spec has it: `schema.table`, or a table of the schema `public`.

    Raises:
        ValueError: it is no such name; says what is wrong with it.
    """
    schema, point, table = text.rpartition(".")
    name = TableName(schema if point else "public", table)
    if not name.schema or not name.table or "." in name.schema:
        raise ValueError(
            "must be schema.table, or a table of the schema public; a name with a point in it can't"
            " be used"
        )
    for wrong in (
        *name_problems(name.schema, LONGEST),
        *name_problems(name.table, LONGEST - len(DEAD)),
    ):
        raise ValueError(wrong)
    return name


def name_problems(name: str, longest: int = LONGEST) -> Iterator[str]:
    """What is wrong with a name."""
    if not name.isprintable():
        yield f"the name {name!r} holds control characters"
    if len(name.encode()) > longest:
        yield f"the name {name} is longer than {longest} bytes"


def mark_of(table_id: UUID, number: int) -> str:
    """The comment on a bound table's window column.

    `number`: the table's in the catalog, which a copy of the table doesn't have.
    """
    return (
        f"{MARK}{table_id} {number}: the window that a row is of. By this comment windrow knows the"
        " table; leave it as it is."
    )


def marked(comment: str) -> tuple[UUID, int | None] | None:
    """What such a comment says; None of any other. The first ones had no number."""
    if not comment.startswith(MARK):
        return None
    table_id, *number = comment.removeprefix(MARK).partition(":")[0].split()
    return UUID(table_id), int(number[0]) if number else None


def quoted(name: str) -> str:
    """A name as SQL has it, whatever stands in it."""
    return '"' + name.replace('"', '""') + '"'
