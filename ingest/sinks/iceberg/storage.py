"""How a task opens a table's storage without a secret being sent to it: by references,
or by asking the catalog as the driver did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.settings.places import secret_part
from windrow.ingest.settings.secrets import FORMS
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable
from windrow.ingest.sinks.iceberg.secrets import STORAGE, Property, is_secret, revealed

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
"""Properties of a catalog that may be sent as they are written, as long as no URL among
them has a password in it.
"""


class TaskStorage(msgspec.Struct, frozen=True):
    """What opens a table's storage in a task; picklable, and no secret is in it.

    `written`: properties, the secret ones by reference. `vending`: the table whose catalog
    vends the rest, such as keys that hold for an hour; None where all are written. Both are
    empty for a local table.
    """

    written: tuple[tuple[str, Property], ...] = ()
    vending: CatalogTable | None = None

    def properties(self) -> dict[str, str]:
        """What PyIceberg opens the storage by, as this process finds it.

        Raises:
            SpecError: a secret isn't where its reference says.
            UnreachableError, RefusedError: the catalog can't be asked, or has no such table.
        """
        known = revealed(self.written)
        if self.vending is None:
            return known
        from windrow.ingest.sinks.iceberg.catalogs import (
            load,
        )  # a task that needs no catalog loads no PyIceberg

        table = load(self.vending)
        if table is None:
            what = f"the table {self.vending.place} isn't there any more"
            raise RefusedError(what, "stage", "Was it removed meanwhile? Run the window again.")
        return known | storage_properties(table)


def storage_properties(table: Table) -> dict[str, str]:
    """What a loaded table's storage is opened by: of the catalog's properties, of the
    table's and of those that its catalog gave out.
    """
    return {str(name): str(value) for name, value in table.io.properties.items()}


def for_tasks(at: CatalogTable, properties: Mapping[str, str]) -> TaskStorage:
    """What tasks open a storage with that the driver opens by these properties.

    Raises:
        SpecError: they would have to be sent a secret.
    """
    written = dict(at.properties)
    sent: dict[str, Property] = {}
    vended = False
    for name in sorted(properties.keys() & STORAGE):
        reference = written.get(name)
        if reference is not None and not isinstance(reference, str):
            sent[name] = reference
        elif is_secret(name, properties[name]):
            vended = True
        else:
            sent[name] = properties[name]
    return TaskStorage(tuple(sent.items()), _askable(at) if vended else None)


def _askable(at: CatalogTable) -> CatalogTable:
    """The table, for tasks that ask its catalog for themselves."""
    written = {
        name: value
        for name, value in at.properties
        if isinstance(value, str) and name not in STORAGE
    }
    unsent = [
        name
        for name, value in written.items()
        if name not in _CATALOG or secret_part(value) is not None
    ]
    if unsent:
        names = ", ".join(f"sink.catalog.{name}" for name in unsent)
        what = (
            f"tasks have to ask the catalog of {at.place} for the credentials of its storage, and"
            f" {names} may be secret"
        )
        raise SpecError(
            what,
            "spec",
            f"Write {FORMS} there, or for the storage's own secrets: each process reads them for"
            " itself.",
        )
    return at
