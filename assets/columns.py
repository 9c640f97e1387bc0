"""A table's columns in Dagster's words, and where each of them comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from assets.names import upstream_keys
from ingest.decode.columns import Columns
from ingest.metacolumns import fields
from ingest.spec import PipelineSpec

_PARTS = {"header-list": "headers", "value-size": "value", "window": None, "attempt": None}
"""Of which part of a message a metadata column tells, where that is not its name; None: of none."""


def column_schema(columns: Sequence[tuple[str, str]], metadata: Mapping[str, str]) -> dg.TableSchema:
    """The columns of a committed window: (name, type) of the schema it was read with, and the metadata columns (name -> column)."""
    return dg.TableSchema([*(dg.TableColumn(name, kind) for name, kind in columns), *_own(metadata)])


def declared_schema(columns: Columns, metadata: Mapping[str, str]) -> dg.TableSchema:
    """The columns as the schema declares them, with their checks, and the metadata columns."""
    declared = [
        dg.TableColumn(c.name, kind, c.description, dg.TableColumnConstraints(nullable=c.nullable, other=list(c.constraints)))
        for c, (_, kind) in zip(columns.columns, columns.described(), strict=True)
    ]
    return dg.TableSchema([*declared, *_own(metadata)], dg.TableConstraints(list(columns.constraints)))


def lineage(spec: PipelineSpec, columns: Sequence[str]) -> dg.TableColumnLineage:
    """Each column comes from the value of the messages; a metadata column from what it tells of them."""
    parts = {column: _PARTS.get(name, name) for name, column in spec.metadata.items()}
    sources = dict.fromkeys(columns, "value") | {column: part for column, part in parts.items() if part is not None}
    upstream = upstream_keys(spec)
    return dg.TableColumnLineage({column: [dg.TableColumnDep(key, part) for key in upstream] for column, part in sources.items()})


def _own(metadata: Mapping[str, str]) -> list[dg.TableColumn]:
    return [dg.TableColumn(field.name, str(field.type)) for field in fields(metadata)]
