"""What a table asks of whoever writes into it that windrow doesn't do: checks of rows,
columns that are worked out, names in files.

windrow makes its tables without any of it, so somebody has asked for it since. Files
that were staged without it could be committed all the same, and nobody would be told:
deltalake looks at the rows of what it writes itself, not at files that a commit names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from deltalake import DeltaTable

from windrow.ingest.errors import SchemaChangedError

_WRITTEN = frozenset(
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
"""Features of the protocol that deltalake commits to.

Whether a table that has the feature has a constraint, too, its columns and properties say.
"""

_CONSTRAINT = "delta.constraints."
_MAPPING = "delta.columnMapping.mode"
_OF_COLUMNS: Mapping[str, str] = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
}


def refuse_demands(uri: str, table: DeltaTable) -> None:
    """Before anything is read for a table, and before each commit to it.

    Raises:
        SchemaChangedError: it asks for what windrow doesn't do; with all of it.
    """
    asked = [*_demands(table)]
    if asked:
        what = (
            f"the table {uri} asks of whoever writes into it what windrow doesn't do:"
            f" {'; '.join(asked)}"
        )
        do = (
            "Nothing was committed. Take that off the table, or begin a pipeline with another id"
            " and table; rules belong in the schema."
        )
        raise SchemaChangedError(what, "setup", do)


def _demands(table: DeltaTable) -> Iterator[str]:
    settings: Mapping[str, str] = table.metadata().configuration
    yield from (
        f"the check constraint {name.removeprefix(_CONSTRAINT)}"
        for name in sorted(settings)
        if name.startswith(_CONSTRAINT)
    )
    if settings.get(_MAPPING, "none") != "none":
        yield f"column mapping ({_MAPPING} is {settings[_MAPPING]})"
    for field in msgspec.json.decode(table.schema().to_json())["fields"]:
        yield from (
            f"the column {field['name']} {does}"
            for name, does in _OF_COLUMNS.items()
            if name in field["metadata"]
        )
    yield from (
        f"the feature {name}"
        for name in sorted(
            set(table.protocol().writer_features or ()) - _WRITTEN - {"columnMapping"}
        )
    )
