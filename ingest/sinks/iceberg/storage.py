"""A table's storage: its files that Iceberg doesn't know, and the way tasks open it.

No secret is sent to tasks: they read secrets by references, or ask the catalog as the driver
did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlparse

import msgspec
from pyarrow import fs

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.settings.paths import secret_part
from windrow.ingest.settings.secrets import FORMS
from windrow.ingest.sinks.iceberg.catalog_table import (
    STORAGE,
    CatalogTable,
    Property,
    is_secret,
    reveal_secrets,
)
from windrow.ingest.sinks.kit import Place

if TYPE_CHECKING:
    from pyiceberg.table import Table

_CATALOG = frozenset(
    {
        "type",
        "uri",
        "warehouse",
        "prefix",
        "scope",
        "audience",
        "resource",
        "oauth2-server-uri",
        "rest.sigv4-enabled",
        "rest.signing-region",
        "rest.signing-name",
        "namespace-separator",
        "header.X-Iceberg-Access-Delegation",
    }
)
"""The properties of a catalog that may be sent to tasks, except URLs with a password."""


class TaskStorage(msgspec.Struct, frozen=True):
    """The properties that open a table's storage in a task. Picklable, without secrets.

    For a local table both fields are empty.

    Attributes:
        written: properties, with references for secrets.
        vending: the table whose catalog gives out the other properties, such as keys that are
            valid for an hour. None if there are no others.
    """

    written: tuple[tuple[str, Property], ...] = ()
    vending: CatalogTable | None = None

    def properties(self) -> dict[str, str]:
        """Returns the properties for PyIceberg's file access in this process, with secrets.

        Raises:
            SpecError: a secret isn't where its reference says.
            UnreachableError, RefusedError: the catalog can't be asked, or has no such table.
        """
        properties = reveal_secrets(self.written)
        if self.vending is None:
            return properties
        # Imported here, so that a task without a catalog loads no PyIceberg.
        from windrow.ingest.sinks.iceberg.catalogs import load

        table = load(self.vending)
        if table is None:
            raise RefusedError(
                f"the table {self.vending.location} isn't there any more",
                "stage",
                "Was it removed meanwhile? Run the window again.",
            )
        return properties | storage_properties(table)


def storage_properties(table: Table) -> dict[str, str]:
    """Returns the properties that opened a loaded table's storage.

    They are those of the catalog and of the table, and those that the catalog gave out for it.
    """
    return {str(name): str(value) for name, value in table.io.properties.items()}


def to_task_storage(catalog_table: CatalogTable, properties: Mapping[str, str]) -> TaskStorage:
    """Makes the properties for tasks from those by which the driver opens the storage.

    Raises:
        SpecError: tasks can't open the storage unless a secret is sent to them.
    """
    written = dict(catalog_table.properties)
    task_properties: dict[str, Property] = {}
    vended = False
    for name in sorted(properties.keys() & STORAGE):
        reference = written.get(name)
        if reference is not None and not isinstance(reference, str):
            task_properties[name] = reference
        elif is_secret(name, properties[name]):
            vended = True
        else:
            task_properties[name] = properties[name]
    return TaskStorage(tuple(task_properties.items()), _askable(catalog_table) if vended else None)


def _askable(catalog_table: CatalogTable) -> CatalogTable:
    """Returns the table for tasks that ask its catalog.

    Raises:
        SpecError: a property of the catalog may be a secret.
    """
    written = {
        name: value
        for name, value in catalog_table.properties
        if isinstance(value, str) and name not in STORAGE
    }
    unsent = [
        name
        for name, value in written.items()
        if name not in _CATALOG or secret_part(value) is not None
    ]
    if unsent:
        names = ", ".join(f"sink.catalog.{name}" for name in unsent)
        raise SpecError(
            f"tasks have to ask the catalog of {catalog_table.location} for the credentials of its"
            f" storage, and {names} may be secret",
            "spec",
            f"Write {FORMS} there, or for the storage's own secrets: each process reads them for"
            " itself.",
        )
    return catalog_table


class IcebergPlace(Place):
    """A table's location, in the file system that its catalog's properties open.

    It loads no PyIceberg for a local table.

    Args:
        location: the table's location by its metadata.
        properties: returns the properties for PyIceberg's file access, which may contain
            credentials. Called once, and never for a local table.
    """

    def __init__(self, location: str, properties: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(location)
        self._properties = properties

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        path = local_path(self.uri)
        if path is not None:
            return fs.LocalFileSystem(), path
        # Imported here, so that an executor that writes to a local disk loads no PyIceberg.
        from pyiceberg.io.pyarrow import PyArrowFileIO

        properties = dict(self._properties())
        scheme, host, root = PyArrowFileIO.parse_location(self.uri, properties)
        return PyArrowFileIO(properties).fs_by_scheme(scheme, host), root


def local_path(location: str) -> str | None:
    """Returns the path of a location on this machine's disks; None for any other location."""
    if location.startswith("/"):
        return location
    parsed = urlparse(location)
    return parsed.path if parsed.scheme == "file" else None
