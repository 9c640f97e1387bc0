"""A table's columns and their lineage, as metadata for Dagster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from windrow.assets.attributes import assets_of_lookups
from windrow.assets.names import upstream_keys
from windrow.ingest.assemble import column_sources
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.model.metadata_columns import METADATA
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.metadata_types import metadata_fields

_PARTS = {
    "header-list": "headers",
    "value-size": "value",
    "ordinal": "value",
    "window": None,
    "attempt": None,
}
"""The part of a message that a metadata column comes from, if its name isn't the column's.

None if the column comes from no part of the message.
"""


def column_schema(
    read: Sequence[tuple[str, str]], columns: Columns, metadata: Mapping[str, str]
) -> dg.TableSchema:
    """Returns the columns of a committed window, with their constraints.

    Dagster shows the columns of the newest event instead of the definition's, so they must
    have the same details. A column whose type has changed since has no constraints, because
    its earlier constraints aren't recorded.

    Args:
        read: (name, type) of each column of the schema that the window was read with.
        columns: the columns of the current schema.
        metadata: the metadata columns, name -> column.
    """
    declared = dict(zip(columns.described(), _declared_columns_of(columns), strict=True))
    read_columns = [
        declared.get(field) or dg.TableColumn(field[0], _type(field[1])) for field in read
    ]
    same = len(read_columns) == len(declared) and all(
        column in read_columns for column in declared.values()
    )
    return dg.TableSchema(
        [*read_columns, *_columns_of_metadata(metadata)],
        dg.TableConstraints(list(columns.constraints) if same else []),
    )


def declared_schema(columns: Columns, metadata: Mapping[str, str]) -> dg.TableSchema:
    """Returns the columns of the schema with their constraints, and the metadata columns."""
    return dg.TableSchema(
        [*_declared_columns_of(columns), *_columns_of_metadata(metadata)],
        dg.TableConstraints(list(columns.constraints)),
    )


def _declared_columns_of(columns: Columns) -> list[dg.TableColumn]:
    return [
        dg.TableColumn(
            c.name,
            _type(kind),
            c.description,
            dg.TableColumnConstraints(nullable=c.nullable, other=list(c.constraints)),
        )
        for c, (_, kind) in zip(columns.columns, columns.described(), strict=True)
    ]


def _type(described: str) -> str:
    """Returns the type without " not null", which Dagster shows as a constraint."""
    return described.removesuffix(" not null")


def lineage(spec: PipelineSpec, columns: Sequence[str]) -> dg.TableColumnLineage:
    """Returns the parts of messages that each column comes from: value, key, headers or others.

    A column from a lookup also comes from the looked-up table's column, if that table has
    an asset.
    """
    part_by_column = {column: _PARTS.get(name, name) for name, column in spec.metadata.items()}
    reads_by_column = {} if spec.transform is None else column_sources(spec)
    of_message = {column: (part,) for column, part in part_by_column.items() if part is not None}
    sources = {
        name: tuple(
            dict.fromkeys(
                part
                for read in sorted(
                    r for r in reads_by_column.get(name, {name}) if isinstance(r, str)
                )
                for part in of_message.get(read) or _sources(spec.decode, read)
            )
        )
        for name in columns
    } | of_message
    upstream, assets = upstream_keys(spec), assets_of_lookups(spec)
    lookup_columns = {
        name: sorted(r for r in reads if isinstance(r, tuple))
        for name, reads in reads_by_column.items()
    }
    return dg.TableColumnLineage(
        {
            column: [
                *(dg.TableColumnDep(key, part) for key in upstream for part in parts),
                *(
                    dg.TableColumnDep(assets[a], c)
                    for a, c in lookup_columns.get(column, ())
                    if a in assets
                ),
            ]
            for column, parts in sources.items()
        }
    )


def _sources(decode: FormatSection, column: str) -> tuple[str, ...]:
    """Returns the parts of a message that a column of the schema comes from."""
    if column in decode.headers:
        return ("headers",)
    if decode.key is None or column not in decode.key.fields:
        return ("value",)
    return ("key", "value") if decode.fields_include == "all" else ("key",)


def _columns_of_metadata(metadata: Mapping[str, str]) -> list[dg.TableColumn]:
    names = {column: name for name, column in metadata.items()}
    return [
        dg.TableColumn(
            f.name,
            str(f.type),
            METADATA[names[f.name]].holds,
            dg.TableColumnConstraints(nullable=f.nullable),
        )
        for f in metadata_fields(metadata)
    ]
