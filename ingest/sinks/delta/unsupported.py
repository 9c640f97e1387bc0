"""Features of a table that windrow can't write: constraints, column mapping, a change data feed.

windrow creates its tables without these features, so another program has added them. Files that
violate them could be committed unnoticed: deltalake checks only the rows that it writes itself,
not the files that a commit names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from deltalake import DeltaTable

from windrow.ingest.errors import SchemaChangedError

WRITTEN = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
"""Features of the protocol with which deltalake can commit.

A table with such a feature may still have no constraint. Its columns and properties show
whether it has.
"""

_CONSTRAINT = "delta.constraints."
_FEED = "delta.enableChangeDataFeed"
_MAPPING = "delta.columnMapping.mode"
_OF_COLUMNS: Mapping[str, str] = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
}


def refuse_unsupported(uri: str, table: DeltaTable, *, rewrites: bool) -> None:
    """Refuses a table with features that windrow can't write.

    Args:
        uri: the table's path or URI.
        table: the snapshot.
        rewrites: whether the commit rewrites rows that stay, with other rows or in wider
            columns. The change data feed would report each of them as deleted and inserted. It
            reports new rows, and the rows of a replaced window, correctly.

    Raises:
        SchemaChangedError: the table has such features; the error names all of them.
    """
    features = [*_unsupported(table, rewrites=rewrites)]
    if features:
        raise SchemaChangedError(
            f"the table {uri} asks of whoever writes into it what windrow doesn't do:"
            f" {'; '.join(features)}",
            "setup",
            "Nothing was committed. Take that off the table (Spark: ALTER TABLE ... DROP"
            " CONSTRAINT, UNSET TBLPROPERTIES or DROP FEATURE), or begin a pipeline with another id"
            " and table; rules belong in the schema.",
        )


def _unsupported(table: DeltaTable, *, rewrites: bool) -> Iterator[str]:
    """Yields the features that windrow can't write, in words."""
    settings: Mapping[str, str] = table.metadata().configuration
    yield from (
        f"the check constraint {name.removeprefix(_CONSTRAINT)}"
        for name in sorted(settings)
        if name.startswith(_CONSTRAINT)
    )
    if rewrites and settings.get(_FEED, "").lower() == "true":
        yield f"its change data feed ({_FEED}), to which rows written anew would be changes"
    if settings.get(_MAPPING, "none") != "none":
        yield f"column mapping ({_MAPPING} is {settings[_MAPPING]})"
    for field in msgspec.json.decode(table.schema().to_json())["fields"]:
        yield from (
            f"the column {field['name']} {does}"
            for name, does in _OF_COLUMNS.items()
            if f'"{name}":' in msgspec.json.encode(field).decode()  # also in nested fields
        )
    yield from (
        f"the feature {name}"
        for name in sorted(
            set(table.protocol().writer_features or ()) - WRITTEN - {"columnMapping"}
        )
    )
