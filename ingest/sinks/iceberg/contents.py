"""Reads the rows of an Iceberg table's files, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table

from windrow.ingest.errors import RefusedError
from windrow.ingest.sinks.iceberg.stage import field_ids
from windrow.ingest.sinks.iceberg.storage import IcebergPlace, storage_properties
from windrow.ingest.sinks.kit import explain_file_errors, read_batches


def read_files(
    table: Table, tasks: Iterable[FileScanTask], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads some files, or some of their columns, with the table's names of the columns.

    A file may lack a column that is null in its rows.

    Parquet's own reader reads a file without deleted rows, and verifies the checksum of each
    page. PyIceberg's reader reads a file with deleted rows.

    Raises (when the rows are read):
        RefusedError: a file is missing or damaged.
        UnreachableError: it can't be read.
    """
    for task in tasks:
        if task.delete_files:
            with explain_file_errors(task.file.file_path):
                yield from _remaining_rows(table, task, columns)
        else:
            yield from _rows_of_file(table, task.file.file_path, columns)


def _remaining_rows(
    table: Table, task: FileScanTask, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    about = table.metadata
    schema = about.schema() if columns is None else about.schema().select(*columns)
    return ArrowScan(about, table.io, schema, AlwaysTrue()).to_record_batches([task])


def _rows_of_file(
    table: Table, location: str, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """Reads a file with its own columns: later columns aren't in the checksums of its rows."""
    folder, _, name = location.rpartition("/")
    data_folder = IcebergPlace(folder, lambda: storage_properties(table))
    with explain_file_errors(location), data_folder.filesystem().open_input_file(name) as source:
        file_schema = pq.read_schema(source)
    names = {field.name: _name(table, field) for field in file_schema}
    required = {f.name for f in table.schema().fields if f.required}
    missing = required & set(columns or ()) - set(names.values())
    if len(set(names.values())) < len(file_schema) or missing:
        raise RefusedError(
            f"the file {location} has other columns than windrow wrote",
            "commit",
            "Restore the file from a backup.",
        )
    dropped_columns = (
        []
        if columns is not None
        else [
            name
            for name, number in field_ids(file_schema)
            if not table.schema().find_column_name(number)
        ]
    )
    if dropped_columns:
        raise RefusedError(
            f"the table has no column any more for values in its file {location}:"
            f" {', '.join(dropped_columns)} (fields are known by their ids)",
            "commit",
            "Something else dropped it: readers see null, also where one of that name was added"
            " again. Add it to the table again, then replay the window.",
        )
    chosen = [column for column in file_schema.names if columns is None or names[column] in columns]
    for batch in read_batches(data_folder, name, chosen):
        yield batch.rename_columns([names[column] for column in batch.schema.names])


def _name(table: Table, field: pa.Field) -> str:
    """Returns the table's name of a file's column.

    Other writers spell some names differently in files.
    """
    return next(
        (table.schema().find_column_name(number) for name, number in field_ids([field])), None
    ) or str(field.name)
