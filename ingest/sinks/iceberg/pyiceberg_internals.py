"""The names of PyIceberg that windrow uses and that aren't public.

No other module uses such names. They were checked with PyIceberg 0.12, and any release may
change them. `tests/shape/test_internals.py` fails if a name is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyiceberg.catalog import URI, Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import CommitTableResponse, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import (
    CHANGED_PARTITION_COUNT_PROP,
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from windrow.ingest.call_limits import limit_body, run_in_time
from windrow.ingest.errors import RefusedError


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

    def say_replaced(self) -> None:
        """Says in the snapshot that its rows are the old ones. PyIceberg's API can't say it."""
        self._updates = tuple(
            _replacing(update) if isinstance(update, AddSnapshotUpdate) else update
            for update in self._updates
        )

    def send(self) -> None:
        """Sends the commit to the catalog. It may have arrived even if this raises an error."""
        uuid = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        requirements = (*self._requirements, uuid)
        self._table._do_commit(updates=self._updates, requirements=requirements)  # noqa: SLF001

    def merging_append(self) -> MergingAppend:
        """Begins a snapshot that adds files."""
        return MergingAppend(Operation.APPEND, self, self._table.io)

    def merging_overwrite(self) -> MergingOverwrite:
        """Begins a snapshot that removes files, and may add some."""
        return MergingOverwrite(Operation.OVERWRITE, self, self._table.io)


class MergingAppend(_MergeAppendFiles):
    """A snapshot that adds files, and counts them without a text of their partitions.

    PyIceberg makes a text of each partition to count them, and has none of a day before the
    year 1 or after 9999.
    """

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        collector = SnapshotSummaryCollector()
        for file in self._added_data_files:
            collector.metrics.add_file(file)
        for file in self._deleted_data_files:
            collector.metrics.remove_file(file)
        files = (*self._added_data_files, *self._deleted_data_files)
        changed = {CHANGED_PARTITION_COUNT_PROP: str(len({repr(f.partition) for f in files}))}
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id or -1)
        properties = {**collector.build(), **(changed if files else {}), **snapshot_properties}
        return update_snapshot_summaries(
            Summary(self._operation, **properties), None if parent is None else parent.summary
        )


class MergingOverwrite(_OverwriteFiles, MergingAppend):
    """A snapshot that removes files, and that puts manifests together as an append does.

    PyIceberg's own keeps for ever each manifest that only says which files a snapshot removed.
    """

    def _existing_manifests(self) -> list[ManifestFile]:
        manifests = super()._existing_manifests()
        return [m for m in manifests if m.has_added_files() or m.has_existing_files()]


def _replacing(update: AddSnapshotUpdate) -> AddSnapshotUpdate:
    assert update.snapshot.summary is not None
    properties = dict(update.snapshot.summary.additional_properties)
    summary = Summary(Operation.REPLACE, **properties)
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"summary": summary}))


REQUEST_SECONDS = 60.0
"""The seconds for a request to a REST catalog, however slowly the answer comes."""

MOST_BYTES = 256 << 20
"""The most bytes of an answer of a REST catalog: the metadata of a table."""


_ALLOWED_IN_ANSWERS = (
    "adls.",
    "client.",
    "gcs.",
    "hdfs.",
    "header.",
    "namespace-separator",
    "prefix",
    "rest.",
    "s3.",
    "warehouse",
)
"""The beginnings of the properties that a REST catalog may set by its answer."""


class LimitedRestCatalog(RestCatalog):
    """A REST catalog whose requests are limited in time and size, and follow no redirection.

    PyIceberg's requests have no limit, and PyIceberg takes any property from the catalog's
    answer: one that names Python code to call, or where to send a password.
    """

    def _fetch_config(self) -> None:
        """Asks the catalog for its properties, and takes those about storage and paths.

        Raises:
            ValueError: the catalog names another address.
        """
        written = self.properties
        super()._fetch_config()
        if self.uri.rstrip("/") != written[URI].rstrip("/"):
            raise ValueError(
                f"it answers that its address is {self.uri}: write that as uri if you trust it"
            )
        answered = {
            name: value
            for name, value in self.properties.items()
            if name.startswith(_ALLOWED_IN_ANSWERS) and isinstance(value, str)
        }
        self.properties = {**written, **without_code(answered)}

    def _config_headers(self, session: Any) -> None:
        """Limits each session before its first request, which may be the one for a token."""
        super()._config_headers(session)
        send = partial(session.request, timeout=REQUEST_SECONDS)
        session.request = lambda *args, **more: run_in_time(
            partial(send, *args, **more), REQUEST_SECONDS
        )
        session.max_redirects = 0
        session.hooks["response"].append(lambda response, **_: limit_body(response.raw, MOST_BYTES))


def without_code(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties without those that name a class for PyIceberg to load."""
    return {name: value for name, value in properties.items() if not name.endswith("-impl")}


def guard_from_code(catalog: Catalog) -> None:
    """Makes a catalog ignore the code that a table's properties or its answers name.

    PyIceberg would import the module and call the class, which may be any function.
    """
    load_file_io = catalog._load_file_io  # noqa: SLF001

    def load(properties: Mapping[str, Any] = EMPTY_DICT, location: str | None = None) -> FileIO:
        if TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL in properties:
            raise RefusedError(
                f"The table with the metadata {location} has the property"
                f" {TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL}, which names code to run",
                "setup",
                "Remove this property from the table, then run again.",
            )
        return load_file_io(without_code(properties), location)

    setattr(catalog, "_load_file_io", load)  # noqa: B010


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
