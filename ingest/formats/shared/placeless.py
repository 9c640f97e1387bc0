"""Fields in a message that no column is for, by the types of the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.dtypes import map_type

Open = Callable[[Any], Iterable[tuple[str | None, Any]]]
"""Gives what is inside a value, or a type of a schema: fields by their names, entries of a map by
their keys, items with None; nothing of a plain value."""


def placeless(columns: Columns, message: Any, opened: Open) -> Iterator[str]:
    """Returns the paths of the fields of a message's row that the columns have no place for.

    A path begins at the row. Names stand behind points, and each key of a map is `*`.
    """
    row_path = columns.row_path
    found = _placeless(pa.struct(list(columns.arrow_schema)), message, opened, ())
    return (
        ".".join(path[len(row_path) :])
        for path in found
        if row_path is not None and path[: len(row_path)] == row_path
    )


def _placeless(
    kind: pa.DataType, value: Any, opened: Open, path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    for name, inner in opened(value):
        below, where = kind, path
        if name is None:
            below = kind.value_type if pa.types.is_list(kind) else kind
        elif pa.types.is_struct(kind):
            place, where = kind.get_field_index(name), (*path, name)
            if place < 0:
                yield where
                continue
            below = kind.field(place).type
        else:
            entries = kind if pa.types.is_map(kind) else map_type(kind)
            below, where = pa.null() if entries is None else entries.item_type, (*path, "*")
        if pa.types.is_nested(below):
            yield from _placeless(below, inner, opened, where)
