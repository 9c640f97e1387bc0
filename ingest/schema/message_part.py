"""Parts of a schema: the columns that come from a message's key, or from its value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.message_fields import FieldPath

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Column, Columns, Finer

_GOES_WITH = {
    "path or codecs": "They go with json, avro and protobuf; nothing was read.",
    "aliases": "They go with fields that have names, of JSON, Avro and Protobuf; nothing was read.",
    "default": (
        "It is for formats with a writer's schema, of Avro and Protobuf, and for fields at the top"
        " of the message: make the column nullable instead; nothing was read."
    ),
}


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
            defaults.
        is_named: whether fields of messages have names. Only then may columns have paths,
            aliases and codecs.
        root: the path of the object that has the columns without a path of their own.
        keeps_unknown: whether the rows have what no column is for, in a column of its own.
        refuses_unknown: whether a field of the row without a column refuses its message. It
            counts only if columns have paths; else the encoding decides it.
    """

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    prefix: str = ""
    setting: str = "decode.schema"
    finer: Finer = "truncate"
    by_schema: bool = False
    is_named: bool = False
    root: FieldPath = ()
    keeps_unknown: bool = False
    refuses_unknown: bool = False

    def of(self, schema_columns: Columns) -> Columns:
        """Returns the part's columns, with the names that they have in the messages.

        Raises:
            SpecError: the schema lacks a column, no column is left, or a column's metadata
                would be ignored.
        """
        part_columns = self._choose_columns(schema_columns)
        columns = part_columns.columns
        placed = [c for c in columns if c.paths or c.codecs]
        # The writer's schema is only asked for fields at the top of a message.
        without_default = placed if self.by_schema and not self.root else columns
        unusable_by_key = {
            "path or codecs": [] if self.is_named else placed,
            "aliases": [] if self.is_named or self.by_schema else [c for c in columns if c.aliases],
            "default": [c for c in without_default if c.default is not None],
        }
        for key, unusable in unusable_by_key.items():
            if unusable:
                names = ", ".join(column.name for column in unusable)
                raise SpecError(
                    f"The schema's metadata gives {key} for {names}, which this format can't use",
                    "spec",
                    _GOES_WITH[key],
                )
        columns_of_part = replace(
            part_columns,
            columns=tuple(map(self._with_paths, columns)),
            row_path=self.root or part_columns.row_path,
        )
        return columns_of_part.with_rest() if self.keeps_unknown else columns_of_part

    def _with_paths(self, column: Column) -> Column:
        """Returns a column with all places that it may have in a message, if there are several."""
        aliases = column.aliases and not self.by_schema
        if not (column.paths or self.root or column.codecs or aliases):
            return column
        path = column.paths[0] if column.paths else (*self.root, column.name)
        others = ((*path[:-1], alias) for alias in column.aliases)
        return replace(column, paths=(path, *others), aliases=())

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
