"""Search for the fields of a message that no column is for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import map_type

Open = Callable[[Any, Collection[str]], Iterable[tuple[str | None, Any]]]
"""Yields the members of a value, or of a schema's type, as pairs of a name and a member.

The second argument is the names of the struct's fields that the value becomes; empty for no struct.
The name is the name of a field, the key of a map's entry, or None for an item of a list. A
plain value has no members.
"""


class Placeless:
    """Finds the fields of a message's row that no column is for.

    The types of the columns are read once, because each message that is decoded alone is
    searched.
    """

    def __init__(self, columns: Columns, opened: Open) -> None:
        self._row_path, self._opened = columns.row_path, opened
        self._columns = Places(pa.struct(list(columns.arrow_schema)))

    def __call__(self, message: Any) -> Iterator[str]:
        """Yields the paths of these fields.

        A path begins at the row. Its names are joined with dots, and each key of a map is
        `*`.
        """
        row_path = self._row_path
        if row_path is None:
            return
        for path in self._inside(self._columns, message, ()):
            if path[: len(row_path)] == row_path:
                yield ".".join(path[len(row_path) :])

    def _inside(
        self, places: Places, value: Any, path: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        for name, inner in self._opened(value, places.fields or ()):
            if name is None:
                below, where = places.items, path
            elif places.fields is None:
                below, where = places.values, (*path, "*")
            elif name in places.fields:
                below, where = places.fields[name], (*path, name)
            else:
                yield (*path, name)
                continue
            if below is not None:
                yield from self._inside(below, inner, where)


def value_of(column: pa.DataType) -> pa.DataType | None:
    """Returns the type of a map's values in a column; None if the column can't hold a map.

    A column can hold a map if it is a map, or a List of Struct with a String `key` and a
    `value`.
    """
    # The struct's two fields may be in any order.
    if pa.types.is_list(column) and pa.types.is_struct(column.value_type):
        column = pa.list_(pa.struct(sorted(column.value_type, key=lambda field: field.name)))
    entries = column if pa.types.is_map(column) else map_type(column)
    return None if entries is None else entries.item_type


class Places:
    """Members that a nested type has columns for.

    A type that isn't nested is None instead of a `Places`.

    Attributes:
        fields: the fields of a struct by name; None for another type.
        values: the values of a map, or of a list whose items are entries of a map.
        items: the items of a list; for another type this object itself.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.fields: dict[str, Places | None] | None = None
        self.values: Places | None = None
        self.items: Places | None = self
        if pa.types.is_struct(kind):
            self.fields = {field.name: _places(field.type) for field in kind}
            return
        if pa.types.is_list(kind):
            self.items = _places(kind.value_type)
        value_type = value_of(kind)
        self.values = None if value_type is None else _places(value_type)


def _places(kind: pa.DataType) -> Places | None:
    return Places(kind) if pa.types.is_nested(kind) else None
