"""A table by its catalog and its name in it, and the secrets among a catalog's properties.

This module opens nothing, and loads no PyIceberg. References to secrets are those of
`ingest.settings.secrets`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from windrow.ingest.errors import SpecError
from windrow.ingest.settings.paths import is_url, secret_part, without_secrets
from windrow.ingest.settings.secrets import FORMS, Secret, read

Property = str | Secret

_SECRET = frozenset(
    {
        "s3.secret-access-key",
        "s3.session-token",
        "client.secret-access-key",
        "client.session-token",
        "adls.account-key",
        "adls.sas-token",
        "adls.client-secret",
        "gcs.oauth2.token",
    }
)

_PLAIN = frozenset(
    {
        "s3.endpoint",
        "s3.access-key-id",
        "s3.region",
        "s3.resolve-region",
        "s3.proxy-uri",
        "s3.connect-timeout",
        "s3.request-timeout",
        "s3.role-arn",
        "s3.role-session-name",
        "s3.force-virtual-addressing",
        "s3.retry-strategy-impl",
        "s3.anonymous",
        "client.access-key-id",
        "client.region",
        "client.role-arn",
        "client.role-session-name",
        "adls.account-name",
        "adls.tenant-id",
        "adls.client-id",
        "adls.blob-storage-authority",
        "adls.dfs-storage-authority",
        "adls.blob-storage-scheme",
        "adls.dfs-storage-scheme",
        "gcs.oauth2.token-expires-at",
        "gcs.default-bucket-location",
        "gcs.service.host",
        "hdfs.host",
        "hdfs.port",
        "hdfs.user",
        "hdfs.kerberos_ticket",
    }
)

STORAGE = _SECRET | _PLAIN
"""The properties by which PyIceberg opens a storage with Arrow. Tasks need no others."""


def is_secret(name: str, value: str) -> bool:
    """Returns whether a property is a secret, by its name or as a URL with a password."""
    return name in _SECRET or (name in _PLAIN and is_url(value) and secret_part(value) is not None)


def reveal_secrets(properties: Iterable[tuple[str, Property]]) -> dict[str, str]:
    """Reads the secrets that references name, in this process.

    Raises:
        SpecError: a variable isn't set, or a file can't be read. The error has no value.
    """
    return {
        name: value if isinstance(value, str) else read(value, f"sink.catalog.{name}")
        for name, value in properties
    }


DATABASE = "catalog.db"
"""The SQLite file with the catalog of a warehouse's folder. The catalog's name is `default`."""

_NAMES_THE_TABLE = frozenset({"name", "type", "uri", "warehouse"})
"""Properties that are part of `CatalogTable.location`, which never changes."""


class CatalogTable(msgspec.Struct, frozen=True):
    """A table's name in its catalog (`namespace.table`), and the properties of that catalog.

    Attributes:
        table: the table's name.
        catalog: the catalog's name.
        properties: the catalog's properties, with references for secrets.
        warehouse: the folder of the table, if the folder has its own catalog; else empty.
    """

    table: str
    catalog: str
    properties: tuple[tuple[str, Property], ...]
    warehouse: str = ""

    @classmethod
    def in_folder(cls, warehouse: str, table: str) -> CatalogTable:
        """Makes the name of a table in a folder with its own catalog.

        Raises:
            SpecError: no table can be in this folder.
        """
        if any(mark in warehouse for mark in "%?#"):
            message = f"sink.warehouse is {warehouse}, with a %, ? or # in it"
            raise SpecError(
                message,
                "spec",
                "Readers of Iceberg would look elsewhere: give it a path without them.",
            )
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{warehouse}/{DATABASE}",
            "warehouse": f"file://{warehouse}",
        }
        return cls(table, "default", tuple(sorted(properties.items())), warehouse)

    @classmethod
    def in_catalog(cls, table: str, properties: Mapping[str, Property]) -> CatalogTable:
        """Makes the name of a table in a catalog.

        PyIceberg's own configuration may have properties that are missing here.

        Raises:
            SpecError: a secret of the storage isn't a reference, or a property that names the
                table is one.
        """
        catalog_properties = {name: value for name, value in properties.items() if name != "name"}
        for name, value in sorted(properties.items()):
            if isinstance(value, str) and is_secret(name, value):
                raise SpecError(
                    f"sink.catalog.{name} is written out, and it is a secret that tasks need",
                    "spec",
                    f"Write {FORMS}: each process reads it there for itself.",
                )
            if not isinstance(value, str) and name in _NAMES_THE_TABLE:
                raise SpecError(
                    f"sink.catalog.{name} is a reference, and it is part of what the table is"
                    " called",
                    "spec",
                    "Write its value; it may hold a template.",
                )
        catalog = properties.get("name", "default")
        assert isinstance(catalog, str)
        return cls(table, catalog, tuple(sorted(catalog_properties.items(), key=_name)))

    @property
    def location(self) -> str:
        """The table's name in errors and in plans. It never changes and has no secret."""
        written = {name: value for name, value in self.properties if isinstance(value, str)}
        if self.warehouse:
            return f"{self.warehouse}:{self.table}"
        where = (
            without_secrets(written["uri"])
            if "uri" in written
            else written.get("type", "pyiceberg")
        )
        inside = written.get("warehouse", "") if written.get("type", "rest") == "rest" else ""
        return "/".join(
            filter(
                None, (where.rstrip("/"), without_secrets(inside), f"{self.catalog}:{self.table}")
            )
        )

    @property
    def namespace(self) -> str:
        """The namespace: the name without its last part."""
        return self.table.rpartition(".")[0]

    def dead(self) -> CatalogTable:
        """Returns the table of its dead letters."""
        return msgspec.structs.replace(self, table=f"{self.table}_dead")

    def is_same(self, location: str) -> bool:
        """Returns whether a location is this table's, also through a link to its folder."""
        if location == self.location:
            return True
        folder, _, table = location.rpartition(":")
        return (
            bool(self.warehouse)
            and table == self.table
            and os.path.realpath(folder) == os.path.realpath(self.warehouse)
        )


def _name(item: tuple[str, Property]) -> str:
    return item[0]
