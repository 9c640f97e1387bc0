"""The names of PyIceberg that windrow uses and that aren't public.

No other module uses such names. They were checked with PyIceberg 0.12, and any release may
change them. `tests/shape/test_internals.py` fails if a name is gone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool


class SingleCommit(Transaction):
    """A transaction whose updates are sent to the catalog once.

    PyIceberg's public commits try again on a newer state, which windrow hasn't checked.
    """

    _worked_out: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata after the commit.

        It is kept here, because PyIceberg computes it a dozen times in one commit and copies
        all of it each time.
        """
        if not self._updates:
            return self._table.metadata
        if self._worked_out is None or self._worked_out[0] is not self._updates:
            self._worked_out = (self._updates, super().table_metadata)
        return self._worked_out[1]

    def add(self, new: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]) -> None:
        """Adds updates, and the requirements that the catalog checks at the commit."""
        self._apply(new, requirements)

    def send(self) -> None:
        """Sends the commit to the catalog. It may have arrived even if this raises an error."""
        uuid = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        requirements = (*self._requirements, uuid)
        self._table._do_commit(updates=self._updates, requirements=requirements)  # noqa: SLF001


REQUEST_SECONDS = 60.0
"""The seconds in which a REST catalog must connect, and then begin to answer."""


def limit_requests(catalog: RestCatalog) -> None:
    """Gives each request of a catalog a time limit. PyIceberg's requests have none."""
    session = catalog._session  # noqa: SLF001
    session.request = partial(session.request, timeout=REQUEST_SECONDS)  # type: ignore[method-assign]


class DatabaseCatalog(SqlCatalog):
    """A catalog in a database, with a new connection for each query.

    So no connection is open at a fork or at the end of the process. A metadata file never
    changes, so the newest metadata of each table is kept in memory. PyIceberg has no public
    method that makes a table from a row of the database.
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
