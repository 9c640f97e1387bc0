"""Parts of a schema: the columns that come from a message's key, or from its value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windrow.ingest.errors import SpecError

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Columns, Finer


@dataclass(frozen=True)
class Part:
    """Columns of a schema that come from a message's key, or from its value.

    Attributes:
        only: the names of the columns, in this order; None for all columns of the schema
            except `without`.
        without: the names of columns that are left out.
        prefix: the prefix that the names have in the schema and not in the messages.
        setting: the setting that chose the columns, for errors.
        finer: the treatment of their timestamps finer than a microsecond.
        by_schema: whether messages have a writer's schema. Only then may columns have
            aliases and defaults.
    """

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    prefix: str = ""
    setting: str = "decode.schema"
    finer: Finer = "truncate"
    by_schema: bool = False

    def of(self, schema_columns: Columns) -> Columns:
        """Returns the part's columns, with the names that they have in the messages.

        Raises:
            SpecError: the schema lacks a column, no column is left, or aliases and defaults
                would be ignored.
        """
        part_columns = self._choose_columns(schema_columns)
        resolved = [c.name for c in part_columns.columns if c.aliases or c.default is not None]
        if resolved and not self.by_schema:
            raise SpecError(
                f"The schema's metadata gives aliases or a default for {', '.join(resolved)}, which"
                " this format can't use",
                "spec",
                "They are for formats with a writer's schema, of Avro and Protobuf: make the column"
                " nullable instead; nothing was read.",
            )
        return part_columns

    def _choose_columns(self, schema_columns: Columns) -> Columns:
        if (self.only, self.without, self.prefix) == (None, (), ""):
            return replace(schema_columns, finer=self.finer)
        by_name = {column.name: column for column in schema_columns.columns}
        missing = [name for name in (*(self.only or ()), *self.without) if name not in by_name]
        if missing:
            raise SpecError(
                f"{self.setting} names {', '.join(missing)}, which the schema doesn't have: it has"
                f" {', '.join(by_name)}",
                "spec",
                "Name columns of the schema, or add them to it; nothing was read.",
            )
        names = (
            [name for name in by_name if name not in self.without]
            if self.only is None
            else self.only
        )
        if not names:
            raise SpecError(
                f"{self.setting}: no column of the schema is left for it: all of them come from"
                " elsewhere",
                "spec",
                "Add a column to the schema; nothing was read.",
            )
        columns = tuple(replace(by_name[n], name=n.removeprefix(self.prefix)) for n in names)
        return replace(schema_columns, columns=columns, constraints=(), finer=self.finer)


WHOLE = Part()
"""All columns of the schema, with the schema's names."""
