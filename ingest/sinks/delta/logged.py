"""A table as its log describes it, without its files.

deltalake's handle takes in every file of a table when it is loaded, so that each process would begin the slower the more windows there are.
A look needs none of them: which columns and properties a table has, and which transactions, stand in few places of the log
(`ingest.sinks.delta.log.read_log`). The handle is loaded when something asks for files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from windrow.ingest.sinks.delta.log import TableLog, TableMetadata, TableProtocol


class LoggedTable:
    """What deltalake's handle says of a table besides its files, under the same names.

    Args:
        uri: where it lies.
        log: what its log says.
        load: deltalake's handle of it, as it is then; None if the table isn't there.
    """

    def __init__(self, uri: str, log: TableLog, load: Callable[[], DeltaTable | None]) -> None:
        self.table_uri = uri
        self._log = log
        self._load = load

    def metadata(self) -> TableMetadata:
        """Its properties, and the columns that it is partitioned by."""
        return self._log.metadata

    def protocol(self) -> TableProtocol:
        """What it asks of who reads or writes it."""
        return self._log.protocol

    def schema(self) -> Schema:
        """Its columns."""
        return self._schema

    @cached_property
    def _schema(self) -> Schema:
        return Schema.from_json(self._log.metadata.schema)

    @cached_property
    def handle(self) -> DeltaTable:
        """deltalake's, loaded when it is first asked for: it may be newer than the log that was read.

        Raises:
            CommitFailedError: the table has gone since.
            UnreachableError: it can't be read.
        """
        found = self._load()
        if found is None:
            what = "the table was removed by another one"
            raise CommitFailedError(what)
        return found


Table = DeltaTable | LoggedTable


def handle_of(table: Table) -> DeltaTable:
    """deltalake's handle. Raises as `LoggedTable.handle`."""
    return table.handle if isinstance(table, LoggedTable) else table
