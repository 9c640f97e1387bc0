"""Arrow fields of the metadata columns (`ingest.model.metadata_columns`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.model.metadata_columns import ALWAYS, METADATA
from windrow.ingest.schema.messages import HEADERS

_ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map": pa.map_(pa.string(), pa.binary()),
    "headers": HEADERS,
}

TYPES: dict[str, pa.DataType] = {name: _ARROW[column.type] for name, column in METADATA.items()}
"""Type of each metadata column, in the order of a table's metadata columns."""


def metadata_fields(metadata: Mapping[str, str]) -> list[pa.Field]:
    """Returns the fields of metadata columns, in the table's order.

    Args:
        metadata: the names of the columns, by kind of metadata.
    """
    return [
        pa.field(metadata[name], kind, nullable=name not in ALWAYS)
        for name, kind in TYPES.items()
        if name in metadata
    ]


def refuse_wrong(columns: Iterable[str], metadata: Mapping[str, str]) -> None:
    """Refuses columns of the schema that have a metadata column's name.

    Raises:
        SpecError: names all of them.
    """
    metadata_by_column = {column.casefold(): name for name, column in metadata.items()}
    conflicts = [
        f"column {column} of the schema has the name of metadata {name} ({metadata[name]})"
        for column in columns
        if (name := metadata_by_column.get(column.casefold())) is not None
    ]
    if conflicts:
        raise SpecError(
            "The metadata columns can't be used: " + "; ".join(conflicts),
            "spec",
            "Give the field of the schema another alias, or the metadata column another name under"
            " metadata.",
        )


def field_paths(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[str, str]]:
    """Yields path and name of all fields, also of those inside structs, lists and maps.

    Args:
        fields: the fields.
        above: the path of the fields' struct, with a dot at its end; "" for columns.
    """
    for field in fields:
        path, kind = f"{above}{field.name}", field.type
        yield path, field.name
        while pa.types.is_list(kind) or pa.types.is_map(kind):
            kind = kind.value_type if pa.types.is_list(kind) else kind.item_type
        if pa.types.is_struct(kind):
            yield from field_paths(kind, f"{path}.")


def names_beyond_spark(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yields the paths of fields that Spark can't read in a Delta table without column mapping."""
    return (path for path, name in field_paths(fields) if set(name) & set(" ,;{}()\n\t="))
