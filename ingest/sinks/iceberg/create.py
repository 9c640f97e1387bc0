"""Creates a table once, with its owner, and compares its columns with those of later rows.

The first commit of rows with a new column adds the column (`evolve_columns`), in the same
transaction. So a run that never commits leaves the table unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import Transform, parse_transform

from windrow.ingest.errors import SchemaChangedError, UnreachableError, WindrowError
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.catalogs import load, make_namespace, open_catalog, reason
from windrow.ingest.sinks.iceberg.columns import (
    arrow_columns,
    evolution_of,
    find_lost_columns,
    iceberg_schema,
    schema_after,
)
from windrow.ingest.sinks.iceberg.stage import IcebergFile, field_ids
from windrow.ingest.sinks.kit import (
    STORE_WAITS,
    Evolution,
    Evolve,
    PartitionField,
    PrimaryKey,
    allowed_changes,
    refuse_other_key,
    retry,
    waiting_for,
)

_PARTITION_FIELD = 1000
"""The first id of Iceberg's partition fields."""


# ------------------------------------------------------------------------------------- owner


def refuse_foreign(
    where: str,
    table: Table,
    column: str,
    primary_key: PrimaryKey | None,
    partition_by: Sequence[PartitionField],
) -> None:
    """Refuses a table that windrow didn't make, or that has other partitions.

    Args:
        where: the table's place.
        table: the table.
        column: the first column by which it is partitioned.
        primary_key: the primary key of the spec.
        partition_by: the partition fields of the spec.

    Raises:
        SpecError: something other than windrow made the table.
        SchemaChangedError: it has other partitions, so a replacement would remove other
            windows' rows too; or it has another primary key.
    """
    TableOwner.from_properties(table.metadata.properties, where)
    properties = table.metadata.properties
    PartitionField.refuse_other(where, PartitionField.read_description(properties), partition_by)
    wanted = [(column, "identity"), *((f.column, _transform(f)) for f in partition_by)]
    actual = [
        (table.schema().find_column_name(f.source_id), str(f.transform))
        for f in table.spec().fields
    ]
    if actual != [(name, str(transform)) for name, transform in wanted]:
        raise SchemaChangedError(
            f"the table {where} is partitioned by {_in_words(actual)}, not by {_in_words(wanted)}",
            "setup",
            "Set the partitions, sink.mode, or the name of metadata window, back if they were"
            " changed; else give the sink a table of its own.",
        )
    refuse_other_key(where, properties, primary_key)


def _in_words(partitions: Sequence[tuple[object, object]]) -> str:
    words = [f"{t}({name})" if str(t) != "identity" else str(name) for name, t in partitions]
    return ", ".join(words) or "nothing"


def _transform(field: PartitionField) -> Transform[Any, Any]:
    """Returns Iceberg's transform of a partition field."""
    return parse_transform(f"bucket[{field.buckets}]" if field.buckets else field.transform)


# -------------------------------------------------------------------------------------- columns


def evolution_for(table: Table, columns: pa.Schema, evolve: Evolve) -> Evolution:
    """Returns the change of the table's columns by which rows with these columns fit it."""
    return evolution_of(
        table.schema(), table.metadata.schemas, arrow_columns(iceberg_schema(columns)), evolve
    )


def new_schema(table: Table, evolution: Evolution) -> Schema:
    """Returns the table's columns after the change."""
    return schema_after(table.schema(), table.metadata.last_column_id, evolution)


def file_columns(table: Table, evolution: Evolution) -> pa.Schema:
    """Returns the columns of files that are staged for a table.

    They have the table's types, and the field ids that the table has or will get.
    """
    all_columns = arrow_columns(new_schema(table, evolution), ids=True)
    return pa.schema([all_columns.field(name) for name in evolution.incoming.names])


def column_changes(where: str, table: Table, columns: pa.Schema, evolve: Evolve) -> Sequence[str]:
    """Returns the column changes that the first rows with these columns make, in words.

    Raises:
        SchemaChangedError: no commit may resolve some differences; the error names all of them.
    """
    deleted_columns, advice = find_lost_columns(table.schema(), table.metadata.schemas), ""
    if any(name in deleted_columns for name in columns.names):
        advice = (
            "A column that was renamed: rename it back. One that was dropped: add it to the table"
            " again, nullable there and in the schema, and run it again. Older rows have lost its"
            " values: windrow verify SPEC --deep names the windows to replay."
        )
    return allowed_changes(where, evolve, lambda mode: evolution_for(table, columns, mode), advice)


def evolve_columns(
    where: str, table: Table, columns: pa.Schema, evolve: Evolve, files: Sequence[IcebergFile]
) -> Evolution:
    """Returns the change of the table's columns by which staged files fit it at the commit.

    It may be another change than when the files were staged.

    Raises:
        SchemaChangedError: a staged column can't be a column of the table, or another commit
            has used its field id for another column since.
    """
    evolution = evolution_for(table, columns, evolve)
    evolution.refuse_files(where)
    ids = dict(field_ids(file_columns(table, evolution)))
    staged = {name: number for file in files for name, number in file.ids.items()}
    others = [name for name, number in staged.items() if ids.get(name) != number]
    evolution.refuse_files(
        where, [f"{name}: another commit brought other columns first" for name in others]
    )
    return evolution


# --------------------------------------------------------------------------------------- making


def create_table(
    catalog_table: CatalogTable,
    column: str,
    columns: pa.Schema,
    properties: Mapping[str, str],
    partition_by: Sequence[PartitionField] = (),
) -> None:
    """Creates a table unless it exists. Calls may race.

    Args:
        catalog_table: the table's catalog and name.
        column: the first column by which the table is partitioned.
        columns: all columns.
        properties: the table's owner and primary key.
        partition_by: the partition fields.

    Raises:
        UnreachableError: the table can't be created.
    """

    def create_if_missing() -> None:
        if load(catalog_table) is None:
            with (
                suppress(TableAlreadyExistsError),
                waiting_for(f"the Iceberg catalog of {catalog_table.location}"),
            ):
                _create(catalog_table, column, columns, properties, partition_by)

    try:
        retry(create_if_missing, lambda error: not isinstance(error, WindrowError), STORE_WAITS)
    except WindrowError:
        raise
    except Exception as error:  # its text may repeat a request  # noqa: BLE001
        raise UnreachableError(
            f"the table {catalog_table.location} can't be set up: {reason(catalog_table, error)}",
            "setup",
            "Check the catalog, the table's storage and the rights, then run again.",
        ) from None


def _create(
    catalog_table: CatalogTable,
    column: str,
    columns: pa.Schema,
    properties: Mapping[str, str],
    partition_by: Sequence[PartitionField],
) -> None:
    make_namespace(catalog_table)
    schema = iceberg_schema(columns)
    fields = [PartitionField("identity", column, column), *partition_by]
    spec = PartitionSpec(
        *(
            SpecField(schema.find_field(f.column).field_id, number, _transform(f), f.name)
            for number, f in enumerate(fields, _PARTITION_FIELD)
        )
    )
    properties = {
        **properties,
        **PartitionField.properties(partition_by),
        # With these settings the metadata stays small, also if another engine writes it.
        TableProperties.MANIFEST_MERGE_ENABLED: "true",
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "50",
    }
    open_catalog(catalog_table).create_table(
        catalog_table.table, schema, partition_spec=spec, properties=properties
    )
