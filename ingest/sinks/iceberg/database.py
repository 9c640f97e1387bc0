"""A catalog in a database, as PyIceberg has it, but without connections that wait, and
without metadata that is read twice.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool


class DatabaseCatalog(SqlCatalog):
    """A connection is opened for each question, and closed: none is left to a fork, or
    to the end of the process.

    A metadata file never changes once it has its name, so the last one of each table is kept.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.engine.dispose()
        self.engine = create_engine(self.properties["uri"], poolclass=NullPool)
        self._newest: dict[str, tuple[str, TableMetadata]] = {}

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        self._newest[".".join(table.name())] = (response.metadata_location, response.metadata)
        return response

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        row: IcebergTables = orm_table
        name = f"{row.table_namespace}.{row.table_name}"
        location, metadata = self._newest.get(name, (None, None))
        if location is None or metadata is None or location != row.metadata_location:
            read = super()._convert_orm_to_iceberg(row)
            location, metadata = self._newest[name] = (read.metadata_location, read.metadata)
        io = self._load_file_io(metadata.properties, location)
        return Table(
            (*row.table_namespace.split("."), row.table_name), metadata, location, io, self
        )
